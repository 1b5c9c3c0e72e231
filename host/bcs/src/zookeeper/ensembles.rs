//! The sessions with ZooKeeper.

use std::time::SystemTime;

use admittance::Moment;
use futures_util::future::join_all;
use metrics::{counter, gauge};

use super::{EnsembleConfig, SessionState, ZooKeeper};
use crate::{metric_names, status::EnsembleStatus};

/// The ensembles of ZooKeeper that are known.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperConfig {
    /// The cluster's own: schedulers register there. `sched_regdiscv` of bcs-mesos-driver.
    pub cluster: Option<EnsembleConfig>,
    /// The one of the services around: drivers register there, and gateways look them up. `bcs_zookeeper` of
    /// bcs-mesos-driver. None: the cluster's own.
    pub service: Option<EnsembleConfig>,
}

/// A setting needs an ensemble that the configuration does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} needs the ensemble `{ensemble}`, which is not known")]
pub struct NoEnsemble {
    /// `upstream.discover`, for instance.
    pub setting: &'static str,
    /// `zookeeper.cluster`, for instance.
    pub ensemble: &'static str,
}

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

    pub fn cluster(&self) -> Option<&ZooKeeper> {
        self.cluster.as_ref()
    }

    /// The one of the services around: the cluster's own when there is no other.
    pub fn service(&self) -> Option<&ZooKeeper> {
        self.service.as_ref().or(self.cluster.as_ref())
    }

    /// Each, by the name that the configuration has for it.
    fn each(&self) -> impl Iterator<Item = (&'static str, &ZooKeeper)> {
        let cluster = self.cluster.as_ref().map(|zookeeper| ("cluster", zookeeper));
        let service = self.service.as_ref().map(|zookeeper| ("service", zookeeper));
        cluster.into_iter().chain(service)
    }

    /// The sessions as they are now.
    pub fn status(&self) -> Vec<EnsembleStatus> {
        let status = |(ensemble, zookeeper): (&'static str, &ZooKeeper)| {
            let state = zookeeper.state();
            let since = SystemTime::now().checked_sub(state.since().elapsed());
            EnsembleStatus {
                ensemble: ensemble.to_owned(),
                servers: zookeeper.servers().to_string(),
                state: match &state {
                    SessionState::Connecting { .. } => "connecting",
                    SessionState::Connected { .. } => "connected",
                    SessionState::Lost { .. } => "lost",
                }
                .to_owned(),
                since: Moment(since.unwrap_or(SystemTime::UNIX_EPOCH)),
                problem: state.reason().map(str::to_owned),
            }
        };
        self.each().map(status).collect()
    }

    /// Keep the metrics of the sessions up to date, until this is dropped.
    pub async fn update_metrics(&self) {
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
