//! The notes that a stage's call adds to the trace, such as log lines. They are in a task-local variable, so that hooks
//! and requests need not pass them on.

use std::{future::Future, sync::Arc};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mode, keywords};

/// The maximum number of log lines that the trace keeps of one hook call.
const MAX_LINES: usize = 256;
/// The maximum total size of the log lines that the trace keeps of one hook call, in bytes.
const MAX_LINES_SIZE: usize = 64 << 10;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// The plugin failed at something, or something is broken.
    Error,
    /// A probable problem.
    Warn,
    /// Information for operators.
    #[default]
    Info,
    /// Information for the plugin's developers who look for a mistake.
    Debug,
    /// Every detail.
    Trace,
}

keywords!(LogLevel, "log level": Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace");

/// A line that a stage logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The severity of the line.
    pub level: LogLevel,
    /// The topic, chosen by the plugin; `stdout` and `stderr` for lines of the standard streams, `http` for requests
    /// that the host sent for the plugin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The text of the line.
    pub message: String,
}

#[derive(Debug, Default)]
struct CallNotes {
    lines: Vec<LogLine>,
    bytes: usize,
    by_candidate: bool,
    is_audit: bool,
}

tokio::task_local! {
    static CURRENT: Arc<Mutex<CallNotes>>;
}

fn change_notes(change: impl FnOnce(&mut CallNotes)) {
    let _ = CURRENT.try_with(|notes| change(&mut notes.lock()));
}

impl LogLine {
    /// Adds this line to the log lines of the stage that this task is calling. Drops the line if the stage has too many
    /// log lines already, or if this task is calling no stage.
    pub fn keep(self) {
        change_notes(|notes| {
            let size = self.context.len() + self.message.len();
            if notes.lines.len() < MAX_LINES && notes.bytes + size <= MAX_LINES_SIZE {
                notes.bytes += size;
                notes.lines.push(self);
            }
        });
    }
}

/// Records that the candidate plugin of the stage decides the request. Does nothing if this task is calling no stage.
pub fn record_candidate_decision() {
    change_notes(|notes| notes.by_candidate = true);
}

/// Returns whether the stage that this task is calling has the mode `Audit`.
pub fn is_audit() -> bool {
    let is_audit = |notes: &Arc<Mutex<CallNotes>>| notes.lock().is_audit;
    CURRENT.try_with(is_audit).unwrap_or_default()
}

/// Wraps a future that another task will poll. The log lines that it writes still belong to the current call of a hook.
pub(crate) fn share_current_notes<F: Future>(future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(CURRENT.try_with(Arc::clone).unwrap_or_default(), future)
}

/// Runs the call of a stage's hook. Returns its output, its log lines, and whether the stage's candidate plugin was
/// called instead of its plugin.
pub(crate) async fn run_with_notes<F: Future>(mode: Mode, call: F) -> (F::Output, Vec<LogLine>, bool) {
    let notes = Arc::new(Mutex::new(CallNotes {
        is_audit: mode == Mode::Audit,
        ..CallNotes::default()
    }));
    let output = CURRENT.scope(Arc::clone(&notes), call).await;
    let call_notes = std::mem::take(&mut *notes.lock());
    (output, call_notes.lines, call_notes.by_candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> LogLine {
        LogLine {
            level: LogLevel::Info,
            context: String::new(),
            message: message.to_owned(),
        }
    }

    #[tokio::test]
    async fn each_call_has_its_own_log_lines() {
        let call = async |name: &str| {
            line(name).keep();
            tokio::task::yield_now().await;
            tokio::spawn(async { line("elsewhere").keep() }).await.unwrap();
            let name = name.to_owned();
            let moved = share_current_notes(async move { line(&name).keep() });
            tokio::spawn(moved).await.unwrap();
        };
        let (((), one, _), ((), other, _)) = tokio::join!(
            run_with_notes(Mode::Enforce, call("a")),
            run_with_notes(Mode::Enforce, call("b"))
        );
        assert_eq!(one, [line("a"), line("a")]);
        assert_eq!(other, [line("b"), line("b")]);
    }

    #[tokio::test]
    async fn the_notes_of_a_call_show_that_a_candidate_decided() {
        record_candidate_decision();
        let ((), _, plugin) = run_with_notes(Mode::Enforce, async {
            tokio::spawn(async { record_candidate_decision() }).await.unwrap()
        })
        .await;
        let call = async {
            record_candidate_decision();
            std::future::pending::<()>().await;
        };
        let timeout = tokio::time::timeout(std::time::Duration::ZERO, call);
        let (_, _, candidate) = run_with_notes(Mode::Enforce, timeout).await;
        assert!(!plugin && candidate);
    }

    #[tokio::test]
    async fn the_log_lines_of_a_call_are_limited_in_number_and_size() {
        let ((), many, _) = run_with_notes(Mode::Enforce, async {
            (0..2 * MAX_LINES).for_each(|_| line("a").keep())
        })
        .await;
        assert_eq!(many.len(), MAX_LINES);
        let ((), long, _) = run_with_notes(Mode::Enforce, async {
            (0..3).for_each(|_| line(&"a".repeat(MAX_LINES_SIZE / 2)).keep())
        })
        .await;
        assert_eq!(long.len(), 2);
    }
}
