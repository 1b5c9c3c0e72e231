//! Writes log lines to standard error.
//!
//! If each line of the access log were written by a system call of its own, that would take longer than many requests,
//! and wake the reader of the log each time. So these lines are collected for a few milliseconds, and then written
//! together. A line of any other log is written at once, after the collected lines.

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

const ACCESS_TARGET: &str = "admittance::access";

/// The time for which access lines are collected before they are written.
const WRITE_DELAY: Duration = Duration::from_millis(10);

/// The maximum size of the collected lines in bytes. A line for which there is no room is written at once.
const MAX_COLLECTED_SIZE: usize = 64 << 10;

static COLLECTED_LINES: CollectedLines = CollectedLines::new();

/// Writes the collected lines. Must be called before the program ends, because they would be lost.
pub(crate) fn flush() {
    let _ = COLLECTED_LINES.write_to(&mut stderr().lock());
}

#[derive(Debug)]
pub(super) struct LogOutput;

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
            is_access: metadata.target() == ACCESS_TARGET,
        }
    }
}

impl Write for LineOutput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_access && *IS_WRITTEN_LATER && COLLECTED_LINES.try_collect(line) {
            return Ok(line.len());
        }
        let mut output: StderrLock<'_> = stderr().lock();
        COLLECTED_LINES.write_to(&mut output)?;
        output.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static IS_WRITTEN_LATER: LazyLock<bool> = LazyLock::new(|| {
    #[allow(
        clippy::disallowed_methods,
        reason = "this thread waits and writes, and computes nothing"
    )]
    let started = thread::Builder::new().name("log".to_owned()).spawn(|| {
        loop {
            COLLECTED_LINES.wait_for_lines();
            thread::sleep(WRITE_DELAY);
            flush();
        }
    });
    started.is_ok()
});

struct CollectedLines {
    lines: Mutex<Vec<u8>>,
    lines_added: Condvar,
}

impl CollectedLines {
    const fn new() -> Self {
        Self {
            lines: Mutex::new(Vec::new()),
            lines_added: Condvar::new(),
        }
    }

    /// Returns `false`, and does not collect the line, if the collected lines would exceed [`MAX_COLLECTED_SIZE`].
    fn try_collect(&self, line: &[u8]) -> bool {
        let mut lines = self.lines.lock();
        if lines.len() + line.len() > MAX_COLLECTED_SIZE {
            return false;
        }
        let is_first = lines.is_empty();
        lines.extend_from_slice(line);
        drop(lines);
        if is_first {
            self.lines_added.notify_one();
        }
        true
    }

    fn wait_for_lines(&self) {
        self.lines_added
            .wait_while(&mut self.lines.lock(), |lines| lines.is_empty());
    }

    fn write_to(&self, output: &mut impl Write) -> io::Result<()> {
        let lines = mem::take(&mut *self.lines.lock());
        output.write_all(&lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_collected_in_their_order_up_to_the_limit() {
        let collected = CollectedLines::new();
        assert!(collected.try_collect(b"one\n"));
        assert!(collected.try_collect(b"two\n"));
        assert!(!collected.try_collect(&[b'x'; MAX_COLLECTED_SIZE]));
        let mut output = Vec::new();
        collected.write_to(&mut output).unwrap();
        assert_eq!(output, b"one\ntwo\n");
        assert!(collected.try_collect(&[b'x'; MAX_COLLECTED_SIZE]));
    }
}
