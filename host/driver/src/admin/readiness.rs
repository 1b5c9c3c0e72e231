//! What `/readyz` tells.

mod zookeeper;

use std::{sync::atomic::Ordering, time::SystemTime};

use admittance::{HistoryStatus, Loaded, Moment, Origin, Problem, admission::Chain};
use admittance_cluster::{Cluster, WatchStatus};
use schemars::JsonSchema;
use serde::Serialize;

use self::zookeeper::{ReadyDiscovery, ReadyEnsemble, ReadyRegistration};
use super::Api;
use crate::{
    gateway::{Gateway, GatewayStatus},
    tls::{ServerTls, TlsStatus},
    upstream::Upstream,
};

/// Whether requests should be sent here, and how everything is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Readiness {
    /// Whether requests should be sent here: until it is told to stop. The status is 503 when not.
    pub(super) ready: bool,
    /// Whether it was told to stop.
    stopping: bool,
    /// Of the live table.
    revision: u64,
    /// When it went live.
    live_since: Moment,
    /// What made it: the definitions, or a rollback for instance.
    origin: Origin,
    /// Who asked for it; null when nobody did.
    by: Option<String>,
    /// Why the newest definitions or modules are not live, in one text.
    reload_error: Option<String>,
    /// The same in detail, with what comes next. While it is there, what is live is the table of before.
    problem: Option<Problem>,
    /// Whether a new table is being made.
    building: bool,
    /// What is kept of earlier tables.
    history: HistoryStatus,
    /// In the order in which a request passes them.
    chains: Vec<ReadyChain>,
    /// Every plugin of the live table.
    plugins: Vec<ReadyPlugin>,
    /// The servers of the control plane.
    upstream: Vec<ReadyServer>,
    /// How they are found; null when they are listed.
    discovery: Option<ReadyDiscovery>,
    /// The sessions with ZooKeeper.
    zookeeper: Vec<ReadyEnsemble>,
    /// How others find this driver; empty when it does not register.
    registrations: Vec<ReadyRegistration>,
    /// The clusters behind a gateway; null when it is none.
    gateway: Option<GatewayStatus>,
    /// The cluster that is asked; null without one.
    cluster: Option<ReadyCluster>,
    /// What is shown to others, and how it is with its files.
    certificates: Vec<ReadyCertificate>,
}

/// A chain of the live table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ReadyChain {
    /// Unique in its phase.
    name: String,
    /// `Mutating` or `Validating`.
    phase: &'static str,
    /// How many stages it has.
    stages: usize,
}

/// A plugin of the live table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ReadyPlugin {
    /// Of its stage.
    chain: String,
    /// `Mutating` or `Validating`.
    phase: &'static str,
    /// Whose plugin it is.
    stage: String,
    /// What it calls itself.
    plugin: String,
    /// Its own version.
    version: String,
    /// The sha256 digest of its module.
    digest: String,
    /// `once` or `in every call`.
    configured: &'static str,
    /// Why it is configured in every call.
    reason: Option<String>,
}

/// A server of the control plane.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ReadyServer {
    /// Its URL.
    server: String,
    /// Whether it answered last.
    up: bool,
}

/// A cluster that is asked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ReadyCluster {
    /// Its URL.
    server: String,
    /// The watch on namespaces.
    namespaces: ReadyWatch,
    /// The watches on kinds that plugins may read.
    kinds: Vec<ReadyWatch>,
}

/// A watch on objects of a cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadyWatch {
    /// What is watched.
    kind: String,
    /// How it does.
    state: &'static str,
    /// Since when.
    since: String,
    /// How many objects are known.
    objects: usize,
    /// When something was heard last.
    heard: Option<String>,
    /// What went wrong last.
    last_error: Option<String>,
}

/// A certificate that is shown to others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadyCertificate {
    /// `listen`, `upstream` or `admin`.
    certificate: &'static str,
    /// Until when it is valid.
    not_after: Option<String>,
    /// Why what the files hold now is not in use.
    reload_error: Option<String>,
}

impl Readiness {
    /// Ready until it is told to stop. An upstream that is down does not make it unready: clients would get
    /// a refused connection in place of a reply that says what is wrong. The detail shows it.
    pub(super) fn of(api: &Api) -> Self {
        let stopping = api.is_stopping.load(Ordering::Relaxed);
        let table = api.host.table();
        let status = api.host.status();
        let reload_error = status.problem.as_ref();
        let chain = |chain: &Chain| ReadyChain {
            name: chain.name.to_string(),
            phase: chain.phase.as_str(),
            stages: chain.stages.len(),
        };
        let own = [&api.tls, &api.own_tls].into_iter().flatten();
        Self {
            ready: !stopping,
            stopping,
            revision: status.revision,
            live_since: status.live_since,
            origin: status.origin,
            by: status.by,
            reload_error: reload_error.map(|problem| problem.mistakes.join("\n")),
            problem: status.problem,
            building: status.building,
            history: status.history,
            chains: table.chains().map(chain).collect(),
            plugins: table.plugins().iter().map(|loaded| plugin(loaded)).collect(),
            upstream: api
                .upstream
                .iter()
                .flat_map(Upstream::health)
                .map(|health| ReadyServer {
                    server: health.server,
                    up: health.is_up,
                })
                .collect(),
            discovery: api.discovery.as_ref().map(ReadyDiscovery::of),
            zookeeper: api.ensembles.each().map(ReadyEnsemble::of).collect(),
            registrations: api.registrations.iter().map(ReadyRegistration::of).collect(),
            gateway: api.gateway.as_ref().map(Gateway::status),
            cluster: api.cluster.as_ref().map(cluster),
            certificates: own
                .filter_map(ServerTls::status)
                .chain(api.upstream.iter().filter_map(Upstream::tls_status))
                .chain(api.gateway.iter().filter_map(Gateway::tls_status))
                .map(certificate)
                .collect(),
        }
    }
}

fn plugin(loaded: &Loaded) -> ReadyPlugin {
    let status = &loaded.status;
    let reason = status.configured_per_call.clone();
    ReadyPlugin {
        chain: loaded.chain.to_string(),
        phase: loaded.phase.as_str(),
        stage: loaded.stage.to_string(),
        plugin: status.name.clone(),
        version: status.version.clone(),
        digest: status.digest.clone(),
        configured: match reason {
            None => "once",
            Some(_) => "in every call",
        },
        reason,
    }
}

fn certificate(status: TlsStatus) -> ReadyCertificate {
    ReadyCertificate {
        certificate: status.name,
        not_after: status.not_after.map(time),
        reload_error: status.problem,
    }
}

fn cluster(cluster: &Cluster) -> ReadyCluster {
    let status = cluster.status();
    let kinds = status.kinds.iter();
    ReadyCluster {
        server: status.server.to_string(),
        namespaces: watch("v1/Namespace", &status.namespaces),
        kinds: kinds
            .map(|(kind, status)| watch(&kind.to_string(), status))
            .collect(),
    }
}

fn watch(kind: &str, status: &WatchStatus) -> ReadyWatch {
    ReadyWatch {
        kind: kind.to_owned(),
        state: status.state.as_str(),
        since: time(status.since),
        objects: status.objects,
        heard: status.heard.map(time),
        last_error: status.last_error.as_ref().map(ToString::to_string),
    }
}

/// As logs write it.
fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
