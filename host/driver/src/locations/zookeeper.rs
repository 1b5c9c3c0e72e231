use std::sync::Arc;

use admittance_bcs::{
    stores::ZooKeeperStore,
    zookeeper::{NoEnsemble, NodePath},
};
use admittance_definitions::DefinitionStore;

use super::{DefinitionLocation, LocationError, LocationRow};
use crate::{Connections, FrontConfig, config::node_path};

/// The default node: bcs-mesos-driver keeps its definitions there.
const DEFAULT_PATH: &str = "/blueking/admissionwebhook";

/// The definitions that BCS calls `admissionwebhooks`. They are stored in ZooKeeper nodes of the cluster, which all
/// drivers of the cluster share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperNodes {
    /// The ZooKeeper node that has a child for each namespace. Default: `/blueking/admissionwebhook`.
    pub path: NodePath,
}

pub(super) const ROW: LocationRow = LocationRow {
    key: "zookeeper",
    read: |node, sections| {
        let path = node_path(node, DEFAULT_PATH)?;
        sections.ensembles.need_cluster(node);
        Some(Arc::new(ZooKeeperNodes { path }))
    },
};

impl DefinitionLocation for ZooKeeperNodes {
    fn name(&self) -> String {
        format!("zookeeper:{}", self.path)
    }

    fn stores(&self, connections: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, LocationError> {
        let zookeeper = connections.ensembles.cluster().ok_or(NoEnsemble {
            setting: "definitions",
            ensemble: "zookeeper.cluster",
        })?;
        let store = ZooKeeperStore::new(zookeeper.clone(), self.path.as_str()).map_err(LocationError::Path)?;
        Ok(vec![Arc::new(store)])
    }

    fn is_shared(&self, front: &dyn FrontConfig) -> bool {
        front.agrees_in_zookeeper()
    }
}
