//! Imitates the recorded cluster's objects and permissions, and calls chains for requests to it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, Authorizer, AuthorizerError, Chain, ClusterError, ClusterKind, ClusterPage,
    ClusterQuery, ClusterReader, Deadline, Evaluation, EvaluationSources, Labels, Outcome, Phase, Request, Stage,
    StaticNamespaces, UserInfo, async_trait,
};
use admittance_definitions::{CelDefinition, ChainDefinition};
use serde_json::{Value, json};

pub(crate) fn alice() -> UserInfo {
    UserInfo {
        username: "alice".to_owned(),
        uid: "alice-uid".to_owned(),
        groups: ["dev", "qa", "system:authenticated"].map(str::to_owned).to_vec(),
        ..UserInfo::default()
    }
}

/// An authorizer that allows everything to the user alice, and nothing to any other user.
#[derive(Clone, Copy)]
struct Administrators;

#[async_trait]
impl Authorizer for Administrators {
    async fn authorize(&self, user: &UserInfo, _: &AccessAttributes) -> Result<AccessCheckResult, AuthorizerError> {
        Ok(AccessCheckResult {
            allowed: *user == alice(),
            reason: String::new(),
        })
    }
}

#[derive(Debug)]
struct RecordedObjects(Vec<Value>);

impl RecordedObjects {
    fn find(&self, kind: &ClusterKind, namespace: Option<&str>) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            (text("/apiVersion"), text("/kind")) == (Some(kind.api_version()), Some(kind.kind()))
                && text("/metadata/namespace") == namespace
        })
    }
}

#[async_trait]
impl ClusterReader for RecordedObjects {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let mut objects = self.find(kind, namespace);
        Ok(objects
            .find(|object| object["metadata"]["name"] == name)
            .map(Value::to_string))
    }

    async fn list(&self, kind: &ClusterKind, query: &ClusterQuery, _: Deadline) -> Result<ClusterPage, ClusterError> {
        // All label selectors in the test cases have one label with one value, such as `app=web` or `app in (web)`.
        // Only these two forms are supported here.
        let selector = query
            .label_selector
            .trim_end_matches(')')
            .split_once(" in (")
            .or_else(|| query.label_selector.split_once('='));
        let is_selected = |object: &&Value| match selector {
            Some((label, value)) => object["metadata"]["labels"][label] == value,
            None => true,
        };
        let objects = self.find(kind, query.namespace.as_deref()).filter(is_selected);
        Ok(ClusterPage {
            objects: objects.map(|object| object.to_string().into()).collect(),
            rest: None,
        })
    }
}

pub(crate) fn namespaces() -> Vec<Value> {
    let namespaces = [
        ("polns", Some("prod")),
        ("polns2", Some("dev")),
        ("polscale", None),
        ("polscale2", None),
    ];
    let object = |(name, env): (&str, Option<&str>)| {
        let mut labels = json!({"kubernetes.io/metadata.name": name});
        if let Some(env) = env {
            labels["env"] = json!(env);
        }
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        })
    };
    namespaces.map(object).to_vec()
}

pub(crate) struct ConformanceCluster {
    chains: Vec<Chain>,
    namespaces: StaticNamespaces,
}

impl ConformanceCluster {
    pub(crate) fn new(chains: Vec<ChainDefinition>, objects: Vec<Value>) -> Self {
        let existing = namespaces();
        let labels = existing.iter().map(|namespace| {
            let metadata = &namespace["metadata"];
            let labels: Labels = serde_json::from_value(metadata["labels"].clone()).unwrap();
            (labels["kubernetes.io/metadata.name"].clone(), labels)
        });
        let namespaces = StaticNamespaces::new(labels);
        let objects = existing.into_iter().chain(objects).collect();
        let reader: Arc<dyn ClusterReader> = Arc::new(RecordedObjects(objects));
        // In each phase, chains are called in the order of their names, so they are sorted.
        let mut sorted = BTreeMap::new();
        for chain in chains {
            sorted.insert((chain.phase != Phase::Mutating, chain.name.clone()), chain);
        }
        Self {
            chains: sorted.into_values().map(|chain| build_chain(chain, &reader)).collect(),
            namespaces,
        }
    }

    pub(crate) async fn admit(&self, request: Request) -> Outcome {
        let matching: Vec<&Chain> = self.chains.iter().filter(|chain| chain.matches(&request)).collect();
        let mut evaluation = Evaluation::new(request, Deadline::after(Duration::from_secs(600)));
        let sources = EvaluationSources {
            namespaces: &self.namespaces,
            authorizer: &Administrators,
        };
        evaluation.run(&matching, sources).await;
        evaluation.outcome()
    }
}

fn build_chain(chain: ChainDefinition, reader: &Arc<dyn ClusterReader>) -> Chain {
    let stages = chain.stages.into_iter().map(|stage| {
        let Some(cel) = stage.hook.get::<CelDefinition>() else {
            panic!("{}: not a policy", chain.name);
        };
        let mut spec = stage.spec;
        // The timeout is so long that it has no effect, even on a slow machine.
        spec.timeout = Duration::from_secs(600);
        Stage {
            spec,
            hook: cel.hook(Arc::new(Administrators), Some(Arc::clone(reader))),
        }
    });
    let mut built = Chain::new(chain.name.as_str(), chain.rules, stages.collect());
    built.phase = chain.phase;
    built
}
