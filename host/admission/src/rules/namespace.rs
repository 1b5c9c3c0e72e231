use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{LabelSelector, Labels, Operation, Request};

/// Selects the namespaces for whose requests a stage's hook is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSelector {
    /// The namespaces in the list (BCS's operator `In`); no namespace if the list is empty.
    In(Vec<String>),
    /// All namespaces that are not in the list (BCS's operator `NotIn`); all namespaces if the list is empty.
    NotIn(Vec<String>),
    /// The namespaces whose labels this selector selects, as in Kubernetes.
    Labels(LabelSelector),
}

/// The reason why the labels of a namespace could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NamespaceLookupError(pub String);

/// A source of namespace labels. Lives as long as the program.
#[async_trait]
pub trait NamespaceSource: Send + Sync + 'static {
    /// Returns the labels of a namespace.
    ///
    /// # Errors
    ///
    /// Fails when the namespace does not exist, or cannot be read.
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError>;
}

/// A fixed list of namespaces with their labels. A namespace that is not in the list has one label,
/// `kubernetes.io/metadata.name`, which Kubernetes gives to every namespace.
#[derive(Clone, Debug, Default)]
pub struct StaticNamespaces(BTreeMap<String, Labels>);

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl StaticNamespaces {
    /// Creates the list from the names and labels of namespaces.
    pub fn new(namespaces: impl IntoIterator<Item = (String, Labels)>) -> Self {
        Self(namespaces.into_iter().collect())
    }
}

#[async_trait]
impl NamespaceSource for StaticNamespaces {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        let mut labels = self.0.get(namespace).cloned().unwrap_or_default();
        labels
            .entry(NAME_LABEL.to_owned())
            .or_insert_with(|| namespace.to_owned());
        Ok(labels)
    }
}

impl NamespaceSelector {
    /// Returns whether the selector matches this request. Labels are looked up only if they are needed.
    ///
    /// A label selector works as in kube-apiserver: if a Namespace is created or updated, it is compared with the
    /// labels in that object, and otherwise with the labels of the request's namespace. Requests for other
    /// cluster-scoped resources always match. A selector by names works as in BCS's driver: if the request has no
    /// namespace, it compares an empty name.
    ///
    /// # Errors
    ///
    /// Fails when the labels are needed and cannot be read.
    pub async fn matches(
        &self,
        request: &Request,
        namespaces: &dyn NamespaceSource,
    ) -> Result<bool, NamespaceLookupError> {
        let selector = match self {
            Self::In(names) => return Ok(includes_namespace(names, request)),
            Self::NotIn(names) => return Ok(!includes_namespace(names, request)),
            Self::Labels(selector) if selector.is_empty() => return Ok(true),
            Self::Labels(selector) => selector,
        };
        let is_namespace = request.resource.group.is_empty() && request.resource.resource == "namespaces";
        if is_namespace
            && request.subresource.is_none()
            && matches!(request.operation, Operation::Create | Operation::Update)
        {
            return Ok(request
                .object
                .as_ref()
                .is_some_and(|object| selector.matches(object.labels())));
        }
        let namespace = match &request.namespace {
            Some(namespace) => namespace,
            None if is_namespace => &request.name,
            None => return Ok(true),
        };
        Ok(selector.matches(&namespaces.labels(namespace).await?))
    }
}

fn includes_namespace(names: &[String], request: &Request) -> bool {
    let namespace = request.namespace.as_deref().unwrap_or("");
    names.iter().any(|name| name == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupVersionKind, GroupVersionResource, LabelRequirement, Object};

    struct UnreachableSource;

    #[async_trait]
    impl NamespaceSource for UnreachableSource {
        async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
            Err(NamespaceLookupError(format!("namespace {namespace} not found")))
        }
    }

    fn request(operation: Operation, resource: &str, namespace: Option<&str>, labels: &str) -> Request {
        let resource = GroupVersionResource {
            resource: resource.into(),
            version: "v1".into(),
            ..Default::default()
        };
        let mut request = Request::new(operation, GroupVersionKind::default(), resource);
        request.namespace = namespace.map(str::to_owned);
        request.name = "prod".into();
        request.object = Object::parse(format!(r#"{{"metadata":{{"labels":{labels}}}}}"#)).ok();
        request
    }

    #[tokio::test]
    async fn a_selector_matches_namespaces_by_names_or_labels() {
        use Operation::*;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let on = NamespaceSelector::Labels(LabelSelector::new(vec![
            LabelRequirement::equals("hook", "on").unwrap(),
        ]));
        let namespaces = StaticNamespaces::new([("prod".into(), Labels::from([("hook".into(), "on".into())]))]);
        // (case, selector, request, whether the selector matches)
        // A selector by names works as in BCS's driver, and a selector by labels as in kube-apiserver.
        let table = [
            (
                "In, listed",
                NamespaceSelector::In(names(&["prod"])),
                request(Create, "pods", Some("prod"), "{}"),
                true,
            ),
            (
                "In, not listed",
                NamespaceSelector::In(names(&["test"])),
                request(Create, "pods", Some("prod"), "{}"),
                false,
            ),
            (
                "In, none listed: never",
                NamespaceSelector::In(vec![]),
                request(Create, "pods", Some("prod"), "{}"),
                false,
            ),
            (
                "NotIn, listed",
                NamespaceSelector::NotIn(names(&["prod"])),
                request(Create, "pods", Some("prod"), "{}"),
                false,
            ),
            (
                "NotIn, not listed",
                NamespaceSelector::NotIn(names(&["test"])),
                request(Create, "pods", Some("prod"), "{}"),
                true,
            ),
            (
                "NotIn, none listed: always",
                NamespaceSelector::NotIn(vec![]),
                request(Create, "pods", Some("prod"), "{}"),
                true,
            ),
            (
                "In, no namespace is the empty name",
                NamespaceSelector::In(names(&[""])),
                request(Create, "pods", None, "{}"),
                true,
            ),
            (
                "In is exact about case",
                NamespaceSelector::In(names(&["Prod"])),
                request(Create, "pods", Some("prod"), "{}"),
                false,
            ),
            (
                "labels of the namespace",
                on.clone(),
                request(Create, "pods", Some("prod"), "{}"),
                true,
            ),
            (
                "labels of another namespace",
                on.clone(),
                request(Create, "pods", Some("test"), "{}"),
                false,
            ),
            (
                "the object's own labels do not count",
                on.clone(),
                request(Create, "pods", Some("test"), r#"{"hook":"on"}"#),
                false,
            ),
            (
                "no namespace: always",
                on.clone(),
                request(Create, "nodes", None, "{}"),
                true,
            ),
            (
                "a new namespace: its own labels",
                on.clone(),
                request(Create, "namespaces", Some("new"), r#"{"hook":"on"}"#),
                true,
            ),
            (
                "a changed namespace: its new labels",
                on.clone(),
                request(Update, "namespaces", Some("prod"), "{}"),
                false,
            ),
            (
                "a deleted namespace: its stored labels",
                on.clone(),
                request(Delete, "namespaces", Some("prod"), "{}"),
                true,
            ),
            (
                "a deleted namespace that the request names only",
                on.clone(),
                request(Delete, "namespaces", None, "{}"),
                true,
            ),
        ];
        for (case, selector, request, expected) in table {
            assert_eq!(selector.matches(&request, &namespaces).await, Ok(expected), "{case}");
        }
        let pods = request(Create, "pods", Some("prod"), "{}");
        assert!(on.matches(&pods, &UnreachableSource).await.is_err());
        let all = NamespaceSelector::Labels(LabelSelector::default());
        assert_eq!(
            all.matches(&pods, &UnreachableSource).await,
            Ok(true),
            "an empty selector looks nothing up"
        );
    }

    #[tokio::test]
    async fn every_namespace_has_a_label_with_its_name() {
        let labels = StaticNamespaces::default().labels("prod").await.unwrap();
        assert_eq!(labels.get(NAME_LABEL).map(String::as_str), Some("prod"));
    }
}
