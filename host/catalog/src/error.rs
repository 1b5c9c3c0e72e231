use std::{io, path::PathBuf, sync::Arc, time::Duration};

use admittance_net::tls::TlsError;

use crate::{Digest, ModuleReference, OciReference, signature::SignatureError, stock};

/// An error of fetching, checking, storing or pushing a module.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module's file cannot be read.
    #[error("module {path}: {source}{advice}", path = path.display(), advice = stock::advice(path))]
    ModuleUnreadable { path: PathBuf, source: Arc<io::Error> },
    /// The module is larger than the limit.
    #[error(
        "module {place} has {size} bytes, more than the limit of {limit}: make a release build, and strip it"
    )]
    ModuleTooLarge {
        place: String,
        /// The size in bytes; a lower bound when the server did not announce it.
        size: u64,
        limit: u64,
    },
    /// The bytes do not have the digest that the definition names.
    #[error(
        "module {place} has the digest {actual}, and the definition requires {expected}: restore the module, or write the new digest"
    )]
    DigestMismatch {
        place: String,
        expected: Digest,
        actual: Digest,
    },
    /// A registry sent content with another digest than requested.
    #[error(
        "{place} does not match what the registry sent, which has the digest {actual}: a proxy changes the content, or the registry's storage is damaged"
    )]
    ContentMismatch { place: String, actual: Digest },
    /// The bytes are not WebAssembly.
    #[error(
        "{place} is not a WebAssembly module: it begins with {found}; check that the reference names the `.wasm` file itself"
    )]
    NotWebAssembly { place: String, found: String },
    /// The artifact in the registry holds no module, or more than one.
    #[error(
        "oci://{reference} is not a WebAssembly artifact: it holds {found}; push the module with `admittance push` or another tool that writes one layer of the type `application/wasm`"
    )]
    NotAnArtifact {
        reference: Box<OciReference>,
        found: String,
    },
    /// The server does not have the module.
    #[error("{place} was not found: {message}; check the name, and that this user may read it")]
    NotFound { place: String, message: String },
    /// The server requires other credentials.
    #[error("access to {place} was refused {with}: {message}; {advice}")]
    Unauthorized {
        place: String,
        /// The credentials that were used, as the rest of a sentence.
        with: String,
        message: String,
        advice: String,
    },
    /// The credentials for a registry cannot be read.
    #[error("no credentials for the registry {registry}: {problem}")]
    Credentials { registry: String, problem: String },
    /// The connection failed.
    #[error("{place} cannot be reached: {problem}; check the name, the network, and the proxy")]
    Unreachable { place: String, problem: String },
    /// The server did not send anything in time.
    #[error("timeout: nothing was received from {place} for {}; it is retried if the definition allows that", humantime::format_duration(*.waited))]
    TooSlow {
        place: String,
        /// The time that the client waited for the connection or the next bytes.
        waited: Duration,
    },
    /// The server's certificate is not accepted, or it does not speak TLS.
    #[error("no TLS connection for {place}: {problem}")]
    Tls { place: String, problem: String },
    /// The proxy refused the connection.
    #[error(
        "the proxy refused the connection to {place}: {problem}; check the proxy's address and which destinations it allows"
    )]
    Proxy { place: String, problem: String },
    /// The server answered with an error.
    #[error("{place}: the server answered {status}: {message}{}", retry_hint(.again_after))]
    Status {
        place: String,
        status: u16,
        message: String,
        /// The time after which the server wants a retry (`Retry-After`).
        again_after: Option<Duration>,
    },
    /// The answer violates the protocol.
    #[error("{place}: invalid response: {problem}")]
    BadAnswer { place: String, problem: String },
    /// The file of CAs cannot be used.
    #[error("CA file {0}")]
    Ca(TlsError),
    /// The HTTP client cannot be created.
    #[error("no modules can be fetched: {problem}")]
    Client { problem: String },
    /// The module cannot be pushed.
    #[error("nothing was pushed to {reference}: {problem}")]
    NotPushed {
        reference: Box<OciReference>,
        problem: String,
    },
    /// The store cannot be made, read or written.
    #[error("store {path}: {source}{}", store_advice(.source))]
    Store { path: PathBuf, source: Arc<io::Error> },
    /// Other users could write to the store, and its contents run as native code.
    #[error(
        "store {path}: {problem}; compiled code is read only from a directory that no other user can write (`chmod 700 {path}`)",
        path = path.display()
    )]
    StoreNotPrivate { path: PathBuf, problem: String },
    /// The module does not have the signature that the policy requires.
    #[error(transparent)]
    Signature(Box<SignatureError>),
    /// A module that was used before is no longer in the store.
    #[error("module {reference} with the digest {digest} is no longer in the store: fetch it again")]
    NotKept {
        reference: Box<ModuleReference>,
        digest: Digest,
    },
    /// The module is not in the store, and fetching was not allowed.
    #[error("module {reference} is not in the store and has not been fetched yet")]
    NotFetched { reference: Box<ModuleReference> },
    /// The program was built without the feature `registries`.
    #[error(
        "module {reference}: this program can only read files; build it with the feature `registries` of the crate `admittance`"
    )]
    NoRegistries { reference: Box<ModuleReference> },
    /// Work on a blocking thread panicked, which is a defect of this program.
    #[error("the work on a module failed unexpectedly, please report it: {0}")]
    Panicked(String),
    /// The program is shutting down.
    #[error("the program is shutting down, and the work on a module was cancelled")]
    Stopped,
}

impl From<SignatureError> for Error {
    fn from(error: SignatureError) -> Self {
        Self::Signature(Box::new(error))
    }
}

impl Error {
    /// Returns whether a retry may succeed without a change of definitions: network errors, server errors, a full disk.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::TooSlow { .. }
            | Self::Proxy { .. }
            | Self::NotFetched { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Store { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted
            ),
            _ => false,
        }
    }
}

fn retry_hint(after: &Option<Duration>) -> String {
    after.map_or_else(String::new, |after| {
        format!("; it asks for a retry in {}", humantime::format_duration(after))
    })
}

/// Returns advice about errors of the store that have a usual cause.
fn store_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room on that file system, or name another store directory"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; its contents are used, and nothing can be added: mount it writable, or name another store directory"
        }
        io::ErrorKind::PermissionDenied => {
            "; give the directory to the user that this program runs as (`chown`), or name another store directory"
        }
        _ => "",
    }
}
