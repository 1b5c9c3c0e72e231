//! Stores of definitions: the trait of all stores, and the store of files.

mod enforcement_loss;
mod files;
mod reading;
mod write;

use std::{
    borrow::Cow,
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use admittance_admission::keywords;
use async_trait::async_trait;
use serde_json::Value as Json;

use self::reading::file_mistake;
pub(crate) use self::reading::read_readable_files;
pub use self::{
    files::FileStore,
    reading::{empty_directory_mistake, files_in, read_files},
};
use crate::{
    DefinitionId, FileChange, Mistakes,
    document::{self, Document},
};

/// Whether a store contains files or entries. The main difference is the effect of a mistake: a mistake in one file
/// keeps all files from going live, but a mistake in an entry affects only this entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// Files, which people edit: YAML or JSON, with one or several documents, and with paths relative to the file's
    /// directory. All files go live together: a mistake in one of them keeps the last valid definitions live. A commit
    /// replaces files one by one, so the host first writes the commit to its history, and completes it at the next
    /// start if necessary.
    Files,
    /// Entries in a store that several programs share. Each entry is one definition as JSON without relative paths, and
    /// the store may reformat it. An invalid entry does not affect the others. A commit is one transaction.
    #[default]
    Entries,
}

impl StoreKind {
    fn text_noun(self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Entries => "entry",
        }
    }
}

keywords!(StoreKind, "kind of store": Files = "files", Entries = "entries");

/// A text in a store of definitions: a file with one or several definitions, or an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionFile {
    /// The path of the file, or the location of the entry in its store.
    pub path: PathBuf,
    /// The whole text of the file or entry.
    pub text: String,
    /// Whether the text is in a file or in an entry.
    pub kind: StoreKind,
    /// The ID of the definition that belongs at this path, if the store tells it. It identifies even an invalid entry.
    pub expected_id: Option<DefinitionId>,
}

impl DefinitionFile {
    /// Creates a file with this path and text.
    pub fn file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self::new(StoreKind::Files, path, text)
    }

    /// Creates an entry with this path and text. In some stores, the path tells which definition the entry contains,
    /// even if the text is invalid. `expected_id` is the ID of this definition; `None` in other stores.
    pub fn entry(
        path: impl Into<PathBuf>,
        text: impl Into<String>,
        expected_id: impl Into<Option<DefinitionId>>,
    ) -> Self {
        Self {
            expected_id: expected_id.into(),
            ..Self::new(StoreKind::Entries, path, text)
        }
    }

    /// Creates a file or an entry for which only its text tells which definition it contains. If the path of an entry
    /// tells this too, use [`entry`](Self::entry).
    pub fn new(kind: StoreKind, path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            kind,
            expected_id: None,
        }
    }

    /// Returns the text in a form that stays the same if a store reformats it. The keys of an entry are sorted, one on
    /// each line. The text of a file is returned unchanged.
    pub fn normalized(&self) -> Cow<'_, str> {
        match serde_json::from_str::<Json>(&self.text) {
            Ok(mut value) if self.kind == StoreKind::Entries => {
                value.sort_all_objects();
                Cow::Owned(format!("{value:#}\n"))
            }
            _ => Cow::Borrowed(&self.text),
        }
    }

    /// Parses the documents in the text. Having none is a mistake, because a file may have lost its content.
    pub(crate) fn documents(&self, mistakes: &mut Mistakes) -> Vec<Document> {
        let mistakes_before = mistakes.len();
        let documents = match self.kind {
            StoreKind::Files => document::read_text_of(&self.path, &self.text, mistakes),
            StoreKind::Entries => document::read_stored(&self.path, &self.text, mistakes),
        };
        if documents.is_empty() && mistakes.len() == mistakes_before {
            let fix = format!("to remove its definitions, delete the {}", self.kind.text_noun());
            mistakes.push(file_mistake(&self.path, "there is no definition in it", &fix));
        }
        documents
    }
}

/// A store of definitions: of files, of nodes in a ZooKeeper ensemble, or of resources in a cluster.
///
/// Apart from the differences between the two [`StoreKind`]s, all stores behave alike. The path of an entry begins with
/// [`location`](Self::location).
#[async_trait]
pub trait DefinitionStore: Send + Sync + Debug + 'static {
    /// Returns where the store is, such as `zookeeper:/blueking/admissionwebhook`. Messages name it.
    fn location(&self) -> String;

    /// Returns whether the store has files or entries. Default: entries.
    fn kind(&self) -> StoreKind {
        StoreKind::Entries
    }

    /// Returns whether this path belongs to the store, even if nothing is stored there.
    fn owns(&self, path: &Path) -> bool;

    /// Returns an unused path for a new definition with this ID; `None` if the store does not accept such a definition.
    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf>;

    /// Receives the definitions that were live when the host last stopped. It is called before the first
    /// [`read`](Self::read), so that a store can compare its content with them and recognise half-written files.
    async fn set_last_live(&self, _files: Vec<DefinitionFile>) {}

    /// Returns all texts of the store, sorted by path. Texts with mistakes are included; half-written texts are not.
    ///
    /// # Errors
    ///
    /// Fails if any part of the store is unreachable, so that a lost store never looks empty.
    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError>;

    /// Writes all of these changes, or none. The store must own all paths.
    ///
    /// # Errors
    ///
    /// Fails if a text in the store differs from [`before`](FileChange::before) of its change; if there would be two
    /// BCS definitions for the same operation and kind, even because of concurrent writes; or if the store cannot be
    /// written. Unless the error says otherwise, nothing was changed.
    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError>;

    /// Waits until the content of the store differs, or may differ, from the result of the last [`read`](Self::read).
    /// The method also returns when the connection to the store is lost or regained. After a failed read, the caller
    /// already knows that the connection is lost, so the method returns only when the connection is regained. No change
    /// is missed if the caller drops the future and calls the method again.
    async fn wait_for_change(&self);
}

/// The reason why a store could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else has changed the definition since the last read, or has created another definition with its name.
    #[error("{path} was changed by someone else meanwhile; nothing was written, try again")]
    ChangedMeanwhile {
        /// The path of the definition that was to be written.
        path: PathBuf,
    },
    /// Since the store was last read, another BCS definition for the same operation and kind was created.
    #[error(
        "{other} defines hooks for the same operation and kind as {path}, and BCS has one definition for each; nothing was written: put the hooks into one, or delete the other"
    )]
    Conflict {
        /// The path of the definition that was to be written.
        path: PathBuf,
        /// The path of the definition with which the new definition conflicts: both have the same operation and kind.
        other: PathBuf,
    },
    /// The store cannot be reached. The definitions that were read last stay live.
    #[error("{store} cannot be reached: {reason}")]
    Unreachable {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
        /// The reason why the store cannot be reached, and what to do about it.
        reason: String,
    },
    /// The store refused the request, for example because a permission is missing.
    #[error("{store} refused the request: {reason}")]
    Refused {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
        /// The reason why the store refused the request, and what to do about it.
        reason: String,
    },
    /// The commit has several changes, but the store accepts only one at a time.
    #[error("{store} takes one change at a time; make them one after another")]
    OneAtATime {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
    },
    /// The definitions in the store have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// A file of the commit cannot be written. Nothing was changed.
    #[error("{path} cannot be written, so nothing was changed: {source}")]
    NotWritten {
        /// The path of the file that cannot be written.
        path: PathBuf,
        /// The I/O error in writing the file.
        source: io::Error,
    },
    /// A file of the commit cannot be written, and a file that was written before it cannot be restored.
    #[error("{path} cannot be written: {source}; {written} is changed already and cannot be restored: {restoring}")]
    PartlyWritten {
        /// The path of the file that cannot be written.
        path: PathBuf,
        /// The I/O error in writing the file.
        source: io::Error,
        /// The path of the file that was written and cannot be restored.
        written: PathBuf,
        /// The error that occurred when the file `written` was to be restored.
        restoring: Box<StoreError>,
    },
}

impl StoreError {
    /// Creates the error for a failed request to a store's server. After a temporary error, the store is read again.
    pub fn of_server(store: String, reason: String, is_temporary: bool) -> Self {
        if is_temporary {
            Self::Unreachable { store, reason }
        } else {
            Self::Refused { store, reason }
        }
    }
}
