use std::sync::{Arc, LazyLock, Mutex};

use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, registry};

/// The log lines of a test, which must run on a single thread.
#[derive(Clone, Default)]
pub(crate) struct TestLog(Arc<Mutex<Vec<u8>>>);

/// Collects the log lines of the current thread until this guard is dropped.
pub(crate) struct LogGuard {
    _subscriber: DefaultGuard,
    /// A second subscriber, which receives nothing. If there were only one, `tracing` would ask it once for each kind
    /// of line, and apply the answer to all threads. With two, `tracing` asks the subscriber of the current thread for
    /// each line.
    _second_dispatch: tracing::Dispatch,
}

impl TestLog {
    pub(crate) fn of_this_thread() -> (Self, LogGuard) {
        let log = Self::default();
        let second = tracing::Dispatch::new(tracing_subscriber::registry());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer({
            let log = log.clone();
            move || log.clone()
        });
        let listening = LogGuard {
            _subscriber: tracing::subscriber::set_default(subscriber.finish()),
            _second_dispatch: second,
        };
        (log, listening)
    }

    /// Returns the audit log, which contains the entries of all tests.
    pub(crate) fn of_audits() -> Self {
        static AUDITS: LazyLock<TestLog> = LazyLock::new(|| {
            let log = TestLog::default();
            let writer = log.clone();
            let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
            let audits = Targets::new().with_target("admittance::audit", Level::INFO);
            let subscriber = registry().with(layer.with_filter(audits));
            tracing::subscriber::set_global_default(subscriber).unwrap();
            log
        });
        AUDITS.clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for TestLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
