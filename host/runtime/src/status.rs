//! Defines the status of a host, which the admin port and the command line show.

pub(crate) mod candidate;
pub(crate) mod metrics;
pub(crate) mod statistics;
pub(crate) mod traffic;

use std::{fs, path::PathBuf};

use admittance_admission::{Digest, FailurePolicy, Mode, Phase, Unreached};
use admittance_definitions::{BadDefinition, HookStatus, Served, StoreKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use self::candidate::CandidateStatus;
use crate::{DisabledStage, Moment, Origin};

/// The status of the live table at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The revision of the live table, counted from 1. With a history, the count continues after a restart.
    pub revision: u64,
    /// The content hash of the live table, which is the same on every replica that serves this table.
    #[schemars(with = "String")]
    pub hash: Digest,
    /// The content hash of a complete table that goes live when all replicas have prepared it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub prepared: Option<Digest>,
    /// The time at which the live table went live in this process.
    pub live_since: Moment,
    /// The action that created the live table.
    pub origin: Origin,
    /// The user who requested the change; absent if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The problem of current definitions that are not live; absent if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Whether a new table is being built.
    pub building: bool,
    /// The number of tables in memory: the live one, and the tables of requests in flight.
    pub tables: usize,
    /// The number of plugins in memory, each counted once.
    pub plugins: usize,
    /// The history of earlier tables.
    pub history: HistoryStatus,
    /// The stores of definitions.
    #[serde(default)]
    pub stores: Vec<StoreStatus>,
    /// The chains, in the order in which a request passes them.
    pub chains: Vec<ChainStatus>,
    /// Disabled stages that the live table does not have: they are disabled if they come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_missing: Vec<DisabledStage>,
    /// The exceptions, including expired ones, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<ExceptionStatus>,
}

/// An exception of the live table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExceptionStatus {
    /// The name of the exception.
    pub name: String,
    /// The person or team that is responsible for the exception.
    pub owner: String,
    /// The reason for the exception.
    pub reason: String,
    /// The time at which the exception expires.
    pub expires: Moment,
    /// Whether the exception has expired and no longer has an effect.
    pub expired: bool,
    /// The stages of the live table that the exception skips: `Mutating:pods/images`.
    pub stages: Vec<String>,
    /// A sentence for each stage that the exception names but that does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// The problem of the newest definitions or modules that are not live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Problem {
    /// The time at which the problem was first seen.
    pub since: Moment,
    /// The number of attempts to go live so far.
    pub attempts: u64,
    /// The time of the next attempt, unless the definitions change earlier; absent if a retry cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Moment>,
    /// The mistakes. Each is a sentence that says where the mistake is, what is wrong, and how to fix it.
    pub mistakes: Vec<String>,
    /// The invalid definitions of stores, and the definitions whose modules cannot be fetched; the rest is live. If the
    /// list is empty, the whole previous table is live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_definitions: Vec<BadDefinitionStatus>,
}

/// An invalid definition in a store, or a definition file that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BadDefinitionStatus {
    /// The location: `zookeeper:/blueking/admissionwebhook/ns/name`, or the path of a file.
    pub location: String,
    /// The kind and name of the definition; absent if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The reasons, a sentence each.
    pub reasons: Vec<String>,
    /// The version that is served instead of this definition.
    pub served: Served,
}

impl BadDefinitionStatus {
    pub(crate) fn new(bad: &BadDefinition) -> Self {
        Self {
            location: bad.path.display().to_string(),
            id: bad.id.as_ref().map(ToString::to_string),
            reasons: bad.reasons.clone(),
            served: bad.served,
        }
    }
}

/// The history of earlier tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HistoryStatus {
    /// The directory; absent if the history is only kept in memory, until the program ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The number of revisions.
    pub revisions: usize,
    /// Why the newest revision could not be written; absent if it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A store of definitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoreStatus {
    /// The paths of the files, or another location: `zookeeper:/blueking/admissionwebhook`.
    pub location: String,
    /// Whether the store consists of files or of entries.
    pub kind: StoreKind,
    /// The number of files or entries when the store was last read; absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Whether the last attempt to read the store failed.
    pub lost: bool,
}

/// The disk space that a directory uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StorageStatus {
    /// `store` or `history`.
    pub name: String,
    /// The path of the directory.
    pub directory: PathBuf,
    /// The total size of the files, in bytes.
    pub bytes: u64,
    /// The number of files.
    pub files: u64,
    /// The size above which the least recently used files are removed; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl StorageStatus {
    /// Sums up the sizes of the files in the directory. This blocks. Skips files that disappear meanwhile.
    pub(crate) fn measure(name: &str, directory: PathBuf, limit: Option<u64>) -> Self {
        let mut status = Self {
            name: name.to_owned(),
            bytes: 0,
            files: 0,
            limit,
            directory,
        };
        let mut directories = vec![status.directory.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                    Ok(metadata) if metadata.is_file() => {
                        status.bytes += metadata.len();
                        status.files += 1;
                    }
                    _ => {}
                }
            }
        }
        status
    }
}

/// A chain of the live table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChainStatus {
    /// The name, unique in its phase.
    pub name: String,
    /// The phase in which its stages are called.
    pub phase: Phase,
    /// The requests that match the chain's rules but are not sent to this host; absent if all of them are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<Unreached>,
    /// The stages, in the order in which they are called.
    pub stages: Vec<StageStatus>,
}

/// A stage of the live table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageStatus {
    /// The name, unique in its chain.
    pub name: String,
    /// The hook that is called.
    pub hook: HookStatus,
    /// Whether the stage's answers are enforced, as its definition says.
    pub mode: Mode,
    /// The failure policy.
    pub failure_policy: FailurePolicy,
    /// The health of the stage, according to its last call.
    pub state: StageState,
    /// The statistics of the stage's calls. In mode `Audit`, they count what the stage would have done.
    pub calls: CallStatus,
    /// The last failed call; absent if none has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureStatus>,
    /// The candidate for the stage's plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// Set while an operator has disabled the stage; absent if it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<DisabledStage>,
}

/// The health of a stage, according to its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub enum StageState {
    /// The stage has not been called yet.
    Idle,
    /// The last call gave a verdict.
    Healthy,
    /// The last call failed.
    Failing,
}

/// A loaded plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PluginStatus {
    /// The plugin's own name.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// The source of the plugin's module.
    pub source: String,
    /// The sha256 digest of the plugin's module.
    pub digest: String,
    /// The signer of the module, or that no signature is required.
    pub signature: String,
    /// The reason why the plugin is configured in every call, which is slower; absent if it was configured only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_per_call: Option<String>,
    /// The kinds of objects that the plugin may read from the control plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// Whether the plugin's compiled form was in the store.
    pub from_store: bool,
}

impl From<&PluginStatus> for HookStatus {
    fn from(plugin: &PluginStatus) -> Self {
        let mut status = Self::new("plugin", plugin.name.clone());
        if let Ok(Json::Object(facts)) = serde_json::to_value(plugin) {
            status.facts = facts;
        }
        status
    }
}

/// The statistics of a stage's calls since its hook went live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallStatus {
    /// The start of the statistics.
    pub since: Moment,
    /// The number of calls.
    pub total: u64,
    /// Calls that allowed the request unchanged.
    pub allowed: u64,
    /// Calls that changed the object.
    pub changed: u64,
    /// Calls that denied the request.
    pub denied: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The calls of the last minutes.
    #[serde(default)]
    pub recent: RecentCalls,
    /// The median duration over the last five to ten minutes, in microseconds; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_microseconds: Option<u64>,
    /// The 99th percentile over the last five to ten minutes, in microseconds; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_microseconds: Option<u64>,
}

/// The calls of a stage over the last five to ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecentCalls {
    /// The length of the period, in seconds; shorter soon after the stage's hook went live.
    pub seconds: u64,
    /// Calls that allowed the request unchanged.
    pub allowed: u64,
    /// Calls that changed the object.
    pub changed: u64,
    /// Calls that denied the request.
    pub denied: u64,
    /// Calls that failed.
    pub failed: u64,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FailureStatus {
    /// The time at which the call ended.
    pub at: Moment,
    /// The name of the failure: `trap`, `timeout` and so on.
    pub kind: String,
    /// The message of the failure.
    pub message: String,
}
