//! Defines the types of decisions in the API.

use admittance::{ChainRates, DecisionDetail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reply to `GET /v1/decisions/{uid}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionDetails {
    /// The newest 20 decisions with this uid, or fewer if they are large, the oldest first. There are several if the
    /// control plane sent the request several times, such as kube-apiserver to `/mutate` and to `/validate`, or if
    /// clients choose the same uid.
    pub decisions: Vec<DecisionDetail>,
    /// The number of decisions with this uid that are older than those in `decisions`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub older: usize,
    /// The value of the parameter `before` with which a request returns older decisions; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The reply to `GET /v1/decisions/rates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateList {
    /// The chains that matched at least one request in the requested time, sorted by phase and name.
    pub chains: Vec<ChainRates>,
}

/// The body of `POST /v1/decisions/{uid}/replay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayRequest {
    /// Whether the webhooks of the chains may be called. If not, a request whose chains have webhooks is not replayed.
    #[serde(default)]
    pub call_webhooks: bool,
}

/// The reply to a replay: the live chains decide all requests with one uid again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionReplays {
    /// The newest 20 decisions, or fewer if they are large, the oldest first.
    pub replays: Vec<DecisionReplay>,
}

/// A decision, and the decision of the live chains on the same request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionReplay {
    /// The original decision.
    pub before: DecisionDetail,
    /// The new decision. Its id is 0, since it is not in the log.
    pub after: DecisionDetail,
    /// The parts in which the answers of `before` and `after` differ; empty if the answers are the same.
    pub differences: Vec<Difference>,
}

/// A part of an answer in which a decision and its replay differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Difference {
    /// Whether the request is allowed, or the code of the refusal.
    Verdict,
    /// The message of a refusal.
    Message,
    /// The object that results from the changes of the chains.
    Patch,
    /// The warnings for the client.
    Warnings,
}

impl DecisionReplay {
    pub(crate) fn new(before: DecisionDetail, after: DecisionDetail) -> Self {
        let (old, new) = (&before.decision, &after.decision);
        let is_allowed = |detail: &DecisionDetail| !detail.decision.verdict.is_refusal();
        // If one of the decisions refuses the request, it has no resulting object to compare.
        let are_allowed = is_allowed(&before) && is_allowed(&after);
        let parts = [
            (
                Difference::Verdict,
                (is_allowed(&before), old.code) == (is_allowed(&after), new.code),
            ),
            (Difference::Message, old.message == new.message),
            (Difference::Patch, !are_allowed || before.result == after.result),
            (Difference::Warnings, old.warnings == new.warnings),
        ];
        let different = parts.into_iter().filter(|(_, is_same)| !is_same);
        Self {
            before,
            after,
            differences: different.map(|(part, _)| part).collect(),
        }
    }
}
