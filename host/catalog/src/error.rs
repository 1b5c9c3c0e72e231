use std::{io, path::PathBuf, sync::Arc, time::Duration};

use admittance_net::tls::TlsError;

use crate::{Digest, ModuleReference, OciReference, signature::SignatureError};

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("module {path}: {source}{advice}", path = path.display())]
    ModuleUnreadable {
        path: PathBuf,
        source: Arc<io::Error>,
        /// Advice on how to fix the error, after a semicolon; empty if there is none.
        advice: String,
    },
    #[error("module {location} has {size} bytes, more than the limit of {limit}: make a release build, and strip it")]
    ModuleTooLarge {
        location: String,
        /// The size of the module in bytes, or a lower bound if the server did not announce the size.
        size: u64,
        limit: u64,
    },
    #[error(
        "module {location} has the digest {actual}, and the definition requires {expected}: restore the module, or write the new digest"
    )]
    DigestMismatch {
        location: String,
        expected: Digest,
        actual: Digest,
    },
    #[error(
        "{location} does not match what the registry sent, which has the digest {actual}: a proxy changes the content, or the registry's storage is damaged"
    )]
    ContentMismatch { location: String, actual: Digest },
    #[error(
        "{location} is not a WebAssembly module: it begins with {beginning}; check that the reference names the `.wasm` file itself"
    )]
    NotWebAssembly { location: String, beginning: String },
    #[error(
        "oci://{reference} is not a WebAssembly artifact: it holds {content}; push the module with `admittance push` or another tool that writes one layer of the type `application/wasm`"
    )]
    NotAnArtifact {
        reference: Box<OciReference>,
        content: String,
    },
    #[error("{location} was not found: {message}; check the name, and that this user may read it")]
    NotFound { location: String, message: String },
    #[error("access to {location} was refused {credentials}: {message}; {advice}")]
    Unauthorized {
        location: String,
        /// The credentials that were sent, as a phrase that follows "access was refused", such as "as the user `ada`".
        credentials: String,
        message: String,
        advice: String,
    },
    #[error("no credentials for the registry {registry}: {problem}")]
    Credentials { registry: String, problem: String },
    #[error("{location} cannot be reached: {problem}; check the name, the network, and the proxy")]
    Unreachable { location: String, problem: String },
    #[error("timeout: nothing was received from {location} for {}; it is retried if the definition allows that", humantime::format_duration(*.waited))]
    TooSlow {
        location: String,
        /// The time for which the client waited for a connection, or for the next bytes.
        waited: Duration,
    },
    /// The TLS connection failed, because the server's certificate is invalid, or because the server does not use TLS.
    #[error("no TLS connection for {location}: {problem}")]
    Tls { location: String, problem: String },
    #[error(
        "the proxy refused the connection to {location}: {problem}; check the proxy's address and which destinations it allows"
    )]
    Proxy { location: String, problem: String },
    #[error("{location}: the server answered {status}: {message}{}", retry_hint(.again_after))]
    Status {
        location: String,
        status: u16,
        message: String,
        /// The pause before a retry that the server requested with `Retry-After`.
        again_after: Option<Duration>,
    },
    #[error("{location}: invalid response: {problem}")]
    BadAnswer { location: String, problem: String },
    #[error("CA file {0}")]
    Ca(TlsError),
    #[error("no modules can be fetched: {problem}")]
    Client { problem: String },
    #[error("nothing was pushed to {reference}: {problem}")]
    NotPushed {
        reference: Box<OciReference>,
        problem: String,
    },
    #[error("store {path}: {source}{}", store_advice(.source))]
    Store { path: PathBuf, source: Arc<io::Error> },
    /// Other users can write to the store, so they could replace the native code in it.
    #[error(
        "store {path}: {problem}; compiled code is read only from a directory that no other user can write (`chmod 700 {path}`)",
        path = path.display()
    )]
    StoreNotPrivate { path: PathBuf, problem: String },
    #[error(transparent)]
    Signature(Box<SignatureError>),
    #[error("module {reference} with the digest {digest} is no longer in the store: fetch it again")]
    NoLongerStored {
        reference: Box<ModuleReference>,
        digest: Digest,
    },
    /// The module is not in the store, and the call did not allow fetching it.
    #[error("module {reference} is not in the store and has not been fetched yet")]
    NotFetched { reference: Box<ModuleReference> },
    #[error(
        "module {reference}: this program can only read files; build it with the feature `registries` of the crate `admittance`"
    )]
    NoRegistries { reference: Box<ModuleReference> },
    #[error("the work on a module failed unexpectedly, please report it: {0}")]
    Panicked(String),
    #[error("the program is shutting down, and the work on a module was cancelled")]
    Stopped,
}

impl From<SignatureError> for Error {
    fn from(error: SignatureError) -> Self {
        Self::Signature(Box::new(error))
    }
}

impl Error {
    /// Returns whether a retry may succeed although definitions stay the same, as after a network error or a full disk.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooSlow { .. } | Self::Proxy { .. } | Self::NotFetched { .. } => true,
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
