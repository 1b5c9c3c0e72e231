//! The sessions with ZooKeeper.

use admittance_zookeeper::{SessionState, ZooKeeper};
use futures_util::future::join_all;
use metrics::{counter, gauge};

use crate::{config::ZooKeeperConfig, metric_names};

/// Sessions with the ensembles of a configuration. Cheap to clone; they last as long as a clone, or anything
/// that is looked up or registered by them.
#[derive(Clone, Debug, Default)]
pub struct Ensembles {
    cluster: Option<ZooKeeper>,
    /// None when it is the cluster's.
    service: Option<ZooKeeper>,
}

impl Ensembles {
    /// Begin to connect to these ensembles. This returns at once; to be called in a runtime of tokio.
    pub fn open(config: &ZooKeeperConfig) -> Self {
        let open = |config| ZooKeeper::open(Clone::clone(config));
        // One session is enough for one ensemble.
        let of_its_own = config
            .service
            .as_ref()
            .filter(|service| config.cluster.as_ref() != Some(service));
        Self {
            cluster: config.cluster.as_ref().map(open),
            service: of_its_own.map(open),
        }
    }

    /// The cluster's own.
    pub fn cluster(&self) -> Option<&ZooKeeper> {
        self.cluster.as_ref()
    }

    /// The one of the services around: the cluster's own when there is no other.
    pub fn service(&self) -> Option<&ZooKeeper> {
        self.service.as_ref().or(self.cluster.as_ref())
    }

    /// Each, by the name that the configuration has for it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &ZooKeeper)> {
        let cluster = self.cluster.as_ref().map(|zookeeper| ("cluster", zookeeper));
        let service = self.service.as_ref().map(|zookeeper| ("service", zookeeper));
        cluster.into_iter().chain(service)
    }

    /// Measure how the sessions are, until this is dropped.
    pub(crate) async fn measure(&self) {
        join_all(self.each().map(async |(ensemble, zookeeper)| {
            let connected = gauge!(metric_names::ZOOKEEPER_CONNECTED, "ensemble" => ensemble);
            let sessions = counter!(metric_names::ZOOKEEPER_SESSIONS, "ensemble" => ensemble);
            let mut states = zookeeper.states();
            let mut before = None;
            loop {
                let state = states.borrow_and_update().clone();
                connected.set(if state.is_connected() { 1.0 } else { 0.0 });
                if let SessionState::Connected { session, .. } = state
                    && before.replace(session) != Some(session)
                {
                    sessions.increment(1);
                }
                if states.changed().await.is_err() {
                    return;
                }
            }
        }))
        .await;
    }
}
