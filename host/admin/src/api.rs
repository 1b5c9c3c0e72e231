//! The types of requests and replies of the API below `/v1`, in addition to types of other crates such as [`Revision`].

mod decisions;
pub mod evaluation;

use std::net::SocketAddr;

use admittance::{CandidateReport, Moment, Revision, RolloutAction, StorageStatus};
pub use admittance_definitions::StoredDefinition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::decisions::{
    DecisionDetails, DecisionReplay, DecisionReplays, Difference, RateList, ReplayRequest,
};

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
