use std::{io, path::PathBuf, time::Duration};

/// Why the surroundings of a test could not be set up or asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that is compiled beforehand is not there.
    #[error("{} is not there: run `{command}` first", path.display())]
    NotBuilt {
        /// Where it should be.
        path: PathBuf,
        /// What makes it.
        command: &'static str,
    },
    /// This program runs from outside of Cargo's target directory.
    #[error("{} is not in a target directory of Cargo", .0.display())]
    NoTargetDirectory(PathBuf),
    /// A socket, a file or a process.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A request got no reply.
    #[error("{method} {url}: {reason}")]
    NoReply {
        /// The request's method.
        method: http::Method,
        /// Where it went.
        url: String,
        /// Why, with all causes.
        reason: String,
    },
    /// A request that cannot be sent, or a body that is not what it should be.
    #[error("{0}")]
    Invalid(String),
    /// The program ended although it should be serving.
    #[error("the program ended while {what} was awaited; its log:\n{log}")]
    Ended {
        /// What was awaited.
        what: String,
        /// All that it wrote to standard error.
        log: String,
    },
    /// Something did not come at all. The limit only bounds a hanging test; nothing is timed by it.
    #[error("{what} did not come within {limit:?}; the log:\n{log}")]
    Never {
        /// What was awaited.
        what: String,
        /// How long.
        limit: Duration,
        /// All that was written to standard error until then.
        log: String,
    },
}

impl Error {
    /// From the error of a socket, a file or a process, with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
