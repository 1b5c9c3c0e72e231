use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::Level;

/// How much a plugin may log in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Lines. Default 64.
    pub lines: u32,
    /// Bytes of all lines. Default 16 KiB.
    pub bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            lines: 64,
            bytes: 16 << 10,
        }
    }
}

/// The target of the events that plugins cause.
pub(crate) const TARGET: &str = "admittance::plugin";

/// How much of the end of standard error is kept for the message of a panic, in bytes.
const TAIL: usize = 4 << 10;

/// A line of a standard stream is cut here, in bytes.
const LINE: usize = 4 << 10;

/// The log of one call, shared between its store and the streams in it.
#[derive(Clone)]
pub(crate) struct CallLog(Arc<Mutex<Lines>>);

struct Lines {
    plugin: Arc<str>,
    uid: String,
    left: LogLimits,
    dropped: u64,
    out: Vec<u8>,
    err: Vec<u8>,
    /// The end of standard error, for the message of a panic.
    tail: Vec<u8>,
}

/// Which of the standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// An event with a level that is known only now. Formats nothing when nobody listens.
macro_rules! event {
    ($level:expr, $($rest:tt)*) => {
        match $level {
            Level::TRACE => tracing::trace!(target: TARGET, $($rest)*),
            Level::DEBUG => tracing::debug!(target: TARGET, $($rest)*),
            Level::INFO => tracing::info!(target: TARGET, $($rest)*),
            Level::WARN => tracing::warn!(target: TARGET, $($rest)*),
            Level::ERROR => tracing::error!(target: TARGET, $($rest)*),
        }
    };
}

/// Whether an event of this level would reach anybody.
fn enabled(level: Level) -> bool {
    match level {
        Level::TRACE => tracing::enabled!(target: TARGET, Level::TRACE),
        Level::DEBUG => tracing::enabled!(target: TARGET, Level::DEBUG),
        Level::INFO => tracing::enabled!(target: TARGET, Level::INFO),
        Level::WARN => tracing::enabled!(target: TARGET, Level::WARN),
        Level::ERROR => tracing::enabled!(target: TARGET, Level::ERROR),
    }
}

impl CallLog {
    pub(crate) fn new(plugin: Arc<str>, uid: String, limits: LogLimits) -> Self {
        Self(Arc::new(Mutex::new(Lines {
            plugin,
            uid,
            left: limits,
            dropped: 0,
            out: Vec::new(),
            err: Vec::new(),
            tail: Vec::new(),
        })))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nothing in here panics while it holds the lock, and a line lost would be all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One line through `wasi:logging`.
    pub(crate) fn line(&self, level: Level, context: &str, message: &str) {
        if enabled(level) {
            self.lines().emit(level, context, message);
        }
    }

    /// Bytes that the plugin wrote to a standard stream.
    pub(crate) fn write(&self, stream: Stream, bytes: &[u8]) {
        self.lines().write(stream, bytes);
    }

    /// The last lines of standard error, without line ends; empty when nothing was written.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.lines().tail).trim().to_owned()
    }

    /// The call has ended: what is in the streams is a line too, and what was dropped is told.
    pub(crate) fn finish(&self) {
        let mut lines = self.lines();
        for stream in [Stream::Out, Stream::Err] {
            let rest = std::mem::take(lines.pending(stream));
            lines.stream_line(stream, &rest);
        }
        let Lines {
            plugin, uid, dropped, ..
        } = &*lines;
        if *dropped > 0 {
            tracing::warn!(
                target: TARGET,
                plugin = &**plugin, uid = uid.as_str(), dropped,
                "the plugin logged more than a call may; the rest was dropped"
            );
        }
    }
}

impl Lines {
    fn emit(&mut self, level: Level, context: &str, message: &str) {
        let size = context.len() + message.len();
        if self.left.lines == 0 || self.left.bytes < size {
            self.dropped += 1;
            // A line that does not fit is the last one, or small ones would slip in behind it.
            self.left.lines = 0;
            return;
        }
        self.left.lines -= 1;
        self.left.bytes -= size;
        event!(
            level,
            plugin = &*self.plugin,
            uid = self.uid.as_str(),
            context,
            "{message}"
        );
    }

    fn pending(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Err {
            self.tail.extend_from_slice(bytes);
            let over = self.tail.len().saturating_sub(TAIL);
            self.tail.drain(..over);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let pending = self.pending(stream);
            let room = LINE.saturating_sub(pending.len());
            pending.extend_from_slice(part.get(..room).unwrap_or(part));
            if part.ends_with(b"\n") {
                let line = std::mem::take(pending);
                self.stream_line(stream, &line);
            }
        }
    }

    fn stream_line(&mut self, stream: Stream, line: &[u8]) {
        let (level, context) = match stream {
            Stream::Out => (Level::INFO, "stdout"),
            Stream::Err => (Level::WARN, "stderr"),
        };
        if enabled(level) {
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end();
            if !line.is_empty() {
                self.emit(level, context, line);
            }
        }
    }
}
