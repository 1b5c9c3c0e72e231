//! The types of requests and replies of the API below `/v1`, in addition to those of the crates below ([`Revision`] and
//! so on).

pub mod accounts;
mod decisions;
pub mod evaluation;

use std::net::SocketAddr;

pub use admittance::agreement::{ReplicaStatus, ReplicasStatus};
use admittance::{CandidateReport, Moment, Revision, RolloutAction, Status, StorageStatus};
pub use admittance_bcs::status::{DiscoveryStatus, EnsembleStatus, RegisteredNode, ServerHealth};
pub use admittance_cluster::{ClusterStatus, ClusterWatch, LeaderStatus, WatchState};
pub use admittance_definitions::StoredDefinition;
pub use admittance_fleet::{
    WebhooksStatus,
    audit::{AuditPass, AuditStatus},
};
pub use admittance_gateway::{
    AccountsStatus, GatewayCluster, GatewayStatus, KubernetesCluster, Peer, PeersStatus, TokensStatus,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::decisions::{
    DecisionDetails, DecisionReplay, DecisionReplays, Difference, RateList, ReplayRequest,
};

/// `GET /v1/status`: the state of a driver at one moment, with everything that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverStatus {
    /// The live table.
    #[serde(flatten)]
    pub table: Status,
    /// Whether the driver is stopping; `/readyz` then replies 503.
    pub stopping: bool,
    /// The ports of the driver.
    #[serde(default)]
    pub listeners: Vec<ListenerStatus>,
    /// The servers of the control plane; empty behind kube-apiserver and for a gateway.
    pub upstream: Vec<ServerHealth>,
    /// How these servers are discovered; absent if they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
    /// The sessions with ZooKeeper.
    pub zookeeper: Vec<EnsembleStatus>,
    /// The nodes of ZooKeeper by which others find this driver.
    pub registrations: Vec<RegisteredNode>,
    /// The clusters behind a gateway; absent unless it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayStatus>,
    /// The connection to a Kubernetes API server; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The webhook configurations that the leader of the replicas keeps; absent unless it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_configurations: Option<WebhooksStatus>,
    /// The audits of what the cluster has; absent unless they are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStatus>,
    /// The leader of the replicas in the cluster; absent unless there is something for it to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderStatus>,
    /// What the replicas serve and have prepared; absent unless they go live together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasStatus>,
    /// The driver's own certificates.
    pub certificates: Vec<CertificateStatus>,
}

/// A port of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Its section of the configuration: `listen` or `admin`.
    pub listener: String,
    /// Its address.
    pub address: SocketAddr,
    /// Whether connections are encrypted.
    #[serde(rename = "tls")]
    pub is_tls: bool,
}

/// A certificate that this driver presents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Where it is presented: `listen`, `admin` or `upstream`.
    pub certificate: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// Why the current content of the files is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `GET /v1/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionList {
    /// The revisions that are kept, newest first.
    pub revisions: Vec<Revision>,
}

/// `GET /v1/storage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageList {
    /// The directories that the driver writes to.
    pub storage: Vec<StorageStatus>,
}

/// `GET /v1/candidates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateList {
    /// In the order of their chains and stages.
    pub candidates: Vec<CandidateReport>,
}

/// `GET /v1/definitions` and `GET /v1/definitions/{kind}/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionList {
    /// In the order of their files.
    pub definitions: Vec<StoredDefinition>,
}

/// `POST /v1/rollback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackRequest {
    /// The revision to roll back to.
    pub revision: u64,
}

/// `POST /v1/promote`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromoteRequest {
    /// The stage whose candidate becomes its plugin: `pods/images`, or `Mutating:pods/images` if both phases have a
    /// chain of that name.
    pub stage: String,
}

/// `POST /v1/stages/disable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DisableRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
    /// For how many seconds: 1 to 86,400.
    pub expires_in: u64,
    /// Why, in at most 1,000 characters.
    pub reason: String,
    /// Calls it as in mode `Audit`, in place of not calling it.
    #[serde(default)]
    pub audit: bool,
}

/// `POST /v1/stages/enable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnableRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
}

/// `POST /v1/stages/rollout`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
    /// `next` begins the next step now, `pause` stays at the share, `resume` goes on by itself, after an abort from the
    /// first step, and with `abort` the plugin decides all requests again.
    pub action: RolloutAction,
}

/// The body of every error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorReply {
    /// The error.
    pub error: ErrorDetail,
}

/// Why a request to the API failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail {
    /// A sentence that explains the error and how to fix it.
    pub message: String,
    /// The mistakes in the request, a sentence each: where it is, what is wrong, and how to fix it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}
