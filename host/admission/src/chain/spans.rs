//! The spans of chains and stages, for embedders that export traces.

use std::sync::Arc;

use tracing::{Span, debug_span, field::Empty};

use crate::{
    Effect, Failure, Stage,
    chain::{evaluation::StageInChain, stage_turn::ResponseNotes},
};

/// The tracing target of the spans of chains and stages. They have the level `DEBUG`, and cost nothing unless enabled.
pub const SPAN_TARGET: &str = "admittance::otel";

#[derive(Default)]
pub(crate) struct ChainSpan<'a>(Option<(&'a Arc<str>, Span)>);

impl<'a> ChainSpan<'a> {
    pub(crate) fn stage_span(&mut self, entry: StageInChain<'a>) -> Span {
        match &self.0 {
            Some((current, span)) if std::ptr::eq(*current, entry.chain) => span.clone(),
            _ => {
                let span = debug_span!(
                    target: SPAN_TARGET,
                    "chain",
                    otel.name = %format_args!("chain {}", entry.chain),
                    admittance.chain = &**entry.chain,
                    admittance.phase = entry.phase.as_str(),
                );
                self.0 = Some((entry.chain, span.clone()));
                span
            }
        }
    }
}

pub(crate) fn new_stage_span(stage: &Stage) -> Span {
    debug_span!(
        target: SPAN_TARGET,
        "stage",
        otel.name = %format_args!("stage {}", stage.spec.name),
        otel.status_code = Empty,
        otel.status_description = Empty,
        admittance.stage = &*stage.spec.name,
        admittance.mode = stage.spec.mode.as_str(),
        admittance.verdict = Empty,
        admittance.failure = Empty,
    )
}

pub(crate) fn record_answer(span: &Span, answer: &Result<(Effect, ResponseNotes), Failure>) {
    match answer {
        Ok((effect, _)) => {
            let verdict = match effect {
                Effect::None => "allow",
                Effect::Change(..) => "patch",
                Effect::Deny(_) => "deny",
            };
            span.record("admittance.verdict", verdict);
        }
        Err(failure) => {
            span.record("admittance.verdict", "failed");
            span.record("admittance.failure", failure.kind.as_str());
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", failure.message.as_str());
        }
    }
}
