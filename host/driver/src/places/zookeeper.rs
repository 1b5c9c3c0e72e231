use std::sync::Arc;

use admittance_bcs::{
    stores::ZooKeeperStore,
    zookeeper::{NoEnsemble, NodePath},
};
use admittance_definitions::DefinitionStore;

use super::{DefinitionPlace, PlaceError, PlaceRow};
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

pub(super) const ROW: PlaceRow = PlaceRow {
    key: "zookeeper",
    read: |node, sections| {
        let path = node_path(node, DEFAULT_PATH)?;
        sections.ensembles.need_cluster(node);
        Some(Arc::new(ZooKeeperNodes { path }))
    },
};

impl DefinitionPlace for ZooKeeperNodes {
    fn name(&self) -> String {
        format!("zookeeper:{}", self.path)
    }

    fn stores(&self, connections: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, PlaceError> {
        let zookeeper = connections.ensembles.cluster().ok_or(NoEnsemble {
            setting: "definitions",
            ensemble: "zookeeper.cluster",
        })?;
        let store = ZooKeeperStore::new(zookeeper.clone(), self.path.as_str()).map_err(PlaceError::Path)?;
        Ok(vec![Arc::new(store)])
    }

    fn is_shared(&self, front: &dyn FrontConfig) -> bool {
        front.agrees_in_zookeeper()
    }
}
