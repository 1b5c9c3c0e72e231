use std::sync::Arc;

use admittance_bcs::stores::CustomResourceStore;
use admittance_definitions::{DefinitionStore, document::readers};

use super::{DefinitionLocation, LocationError, LocationRow};
use crate::{Connections, config::parse_namespace};

/// The default namespace: bcs-mesos-driver keeps its definitions there.
const DEFAULT_NAMESPACE: &str = "bkbcs";

/// The definitions that the Kubernetes cluster stores as custom resources of BCS,
/// `admissionwebhookconfigurations.bkbcs.tencent.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomResources {
    /// The namespace in which new definitions are created. Default: `bkbcs`.
    pub namespace: String,
}

pub(super) const ROW: LocationRow = LocationRow {
    key: "customResources",
    read: |node, sections| {
        let mut fields = node.object()?;
        let default = DEFAULT_NAMESPACE.to_owned();
        let namespace = fields.get("namespace", default, readers::parse_with(parse_namespace));
        sections.require_kubernetes(node);
        Some(Arc::new(CustomResources { namespace }))
    },
};

impl DefinitionLocation for CustomResources {
    fn name(&self) -> String {
        format!("customresources:{}", self.namespace)
    }

    fn stores(&self, connections: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, LocationError> {
        let cluster = connections.cluster.as_ref().ok_or(LocationError::NoCluster)?;
        Ok(vec![Arc::new(CustomResourceStore::new(
            cluster,
            self.namespace.as_str(),
        ))])
    }
}
