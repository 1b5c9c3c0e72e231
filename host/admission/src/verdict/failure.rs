use std::io;

use rustix::io::Errno;

use crate::{PatchError, keywords, verdict::shorten};

/// The failure of a stage whose hook could not give a verdict.
///
/// The stage's failure policy decides what happens to the request. Under the policy `Fail`, the client gets the
/// message, so it must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
#[non_exhaustive]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The message about the failure, with the fix where possible.
    pub message: String,
}

impl Failure {
    /// The maximum length of a failure's message, in bytes.
    pub const MAX_MESSAGE: usize = 4096;

    /// Creates a failure of this kind. The message is truncated to [`Failure::MAX_MESSAGE`].
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        shorten(&mut message, Self::MAX_MESSAGE);
        Self { kind, message }
    }

    /// Returns a failure if the error means that this machine or process has no file descriptors or memory left, which
    /// is not the fault of a plugin; `None` for other errors.
    pub fn of_exhaustion(error: &io::Error) -> Option<Self> {
        let reason = match Errno::from_io_error(error)? {
            Errno::MFILE => "this process has no file descriptors left; raise its limit (`ulimit -n`, LimitNOFILE)",
            Errno::NFILE => "the machine has no file descriptors left",
            Errno::NOMEM | Errno::NOBUFS => "the machine has no memory left for this process",
            _ => return None,
        };
        Some(Self::new(FailureKind::Overloaded, format!("{reason}: {error}")))
    }
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// The kinds of failures. Their names are the same in traces, metrics and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// The plugin trapped: it panicked, overflowed its stack or performed an invalid operation.
    Trap,
    /// The hook gave no verdict within the stage's timeout and the request's deadline.
    Timeout,
    /// The plugin exceeded its memory limit.
    Memory,
    /// The hook's response exceeded the stage's size limit.
    OutputTooLarge,
    /// The hook's response is invalid: invalid JSON, not an object, a wrong UID, or a patch without its type.
    InvalidResponse,
    /// The hook's patch is well formed, but cannot be applied to the object.
    PatchFailed,
    /// The hook's response would change a field that identifies the object.
    IdentityChanged,
    /// The plugin used a capability that its stage does not grant.
    CapabilityDenied,
    /// The call waited for a free slot until its deadline, or the host had no file descriptors or no memory left.
    Overloaded,
    /// The plugin or a native hook returned an error.
    Error,
    /// The webhook could not be reached, or the connection to it broke.
    Unreachable,
    /// The webhook's certificate is not valid, or the TLS handshake failed.
    Tls,
    /// The webhook replied with an HTTP status that is not a verdict.
    BadStatus,
    /// The namespace's labels could not be read, so the stage's namespace selector could not be evaluated.
    NamespaceUnknown,
    /// A match condition of the stage could not be evaluated.
    Condition,
}

keywords!(FailureKind, "failure": Trap = "trap", Timeout = "timeout", Memory = "memory",
    OutputTooLarge = "output-too-large", InvalidResponse = "invalid-response", PatchFailed = "patch-failed",
    IdentityChanged = "identity-changed", CapabilityDenied = "capability-denied", Overloaded = "overloaded",
    Error = "error", Unreachable = "unreachable", Tls = "tls", BadStatus = "bad-status",
    NamespaceUnknown = "namespace-unknown", Condition = "condition-failed");
