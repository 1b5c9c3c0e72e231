//! Defines the status of a host, which the admin API returns and the command line shows.

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

/// The status of a host and its live table at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The revision of the live table. The first revision has number 1. If there is a history on disk, the count
    /// continues after a restart.
    pub revision: u64,
    /// The content hash of the live table, which is the same on every replica that serves this table.
    #[schemars(with = "String")]
    pub hash: Digest,
    /// The content hash of the table that goes live when all replicas have prepared it; absent if no table waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub prepared: Option<Digest>,
    /// The time at which the live table went live in this process.
    pub live_since: Moment,
    /// The reason why the live table was built, such as a change of the definitions.
    pub origin: Origin,
    /// The user who requested the change that led to the live table; absent if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The problem that keeps the current definitions from being live as they are written; absent if there is no such
    /// problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Whether a new table is being built.
    pub building: bool,
    /// The number of tables in memory: the live table, and older tables that requests in flight use.
    pub tables: usize,
    /// The number of plugins in memory. A plugin that several stages use is counted once.
    pub plugins: usize,
    /// The history, which contains earlier tables.
    pub history: HistoryStatus,
    /// The stores from which the definitions are read.
    #[serde(default)]
    pub stores: Vec<StoreStatus>,
    /// The chains of the live table, in the order in which a request passes them.
    pub chains: Vec<ChainStatus>,
    /// The stages that an operator has disabled, but that the live table does not contain. When a later table contains
    /// such a stage, the stage is disabled there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_missing: Vec<DisabledStage>,
    /// The exceptions in the live table, sorted by name. Expired exceptions are included.
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
    /// Whether the exception has expired, so that it has no effect any more.
    pub expired: bool,
    /// The stages of the live table to which the exception applies: `Mutating:pods/images`.
    pub stages: Vec<String>,
    /// A sentence for each stage that the exception names although no such stage exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// The problem because of which the newest definitions or modules are not live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Problem {
    /// The time at which the problem was first seen.
    pub since: Moment,
    /// The number of attempts so far to go live with the newest definitions.
    pub attempts: u64,
    /// The time of the next attempt, unless the definitions change earlier; absent if a retry cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Moment>,
    /// The mistakes, each in a sentence that says where it is, what is wrong, and how to fix it.
    pub mistakes: Vec<String>,
    /// The definitions that are not live as written: invalid definitions in stores, and definitions whose modules
    /// cannot be fetched. All other definitions are live. If this list is empty although there is a problem, no part of
    /// the new table is live, and the previous table stays live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_definitions: Vec<BadDefinitionStatus>,
}

/// An invalid definition in a store, or a definition file that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BadDefinitionStatus {
    /// The location of the definition: `zookeeper:/blueking/admissionwebhook/ns/name`, or the path of a file.
    pub location: String,
    /// The kind and name of the definition; absent if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The reasons why the definition cannot be served as it is written, in a sentence each.
    pub reasons: Vec<String>,
    /// The version that is served instead of the definition as it is written.
    pub served: Served,
}

impl BadDefinitionStatus {
    pub(crate) fn new(bad_definition: &BadDefinition) -> Self {
        Self {
            location: bad_definition.path.display().to_string(),
            id: bad_definition.id.as_ref().map(ToString::to_string),
            reasons: bad_definition.reasons.clone(),
            served: bad_definition.served,
        }
    }
}

/// The history of a host, which contains earlier tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HistoryStatus {
    /// The directory of the history; absent if the history is in memory only, and lost when the program ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The number of revisions in the history.
    pub revisions: usize,
    /// The reason why the newest revision could not be written to the history; absent if it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A store of definitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoreStatus {
    /// The paths of the store's files, or another location: `zookeeper:/blueking/admissionwebhook`.
    pub location: String,
    /// Whether the store consists of files or of entries.
    pub kind: StoreKind,
    /// The number of files or entries in the store when it was last read; absent if it was never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Whether the last attempt to read the store failed.
    pub lost: bool,
}

/// A directory of the host, with the disk space that it uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StorageStatus {
    /// The purpose of the directory: `store` or `history`.
    pub name: String,
    /// The path of the directory.
    pub directory: PathBuf,
    /// The total size of the files in the directory, in bytes.
    pub bytes: u64,
    /// The number of files in the directory.
    pub files: u64,
    /// The size of the directory above which the least recently used files are removed; absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl StorageStatus {
    /// Adds up the sizes of the files in a directory. Skips files that disappear meanwhile. This blocks.
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
    /// The name of the chain, unique in its phase.
    pub name: String,
    /// The phase in which the chain's stages are called.
    pub phase: Phase,
    /// The requests that match the chain, but that the control plane does not send to this host; absent if the control
    /// plane sends all requests that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<Unreached>,
    /// The stages of the chain, in the order in which they are called.
    pub stages: Vec<StageStatus>,
}

/// A stage of the live table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageStatus {
    /// The name of the stage, unique in its chain.
    pub name: String,
    /// The hook that the stage calls.
    pub hook: HookStatus,
    /// Whether the stage's answers are enforced, according to its definition. Disabling the stage does not change it.
    pub mode: Mode,
    /// The stage's failure policy, which says what happens to a request if the stage fails.
    pub failure_policy: FailurePolicy,
    /// The health of the stage, which is the result of its last call.
    pub state: StageState,
    /// The statistics of the stage's calls. In mode `Audit`, they count what the stage would have done to requests.
    pub calls: CallStatus,
    /// The last call of the stage that failed; absent if none has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureStatus>,
    /// The candidate for the stage's plugin; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// The record of how an operator disabled the stage; absent if it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<DisabledStage>,
}

/// The health of a stage, which is the result of its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub enum StageState {
    /// The stage has not been called yet.
    Idle,
    /// The last call of the stage gave a verdict.
    Healthy,
    /// The last call of the stage failed.
    Failing,
}

/// A plugin that the host has loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PluginStatus {
    /// The name that the plugin gives itself.
    pub name: String,
    /// The version that the plugin gives itself.
    pub version: String,
    /// The source of the plugin's module.
    pub source: String,
    /// The sha256 digest of the plugin's module.
    pub digest: String,
    /// The signer of the plugin's module, or a note that no signature is required.
    pub signature: String,
    /// The reason why the plugin is configured in each call, which is slower; absent if it was configured only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_per_call: Option<String>,
    /// The kinds of objects that the plugin may read from the control plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// Whether the plugin's compiled form was taken from the store, so that the plugin was not compiled.
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

/// The statistics of a stage's calls since the stage's hook went live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallStatus {
    /// The time since which the stage's calls are counted.
    pub since: Moment,
    /// The number of calls of the stage.
    pub total: u64,
    /// The number of calls that allowed the request unchanged.
    pub allowed: u64,
    /// The number of calls that changed the object.
    pub changed: u64,
    /// The number of calls that denied the request.
    pub denied: u64,
    /// The number of calls that failed.
    pub failed: u64,
    /// The statistics of the stage's calls in the last five to ten minutes.
    #[serde(default)]
    pub recent: RecentCalls,
    /// The median duration of the stage's calls in the last five to ten minutes, in microseconds; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_microseconds: Option<u64>,
    /// The 99th percentile of the duration of the stage's calls in the last five to ten minutes, in microseconds;
    /// absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_microseconds: Option<u64>,
}

/// The statistics of a stage's calls in the last five to ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecentCalls {
    /// The time since the first of the counted calls, in seconds; 0 if no calls are counted.
    pub seconds: u64,
    /// The number of calls in the period that allowed the request unchanged.
    pub allowed: u64,
    /// The number of calls in the period that changed the object.
    pub changed: u64,
    /// The number of calls in the period that denied the request.
    pub denied: u64,
    /// The number of calls in the period that failed.
    pub failed: u64,
}

/// A call of a stage that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FailureStatus {
    /// The time at which the failed call ended.
    pub at: Moment,
    /// The kind of the failure, such as `trap` or `timeout`.
    pub kind: String,
    /// The message of the failure.
    pub message: String,
}
