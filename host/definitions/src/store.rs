//! Stores of definitions: their trait, and the store of files.

mod files;
mod loss;
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
    reading::{empty_directory, files_in, read_files},
};
use crate::{
    DefinitionId, FileChange, Mistakes,
    document::{self, Document},
};

/// The kind of a store, which decides how mistakes and commits are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// Files, which people edit: YAML or JSON, with one or several documents, and with paths relative to the file's
    /// directory. All files change together: a mistake in one file keeps the last definitions live. A commit replaces
    /// files one by one, so the host first writes the commit to its history, and completes it at the next start if
    /// necessary.
    Files,
    /// Entries in a store that several programs share. Each is one definition as JSON without relative paths, and the
    /// store may reformat it. Invalid entries are skipped, and the others are used. A commit is one transaction.
    #[default]
    Entries,
}

impl StoreKind {
    /// Returns the noun that messages use for one text of the store.
    fn text_noun(self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Entries => "entry",
        }
    }
}

keywords!(StoreKind, "kind of store": Files = "files", Entries = "entries");

/// One text in a store: a file or an entry, with one or several definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionFile {
    /// The path of the file, or the location of the entry in its store.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
    /// Whether the text is in a file or in an entry.
    pub kind: StoreKind,
    /// The definition that must be at this path, if the store derives paths from names. With it, even an invalid entry
    /// can be identified.
    pub expected_id: Option<DefinitionId>,
}

impl DefinitionFile {
    /// Creates the text of a file.
    pub fn file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self::new(StoreKind::Files, path, text)
    }

    /// Creates the text of an entry. `expected_id` is the ID of the definition that must be at this path.
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

    /// Creates a text whose path does not identify a definition.
    pub fn new(kind: StoreKind, path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            kind,
            expected_id: None,
        }
    }

    /// Returns the text without the store's formatting: an entry with sorted keys, one per line; a file unchanged.
    pub fn normalized(&self) -> Cow<'_, str> {
        match serde_json::from_str::<Json>(&self.text) {
            Ok(mut value) if self.kind == StoreKind::Entries => {
                value.sort_all_objects();
                Cow::Owned(format!("{value:#}\n"))
            }
            _ => Cow::Borrowed(&self.text),
        }
    }

    /// Parses the documents. A text without any is a mistake, so that losing its content does not remove definitions.
    pub(crate) fn documents(&self, mistakes: &mut Mistakes) -> Vec<Document> {
        let before = mistakes.len();
        let documents = match self.kind {
            StoreKind::Files => document::read_text_of(&self.path, &self.text, mistakes),
            StoreKind::Entries => document::read_stored(&self.path, &self.text, mistakes),
        };
        if documents.is_empty() && mistakes.len() == before {
            let fix = format!("to remove its definitions, delete the {}", self.kind.text_noun());
            mistakes.push(file_mistake(&self.path, "there is no definition in it", &fix));
        }
        documents
    }
}

/// Stores definitions: in files, in the nodes of a ZooKeeper ensemble, or in the resources of a cluster.
///
/// Stores behave alike, except for the differences between the two [`StoreKind`]s. The path of an entry begins with
/// [`location`](Self::location).
#[async_trait]
pub trait DefinitionStore: Send + Sync + Debug + 'static {
    /// Returns the store's location for messages, such as `zookeeper:/blueking/admissionwebhook`.
    fn location(&self) -> String;

    /// Returns how definitions are stored. Default: as entries.
    fn kind(&self) -> StoreKind {
        StoreKind::Entries
    }

    /// Returns whether this path belongs to the store, even if nothing is stored there.
    fn owns(&self, path: &Path) -> bool;

    /// Returns an unused path for a new definition with this name; `None` if the store does not accept it.
    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf>;

    /// Receives the definitions that were live when the host last stopped, before the first [`read`](Self::read). A
    /// store may compare them with its content to recognise half-written files.
    async fn set_last_live(&self, _files: Vec<DefinitionFile>) {}

    /// Returns all content, sorted by path. Invalid definitions are included; half-written content is not.
    ///
    /// # Errors
    ///
    /// Fails if any part of the store is unreachable, so that a lost store never looks empty.
    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError>;

    /// Writes all of these changes, or none. The store must own all paths.
    ///
    /// # Errors
    ///
    /// Fails if the store's content differs from a change's [`before`](FileChange::before), if BCS's limit of one
    /// definition per operation and kind would be violated, even by concurrent writes, or if the store cannot be
    /// written. Unless the error says otherwise, nothing was changed.
    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError>;

    /// Waits until the content differs, or may differ, from the result of the last [`read`](Self::read). Losing or
    /// regaining the connection counts as a change; after a failed read, only regaining it does. The future may be
    /// dropped and the method called again without missing a change.
    async fn changed(&self);
}

/// The reason why a store could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Since the last read, the definition was changed, or another one with its name was created.
    #[error("{path} was changed by someone else meanwhile; nothing was written, try again")]
    ChangedMeanwhile {
        /// The path of the definition.
        path: PathBuf,
    },
    /// Since the last read, another definition for the same operation and kind was created.
    #[error(
        "{other} defines hooks for the same operation and kind as {path}, and BCS has one definition for each; nothing was written: put the hooks into one, or delete the other"
    )]
    Conflict {
        /// The path that was to be written.
        path: PathBuf,
        /// The path of the existing definition.
        other: PathBuf,
    },
    /// The store is unreachable. The last definitions stay live.
    #[error("{store} cannot be reached: {reason}")]
    Unreachable {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
        /// The cause, and what to do about it.
        reason: String,
    },
    /// The store refused the request, for example because a permission is missing.
    #[error("{store} refused the request: {reason}")]
    Refused {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
        /// The cause, and what to do about it.
        reason: String,
    },
    /// The store accepts only one change per commit.
    #[error("{store} takes one change at a time; make them one after another")]
    OneAtATime {
        /// The [location](DefinitionStore::location) of the store.
        store: String,
    },
    /// The definitions have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// A file cannot be written. Nothing was changed.
    #[error("{path} cannot be written, so nothing was changed: {source}")]
    NotWritten {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written, and an earlier file of the commit cannot be restored.
    #[error(
        "{path} cannot be written: {source}; {written} is changed already and cannot be restored: {restoring}"
    )]
    PartlyWritten {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
        /// The file that was already written.
        written: PathBuf,
        /// The reason why the file cannot be restored.
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
