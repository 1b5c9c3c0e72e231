//! Reports how often and in what way the answers of a candidate differ from the live plugin's answers.

use admittance_admission::keywords;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PluginStatus;
use crate::{Moment, Redacted, RolloutStatus};

/// A candidate, with statistics about how often it differs from the plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CandidateStatus {
    /// The plugin that is the candidate.
    pub plugin: PluginStatus,
    /// The share of the stage's calls for which candidate and plugin are compared: `10%`.
    pub share: String,
    /// The time since which candidate and plugin are compared.
    pub since: Moment,
    /// The number of calls for which candidate and plugin gave the same answer.
    pub same: u64,
    /// The number of calls for which candidate and plugin gave different answers: another verdict, change, warning or
    /// audit annotation.
    pub different: u64,
    /// The number of calls for which the candidate failed, but not the plugin. They are included in `different`.
    pub failed: u64,
    /// The number of calls that were not compared because too many comparisons were running.
    pub passed_over: u64,
    /// The rollout of the candidate; absent if the candidate is only compared with the plugin, and decides no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
}

/// A candidate, with samples of the requests on which it differs from the plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CandidateReport {
    /// The candidate's stage, in the form that `admittance promote` expects.
    pub stage: String,
    /// The plugin with which the candidate is compared.
    pub plugin: PluginStatus,
    /// The candidate and its statistics.
    pub candidate: CandidateStatus,
    /// The comparisons for each kind of objects, sorted by kind.
    #[serde(default)]
    pub kinds: Vec<ComparedKind>,
    /// Samples of the requests on which candidate and plugin differ, at most 20, the newest first. Each pair of kind
    /// and effect keeps its newest sample if possible, so that frequent differences do not displace rare ones.
    pub samples: Vec<DifferenceSample>,
}

/// The numbers of same and different answers of candidate and plugin for one kind of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ComparedKind {
    /// Group, version and kind of the objects: `apps/v1/Deployment`. Only 50 kinds are counted separately; the rest is
    /// `other kinds`.
    pub kind: String,
    /// The number of calls for which candidate and plugin gave the same answer.
    pub same: u64,
    /// The number of calls for which only the candidate denied the request.
    pub would_deny: u64,
    /// The number of calls for which only the plugin denied the request.
    pub would_allow: u64,
    /// The number of calls for which the changes, messages, warnings or audit annotations differed.
    pub would_change: u64,
    /// The number of calls for which only the candidate failed.
    pub would_fail: u64,
}

impl ComparedKind {
    /// The name under which all kinds are counted that are not counted separately.
    pub(crate) const OTHER_KINDS: &str = "other kinds";

    /// Returns the number of calls for which the candidate's answer differed from the plugin's answer with this effect.
    pub fn count_with_effect(&self, effect: DifferenceEffect) -> u64 {
        match effect {
            DifferenceEffect::Deny => self.would_deny,
            DifferenceEffect::Allow => self.would_allow,
            DifferenceEffect::Change => self.would_change,
            DifferenceEffect::Fail => self.would_fail,
        }
    }

    pub(crate) fn count_with_effect_mut(&mut self, effect: DifferenceEffect) -> &mut u64 {
        match effect {
            DifferenceEffect::Deny => &mut self.would_deny,
            DifferenceEffect::Allow => &mut self.would_allow,
            DifferenceEffect::Change => &mut self.would_change,
            DifferenceEffect::Fail => &mut self.would_fail,
        }
    }

    /// Returns the number of calls for which the answers differed.
    pub fn different_count(&self) -> u64 {
        let counts = DifferenceEffect::ALL.map(|effect| self.count_with_effect(effect));
        counts.into_iter().sum()
    }
}

/// The way in which the answer of a candidate differs from the answer of the current plugin to the same request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DifferenceEffect {
    /// The candidate denies the request, but the plugin does not.
    Deny,
    /// The candidate does not deny the request, but the plugin does.
    Allow,
    /// The candidate changes the object differently, or has another message, warnings or audit annotations.
    #[default]
    Change,
    /// The candidate fails, but the plugin does not.
    Fail,
}

keywords!(DifferenceEffect, "effect of a candidate": Deny = "deny", Allow = "allow", Change = "change", Fail = "fail");

impl CandidateReport {
    /// Removes the values that the samples' patches write, because such values are parts of objects. Paths are kept.
    pub fn remove_values(&mut self) {
        let answers = self
            .samples
            .iter_mut()
            .flat_map(|sample| [&mut sample.plugin, &mut sample.candidate]);
        let patches = answers.filter_map(|answer| answer.patch.as_mut());
        patches.for_each(Redacted::remove_patch_values);
    }
}

/// A request on which a candidate and the plugin differ, with the answers of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DifferenceSample {
    /// The time at which the answers were compared.
    pub at: Moment,
    /// The uid of the request.
    pub uid: String,
    /// The operation of the request: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Group, version and kind of the request's object: `apps/v1/Deployment`.
    pub kind: String,
    /// The namespace of the request's object; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the request's object; it may be empty if the control plane generates the name.
    pub name: String,
    /// The effect on the request if the candidate decided it instead of the plugin: for example, the request would be
    /// denied.
    #[serde(default)]
    pub effect: DifferenceEffect,
    /// The answer of the plugin to this request.
    pub plugin: AnswerSample,
    /// The answer of the candidate to this request.
    pub candidate: AnswerSample,
}

/// The answer of the plugin or of its candidate to a request on which they differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerSample {
    /// The verdict of the answer: `allow`, `patch`, `deny` or `failed`.
    pub verdict: String,
    /// The message of the denial or failure; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The changes to the object, as a JSON Patch. If it is long, it has no values. If it is very long, operations at
    /// its end are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Redacted>,
    /// The number of operations that were left out at the end of the patch.
    #[serde(default, skip_serializing_if = "crate::decisions::recording::is_zero")]
    pub operations_left_out: usize,
    /// The warnings for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The audit annotations of the answer, in the form `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_annotations: Vec<String>,
}
