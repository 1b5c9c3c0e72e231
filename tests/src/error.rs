use std::{io, path::PathBuf, time::Duration};

/// Errors of the environment of a test.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A build artifact is missing.
    #[error("{} is not there: run `{command}` first", path.display())]
    NotBuilt { path: PathBuf, command: &'static str },
    /// This program is not in Cargo's target directory.
    #[error("{} is not in a target directory of Cargo", .0.display())]
    NoTargetDirectory(PathBuf),
    /// An error of a socket, a file or a process.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A request got no reply.
    #[error("{method} {url}: {reason}")]
    NoReply {
        method: http::Method,
        url: String,
        /// The error with all causes.
        reason: String,
    },
    /// A reply broke off after its head.
    #[error("{method} {url}: the reply broke off: {reason}")]
    BrokenReply {
        method: http::Method,
        url: String,
        /// The error with all causes.
        reason: String,
    },
    /// A request that cannot be sent, or an unexpected body.
    #[error("{0}")]
    Invalid(String),
    /// The program exited although it should be serving.
    #[error("the program ended while {what} was awaited; its log:\n{log}")]
    Ended {
        what: String,
        /// The text that the program wrote to standard error.
        log: String,
    },
    /// Something did not happen within the limit, which only ends hanging tests.
    #[error("{what} did not come within {limit:?}; the log:\n{log}")]
    Never {
        what: String,
        limit: Duration,
        /// The text that the program had written to standard error until then.
        log: String,
    },
}

impl Error {
    /// Converts an error of a socket, a file or a process, with a description of the operation.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
