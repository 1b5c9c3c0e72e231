//! Stores of definitions: the trait, and the store of files.

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

use admittance_admission::words;
use async_trait::async_trait;
use serde_json::Value as Json;

use self::reading::of_path;
pub(crate) use self::reading::read as read_what_is_there;
pub use self::{
    files::FileStore,
    reading::{files_in, read_files},
};
use crate::{
    DefinitionId, FileChange, Mistakes,
    document::{self, Document},
};

/// The storage of a store's definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// Files, which people edit: YAML or JSON, of one document or several, with paths relative to their directory. They
    /// are used together: with a mistake in one, all stay as they were. A commit replaces one after another, so the host
    /// writes it to its history first, and completes it at its next start.
    Files,
    /// Entries of a store that several programs share. Each is one definition as JSON, which the store may format, without
    /// relative paths. An invalid one is set aside, and the others are used. A commit is one transaction.
    #[default]
    Entries,
}

impl StoreKind {
    /// The name of one of its texts.
    fn one(self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Entries => "entry",
        }
    }
}

words!(StoreKind, "kind of store": Files = "files", Entries = "entries");

/// A text of definitions in a store: a file or an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionFile {
    /// The path of the file, or the location of the entry in its store.
    pub path: PathBuf,
    /// Its whole text.
    pub text: String,
    /// Whether it is a file or an entry.
    pub kind: StoreKind,
    /// The definition that the place of an entry is for. It identifies an entry whose text does not.
    pub place: Option<DefinitionId>,
}

impl DefinitionFile {
    /// Creates a file's content.
    pub fn file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self::new(StoreKind::Files, path, text)
    }

    /// An entry, and the definition that its place is for.
    pub fn entry(
        path: impl Into<PathBuf>,
        text: impl Into<String>,
        place: impl Into<Option<DefinitionId>>,
    ) -> Self {
        Self {
            place: place.into(),
            ..Self::new(StoreKind::Entries, path, text)
        }
    }

    /// A file or an entry.
    pub fn new(kind: StoreKind, path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            kind,
            place: None,
        }
    }

    /// The text, independent of how the store formats it: an entry has its keys sorted and a field in each line.
    pub fn normalized(&self) -> Cow<'_, str> {
        match serde_json::from_str::<Json>(&self.text) {
            Ok(mut value) if self.kind == StoreKind::Entries => {
                value.sort_all_objects();
                Cow::Owned(format!("{value:#}\n"))
            }
            _ => Cow::Borrowed(&self.text),
        }
    }

    /// Its documents. None is a mistake: a text that is lost must not remove definitions.
    pub(crate) fn documents(&self, mistakes: &mut Mistakes) -> Vec<Document> {
        let before = mistakes.len();
        let documents = match self.kind {
            StoreKind::Files => document::read_text_of(&self.path, &self.text, mistakes),
            StoreKind::Entries => document::read_stored(&self.path, &self.text, mistakes),
        };
        if documents.is_empty() && mistakes.len() == before {
            let fix = format!("to remove its definitions, delete the {}", self.kind.one());
            mistakes.push(of_path(
                &self.path,
                "there is no definition in it".to_owned(),
                &fix,
            ));
        }
        documents
    }
}

/// A place that keeps definitions: files, the nodes of an ensemble, the resources of a cluster. Lives as
/// long as the host.
///
/// All stores behave alike, except for the differences of their [`kind`](Self::kind)s. The path of an entry begins with
/// [`location`](Self::location).
#[async_trait]
pub trait DefinitionStore: Send + Sync + Debug + 'static {
    /// Returns the location of the store for people: `zookeeper:/blueking/admissionwebhook`.
    fn location(&self) -> String;

    /// Returns the kind of the store's storage.
    fn kind(&self) -> StoreKind {
        StoreKind::Entries
    }

    /// Whether the definition file of this path is, or would be, in this store.
    fn owns(&self, path: &Path) -> bool;

    /// The path of a new definition of this name; none when this store does not take such definitions. A file gets a
    /// number behind its name if there is one of this path already.
    fn place_for(&self, id: &DefinitionId) -> Option<PathBuf>;

    /// These definitions of it were live when the host ended. Called before the first [`read`](Self::read), which may
    /// compare them with what is there, to recognize what is half-written.
    async fn was_live(&self, _files: Vec<DefinitionFile>) {}

    /// All content, sorted by path, including invalid definitions, and nothing half-written.
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

    /// Wait until it holds, or may hold, something else than the last [`read`](Self::read) gave; also when it
    /// is lost, and when it is there again. May be dropped and called again without missing anything. A read
    /// that failed counts: while the store stays lost nothing has changed.
    async fn changed(&self);
}

/// The reasons why a store cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The definition was changed, or one of its name created, since the store was read.
    #[error("{path} was changed by someone else meanwhile; nothing was written, try again")]
    ChangedMeanwhile {
        /// The path of the definition.
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
    /// The store cannot be reached. The definitions that were read last stay live.
    #[error("{store} cannot be reached: {reason}")]
    Unreachable {
        /// [`DefinitionStore::location`].
        store: String,
        /// The error, and what to do about it.
        reason: String,
    },
    /// The store refuses, for lack of a right for instance.
    #[error("{store} refused the request: {reason}")]
    Refused {
        /// [`DefinitionStore::location`].
        store: String,
        /// The error, and what to do about it.
        reason: String,
    },
    /// The store does not take several changes at once.
    #[error("{store} takes one change at a time; make them one after another")]
    OneAtATime {
        /// [`DefinitionStore::location`].
        store: String,
    },
    /// The store's content is not definitions.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// A file cannot be written.
    #[error("{path} cannot be written, so nothing was changed: {source}")]
    NotWritten {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written, and a file that was written before it cannot be restored.
    #[error(
        "{path} cannot be written: {source}; {written} is changed already and cannot be restored: {restoring}"
    )]
    PartlyWritten {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
        /// The file that was written before.
        written: PathBuf,
        /// The reason why the file is not restored.
        restoring: Box<StoreError>,
    },
}

impl StoreError {
    /// The error for a failed request to the server of a store. A temporary one is an unreachable store, which is read again.
    pub fn of_server(store: String, reason: String, is_temporary: bool) -> Self {
        match is_temporary {
            true => Self::Unreachable { store, reason },
            false => Self::Refused { store, reason },
        }
    }
}
