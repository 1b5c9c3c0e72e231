//! Opens the sessions with the ensembles of ZooKeeper.

use std::time::SystemTime;

use admittance::Moment;
use futures_util::future::join_all;
use metrics::{counter, gauge};

use super::{EnsembleConfig, SessionState, ZooKeeper};
use crate::{metric_names, status::EnsembleStatus};

#[derive(Clone, Debug, Default)]
pub struct ZooKeeperConfig {
    /// The cluster's own ensemble, in which schedulers register; `sched_regdiscv` in bcs-mesos-driver's configuration.
    pub cluster: Option<EnsembleConfig>,
    /// The service ensemble, in which drivers and gateways register; `bcs_zookeeper` in bcs-mesos-driver's
    /// configuration. Default: the cluster's own ensemble.
    pub service: Option<EnsembleConfig>,
}

/// The error for a setting that needs an ensemble that is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} needs the ensemble `{ensemble}`, which is not configured")]
pub struct NoEnsemble {
    /// The setting that needs the ensemble, such as `upstream.discover`.
    pub setting: &'static str,
    /// The section of the configuration that is missing, such as `zookeeper.cluster`.
    pub ensemble: &'static str,
}

/// The sessions with the configured ensembles. They last as long as any clone of this value, and any discovery or
/// registration that uses them.
#[derive(Clone, Debug, Default)]
pub struct Ensembles {
    cluster: Option<ZooKeeper>,
    /// `None` if drivers and gateways use the ensemble of the cluster, or if no service ensemble is configured.
    service: Option<ZooKeeper>,
}

impl Ensembles {
    /// Starts to connect to the configured ensembles, and returns at once. Must be called in a tokio runtime.
    pub fn open(config: &ZooKeeperConfig) -> Self {
        let open = |config| ZooKeeper::open(Clone::clone(config));
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

    /// Returns the service ensemble. If none is configured, it is the cluster's own ensemble.
    pub fn service(&self) -> Option<&ZooKeeper> {
        self.service.as_ref().or(self.cluster.as_ref())
    }

    fn named_ensembles(&self) -> impl Iterator<Item = (&'static str, &ZooKeeper)> {
        let cluster = self.cluster.as_ref().map(|zookeeper| ("cluster", zookeeper));
        let service = self.service.as_ref().map(|zookeeper| ("service", zookeeper));
        cluster.into_iter().chain(service)
    }

    pub fn status(&self) -> Vec<EnsembleStatus> {
        let status = |(ensemble, zookeeper): (&'static str, &ZooKeeper)| {
            let state = zookeeper.state();
            let since = Moment::now().0.checked_sub(state.since().elapsed());
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
        self.named_ensembles().map(status).collect()
    }

    /// Updates the metrics of the sessions whenever they change, until this future is dropped.
    pub async fn update_metrics(&self) {
        join_all(self.named_ensembles().map(async |(ensemble, zookeeper)| {
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
