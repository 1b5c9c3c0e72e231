//! The log of a call, which needs no grant. It contains the lines of `wasi:logging` and of the standard streams, and
//! the requests that the host sent for the plugin.

use std::sync::Arc;

use admittance_admission::{HttpError, LogLevel, LogLine, Uid, shortened};
use parking_lot::{Mutex, MutexGuard};
use tracing::Level;

use crate::{LogLimits, contract::bindings::wasi::logging::logging, store::CallState};

pub(crate) const TARGET: &str = "admittance::plugin";

/// The number of bytes kept of the end of standard error, which may be the message of a plugin's panic.
const MAX_TAIL: usize = 4 << 10;

/// The maximum length of a line of a standard stream, in bytes; longer lines are split.
const MAX_LINE: usize = 4 << 10;

/// The maximum number of HTTP requests that are logged in a call of a plugin.
const MAX_REQUESTS: u32 = 64;

#[derive(Clone)]
pub(crate) struct CallLog(Arc<Mutex<GuestLines>>);

struct GuestLines {
    plugin: Arc<str>,
    uid: Uid,
    remaining_limits: LogLimits,
    requests_left: u32,
    dropped_count: u64,
    is_closed: bool,
    pending_out: Vec<u8>,
    pending_err: Vec<u8>,
    stderr_tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Emits a log event with a level that is known only at run time.
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

fn is_enabled(level: Level) -> bool {
    match level {
        Level::TRACE => tracing::enabled!(target: TARGET, Level::TRACE),
        Level::DEBUG => tracing::enabled!(target: TARGET, Level::DEBUG),
        Level::INFO => tracing::enabled!(target: TARGET, Level::INFO),
        Level::WARN => tracing::enabled!(target: TARGET, Level::WARN),
        Level::ERROR => tracing::enabled!(target: TARGET, Level::ERROR),
    }
}

/// Returns whether a line of this level is stored with the decision. Lines for operators are stored even if the
/// program's own log leaves out their level.
fn is_level_kept(level: Level) -> bool {
    level <= Level::INFO || is_enabled(level)
}

fn keep_line(level: Level, context: &str, message: impl Into<String>) {
    let level = match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    };
    let line = LogLine {
        level,
        context: context.to_owned(),
        message: message.into(),
    };
    line.keep();
}

impl logging::Host for CallState {
    async fn log(&mut self, level: logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        let level = match level {
            logging::Level::Trace => Level::TRACE,
            logging::Level::Debug => Level::DEBUG,
            logging::Level::Info => Level::INFO,
            logging::Level::Warn => Level::WARN,
            logging::Level::Error | logging::Level::Critical => Level::ERROR,
        };
        self.log.log_line(level, &context, &message);
        Ok(())
    }
}

impl CallLog {
    pub(crate) fn new(plugin: Arc<str>, uid: Uid, limits: LogLimits) -> Self {
        Self(Arc::new(Mutex::new(GuestLines {
            plugin,
            uid,
            remaining_limits: limits,
            requests_left: MAX_REQUESTS,
            dropped_count: 0,
            is_closed: false,
            pending_out: Vec::new(),
            pending_err: Vec::new(),
            stderr_tail: Vec::new(),
        })))
    }

    fn lines(&self) -> MutexGuard<'_, GuestLines> {
        self.0.lock()
    }

    pub(crate) fn log_line(&self, level: Level, context: &str, message: &str) {
        if is_level_kept(level) {
            self.lines().emit(level, context, message);
        }
    }

    pub(crate) fn log_request(&self, request: &str, status: Result<u16, &HttpError>) {
        let mut lines = self.lines();
        if lines.is_closed {
            return;
        }
        if lines.requests_left == 0 {
            lines.dropped_count += 1;
            return;
        }
        lines.requests_left -= 1;
        let (plugin, uid) = (&*lines.plugin, lines.uid.as_str());
        let request = &*shortened(request, MAX_LINE);
        match status {
            Ok(status) => {
                keep_line(Level::INFO, "http", format!("{request}: {status}"));
                tracing::info!(target: TARGET, plugin, uid, request, status, "a request was sent");
            }
            Err(error) => {
                keep_line(Level::INFO, "http", format!("{request}: {error}"));
                tracing::info!(target: TARGET, plugin, uid, request, %error, "a request was not answered");
            }
        }
    }

    pub(crate) fn write(&self, stream: Stream, bytes: &[u8]) {
        self.lines().write(stream, bytes);
    }

    pub(crate) fn stderr_tail(&self) -> String {
        String::from_utf8_lossy(&self.lines().stderr_tail).trim().to_owned()
    }

    /// Ends the log of a call: logs incomplete lines, and the number of dropped lines.
    pub(crate) fn finish(&self) {
        self.lines().finish();
    }

    /// Ends the log of a cancelled call, and ignores lines that its guest may still write on another thread.
    pub(crate) fn close(&self) {
        let mut lines = self.lines();
        lines.finish();
        lines.is_closed = true;
    }
}

impl GuestLines {
    fn finish(&mut self) {
        if self.is_closed {
            return;
        }
        for stream in [Stream::Out, Stream::Err] {
            let last_line = std::mem::take(self.pending_line(stream));
            self.emit_stream_line(stream, &last_line);
        }
        let dropped = std::mem::take(&mut self.dropped_count);
        if dropped > 0 {
            keep_line(
                Level::WARN,
                "",
                format!("{dropped} more lines exceeded the log limit of a call"),
            );
            tracing::warn!(
                target: TARGET,
                plugin = &*self.plugin, uid = self.uid.as_str(), dropped,
                "the plugin exceeded the log limit of a call; the rest was dropped"
            );
        }
    }

    fn emit(&mut self, level: Level, context: &str, message: &str) {
        if self.is_closed {
            return;
        }
        let size = context.len() + message.len();
        if self.remaining_limits.lines == 0 || self.remaining_limits.bytes < size {
            self.dropped_count += 1;
            // This line does not fit into the log. To avoid gaps, all later lines are dropped too, even shorter ones.
            self.remaining_limits.lines = 0;
            return;
        }
        self.remaining_limits.lines -= 1;
        self.remaining_limits.bytes -= size;
        keep_line(level, context, message);
        event!(
            level,
            plugin = &*self.plugin,
            uid = self.uid.as_str(),
            context,
            "{message}"
        );
    }

    fn pending_line(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Out => &mut self.pending_out,
            Stream::Err => &mut self.pending_err,
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Err {
            self.stderr_tail.extend_from_slice(bytes);
            let excess = self.stderr_tail.len().saturating_sub(MAX_TAIL);
            self.stderr_tail.drain(..excess);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let pending = self.pending_line(stream);
            let room = MAX_LINE.saturating_sub(pending.len());
            pending.extend_from_slice(part.get(..room).unwrap_or(part));
            if part.ends_with(b"\n") {
                let line = std::mem::take(pending);
                self.emit_stream_line(stream, &line);
            }
        }
    }

    fn emit_stream_line(&mut self, stream: Stream, line: &[u8]) {
        let (level, context) = match stream {
            Stream::Out => (Level::INFO, "stdout"),
            Stream::Err => (Level::WARN, "stderr"),
        };
        if is_level_kept(level) {
            let text = String::from_utf8_lossy(line);
            let line = text.trim_end();
            if !line.is_empty() {
                self.emit(level, context, line);
            }
        }
    }
}

#[cfg(test)]
mod tests;
