//! Where definitions are kept.

mod files;
mod write;

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;

pub use self::files::FileStore;
use crate::{DefinitionFile, DefinitionId, FileChange, Mistakes};

/// A place that keeps definitions: files, the nodes of an ensemble, the resources of a cluster. Lives as
/// long as the host.
///
/// Every store behaves alike. What it holds are [`DefinitionFile`]s; the path of one says where it is, for
/// people too, and begins with [`location`](Self::location) unless it is a file of the system. The text of one
/// that is no file is JSON, which it may write in another way than it was given.
#[async_trait]
pub trait DefinitionStore: Send + Sync + Debug + 'static {
    /// Where it is, for people: `zookeeper:/blueking/admissionwebhook`.
    fn location(&self) -> String;

    /// Whether the definition file of this path is, or would be, in this store.
    fn owns(&self, path: &Path) -> bool;

    /// The path that a new definition of this name would have; none when this store does not take such
    /// definitions.
    fn place_for(&self, id: &DefinitionId) -> Option<PathBuf>;

    /// All content, sorted by path, including invalid definitions.
    ///
    /// # Errors
    ///
    /// When any of it cannot be reached: a store that is lost is never taken for an empty one.
    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError>;

    /// Writes all of these changes, or none. The store must own all paths.
    ///
    /// # Errors
    ///
    /// When what it holds is not what a change says was there before, or there would be two definitions for one
    /// operation and kind of BCS, also when both are written at the same moment; or it cannot be written. Nothing
    /// was changed then, unless the error says so.
    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError>;

    /// Whether a commit is all or nothing even when the program is killed in it. The host writes the changes of
    /// others to its history first, and completes them at its next start.
    fn is_transactional(&self) -> bool {
        true
    }

    /// Wait until it holds, or may hold, something else than the last [`read`](Self::read) gave; also when it
    /// is lost, and when it is there again. May be dropped and called again without missing anything. A read
    /// that failed counts: while the store stays lost nothing has changed.
    async fn changed(&self);
}

/// Why a store cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The definition was changed, or one of its name created, since the store was read.
    #[error("{path} was changed by someone else meanwhile; nothing was written, try again")]
    ChangedMeanwhile {
        /// The definition.
        path: PathBuf,
    },
    /// Another definition for the same operation and kind was created in the meantime.
    #[error(
        "{other} defines hooks for the same operation and kind as {path}, and BCS has one definition for each; nothing was written: put the hooks into one, or delete the other"
    )]
    Conflict {
        /// The path to be written.
        path: PathBuf,
        /// The path of the existing one.
        other: PathBuf,
    },
    /// It cannot be reached. The definitions that were read last stay live.
    #[error("{store} cannot be reached: {reason}")]
    Unreachable {
        /// [`DefinitionStore::location`].
        store: String,
        /// The error, and what to do about it.
        reason: String,
    },
    /// It refuses, for lack of a right for instance.
    #[error("{store} refused the request: {reason}")]
    Refused {
        /// [`DefinitionStore::location`].
        store: String,
        /// The error, and what to do about it.
        reason: String,
    },
    /// It does not take several changes at once.
    #[error("{store} takes one change at a time; make them one after another")]
    OneAtATime {
        /// [`DefinitionStore::location`].
        store: String,
    },
    /// What it holds cannot be definitions.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// A file cannot be written.
    #[error("{path} cannot be written, so nothing was changed: {source}")]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written, and a file that was written before it cannot be restored.
    #[error(
        "{path} cannot be written: {source}; {written} is changed already and cannot be restored: {restoring}"
    )]
    PartlyWritten {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
        /// The file that was written before.
        written: PathBuf,
        /// Why it is not restored.
        restoring: Box<StoreError>,
    },
}
