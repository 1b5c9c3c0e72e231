use admittance_admission::{Decision, TraceRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DecisionVerdict, packed::PackedDecision};
use crate::Moment;

/// A filter for decisions. It selects a decision that meets all of the conditions that are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionFilter {
    /// The name of a chain that a selected request matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The name of a stage that was called for a selected request. If `chain` is set, the stage must be in that chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The namespace of selected requests; an empty string selects requests without a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the user who made a selected request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Searches for this text in the type, the namespace, the name, the uid, the user and the message of a request. The
    /// request is selected if at least one of these contains the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Selects only requests with one of these verdicts. If the list is empty, the verdict does not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdict: Vec<DecisionVerdict>,
    /// The time from which decisions are selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
}

impl DecisionFilter {
    /// Makes the filter select only requests of this user.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self
    }

    pub(super) fn includes(&self, entry: &PackedDecision) -> bool {
        let Some(packed) = entry.read_part() else { return false };
        let is_selected =
            |expected: &Option<String>, value: &str| expected.as_ref().is_none_or(|expected| expected == value);
        let is_selected_row = |row: &TraceRow| {
            is_selected(&self.chain, &row.chain)
                && is_selected(&self.stage, &row.stage)
                && (self.stage.is_none() || row.was_called())
        };
        let has_text = |text: &String| {
            packed.contains(text)
                || matches!(entry.decision(), Decision::Refused(refusal) if refusal.to_string().contains(text))
        };
        self.since.is_none_or(|since| since <= entry.unpacked_parts.time)
            && (self.verdict.is_empty() || self.verdict.contains(&packed.verdict))
            && is_selected(&self.namespace, packed.namespace.unwrap_or_default())
            && is_selected(&self.user, packed.user)
            && ((self.chain.is_none() && self.stage.is_none()) || entry.trace_rows(&packed).iter().any(is_selected_row))
            && self.text.as_ref().is_none_or(has_text)
    }
}
