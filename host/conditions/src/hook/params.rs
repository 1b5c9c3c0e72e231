//! Reads the parameter objects of a policy from the cluster.

use admittance_admission::{
    ClusterError, ClusterKind, ClusterQuery, Deadline, LabelSelector, RecordedCluster, keywords,
};
use serde_json::Value as Json;

/// The parameter objects of a policy, which are in the cluster. The policy is evaluated for one of them at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyParams {
    /// The kind of the parameter objects.
    pub kind: ClusterKind,
    /// The namespace of the parameter objects; `None` for the request's namespace, or for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Selects parameter objects by name or labels.
    pub selector: ParamsSelector,
    /// The treatment of a request for which no parameter object is found.
    pub missing_action: ParamsMissing,
}

/// Selects the parameter objects of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamsSelector {
    /// Selects the object with this name.
    Name(String),
    /// Selects the objects whose labels this selector selects.
    Labels(LabelSelector),
}

/// The treatment of a request for which no parameter object of a policy is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamsMissing {
    /// The policy does not apply to the request.
    Allow,
    /// The policy fails. Its failure policy then decides whether the request is refused. The keyword `Deny` is from
    /// Kubernetes' `parameterNotFoundAction`.
    Deny,
}

keywords!(ParamsMissing, "action": Allow = "Allow", Deny = "Deny");

impl PolicyParams {
    pub(super) async fn find(
        &self,
        cluster: RecordedCluster<'_>,
        request_namespace: Option<&str>,
        deadline: Deadline,
    ) -> Result<Vec<String>, ClusterError> {
        let namespace = self.namespace.as_deref().or(request_namespace);
        let outcome = self.find_in(cluster, namespace, deadline).await;
        if self.namespace.is_some() {
            return outcome;
        }
        if namespace.is_none() {
            let texts = outcome?;
            if texts.iter().any(|text| has_namespace(text)) {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(ClusterError::Refused(why.to_owned()));
            }
            return Ok(texts);
        }
        match outcome {
            Ok(namespaced_texts) if !namespaced_texts.is_empty() => Ok(namespaced_texts),
            Err(error) if !matches!(error, ClusterError::Refused(_)) => Err(error),
            // The kind may be cluster-scoped, so that no object was found in the namespace. The lookup is therefore
            // repeated without a namespace.
            first_outcome => match self.find_in(cluster, None, deadline).await {
                Err(ClusterError::Refused(_)) => first_outcome,
                cluster_outcome if matches!(self.selector, ParamsSelector::Name(_)) => cluster_outcome,
                // The second lookup names no namespace, because it looks for cluster-scoped objects. If the kind is
                // namespaced, the control plane returns the objects of all namespaces, which are not wanted. So all
                // objects with a namespace are dropped.
                cluster_outcome => cluster_outcome
                    .map(|cluster_texts| cluster_texts.into_iter().filter(|text| !has_namespace(text)).collect()),
            },
        }
    }

    async fn find_in(
        &self,
        cluster: RecordedCluster<'_>,
        namespace: Option<&str>,
        deadline: Deadline,
    ) -> Result<Vec<String>, ClusterError> {
        match &self.selector {
            ParamsSelector::Name(name) => {
                let text = cluster.get(&self.kind, namespace, name, deadline).await?;
                Ok(text.into_iter().collect())
            }
            ParamsSelector::Labels(selector) => {
                let mut query = ClusterQuery::default();
                query.namespace = namespace.map(str::to_owned);
                query.label_selector = selector.to_string();
                let page = cluster.list(&self.kind, &query, deadline).await?;
                Ok(page.objects.iter().map(|object| object.to_string()).collect())
            }
        }
    }
}

fn has_namespace(object: &str) -> bool {
    let object: Result<Json, _> = serde_json::from_str(object);
    object.is_ok_and(|object| {
        object
            .pointer("/metadata/namespace")
            .is_some_and(|namespace| !namespace.is_null())
    })
}
