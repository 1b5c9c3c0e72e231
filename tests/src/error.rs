use std::{io, path::PathBuf, time::Duration};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that a build should have produced is missing.
    #[error("{} is not there: run `{command}` first", path.display())]
    NotBuilt { path: PathBuf, command: &'static str },
    #[error("{} is not in a target directory of Cargo", .0.display())]
    NoTargetDirectory(PathBuf),
    /// An operation on a socket, a file or a process failed.
    #[error("{operation}: {source}")]
    Io { operation: String, source: io::Error },
    #[error("{method} {url}: {reason}")]
    NoReply {
        method: http::Method,
        url: String,
        reason: String,
    },
    /// The connection broke after the head of a reply.
    #[error("{method} {url}: the reply broke off: {reason}")]
    BrokenReply {
        method: http::Method,
        url: String,
        reason: String,
    },
    /// A request is invalid, or the body of a reply is unexpected.
    #[error("{0}")]
    Invalid(String),
    /// The program under test exited although it should serve.
    #[error("the program ended while {event} was awaited; its log:\n{log}")]
    Ended {
        event: String,
        /// The text that the exited program wrote to standard error.
        log: String,
    },
    /// An expected event did not happen within the limit. The limit only ends tests that hang.
    #[error("{event} did not come within {limit:?}; the log:\n{log}")]
    Never {
        event: String,
        limit: Duration,
        /// The text that the running program has written to standard error.
        log: String,
    },
}

impl Error {
    /// Returns a function that turns an I/O error into an error with a description of the operation.
    pub fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }
}
