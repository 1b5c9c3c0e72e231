//! The texts of all definition files, and their definitions.

mod files;
mod stored;
mod usable;

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

pub(crate) use self::files::is_definition;
pub use self::{
    stored::StoredDefinition,
    usable::{BadDefinition, OnBadDefinition, Served, Usable},
};
pub(crate) use self::{
    stored::{Definition, definitions},
    usable::id_of,
};
use crate::{
    ChainDefinition, Change, ChangeError, DefinitionId, Destination, Expected, StageId, chains, change,
    document::{self, Document, Mistakes},
};

/// The texts of all definition files as they were at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSet {
    files: Arc<[DefinitionFile]>,
    /// How many of them, the last ones, are held by stores and are no files of the system.
    stored: usize,
    /// The content of stores that [cannot be used](Self::usable).
    unusable: Arc<[DefinitionFile]>,
}

/// A definition file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionFile {
    /// As it was found: relative paths in its documents are taken from its directory.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
    /// The definition that its place in a store is for. It counts while the text does not say what it is.
    pub place: Option<DefinitionId>,
}

impl DefinitionSet {
    /// Read these files, and the files `*.yaml`, `*.yml` and `*.json` in these directories (not in
    /// directories inside of them; hidden files and editors' backups are passed over). A directory may be
    /// empty.
    ///
    /// The texts are those of one moment: what changes while it is read is read again.
    ///
    /// # Errors
    ///
    /// Every path that cannot be read, is not UTF-8, or is larger than
    /// [`LARGEST_FILE`](document::LARGEST_FILE). A path that is not there is one of them: a directory
    /// that is gone is never taken for an empty one.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::new();
        let set = Self::read_what_is_there(paths, &mut mistakes);
        mistakes.into_result(set)
    }

    pub(crate) fn read_what_is_there(paths: &[PathBuf], mistakes: &mut Mistakes) -> Self {
        Self::of_files(files::read(paths, mistakes))
    }

    /// A set of these files, in this order.
    pub fn of_files(files: Vec<DefinitionFile>) -> Self {
        Self {
            files: files.into(),
            ..Self::default()
        }
    }

    /// The files of this set, and in place of what it had of stores what is held by stores now, sorted by
    /// path. In those there are no relative paths, since they are in no directory, and what is written to
    /// them is JSON.
    pub fn with_stored(&self, mut stored: Vec<DefinitionFile>) -> Self {
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        let number = stored.len();
        let files = self.of_system().iter().cloned();
        Self {
            files: files.chain(stored).collect(),
            stored: number,
            unusable: Arc::default(),
        }
    }

    /// Replaces the content of stores that cannot be used.
    pub(crate) fn with_unusable(self, unusable: impl IntoIterator<Item = DefinitionFile>) -> Self {
        Self {
            unusable: unusable.into_iter().collect(),
            ..self
        }
    }

    /// The same with this text in the file of this index, or without the file.
    pub(crate) fn with_text(&self, index: usize, text: Option<String>) -> Self {
        let mut files = self.files.to_vec();
        let mut stored = self.stored;
        match text {
            Some(text) => {
                if let Some(file) = files.get_mut(index) {
                    file.text = text;
                }
            }
            None => {
                files.remove(index);
                stored -= usize::from(self.is_stored(index));
            }
        }
        Self {
            files: files.into(),
            stored,
            unusable: self.unusable.clone(),
        }
    }

    /// The content of stores that cannot be used, sorted by path.
    pub(crate) fn unusable(&self) -> &[DefinitionFile] {
        &self.unusable
    }

    /// The files, in the order they were read; after them what is held by stores and can be used.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
    }

    /// Those that are files of the system.
    pub fn of_system(&self) -> &[DefinitionFile] {
        self.files.get(..self.first_stored()).unwrap_or_default()
    }

    /// Those that are held by stores and can be used.
    pub fn stored(&self) -> &[DefinitionFile] {
        self.files.get(self.first_stored()..).unwrap_or_default()
    }

    /// Whether the file of this index is held by a store.
    pub(crate) fn is_stored(&self, index: usize) -> bool {
        index >= self.first_stored()
    }

    fn first_stored(&self) -> usize {
        self.files.len().saturating_sub(self.stored)
    }

    /// The chains that they define, as [`load`](crate::load) gives them.
    ///
    /// # Errors
    ///
    /// Every mistake of every file.
    pub fn chains(&self) -> Result<Vec<ChainDefinition>, Mistakes> {
        self.chains_after(Mistakes::new())
    }

    pub(crate) fn chains_after(&self, mut mistakes: Mistakes) -> Result<Vec<ChainDefinition>, Mistakes> {
        let documents = self.parse(&mut mistakes);
        chains::of_documents(documents.iter().flatten(), mistakes)
    }

    /// The documents of each file.
    pub(crate) fn parse(&self, mistakes: &mut Mistakes) -> Vec<Vec<Document>> {
        let documents = |(index, file): (usize, &DefinitionFile)| {
            if self.is_stored(index) {
                document::read_stored(&file.path, &file.text, mistakes)
            } else {
                document::read_text_of(&file.path, &file.text, mistakes)
            }
        };
        self.files.iter().enumerate().map(documents).collect()
    }

    /// The definitions in them, in the order of files and lines, and those in stores that cannot be used. Those
    /// whose kind or name cannot be read are not among them, unless their place in a store tells; other mistakes
    /// do not matter.
    pub fn documents(&self) -> Vec<StoredDefinition> {
        stored::all(self)
    }

    /// What is to be written so that the definitions of this text are there: each in place of the one
    /// that has its name now, or where `destination` has it.
    ///
    /// A file that holds one definition is replaced whole. The whole that comes of it is checked. `name` stands for
    /// the text in mistakes.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, and every conflict with other definitions; a definition that is not as
    /// `expected`; one that shares its file with others; a new one without a destination. What a store holds
    /// that [cannot be used](Self::usable) does not conflict with others, and may be what is replaced.
    pub fn apply(
        &self,
        text: &str,
        name: &str,
        expected: Expected,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Change, ChangeError> {
        change::apply(self, text, name, expected, destination)
    }

    /// What is to be written so that this definition is there no more: its file goes. Of two of the name in stores the one that [cannot be used](Self::usable) goes first.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or two; when it shares its file with others; when those have
    /// mistakes.
    pub fn delete(&self, id: &DefinitionId) -> Result<Change, ChangeError> {
        change::delete(self, id)
    }

    /// What is to be written so that the candidate of this stage is its plugin. The file is written anew, with the
    /// comments above its document and without those inside.
    ///
    /// # Errors
    ///
    /// When there is no such stage, or two; when it has no candidate; when the definition shares its file with
    /// others; when there are mistakes in the definitions.
    pub fn promote(&self, stage: &StageId) -> Result<Change, ChangeError> {
        change::promote(self, stage)
    }
}
