//! The hook that applies all mutators of Gatekeeper in one stage.

use std::{collections::BTreeSet, sync::Arc};

use admittance_admission::{ClusterKind, FailureKind};
use admittance_mutation::{Mutator, Mutators};
use serde_json::Value as Json;

use super::{HookContext, HookError, HookKind, HookStatus, PreparedHook};

/// The mutators of Gatekeeper, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct MutatorsDefinition(pub Arc<[Mutator]>);

impl HookKind for MutatorsDefinition {
    fn reads(&self) -> BTreeSet<ClusterKind> {
        let mut requests = self.0.iter().map(|mutator| &mutator.requests);
        let selects = requests.any(|requests| requests.namespace_selector.is_some());
        let namespace = selects.then(|| ClusterKind::new("v1", "Namespace"));
        namespace.into_iter().collect()
    }

    fn to_native(&self) -> Option<(&'static str, Json)> {
        None
    }

    fn prepare(&self, given: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let names: Vec<&str> = self.0.iter().map(|mutator| mutator.name.as_str()).collect();
        let hook = Mutators::new(Arc::clone(&self.0), Arc::clone(given.namespaces));
        let identity = names.join(" ");
        let status = HookStatus::new("mutators", identity.clone()).with("mutators", names);
        Ok(PreparedHook {
            identity,
            // Reading the labels of a namespace for a mutator's selector may fail.
            failures: &[FailureKind::NamespaceUnknown],
            ..PreparedHook::new(Arc::new(hook), status)
        })
    }
}
