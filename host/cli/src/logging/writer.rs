//! Writes log lines to standard error.
//!
//! A system call for each line of the access log would take longer than many requests, and wake whoever reads the log
//! for each of them. So these lines are collected, and written together a few milliseconds later. All other lines are
//! written at once, and the collected lines before them.

use std::{
    io::{self, StderrLock, Write, stderr},
    mem,
    sync::LazyLock,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// The target of the access log.
const ACCESS: &str = "admittance::access";

/// The time in which lines are collected.
const DELAY: Duration = Duration::from_millis(10);

/// The most bytes that are collected. A line that exceeds them is written at once, so that a slow reader of the log
/// slows requests down rather than filling the memory.
const MOST: usize = 64 << 10;

static COLLECTED: CollectedLines = CollectedLines::new();

/// Writes the lines that are still collected. Call it when the program ends.
pub(crate) fn flush() {
    // Nothing can be done about an error, not even logged.
    let _ = COLLECTED.write_to(&mut stderr().lock());
}

/// Standard error for lines of any target.
#[derive(Debug)]
pub(super) struct LogOutput;

/// Standard error for lines of one target.
#[derive(Debug)]
pub(super) struct LineOutput {
    is_access: bool,
}

impl<'w> MakeWriter<'w> for LogOutput {
    type Writer = LineOutput;

    fn make_writer(&'w self) -> LineOutput {
        LineOutput { is_access: false }
    }

    fn make_writer_for(&'w self, metadata: &Metadata<'_>) -> LineOutput {
        LineOutput {
            is_access: metadata.target() == ACCESS,
        }
    }
}

impl Write for LineOutput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_access && *IS_WRITTEN_LATER && COLLECTED.try_collect(line) {
            return Ok(line.len());
        }
        let mut output: StderrLock<'_> = stderr().lock();
        COLLECTED.write_to(&mut output)?;
        output.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a thread was started that writes the collected lines. The first collected line starts it.
static IS_WRITTEN_LATER: LazyLock<bool> = LazyLock::new(|| {
    #[allow(
        clippy::disallowed_methods,
        reason = "this thread waits and writes, and computes nothing"
    )]
    let started = thread::Builder::new().name("log".to_owned()).spawn(|| {
        loop {
            COLLECTED.wait();
            thread::sleep(DELAY);
            flush();
        }
    });
    started.is_ok()
});

/// Lines that are to be written together.
struct CollectedLines {
    lines: Mutex<Vec<u8>>,
    has_some: Condvar,
}

impl CollectedLines {
    const fn new() -> Self {
        Self {
            lines: Mutex::new(Vec::new()),
            has_some: Condvar::new(),
        }
    }

    /// Returns `false` if the line exceeds [`MOST`].
    fn try_collect(&self, line: &[u8]) -> bool {
        let mut lines = self.lines.lock();
        if lines.len() + line.len() > MOST {
            return false;
        }
        let is_first = lines.is_empty();
        lines.extend_from_slice(line);
        drop(lines);
        if is_first {
            self.has_some.notify_one();
        }
        true
    }

    fn wait(&self) {
        self.has_some
            .wait_while(&mut self.lines.lock(), |lines| lines.is_empty());
    }

    /// Writes all lines. The caller has locked the output, so that no later line is written before them.
    fn write_to(&self, output: &mut impl Write) -> io::Result<()> {
        let lines = mem::take(&mut *self.lines.lock());
        output.write_all(&lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_collected_in_their_order_up_to_the_limit() {
        let collected = CollectedLines::new();
        assert!(collected.try_collect(b"one\n"));
        assert!(collected.try_collect(b"two\n"));
        assert!(!collected.try_collect(&[b'x'; MOST]));
        let mut output = Vec::new();
        collected.write_to(&mut output).unwrap();
        assert_eq!(output, b"one\ntwo\n");
        assert!(collected.try_collect(&[b'x'; MOST]));
    }
}
