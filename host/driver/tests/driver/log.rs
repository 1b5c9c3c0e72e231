use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// The lines that are logged on the thread of a test, which must be the only one that the test uses.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Until it is dropped, what this thread logs is kept.
pub(crate) struct Listening {
    _subscriber: DefaultGuard,
    /// While there is but one subscriber, what another thread logs first is asked of that thread alone, which has
    /// none, and then nobody hears of it.
    _second: tracing::Dispatch,
}

impl Log {
    /// Begin to listen.
    pub(crate) fn of_this_thread() -> (Self, Listening) {
        let log = Self::default();
        let second = tracing::Dispatch::new(tracing_subscriber::registry());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer({
            let log = log.clone();
            move || log.clone()
        });
        let listening = Listening {
            _subscriber: tracing::subscriber::set_default(subscriber.finish()),
            _second: second,
        };
        (log, listening)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
