//! The hook that applies all of Gatekeeper's mutators.

use std::{collections::BTreeSet, sync::Arc};

use admittance_admission::{ClusterKind, FailureKind};
use admittance_mutation::{Mutator, Mutators};
use serde_json::Value as Json;

use super::{HookContext, HookError, HookKind, HookStatus, PreparedHook};

/// Gatekeeper's mutators, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct MutatorsDefinition(pub Arc<[Mutator]>);

impl HookKind for MutatorsDefinition {
    fn cluster_kinds(&self) -> BTreeSet<ClusterKind> {
        let mut requests = self.0.iter().map(|mutator| &mutator.request_filter);
        let selects = requests.any(|requests| requests.namespace_selector.is_some());
        let namespace = selects.then(|| ClusterKind::new("v1", "Namespace"));
        namespace.into_iter().collect()
    }

    fn to_native(&self) -> Option<(&'static str, Json)> {
        None
    }

    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let names: Vec<&str> = self.0.iter().map(|mutator| mutator.name.as_str()).collect();
        let hook = Mutators::new(Arc::clone(&self.0), Arc::clone(context.namespaces));
        let identity = names.join(" ");
        let status = HookStatus::new("mutators", identity.clone()).with_fact("mutators", names);
        Ok(PreparedHook {
            identity,
            // A mutator may select namespaces by their labels. Its call fails if the labels of the request's namespace
            // are unknown.
            failures: &[FailureKind::NamespaceUnknown],
            ..PreparedHook::new(Arc::new(hook), status)
        })
    }
}
