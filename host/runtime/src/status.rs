//! What the host tells of itself: the forms in which the operator's port and the command line show it.

use std::path::PathBuf;

use admittance_admission::{FailurePolicy, Mode, Phase};
use admittance_definitions::{BadDefinition, Served};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Moment, Origin};

/// How the live table is. A picture of one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Of the live table. The first is 1; with a history it goes on counting after a restart.
    pub revision: u64,
    /// When that table went live, in this process.
    pub live_since: Moment,
    /// What made it.
    pub origin: Origin,
    /// Who asked for it; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why what the definitions say now is not live; absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Whether a new table is being made.
    pub building: bool,
    /// The tables that are in memory: the live one, and those that requests in flight began with.
    pub tables: usize,
    /// The plugins that are in memory: those of these tables, each once.
    pub plugins: usize,
    /// What is kept of earlier tables.
    pub history: HistoryStatus,
    /// In the order in which a request passes them.
    pub chains: Vec<ChainStatus>,
}

/// Why the newest definitions or modules are not live, all of them or some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// When it was first seen.
    pub since: Moment,
    /// How often it was tried.
    pub attempts: u64,
    /// When it is tried again without a change; absent when that cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Moment>,
    /// Each mistake in a sentence: where, what, and what to do.
    pub mistakes: Vec<String>,
    /// The definitions that cannot be used as they are, when everything else is live: those of stores that are wrong,
    /// and those whose modules cannot be fetched. Empty: the table of before is live as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_definitions: Vec<BadDefinitionStatus>,
}

/// A definition in a store, or a file of definitions, that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BadDefinitionStatus {
    /// Where it is: `zookeeper:/blueking/admissionwebhook/ns/name`, or the path of a file.
    pub location: String,
    /// Kind and name; absent when neither its text nor its place tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Every reason, a sentence each.
    pub reasons: Vec<String>,
    /// What is served of it.
    pub served: Served,
}

impl BadDefinitionStatus {
    pub(crate) fn of(bad: &BadDefinition) -> Self {
        Self {
            location: bad.path.display().to_string(),
            id: bad.id.as_ref().map(ToString::to_string),
            reasons: bad.reasons.clone(),
            served: bad.served,
        }
    }
}

/// What is kept of earlier tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStatus {
    /// Where; absent: in memory, until the program ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// How many revisions there are.
    pub revisions: usize,
    /// Why the newest could not be written; absent: it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A chain of the live table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainStatus {
    /// Unique in its phase.
    pub name: String,
    /// When its stages are called.
    #[schemars(with = "PhaseSchema")]
    pub phase: Phase,
    /// In the order they are called.
    pub stages: Vec<StageStatus>,
}

/// A stage of the live table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// Unique in its chain.
    pub name: String,
    /// What is called.
    pub hook: HookStatus,
    /// Whether its answer counts.
    #[schemars(with = "ModeSchema")]
    pub mode: Mode,
    /// What a failure does.
    #[schemars(with = "FailurePolicySchema")]
    pub failure_policy: FailurePolicy,
    /// How it does.
    pub state: StageState,
    /// What its calls came to. In mode `Audit` they count what it would have done.
    pub calls: CallStatus,
    /// The last call that gave no verdict; absent: each gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureStatus>,
    /// The version on trial beside its plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
}

/// How a stage does, by its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StageState {
    /// It was not called yet.
    Idle,
    /// Its last call gave a verdict.
    Healthy,
    /// Its last call gave none.
    Failing,
}

/// What a stage calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum HookStatus {
    /// A component that runs here.
    Plugin(PluginStatus),
    /// A server elsewhere.
    Webhook {
        /// Its URL.
        url: String,
    },
    /// Code of the program that embeds the host.
    Native,
    /// A plugin whose module could not be fetched when the table was made: each call fails as `unreachable`.
    Unavailable {
        /// Where its module is.
        source: String,
        /// Why it could not be fetched.
        reason: String,
    },
}

/// A plugin that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// What it calls itself.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Where its module is.
    pub source: String,
    /// The sha256 digest of its module.
    pub digest: String,
    /// By whom the module is signed, or that nobody had to.
    pub signature: String,
    /// Why it gets its settings in every call, which is slower; absent: it got them once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_per_call: Option<String>,
    /// The kinds of the control plane that it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// Whether its compiled form was in the store.
    pub from_store: bool,
}

/// What the calls of a stage came to since its hook went live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallStatus {
    /// Since when they are counted.
    pub since: Moment,
    /// How many there were.
    pub total: u64,
    /// Let the request pass as it was.
    pub allowed: u64,
    /// Changed the object.
    pub changed: u64,
    /// Refused the request.
    pub denied: u64,
    /// Gave no verdict.
    pub failed: u64,
    /// Half of the calls of the last five to ten minutes took no longer, in microseconds; absent without
    /// calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_microseconds: Option<u64>,
    /// 99 of 100 took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_microseconds: Option<u64>,
}

/// A call that gave no verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureStatus {
    /// When it ended.
    pub at: Moment,
    /// The name of the failure: `trap`, `timeout` and so on.
    pub kind: String,
    /// What happened.
    pub message: String,
}

/// A candidate and what came of it so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// The version on trial.
    pub plugin: PluginStatus,
    /// The share of the stage's calls that it is given: `10%`.
    pub share: String,
    /// Since when they are counted.
    pub since: Moment,
    /// Calls in which it answered as the plugin did.
    pub same: u64,
    /// Calls in which its verdict, its change or its notes were others.
    pub different: u64,
    /// Calls in which it gave no verdict and the plugin did; counted in `different` too.
    pub failed: u64,
    /// Calls that it was not given because too many were waiting.
    pub passed_over: u64,
}

/// A candidate, and samples of where it differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateReport {
    /// Its stage, as `admittance promote` takes it.
    pub stage: String,
    /// The plugin that it is measured against.
    pub plugin: PluginStatus,
    /// It, and what came of it so far.
    pub candidate: CandidateStatus,
    /// The newest differences, the last one first; at most 20.
    pub samples: Vec<DifferenceSample>,
}

/// A request on which a candidate and the plugin differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceSample {
    /// When it was compared.
    pub at: Moment,
    /// The request's.
    pub uid: String,
    /// The request's: `CREATE` and so on.
    pub operation: String,
    /// Group, version and kind of the object, `apps/v1/Deployment`.
    pub kind: String,
    /// Where the object is; absent when it has no namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's; may be empty when the control plane makes the name.
    pub name: String,
    /// What the plugin said.
    pub plugin: AnswerSample,
    /// What the candidate said.
    pub candidate: AnswerSample,
}

/// One answer, as it is shown in a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerSample {
    /// `allow`, `patch`, `deny` or `failed`.
    pub verdict: String,
    /// Why, of a denial or a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it changes, as a JSON Patch; cut off when it is very long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Sentences for whoever sent the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Notes for the audit log, `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_annotations: Vec<String>,
}

// The schemas of words that are defined elsewhere.

#[derive(JsonSchema)]
#[schemars(rename = "Phase", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum PhaseSchema {
    Mutating,
    Validating,
}

#[derive(JsonSchema)]
#[schemars(rename = "Mode", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum ModeSchema {
    Enforce,
    Audit,
}

#[derive(JsonSchema)]
#[schemars(rename = "FailurePolicy", inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum FailurePolicySchema {
    Fail,
    Ignore,
}
