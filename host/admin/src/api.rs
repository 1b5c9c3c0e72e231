//! Defines the requests and replies of the API below `/v1`. Some types are in other crates, such as [`Revision`].

mod decisions;
pub mod evaluation;

use std::net::SocketAddr;

use admittance::{CandidateReport, Moment, Revision, RolloutAction, StorageStatus};
pub use admittance_definitions::StoredDefinition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::decisions::{DecisionDetails, DecisionReplay, DecisionReplays, Difference, RateList, ReplayRequest};

/// A port on which the driver listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The section of the configuration that describes the port: `listen` or `admin`.
    pub listener: String,
    /// The IP address and the port number on which the driver listens.
    pub address: SocketAddr,
    /// Whether connections are encrypted.
    #[serde(rename = "tls")]
    pub is_tls: bool,
}

/// A certificate that this driver presents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The use of the certificate: `listen`, `admin` or `upstream`.
    pub certificate: String,
    /// The time at which the certificate expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// The reason why the certificate's files have changed but their new content is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The reply to `GET /v1/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionList {
    /// The revisions in the history, newest first.
    pub revisions: Vec<ListedRevision>,
}

/// A revision, and what it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedRevision {
    /// The revision without its definitions.
    #[serde(flatten)]
    pub revision: Revision,
    /// The names of what this revision changed. A definition is listed as `added AdmissionChain/a`, `AdmissionChain/b`
    /// (changed) or `removed AdmissionChain/c`. A stage is listed if its module changed. Empty for the oldest revision.
    pub changed: Vec<String>,
}

/// The reply to `GET /v1/storage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageList {
    /// The directories to which the driver writes.
    pub storage: Vec<StorageStatus>,
}

/// The reply to `GET /v1/candidates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateList {
    /// The candidates, sorted by their chains and stages.
    pub candidates: Vec<CandidateReport>,
}

/// The reply to `GET /v1/definitions` and `GET /v1/definitions/{kind}/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionList {
    /// The definitions, in the order of the files that contain them.
    pub definitions: Vec<StoredDefinition>,
    /// The number of the revision to which a user rolled back; absent if no rollback is live. The live chains are those
    /// of this revision, until the next change. The stored definitions, which are listed in `definitions`, may be
    /// different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<u64>,
}

/// The body of `POST /v1/rollback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackRequest {
    /// The revision to roll back to.
    pub revision: u64,
}

/// The body of `POST /v1/promote`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromoteRequest {
    /// The stage whose candidate becomes its plugin: `pods/images`, or `Mutating:pods/images` if both phases have a
    /// chain of that name.
    pub stage: String,
}

/// The body of `POST /v1/stages/disable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DisableRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
    /// The time for which the stage is disabled, in seconds: 1 to 86,400.
    pub expires_in: u64,
    /// The reason, in at most 1,000 characters.
    pub reason: String,
    /// Whether the disabled stage is still called, as in mode `Audit`: its answers are recorded, but have no effect.
    #[serde(default)]
    pub audit: bool,
}

/// The body of `POST /v1/stages/enable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnableRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
}

/// The body of `POST /v1/stages/rollout`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRequest {
    /// The stage: `pods/images`, or `Mutating:pods/images` if both phases have a chain of that name.
    pub stage: String,
    /// `next` begins the next step now. `pause` keeps the current share. `resume` lets the rollout continue by itself,
    /// or start again at the first step if it was aborted. `abort` gives all requests back to the plugin.
    pub action: RolloutAction,
}

/// The body of every error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorReply {
    /// The error.
    pub error: ErrorDetail,
}

/// The reason why a request to the API failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail {
    /// A sentence that explains the error and how to fix it.
    pub message: String,
    /// The mistakes in the request. Each is a sentence that says where the mistake is, and how to fix it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}
