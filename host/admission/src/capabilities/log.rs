//! What the task in which a stage is called knows of the call, and what the stage logs.

use std::{future::Future, sync::Arc};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mode, words};

/// The most lines of one call that are kept, and the most bytes of their texts.
const LINES: usize = 256;
const BYTES: usize = 64 << 10;

/// The severity of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is probably wrong.
    Warn,
    /// What an operator may want to know.
    #[default]
    Info,
    /// For whoever looks for a mistake.
    Debug,
    /// Everything.
    Trace,
}

words!(LogLevel, "log level": Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace");

/// A line that a stage logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Its severity.
    pub level: LogLevel,
    /// What it is about, in the plugin's own words; `stdout` and `stderr` for lines of the standard streams, `http` for
    /// requests that were sent for the plugin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The text.
    pub message: String,
}

/// What one call leaves in the row of its stage.
#[derive(Debug, Default)]
struct Notes {
    lines: Vec<LogLine>,
    /// The bytes of their texts.
    bytes: usize,
    by_candidate: bool,
    is_audit: bool,
}

tokio::task_local! {
    /// The notes of the stage that is called in this task. A task of its own, such as a comparison with a candidate, has
    /// none.
    static CURRENT: Arc<Mutex<Notes>>;
}

/// Changes the notes of the stage that is called in this task. Outside of such a call, nothing happens.
fn change(change: impl FnOnce(&mut Notes)) {
    // An error means that no stage is called.
    let _ = CURRENT.try_with(|notes| change(&mut notes.lock()));
}

impl LogLine {
    /// Adds the line to the row of the stage that is called in this task. Outside of such a call, and beyond its limits,
    /// the line is dropped.
    pub fn keep(self) {
        change(|kept| {
            let size = self.context.len() + self.message.len();
            if kept.lines.len() < LINES && kept.bytes + size <= BYTES {
                kept.bytes += size;
                kept.lines.push(self);
            }
        });
    }
}

/// Notes in the row of the stage that is called in this task that its candidate decides the request. Outside of such a
/// call, nothing happens.
pub fn decided_by_candidate() {
    change(|notes| notes.by_candidate = true);
}

/// Whether the stage that is called in this task is in mode `Audit`.
pub fn is_audit() -> bool {
    let is_audit = |notes: &Arc<Mutex<Notes>>| notes.lock().is_audit;
    CURRENT.try_with(is_audit).unwrap_or_default()
}

/// The future, which adds to the row of the stage that is called in this task wherever it is polled.
pub fn noted_here<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let notes = CURRENT.try_with(Arc::clone).unwrap_or_default();
    CURRENT.scope(notes, future)
}

/// The output of a call, the lines that were logged during it, and whether the stage's candidate decides.
pub(crate) async fn noted<F: Future>(mode: Mode, call: F) -> (F::Output, Vec<LogLine>, bool) {
    let notes = Arc::new(Mutex::new(Notes {
        is_audit: mode == Mode::Audit,
        ..Notes::default()
    }));
    let output = CURRENT.scope(Arc::clone(&notes), call).await;
    let notes = std::mem::take(&mut *notes.lock());
    (output, notes.lines, notes.by_candidate)
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
    async fn each_call_has_its_own_lines() {
        let call = async |name: &str| {
            line(name).keep();
            tokio::task::yield_now().await;
            // A task of its own has nothing to do with the call.
            tokio::spawn(async { line("elsewhere").keep() }).await.unwrap();
            let name = name.to_owned();
            let moved = noted_here(async move { line(&name).keep() });
            tokio::spawn(moved).await.unwrap();
        };
        let (((), one, _), ((), other, _)) =
            tokio::join!(noted(Mode::Enforce, call("a")), noted(Mode::Enforce, call("b")));
        assert_eq!(one, [line("a"), line("a")]);
        assert_eq!(other, [line("b"), line("b")]);
    }

    #[tokio::test]
    async fn a_call_is_by_the_candidate_if_it_says_so() {
        decided_by_candidate();
        let ((), _, plugin) = noted(Mode::Enforce, async {
            tokio::spawn(async { decided_by_candidate() }).await.unwrap()
        })
        .await;
        // What is noted stays when the call is given up.
        let call = async {
            decided_by_candidate();
            std::future::pending::<()>().await;
        };
        let timeout = tokio::time::timeout(std::time::Duration::ZERO, call);
        let (_, _, candidate) = noted(Mode::Enforce, timeout).await;
        assert!(!plugin && candidate);
    }

    #[tokio::test]
    async fn lines_are_bounded() {
        let ((), many, _) = noted(Mode::Enforce, async {
            (0..2 * LINES).for_each(|_| line("a").keep())
        })
        .await;
        assert_eq!(many.len(), LINES);
        let ((), long, _) = noted(Mode::Enforce, async {
            (0..3).for_each(|_| line(&"a".repeat(BYTES / 2)).keep())
        })
        .await;
        assert_eq!(long.len(), 2);
    }
}
