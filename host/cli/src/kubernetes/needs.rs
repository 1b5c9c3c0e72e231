//! Determines which permissions the chains need in the cluster.

use std::collections::BTreeSet;

use admittance::{
    ModuleReference, NamespacedChains, NamespacedWebhooks,
    admission::{ClusterKind, GroupVersionKind, GroupVersionResource, NamespaceSelector},
    definitions::ChainDefinition,
};
use serde_json::{Value as Json, json};

/// The needs of a Pod because of the chains: permissions in the cluster, and connections to servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterNeeds {
    kinds: BTreeSet<ClusterKind>,
    needs_authorizer: bool,
    pub(super) calls_out: bool,
}

impl ClusterNeeds {
    /// Determines what these chains need. Users may add namespaced chains later, and `namespaced` says what such chains
    /// may do. So all that it allows is needed as well.
    pub(super) fn from_chains(chains: &[ChainDefinition], namespaced: &NamespacedChains) -> Self {
        let namespace = || ClusterKind::new("v1", "Namespace");
        let mut needs = Self {
            calls_out: !namespaced.modules.is_empty()
                || namespaced.webhooks != NamespacedWebhooks::None
                || namespaced.allow.calls_out(),
            ..Self::default()
        };
        needs.add_kinds(&namespaced.allow.cluster);
        for stage in chains.iter().flat_map(|chain| &chain.stages) {
            if let Some(NamespaceSelector::Labels(selector)) = &stage.spec.namespace_selector
                && !selector.is_empty()
            {
                needs.kinds.insert(namespace());
            }
            needs.needs_authorizer |= stage.spec.uses_authorizer();
            needs.calls_out |= stage.hook.server().is_some();
            needs.add_kinds(&stage.hook.cluster_kinds());
            for (_, plugin) in stage.plugins() {
                needs.add_kinds(&plugin.allow.cluster);
                let is_fetched = !matches!(plugin.source, ModuleReference::File(_));
                needs.calls_out |= is_fetched || plugin.allow.calls_out();
            }
        }
        needs
    }

    fn add_kinds(&mut self, granted: &BTreeSet<ClusterKind>) {
        for kind in granted {
            if kind.is_access_review() {
                self.needs_authorizer = true;
            } else {
                self.kinds.insert(kind.clone());
            }
        }
    }

    pub(super) fn needs_cluster(&self) -> bool {
        self.needs_authorizer || !self.kinds.is_empty()
    }

    pub(super) fn cluster_rules(&self) -> Vec<Json> {
        let resource_rules = self.resources().into_iter().map(|resource| {
            json!({
                "apiGroups": [resource.group],
                "resources": [resource.resource],
                "verbs": ["get", "list", "watch"],
            })
        });
        let review_rule = self.needs_authorizer.then(|| {
            json!({
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            })
        });
        resource_rules.chain(review_rule).collect()
    }

    fn resources(&self) -> Vec<GroupVersionResource> {
        let resource =
            |kind: &ClusterKind| GroupVersionKind::from_api_version(kind.api_version(), kind.kind()).guess_resource();
        let mut resources: Vec<_> = self.kinds.iter().map(resource).collect();
        resources.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
        resources.dedup_by(|a, b| (&a.group, &a.resource) == (&b.group, &b.resource));
        resources
    }
}
