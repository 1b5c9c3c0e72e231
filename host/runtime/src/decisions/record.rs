//! Defines how decisions appear in the admin API, in the console and on disk.

use admittance_admission::{Decision, FailurePolicy, LogLine, Mode, Operation, Outcome, Phase, RefusalCause, keywords};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Moment, RecordedRequest, Redacted};

/// The decision on one request, with a row for each stage. It contains no objects, only the values that patches write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionRecord {
    /// The id of the decision. Later decisions have larger ids, even after a restart. The uid does not identify a
    /// decision, because several can have the same one.
    pub id: u64,
    /// The time at which the chains finished the request.
    pub at: Moment,
    /// The uid of the request, which is in log lines about the request as well.
    pub uid: String,
    /// The number of the revision that was live when the request was decided.
    pub revision: u64,
    /// The dialect of the request, such as `rest`; absent if the program called the chains itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// The address of the listener that received the request; absent if none did.
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
    /// The operation of the request: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[schemars(with = "String")]
    pub operation: Operation,
    /// The type of the request's object: `apps/v1/Deployment`.
    pub kind: String,
    /// The resource of the request, with the subresource if there is one: `apps/v1/deployments`,
    /// `apps/v1/deployments/scale`.
    pub resource: String,
    /// The namespace of the request; absent for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the request's object; empty if the control plane generates it later.
    pub name: String,
    /// The chains that the request was sent to: `Mutating`, `Mutating/Namespaced`, `Validating:images`; absent if it
    /// was sent to all chains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<String>,
    /// Whether the request is a dry run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The verdict of the chains on the request.
    pub verdict: DecisionVerdict,
    /// The message of the refusal; absent if the request was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The HTTP status of the refusal; absent if the request was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The JSON Patch from the original object to the result; absent if the object was not changed. A refused request
    /// has a patch if stages changed the object before it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// The warnings that the client gets with the response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The time that the request spent in the chains, in microseconds.
    pub microseconds: u64,
    /// A row for each stage of the chains that the request matched, in order.
    pub stages: Vec<StageRecord>,
}

/// The result of one stage for one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageRecord {
    /// The name of the chain that contains the stage.
    pub chain: String,
    /// The phase of the chain that contains the stage.
    pub phase: Phase,
    /// The name of the stage.
    pub stage: String,
    /// 1; or 2 if the stage was called again because a later stage changed the object after the first call.
    pub round: u8,
    /// `Enforce`; or `Audit` if the stage's verdict is only recorded.
    pub mode: Mode,
    /// The result of the stage: `skipped`, `not-reached`, `allow`, `patch`, `deny` or `failed`.
    pub result: String,
    /// The reason why the stage was skipped, denied the request, or failed; absent if it did none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The HTTP status of the stage's denial; absent if it did not deny the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The kind of the stage's failure, such as `trap` or `timeout`; absent if it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The failure policy that was applied when the stage failed; absent if it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<FailurePolicy>,
    /// The name of the exception because of which the stage was not called; absent if it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The JSON Patch that the stage made; absent if it changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// When the stage started, in microseconds after the request entered the chains.
    pub start_microseconds: u64,
    /// The time from the evaluation of the stage's selectors until its verdict was applied, in microseconds; 0 if the
    /// stage was not called.
    pub microseconds: u64,
    /// The lines that the stage's plugin logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
    /// Whether the stage's candidate was called instead of its plugin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_candidate: bool,
}

/// A decision, with the objects of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionDetail {
    /// The decision, without the objects of the request.
    #[serde(flatten)]
    pub decision: DecisionRecord,
    /// The request and the answer in the format of `admittance record`; absent for Secrets, for requests that are too
    /// large to be kept, and for clients without the role Admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<RecordedRequest>,
    /// The object after the chains. Absent if the chains did not change it, or if `review` is absent as well.
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

/// The verdict of the chains on a request. The metrics use the same names.
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
    /// The request was refused because the time for its chains ran out.
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

    /// Returns whether the verdict is a refusal, which means any verdict except `Allowed` and `Changed`.
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
    /// Removes the values that patches write, because such values are parts of objects. Keeps the operations and paths.
    pub fn remove_values(&mut self) {
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
    /// The decisions on this page, the newest first.
    pub decisions: Vec<DecisionRecord>,
    /// The value of `before` in the request for the next page, which contains older decisions; absent on the last page.
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
    /// The length of the period, in seconds. It is shorter than requested if the log does not reach back that far.
    pub seconds: f64,
    /// The number of requests that matched the chain.
    pub requests: u64,
    /// The number of requests that a stage of the chain denied.
    pub denied: u64,
    /// The number of requests that a stage of the chain would have denied if its mode were `Enforce` instead of
    /// `Audit`.
    #[serde(default)]
    pub would_deny: u64,
    /// The number of requests that a stage of the chain changed, and that were allowed.
    pub changed: u64,
    /// The number of requests that were refused because a stage of the chain failed.
    pub failed: u64,
    /// The median of the time that requests spent in the chain, in microseconds. Stages in mode `Audit` count only if
    /// the chain called no stages in mode `Enforce`.
    pub p50_microseconds: u64,
    /// The 99th percentile of the time that requests spent in the chain, in microseconds.
    pub p99_microseconds: u64,
    /// The number of requests in each of twelve equal parts of the requested period, the oldest part first.
    #[serde(default)]
    pub requests_series: Vec<u64>,
    /// The 99th percentile of the time in the chain in each twelfth of the requested period, in microseconds; 0 if
    /// there were no requests.
    #[serde(default)]
    pub p99_series: Vec<u64>,
}
