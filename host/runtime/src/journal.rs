//! What the host says in the log of each outcome, beside its metrics.

use admittance_admission::{Mode, Outcome, StageResult, TraceRow};

/// Failures, what audited stages would have done, and the stages' notes for the audit log.
pub(crate) fn write(outcome: &Outcome) {
    for row in &outcome.trace {
        write_row(outcome, row);
    }
    for note in &outcome.audit_annotations {
        tracing::info!(
            target: "admittance::audit",
            uid = %outcome.uid,
            stage = %note.stage,
            key = note.key,
            value = note.value,
            "a stage notes"
        );
    }
}

fn write_row(outcome: &Outcome, row: &TraceRow) {
    let TraceRow {
        chain, stage, mode, ..
    } = row;
    let uid = &outcome.uid;
    if let Some(exception) = &row.exception {
        tracing::info!(target: "admittance::audit", %uid, %chain, %stage, %exception, "an exception let the request pass");
    }
    match (&row.result, mode) {
        (StageResult::Failed { failure, policy }, _) => {
            let kind = failure.kind;
            tracing::warn!(%uid, %chain, %stage, failure = %kind, %policy, %mode, "a stage failed: {}", failure.message);
        }
        (StageResult::Denied(denial), Mode::Audit) => {
            tracing::info!(target: "admittance::audit", %uid, %chain, %stage, "would have been denied: {denial}");
        }
        (StageResult::Changed(patch), Mode::Audit) => {
            tracing::info!(target: "admittance::audit", %uid, %chain, %stage, "would have been changed: {patch}");
        }
        _ => {}
    }
}
