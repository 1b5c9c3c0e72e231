use std::{fmt, io};

use rustix::io::Errno;

use crate::{PatchError, verdict::shorten};

/// A stage could not give a verdict: the kind of failure, and a message.
///
/// The stage's failure policy decides what happens to the request. Under `Fail` the message is sent to the
/// client, so it must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
#[non_exhaustive]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// Describes what happened and, where it helps, what to do.
    pub message: String,
}

impl Failure {
    /// The longest message, in bytes.
    pub const MAX_MESSAGE: usize = 4096;

    /// Creates a failure of this kind, with a message, which is truncated to [`Failure::MAX_MESSAGE`].
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        shorten(&mut message, Self::MAX_MESSAGE);
        Self { kind, message }
    }

    /// Returns the failure of a stage for which the operating system had no file descriptors or no memory left; `None`
    /// for any other error. The plugin or webhook is not at fault.
    pub fn of_exhaustion(error: &io::Error) -> Option<Self> {
        let what = match Errno::from_io_error(error)? {
            Errno::MFILE => {
                "this process has no file descriptors left; raise its limit (`ulimit -n`, LimitNOFILE)"
            }
            Errno::NFILE => "the machine has no file descriptors left",
            Errno::NOMEM | Errno::NOBUFS => "the machine has no memory left for this process",
            _ => return None,
        };
        Some(Self::new(FailureKind::Overloaded, format!("{what}: {error}")))
    }
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// The kinds of failures of a stage. The names are the same in traces, metrics and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// The plugin trapped: it panicked, overflowed its stack or performed an invalid operation.
    Trap,
    /// The stage gave no verdict within its timeout or the request's deadline.
    Timeout,
    /// The plugin exceeded its memory limit.
    Memory,
    /// The answer exceeded the stage's limit.
    OutputTooLarge,
    /// The answer is not valid: invalid JSON, not an object, a wrong uid, a patch without its type.
    InvalidResponse,
    /// The patch is well formed but does not apply to the object.
    PatchFailed,
    /// The answer changes the identity of the object.
    IdentityChanged,
    /// The plugin used something that its stage does not grant.
    CapabilityDenied,
    /// The call got no free slot within its deadline, or no file descriptors or memory were left for it.
    Overloaded,
    /// The plugin or a native hook returned an error.
    Error,
    /// The webhook could not be reached, or the connection failed.
    Unreachable,
    /// The webhook's certificate is not valid, or the TLS handshake failed.
    Tls,
    /// The webhook answered with an HTTP status that is not a verdict.
    BadStatus,
    /// The labels of the request's namespace could not be read, so the selector could not be evaluated.
    NamespaceUnknown,
    /// A match condition of the stage could not be evaluated.
    Condition,
}

impl FailureKind {
    /// Every kind, for tables and for metrics that start at zero.
    pub const ALL: &'static [Self] = &[
        Self::Trap,
        Self::Timeout,
        Self::Memory,
        Self::OutputTooLarge,
        Self::InvalidResponse,
        Self::PatchFailed,
        Self::IdentityChanged,
        Self::CapabilityDenied,
        Self::Overloaded,
        Self::Error,
        Self::Unreachable,
        Self::Tls,
        Self::BadStatus,
        Self::NamespaceUnknown,
        Self::Condition,
    ];

    /// Returns the name in traces, metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::OutputTooLarge => "output-too-large",
            Self::InvalidResponse => "invalid-response",
            Self::PatchFailed => "patch-failed",
            Self::IdentityChanged => "identity-changed",
            Self::CapabilityDenied => "capability-denied",
            Self::Overloaded => "overloaded",
            Self::Error => "error",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::BadStatus => "bad-status",
            Self::NamespaceUnknown => "namespace-unknown",
            Self::Condition => "condition-failed",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
