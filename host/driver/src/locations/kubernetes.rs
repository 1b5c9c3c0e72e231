//! Reads chains, exceptions and policies that are resources of the Kubernetes cluster.

use std::sync::Arc;

use admittance::{NamespacedChains, catalog::signature::SourcePattern};
use admittance_definitions::{
    DefinitionStore,
    document::{Node, readers},
    read_allow,
};
use admittance_fleet::{PolicyStore, PolicySystem};

use super::{DefinitionLocation, LocationError, LocationRow};
use crate::{Connections, FrontConfig, config::parse_lease};

/// The definitions that Kubernetes stores as resources of the group `admittance.dev`, such as `admissionchains`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesResources {
    /// The modules, webhooks and grants that `namespacedadmissionchains` may use.
    pub namespaced_chains: NamespacedChains,
    /// The Lease that the leader of the replicas holds. Default: `admittance`.
    pub lease: String,
    /// The policy systems, such as Kyverno, whose policies are read from the cluster together with the chains.
    pub policies: Vec<PolicySystem>,
}

impl KubernetesResources {
    pub const DEFAULT_LEASE: &str = "admittance";
}

pub(super) const ROW: LocationRow = LocationRow {
    key: "kubernetes",
    read: |node, sections| {
        let mut fields = node.object()?;
        let namespaced = fields.get_or_default("namespaced", read_namespaced_chains);
        let default = KubernetesResources::DEFAULT_LEASE.to_owned();
        let lease = fields.get("lease", default, readers::parse_with(parse_lease));
        let policies = fields.get_or_default("policies", read_policies);
        sections.require_kubernetes(node);
        Some(Arc::new(KubernetesResources {
            namespaced_chains: namespaced,
            lease,
            policies,
        }))
    },
};

impl DefinitionLocation for KubernetesResources {
    fn name(&self) -> String {
        "kubernetes".to_owned()
    }

    fn stores(&self, connections: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, LocationError> {
        let (Some(cluster), Some(chains)) = (&connections.cluster, &connections.chain_store) else {
            return Err(LocationError::NoCluster);
        };
        let mut stores: Vec<Arc<dyn DefinitionStore>> = vec![Arc::new(chains.clone())];
        if !self.policies.is_empty() {
            stores.push(Arc::new(PolicyStore::new(cluster, &self.policies)));
        }
        Ok(stores)
    }

    fn is_shared(&self, _: &dyn FrontConfig) -> bool {
        true
    }

    fn lease(&self) -> Option<&str> {
        Some(&self.lease)
    }

    fn namespaced_chains(&self) -> Option<&NamespacedChains> {
        Some(&self.namespaced_chains)
    }

    fn policies(&self) -> &[PolicySystem] {
        &self.policies
    }
}

fn read_policies(node: &Node<'_>) -> Option<Vec<PolicySystem>> {
    let fix = "list Kubernetes, Gatekeeper, Kubewarden or Kyverno, or remove it";
    node.different_words(fix, "the system is listed twice")
}

fn read_namespaced_chains(node: &Node<'_>) -> Option<NamespacedChains> {
    let mut fields = node.object()?;
    let mut may_use = NamespacedChains::default();
    let patterns = |node: &Node<'_>| node.list_of(Node::parse::<SourcePattern>);
    may_use.modules = fields.get_or_default("modules", patterns);
    may_use.webhooks = fields.get_or_default("webhooks", Node::word);
    if let Some(allow) = fields.optional("allow") {
        may_use.allow = read_allow(&allow);
        if !may_use.allow.environment.is_empty() {
            let message = "chains give their plugins any environment variables";
            allow.add_mistake(message, "remove `environment`");
        }
    }
    Some(may_use)
}
