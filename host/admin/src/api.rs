//! What the API below `/v1` takes and gives, beside the host's own types ([`Revision`] and so on). Clients in
//! Rust read and write these.

mod status;

use std::path::PathBuf;

use admittance::{CandidateReport, Revision};
pub use admittance_bcs::{
    DiscoveryStatus, EnsembleStatus, GatewayCluster, GatewayStatus, RegisteredNode, ServerHealth,
    TokensStatus,
};
use admittance_definitions::StoredDefinition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::status::{CertificateStatus, ClusterStatus, ClusterWatch, DriverStatus};

/// `GET /v1/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionList {
    /// The revisions that are kept, newest first.
    pub revisions: Vec<Revision>,
}

/// `GET /v1/candidates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateList {
    /// In the order of their chains and stages.
    pub candidates: Vec<CandidateReport>,
}

/// `GET /v1/definitions`, whole or of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionList {
    /// In the order in which they are read.
    pub definitions: Vec<Definition>,
}

/// A definition as it is written in its file. What is live may be another, when the files are wrong or after
/// a rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// As it is written: `AdmissionChain`.
    pub kind: String,
    /// `metadata.name`; of BCS definitions `{namespace}/{name}`.
    pub name: String,
    /// The file that it is in.
    pub file: PathBuf,
    /// The line of the file on which it begins, from 1.
    pub line: u32,
    /// The text, including comments.
    pub text: String,
    /// Phase and name of the chain that it makes, `Mutating:pods`; absent while there are mistakes in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Whether it is an item of a list, which is edited in its file and not here.
    pub in_list: bool,
}

impl From<StoredDefinition> for Definition {
    fn from(stored: StoredDefinition) -> Self {
        Self {
            kind: stored.id.kind,
            name: stored.id.name,
            file: stored.file,
            line: stored.line,
            text: stored.text,
            chain: stored.chain.map(|chain| chain.to_string()),
            in_list: stored.is_item,
        }
    }
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
    /// Whose candidate is to become its plugin: `pods/images`, or `Mutating:pods/images` where there is a
    /// chain of that name in both phases.
    pub stage: String,
}

/// The body of every error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorReply {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong with a request to the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetail {
    /// In a sentence, with what to do about it.
    pub message: String,
    /// Each mistake in what was sent, in a sentence: where, what, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}
