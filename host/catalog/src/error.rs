use std::{io, path::PathBuf};

use crate::{Digest, ModuleReference};

/// Why a module or its compiled form is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module's file cannot be read.
    #[error("module {path}: {source}", path = path.display())]
    ModuleUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Only files are read so far.
    #[error("module {0}: it is not on this machine")]
    NotHere(ModuleReference),
    /// The module is larger than the host takes.
    #[error("module {path} has {size} bytes, and at most {limit} are taken: is it a release build, stripped?", path = path.display())]
    ModuleTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The bytes are not those that the definition names.
    #[error(
        "module {path} has the digest {actual}, and the definition wants {expected}: restore the module, or write the new digest",
        path = path.display()
    )]
    DigestMismatch {
        /// The file.
        path: PathBuf,
        /// What the definition names.
        expected: Digest,
        /// What is there.
        actual: Digest,
    },
    /// The cache's directory cannot be made or used.
    #[error("cache {path}: {source}", path = path.display())]
    Cache {
        /// The directory or a file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others could write into the cache, and what is in it is run as native code.
    #[error(
        "cache {path}: {problem}; compiled code is only taken from a directory that is yours alone (`chmod 700`)",
        path = path.display()
    )]
    CacheNotPrivate {
        /// The directory.
        path: PathBuf,
        /// Whose it is, or who may write into it.
        problem: String,
    },
}
