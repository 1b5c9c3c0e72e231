use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::sync::watch;

use crate::Error;

/// The timeout for waiting for an event. No event takes this long, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(crate) struct ProgramLog {
    pub(crate) lines: Vec<ProgramLogLine>,
    pub(crate) has_ended: bool,
}

impl ProgramLog {
    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .map(|line| line.text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[derive(Clone, Debug)]
pub struct ProgramLogLine {
    pub text: String,
    fields: Value,
}

impl ProgramLogLine {
    pub(crate) fn new(text: String) -> Self {
        let fields = serde_json::from_str(&text).unwrap_or_default();
        Self { text, fields }
    }

    pub fn message(&self) -> &str {
        self.field("message")
    }

    /// Returns a field of the line as text, or empty text if the field is missing or is not a string.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn fields(&self) -> &Value {
        &self.fields
    }

    pub(crate) fn address(&self, field: &str) -> Option<SocketAddr> {
        self.field(field).parse().ok()
    }
}

/// Waits for the first line that matches, from the line number `from` on, and returns the line. Lines that were written
/// before this call are searched, too.
pub(crate) async fn wait_for_log(
    mut log: watch::Receiver<ProgramLog>,
    from: usize,
    event: &str,
    condition: impl Fn(&ProgramLogLine) -> bool,
) -> Result<ProgramLogLine, Error> {
    let mut read_count = from;
    let mut matching_line = None;
    let wait = log.wait_for(|log| {
        matching_line = log.lines.iter().skip(read_count).find(|line| condition(line)).cloned();
        read_count = log.lines.len();
        matching_line.is_some() || log.has_ended
    });
    let wait_result = tokio::time::timeout(TEST_TIMEOUT, wait)
        .await
        .map(|outcome| outcome.map(|_| ()));
    let text = || log.borrow().text();
    match (matching_line, wait_result) {
        (Some(line), _) => Ok(line),
        (None, Ok(_)) => Err(Error::Ended {
            event: event.into(),
            log: text(),
        }),
        (None, Err(_)) => Err(Error::Never {
            event: event.into(),
            limit: TEST_TIMEOUT,
            log: text(),
        }),
    }
}
