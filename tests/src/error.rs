use std::{io, path::PathBuf, time::Duration};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A build artifact is missing.
    #[error("{} is not there: run `{command}` first", path.display())]
    NotBuilt { path: PathBuf, command: &'static str },
    #[error("{} is not in a target directory of Cargo", .0.display())]
    NoTargetDirectory(PathBuf),
    /// An error of a socket, a file or a process.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{method} {url}: {reason}")]
    NoReply {
        method: http::Method,
        url: String,
        reason: String,
    },
    /// A connection broke after the head of the reply.
    #[error("{method} {url}: the reply broke off: {reason}")]
    BrokenReply {
        method: http::Method,
        url: String,
        reason: String,
    },
    /// The request is invalid, or the body is unexpected.
    #[error("{0}")]
    Invalid(String),
    /// The program exited while it should be serving.
    #[error("the program ended while {what} was awaited; its log:\n{log}")]
    Ended {
        what: String,
        /// The program's standard error.
        log: String,
    },
    /// An expected event did not happen within the limit, which exists only to end hanging tests.
    #[error("{what} did not come within {limit:?}; the log:\n{log}")]
    Never {
        what: String,
        limit: Duration,
        /// The program's standard error so far.
        log: String,
    },
}

impl Error {
    /// Returns a function that wraps an I/O error with a description of the operation.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
