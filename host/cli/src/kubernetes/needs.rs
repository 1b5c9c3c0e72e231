//! Permissions that the chains need in the cluster.

use admittance::{
    ModuleReference,
    admission::{ClusterKind, GroupVersionKind, GroupVersionResource, NamespaceSelector},
    definitions::{ChainDefinition, HookDefinition},
};
use serde_json::{Value as Json, json};

use super::rewrite;

/// The permissions and connections that a Pod needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// A stage selects namespaces by their labels.
    namespace_labels: bool,
    /// The kinds that plugins are granted, each once.
    kinds: Vec<ClusterKind>,
    /// A match condition uses the authorizer.
    authorizer: bool,
    /// A stage calls another server.
    pub(super) calls_out: bool,
}

impl Needs {
    pub(super) fn of(chains: &[ChainDefinition]) -> Self {
        let mut needs = Self::default();
        for stage in chains.iter().flat_map(|chain| &chain.stages) {
            if let Some(NamespaceSelector::Labels(selector)) = &stage.spec.namespace_selector {
                needs.namespace_labels |= !selector.is_empty();
            }
            needs.authorizer |= stage.spec.match_conditions.uses_authorizer();
            needs.calls_out |= matches!(stage.hook, HookDefinition::Webhook(_));
            for (_, plugin) in rewrite::plugins(stage) {
                for kind in &plugin.allow.cluster {
                    if !needs.kinds.contains(kind) {
                        needs.kinds.push(kind.clone());
                    }
                }
                let is_fetched = !matches!(plugin.source, ModuleReference::File(_));
                needs.calls_out |= is_fetched || !plugin.allow.http.is_empty();
            }
        }
        needs
    }

    /// Whether the API server is used.
    pub(super) fn cluster(&self) -> bool {
        self.namespace_labels || self.authorizer || !self.kinds.is_empty()
    }

    /// The rules of a role with exactly these permissions.
    pub(super) fn rules(&self) -> Vec<Json> {
        let read = self.resources().into_iter().map(|resource| {
            json!({
                "apiGroups": [resource.group],
                "resources": [resource.resource],
                "verbs": ["get", "list", "watch"],
            })
        });
        let ask = self.authorizer.then(|| {
            json!({
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            })
        });
        read.chain(ask).collect()
    }

    /// The kinds that are read from the API server, each once, sorted.
    fn resources(&self) -> Vec<GroupVersionResource> {
        let resource = |kind: &ClusterKind| {
            GroupVersionKind::from_api_version(kind.api_version(), kind.kind()).guess_resource()
        };
        let mut resources: Vec<_> = self.kinds.iter().map(resource).collect();
        if self.namespace_labels {
            resources.push(GroupVersionKind::from_api_version("v1", "Namespace").guess_resource());
        }
        resources.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
        resources.dedup_by(|a, b| (&a.group, &a.resource) == (&b.group, &b.resource));
        resources
    }
}
