use std::{io, path::PathBuf};

/// The reason why a revision could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The history does not contain the requested revision. The text contains the number of this revision, and says
    /// which revisions exist.
    #[error("there is no revision {0}")]
    Unknown(String),
    /// Another program uses the history's directory.
    #[error(
        "history {}: it is in use by process {owner}; give each host a history directory of its own",
        path.display()
    )]
    InUse {
        /// The directory that the other program uses.
        path: PathBuf,
        /// The id of the process that uses the directory.
        owner: String,
    },
    /// A file or the directory of the history cannot be read or written.
    #[error("history {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The path of the file or directory that cannot be read or written.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The runtime is shutting down.
    #[error("the revision was not written: the program stops")]
    Stopped,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; name a history directory that can be written"
        }
        _ => "",
    }
}
