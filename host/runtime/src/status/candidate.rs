//! Reports how often and in which way a candidate's answers differ from those of the live plugin.

use admittance_admission::keywords;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PluginStatus;
use crate::{Moment, Redacted, RolloutStatus};

/// A candidate and its statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CandidateStatus {
    /// The plugin that is the candidate.
    pub plugin: PluginStatus,
    /// The share of the stage's calls in which the candidate is compared: `10%`.
    pub share: String,
    /// The start of the statistics.
    pub since: Moment,
    /// Calls in which candidate and plugin gave the same answer.
    pub same: u64,
    /// Calls in which the verdicts, changes, warnings or audit annotations differed.
    pub different: u64,
    /// Calls in which the candidate failed and the plugin did not; also counted in `different`.
    pub failed: u64,
    /// Calls that were not compared because too many comparisons were running.
    pub passed_over: u64,
    /// The rollout of the candidate; absent if it decides no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
}

/// A candidate, and samples of differences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CandidateReport {
    /// The stage, as `admittance promote` expects it.
    pub stage: String,
    /// The plugin with which the candidate is compared.
    pub plugin: PluginStatus,
    /// The candidate and its statistics.
    pub candidate: CandidateStatus,
    /// The comparisons by the kind of the object, sorted by kind.
    #[serde(default)]
    pub kinds: Vec<ComparedKind>,
    /// The newest differences, at most 20, the last one first. The newest one of each kind and effect is kept longest.
    pub samples: Vec<DifferenceSample>,
}

/// The comparisons of a candidate with its plugin for one kind of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ComparedKind {
    /// Group, version and kind, `apps/v1/Deployment`; `other kinds` for those after the first 50.
    pub kind: String,
    /// Calls with the same answer.
    pub same: u64,
    /// Calls in which only the candidate denied.
    pub would_deny: u64,
    /// Calls in which only the plugin denied.
    pub would_allow: u64,
    /// Calls in which the changes, messages, warnings or audit annotations differed.
    pub would_change: u64,
    /// Calls in which only the candidate failed.
    pub would_fail: u64,
}

impl ComparedKind {
    /// The name under which further kinds are counted together.
    pub(crate) const OTHERS: &str = "other kinds";

    /// Returns the number of calls in which the answers differed with this effect.
    pub fn with_effect(&self, effect: DifferenceEffect) -> u64 {
        match effect {
            DifferenceEffect::Deny => self.would_deny,
            DifferenceEffect::Allow => self.would_allow,
            DifferenceEffect::Change => self.would_change,
            DifferenceEffect::Fail => self.would_fail,
        }
    }

    pub(crate) fn with_effect_mut(&mut self, effect: DifferenceEffect) -> &mut u64 {
        match effect {
            DifferenceEffect::Deny => &mut self.would_deny,
            DifferenceEffect::Allow => &mut self.would_allow,
            DifferenceEffect::Change => &mut self.would_change,
            DifferenceEffect::Fail => &mut self.would_fail,
        }
    }

    /// Returns the number of calls in which the answers differed.
    pub fn different(&self) -> u64 {
        let counts = DifferenceEffect::ALL.map(|effect| self.with_effect(effect));
        counts.into_iter().sum()
    }
}

/// The effect of a candidate that answers in place of its plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DifferenceEffect {
    /// The candidate denies what the plugin does not deny.
    Deny,
    /// The candidate does not deny what the plugin denies.
    Allow,
    /// The candidate changes the object in another way, or its message, warnings or audit annotations differ.
    #[default]
    Change,
    /// The candidate fails where the plugin does not.
    Fail,
}

keywords!(DifferenceEffect, "effect of a candidate": Deny = "deny", Allow = "allow", Change = "change", Fail = "fail");

impl CandidateReport {
    /// Removes values from patches, because they are parts of objects. The paths are kept.
    pub fn without_values(&mut self) {
        let answers = self
            .samples
            .iter_mut()
            .flat_map(|sample| [&mut sample.plugin, &mut sample.candidate]);
        let patches = answers.filter_map(|answer| answer.patch.as_mut());
        patches.for_each(Redacted::remove_patch_values);
    }
}

/// A request on which a candidate and the plugin differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DifferenceSample {
    /// The time of the comparison.
    pub at: Moment,
    /// The uid of the request.
    pub uid: String,
    /// The operation of the request: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Group, version and kind of the object, `apps/v1/Deployment`.
    pub kind: String,
    /// The namespace of the object; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object; may be empty if the control plane generates it.
    pub name: String,
    /// The effect of the candidate's answer in place of the plugin's.
    #[serde(default)]
    pub effect: DifferenceEffect,
    /// The answer of the plugin.
    pub plugin: AnswerSample,
    /// The answer of the candidate.
    pub candidate: AnswerSample,
}

/// An answer in a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerSample {
    /// `allow`, `patch`, `deny` or `failed`.
    pub verdict: String,
    /// The message of a denial or a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The changes as a JSON Patch. A long patch has no values, and a very long one lacks operations at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// The number of operations at the end that were left out.
    #[serde(default, skip_serializing_if = "crate::decisions::recording::is_zero")]
    pub operations_left_out: usize,
    /// Warnings for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Audit annotations, `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_annotations: Vec<String>,
}
