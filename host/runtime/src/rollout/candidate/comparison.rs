//! Compares the answers of a plugin and its candidate, and collects samples of the requests on which they differ.

use std::collections::{BTreeMap, VecDeque};

use admittance_admission::{Deadline, Effect, Failure, Patch, Request, Response};

use crate::{
    Redaction,
    decisions::recording::redact_patch,
    status::candidate::{AnswerSample, ComparedKind, DifferenceEffect, DifferenceSample},
};

pub(super) const MAX_SAMPLES: usize = 20;

/// The maximum number of kinds that are counted separately. There is a limit because clients choose the kinds.
pub(super) const MAX_KINDS: usize = 50;

/// The size to which a patch in a sample is shortened, in bytes.
const MAX_PATCH_SIZE: usize = 16 << 10;

/// The answer of a plugin or its candidate: its effect on the request, its warnings and its audit annotations.
pub(super) struct ComparedAnswer {
    pub(super) effect: Result<Effect, Failure>,
    warnings: Vec<String>,
    audit_annotations: Vec<(String, String)>,
}

impl ComparedAnswer {
    /// Computes the effect of an answer on the request. The same rules and limits apply as for any answer of a stage.
    pub(super) async fn evaluate(request: &Request, answer: Result<Response, Failure>, deadline: Deadline) -> Self {
        match answer.map(Response::into_bounded) {
            Ok(response) => Self {
                effect: response.verdict.into_effect(request, deadline).await,
                warnings: response.warnings,
                audit_annotations: response.audit_annotations,
            },
            Err(failure) => Self {
                effect: Err(failure),
                warnings: Vec::new(),
                audit_annotations: Vec::new(),
            },
        }
    }

    /// Returns how the candidate's answer differs from this one; `None` if the answers are the same.
    pub(super) fn difference(&self, candidate: &Self) -> Option<DifferenceEffect> {
        if self.is_same(candidate) {
            return None;
        }
        let denies = |answer: &Self| matches!(answer.effect, Ok(Effect::Deny(_)));
        Some(match (&self.effect, &candidate.effect) {
            (Ok(_), Err(_)) => DifferenceEffect::Fail,
            _ if denies(candidate) && !denies(self) => DifferenceEffect::Deny,
            _ if denies(self) && !denies(candidate) => DifferenceEffect::Allow,
            _ => DifferenceEffect::Change,
        })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let effects = match (&self.effect, &other.effect) {
            (Ok(Effect::Change(after, _)), Ok(Effect::Change(other, _))) => after == other,
            (Ok(effect), Ok(other)) => effect == other,
            (Err(failure), Err(other)) => failure.kind == other.kind,
            _ => false,
        };
        effects && self.warnings == other.warnings && self.audit_annotations == other.audit_annotations
    }

    pub(super) fn size(&self) -> usize {
        match &self.effect {
            Ok(Effect::Change(after, _)) => after.text().len(),
            _ => 0,
        }
    }

    pub(super) fn sample(&self, request: &Request, redact: &[Redaction]) -> AnswerSample {
        let (verdict, message) = match &self.effect {
            Err(failure) => ("failed", Some(failure.to_string())),
            Ok(Effect::Deny(denial)) => ("deny", Some(denial.to_string())),
            Ok(Effect::Change(..)) => ("patch", None),
            Ok(Effect::None) => ("allow", None),
        };
        let mut patch = match (&self.effect, &request.object) {
            (Ok(Effect::Change(after, _)), Some(before)) => {
                redact_patch(request, redact, &Patch::between(before, after))
            }
            _ => None,
        };
        let operations_left_out = patch.as_mut().map_or(0, |patch| patch.shorten_patch(MAX_PATCH_SIZE));
        let annotations = self.audit_annotations.iter();
        AnswerSample {
            verdict: verdict.to_owned(),
            message,
            patch,
            operations_left_out,
            warnings: self.warnings.clone(),
            audit_annotations: annotations.map(|(key, value)| format!("{key}={value}")).collect(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Comparisons {
    pub(super) kinds: BTreeMap<String, ComparedKind>,
    /// Samples of the requests on which plugin and candidate differ, the newest first.
    pub(super) samples: VecDeque<DifferenceSample>,
}

impl Comparisons {
    pub(super) fn kind(&mut self, kind: &str) -> &mut ComparedKind {
        let is_counted = self.kinds.contains_key(kind) || self.kinds.len() < MAX_KINDS;
        let kind = if is_counted { kind } else { ComparedKind::OTHER_KINDS };
        self.kinds.entry(kind.to_owned()).or_insert_with(|| ComparedKind {
            kind: kind.to_owned(),
            ..ComparedKind::default()
        })
    }

    /// Counts a difference, and keeps it as a sample. Drops an old sample if there are too many.
    pub(super) fn add(&mut self, sample: DifferenceSample) {
        *self.kind(&sample.kind).count_with_effect_mut(sample.effect) += 1;
        self.samples.push_front(sample);
        if self.samples.len() > MAX_SAMPLES {
            let subject = |sample: &DifferenceSample| (sample.kind.clone(), sample.effect);
            let subjects: Vec<_> = self.samples.iter().map(subject).collect();
            let has_newer =
                |index: &usize| subjects.iter().position(|other| Some(other) == subjects.get(*index)) < Some(*index);
            let oldest = (0..subjects.len()).rev().find(has_newer).unwrap_or(MAX_SAMPLES);
            self.samples.remove(oldest);
        }
    }
}
