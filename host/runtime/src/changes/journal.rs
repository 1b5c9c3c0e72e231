//! Writes the outcome of a request to the log if an operator should know about it. All outcomes are counted in metrics.

use std::io::{self, Write};

use admittance_admission::{Mode, Outcome, Patch, StageResult, TraceRow};

/// The maximum length of a patch in the log, in bytes. The rest is cut off.
const MAX_PATCH_LENGTH: usize = 4 << 10;

pub(crate) fn log_outcome(outcome: &Outcome) {
    for row in &outcome.trace {
        log_row(outcome, row);
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

fn log_row(outcome: &Outcome, row: &TraceRow) {
    let TraceRow { chain, stage, mode, .. } = row;
    let uid = &outcome.uid;
    if let Some(exception) = &row.exception {
        tracing::info!(target: "admittance::audit", %uid, %chain, %stage, %exception, "an exception let the request pass");
    }
    match (&row.result, mode) {
        (StageResult::Failed { failure, policy }, _) => {
            let kind = failure.kind;
            tracing::warn!(target: "admittance::journal", %uid, %chain, %stage, failure = %kind, %policy, %mode, "a stage failed: {}", failure.message);
        }
        (StageResult::Denied(denial), Mode::Audit) => {
            tracing::info!(target: "admittance::audit", %uid, %chain, %stage, "would have been denied: {denial}");
        }
        (StageResult::Changed(patch), Mode::Audit) => {
            tracing::info!(target: "admittance::audit", %uid, %chain, %stage, "would have been changed: {}", patch_text(patch));
        }
        _ => {}
    }
}

fn patch_text(patch: &Patch) -> String {
    let mut beginning = TruncatedWriter(Vec::with_capacity(256));
    // The writer accepts only the beginning of a long text. After that, `to_writer` returns an error.
    let is_whole = serde_json::to_writer(&mut beginning, patch).is_ok();
    let mut text = String::from_utf8_lossy(&beginning.0).into_owned();
    if !is_whole {
        text.push_str("...");
    }
    text
}

struct TruncatedWriter(Vec<u8>);

impl Write for TruncatedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fit = bytes.len().min(MAX_PATCH_LENGTH.saturating_sub(self.0.len()));
        self.0.write(bytes.get(..fit).unwrap_or_default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_large_patch_is_logged() {
        let patch = |length: usize| {
            let builder = Patch::builder().add("/a", &"é".repeat(length)).unwrap();
            builder.build()
        };
        let short = patch(1_000);
        assert_eq!(patch_text(&short), short.to_string());
        let long = patch_text(&patch(1_000_000));
        assert!(
            long.starts_with(r#"[{"op":"add","path":"/a","value":"éé"#),
            "{long:.60}"
        );
        assert!(
            long.len() < MAX_PATCH_LENGTH + 10 && long.ends_with("..."),
            "{}",
            long.len()
        );
    }
}
