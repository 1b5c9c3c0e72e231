use std::{io, path::PathBuf};

/// Why a revision cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// There is no such revision.
    #[error("there is no revision {number}: {kept}")]
    Unknown {
        /// Its number.
        number: u64,
        /// Which there are.
        kept: String,
    },
    /// Another program has the directory.
    #[error(
        "history {}: it is in use by process {owner}; give each driver a directory of its own (`history: {{ directory: ... }}`)",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        owner: String,
    },
    /// A file or the directory cannot be read or written.
    #[error("history {}: {source}{}", path.display(), advice(source))]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The runtime is shutting down.
    #[error("the revision was not written: the program stops")]
    Stopped,
}

/// What to do about it, where that is known.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; name a directory that can be written (`history: { directory: ... }`)"
        }
        _ => "",
    }
}
