//! Converts decisions to their form in the admin API, in the console and on disk.

use std::time::Duration;

use admittance_admission::{Decision, Selection, StageResult, TraceRow};

use super::{DecidedRequest, DecisionDetail, DecisionRecord, StageRecord};
use crate::{
    Redaction,
    decisions::recording::{self, redact_object, redact_patch},
};

pub(super) fn decision_record(id: u64, decided: &DecidedRequest, redact: &[Redaction]) -> DecisionRecord {
    let DecidedRequest { request, outcome, .. } = decided;
    let refusal = match &outcome.decision {
        Decision::Allowed => None,
        Decision::Refused(refusal) => Some(refusal),
    };
    let front = request.front.as_deref();
    let text = |text: Option<&std::sync::Arc<str>>| text.map(ToString::to_string);
    let mut resource = request.resource.to_string();
    if let Some(subresource) = &request.subresource {
        resource = format!("{resource}/{subresource}");
    }
    DecisionRecord {
        id,
        at: decided.time,
        uid: request.uid.as_str().to_owned(),
        revision: decided.revision,
        dialect: text(front.and_then(|front| front.dialect.as_ref())),
        listener: text(front.and_then(|front| front.listener.as_ref())),
        cluster: text(front.and_then(|front| front.cluster.as_ref())),
        trace_id: request.trace.as_ref().map(|trace| trace.trace_id().to_string()),
        user: request.user.username.clone(),
        groups: request.user.groups.clone(),
        operation: request.operation,
        kind: request.kind.to_string(),
        resource,
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        selection: match &decided.selection {
            Selection::All => None,
            selection => Some(selection.to_string()),
        },
        dry_run: request.dry_run,
        verdict: decided.verdict,
        message: refusal.map(ToString::to_string),
        code: refusal.map(|refusal| refusal.code()),
        patch: redact_patch(request, redact, &outcome.patch),
        warnings: outcome.warnings.clone(),
        microseconds: micros(decided.duration),
        stages: outcome
            .trace
            .iter()
            .map(|row| stage_record(row, decided, redact))
            .collect(),
    }
}

fn stage_record(row: &TraceRow, decided: &DecidedRequest, redact: &[Redaction]) -> StageRecord {
    let mut record = StageRecord {
        chain: row.chain.to_string(),
        phase: row.phase,
        stage: row.stage.to_string(),
        round: row.round,
        mode: row.mode,
        result: row.result.as_str().to_owned(),
        reason: None,
        code: None,
        failure: None,
        policy: None,
        exception: row.exception.as_deref().map(str::to_owned),
        patch: None,
        start_microseconds: micros(row.start),
        microseconds: micros(row.duration),
        log: row.log.clone(),
        by_candidate: row.by_candidate,
    };
    match &row.result {
        StageResult::Skipped(reason) => record.reason = Some(reason.to_string()),
        StageResult::Denied(denial) => {
            record.reason = Some(denial.to_string());
            record.code = Some(denial.code());
        }
        StageResult::Failed { failure, policy } => {
            record.reason = Some(failure.message.clone());
            record.failure = Some(failure.kind.as_str().to_owned());
            record.policy = Some(*policy);
        }
        StageResult::Changed(changes) => record.patch = redact_patch(&decided.request, redact, changes),
        _ => {}
    }
    record
}

pub(super) fn decision_detail(id: u64, decided: &DecidedRequest, redact: &[Redaction]) -> DecisionDetail {
    let review = recording::build_recorded_request(decided, redact);
    let resulting = decided.resulting_object().filter(|_| review.is_some());
    let result = resulting.map(|object| redact_object(&decided.request, redact, object.value().clone()));
    DecisionDetail {
        decision: decision_record(id, decided, redact),
        review,
        result,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
