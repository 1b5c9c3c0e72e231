//! Defines how decisions appear in the admin API, in the console and on disk.

use admittance_admission::{
    Decision, FailurePolicy, LogLine, Mode, Operation, Outcome, Phase, RefusalCause, keywords,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Moment, RecordedRequest, Redacted};

/// The result of the chains for one request, with a row for each stage. Of the request's objects it contains only the
/// values that patches write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionRecord {
    /// The id of the decision. Later decisions have larger ids, even after a restart; several can share a uid.
    pub id: u64,
    /// The time at which the chains finished the request.
    pub at: Moment,
    /// The uid of the request, which log lines contain too.
    pub uid: String,
    /// The number of the revision of the table.
    pub revision: u64,
    /// The dialect of the request, such as `rest`; absent if the program called the chains itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// The address of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// The cluster of the request, if its front end knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The trace id of the request, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The name of the user; empty if the control plane does not provide it.
    pub user: String,
    /// The groups of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[schemars(with = "String")]
    pub operation: Operation,
    /// The type of the object: `apps/v1/Deployment`.
    pub kind: String,
    /// The resource, with the subresource if there is one: `apps/v1/deployments`, `apps/v1/deployments/scale`.
    pub resource: String,
    /// The namespace; absent for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object; empty if the control plane generates it later.
    pub name: String,
    /// The selected chains: `Mutating`, `Mutating/Namespaced`, `Validating:images`; absent if all chains were selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<String>,
    /// Whether the request is a dry run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The result of the chains.
    pub verdict: DecisionVerdict,
    /// The message of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The HTTP status of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The JSON Patch from the original object to the result; absent if nothing changed. A refused request has one if
    /// stages changed the object before the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// The warnings for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The time that the request spent in the chains, in microseconds.
    pub microseconds: u64,
    /// A row for each stage of the matching chains, in order.
    pub stages: Vec<StageRecord>,
}

/// The result of one stage for one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageRecord {
    /// The name of the chain.
    pub chain: String,
    /// The phase of the chain.
    pub phase: Phase,
    /// The name of the stage.
    pub stage: String,
    /// 1, or 2 if the stage was called again because the object had changed since its first call.
    pub round: u8,
    /// Whether the verdict is enforced. In mode `Audit` it is only recorded.
    pub mode: Mode,
    /// `skipped`, `not-reached`, `allow`, `patch`, `deny` or `failed`.
    pub result: String,
    /// The reason why the stage was skipped, denied the request, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The HTTP status of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The kind of a failure: `trap`, `timeout` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The policy that was applied to a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<FailurePolicy>,
    /// The exception that kept the stage from being called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The JSON Patch of the stage's verdict; absent if it changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// The start of the stage, in microseconds after the request entered the chains.
    pub start_microseconds: u64,
    /// The time from evaluating the selectors to applying the verdict, in microseconds; 0 if the stage was not called.
    pub microseconds: u64,
    /// The lines that the stage's plugin logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
    /// Whether the stage's candidate was called in place of its plugin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_candidate: bool,
}

/// A decision with the objects of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionDetail {
    /// The decision without objects.
    #[serde(flatten)]
    pub decision: DecisionRecord,
    /// The request and the answer in the format of `admittance record`; absent for Secrets, for requests that are too
    /// large to be kept, and for clients without the role Admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<RecordedRequest>,
    /// The object after the chains; absent if they did not change it, or if the review is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Redacted>,
}

impl From<DecisionRecord> for DecisionDetail {
    fn from(decision: DecisionRecord) -> Self {
        Self {
            decision,
            review: None,
            result: None,
        }
    }
}

/// The result of the chains for a request, with the names that the metrics use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DecisionVerdict {
    /// The request was allowed unchanged.
    Allowed,
    /// The request was changed and allowed.
    Changed,
    /// A stage denied the request.
    Denied,
    /// The request was refused because a stage failed.
    Failed,
    /// The request was refused because its deadline passed.
    Deadline,
    /// The request was refused because it is a dry run, and a stage has side effects.
    DryRun,
}

keywords!(DecisionVerdict, "verdict": Allowed = "allowed", Changed = "changed", Denied = "denied", Failed = "failed", Deadline = "deadline", DryRun = "dry-run");

impl DecisionVerdict {
    /// Returns the verdict of an outcome.
    pub fn from_outcome(outcome: &Outcome) -> Self {
        let Decision::Refused(refusal) = &outcome.decision else {
            return if outcome.is_changed() {
                Self::Changed
            } else {
                Self::Allowed
            };
        };
        match refusal.cause {
            RefusalCause::Denied(_) => Self::Denied,
            RefusalCause::DeadlinePassed => Self::Deadline,
            RefusalCause::DryRunUnsupported => Self::DryRun,
            _ => Self::Failed,
        }
    }

    /// Returns whether the request was refused.
    pub fn is_refusal(self) -> bool {
        !matches!(self, Self::Allowed | Self::Changed)
    }
}

impl StageRecord {
    /// Returns whether the stage was called, or failed before its hook was called.
    pub fn was_called(&self) -> bool {
        !matches!(self.result.as_str(), "skipped" | "not-reached")
    }
}

impl DecisionRecord {
    /// Removes values from patches, because they are parts of objects. The paths are kept.
    pub fn without_values(&mut self) {
        let of_stages = self.stages.iter_mut().map(|stage| &mut stage.patch);
        let patches = of_stages.chain([&mut self.patch]).flatten();
        patches.for_each(Redacted::remove_patch_values);
    }
}

/// A page of decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionList {
    /// The decisions, the newest first.
    pub decisions: Vec<DecisionRecord>,
    /// The value of `before` for the next older decisions; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The rates of a chain over a recent period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChainRates {
    /// The name of the chain.
    pub chain: String,
    /// The phase of the chain.
    pub phase: Phase,
    /// The length of the period, in seconds. It is shorter than requested if the log does not reach back as far.
    pub seconds: f64,
    /// The number of requests.
    pub requests: u64,
    /// The number of requests that a stage of the chain denied.
    pub denied: u64,
    /// The number of requests that a stage in mode `Audit` would have denied.
    #[serde(default)]
    pub would_deny: u64,
    /// The number of requests that a stage of the chain changed, and that were allowed.
    pub changed: u64,
    /// The number of requests that were refused because a stage of the chain failed.
    pub failed: u64,
    /// The median of the time in the chain, in microseconds. Stages in mode `Audit` count only if the chain called no
    /// other stages.
    pub p50_microseconds: u64,
    /// The time in the chain that 99 of 100 requests do not exceed, in microseconds.
    pub p99_microseconds: u64,
    /// The requests in each twelfth of the requested period, the oldest first.
    #[serde(default)]
    pub requests_series: Vec<u64>,
    /// For each twelfth, the time that 99 of 100 requests do not exceed, in microseconds; 0 without requests.
    #[serde(default)]
    pub p99_series: Vec<u64>,
}
