//! The texts of all definition files, and what is in them.

mod files;
mod stored;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::stored::StoredDefinition;
pub(crate) use self::stored::{Definition, definitions};
use crate::{
    ChainDefinition, Change, ChangeError, DefinitionId, StageId, chains, change,
    document::{self, Document, Mistakes},
};

/// The texts of all definition files as they were at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSet {
    files: Arc<[DefinitionFile]>,
}

/// A definition file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionFile {
    /// As it was found: relative paths in its documents are taken from its directory.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
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
        Self { files: files.into() }
    }

    /// The files, in the order they were read.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
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
        let documents = |file: &DefinitionFile| document::read_text_of(&file.path, &file.text, mistakes);
        self.files.iter().map(documents).collect()
    }

    /// The definitions in them, in the order of files and lines. Those whose kind or name cannot be read
    /// are not among them; other mistakes do not matter.
    pub fn documents(&self) -> Vec<StoredDefinition> {
        stored::all(self)
    }

    /// What is to be written so that the definitions of this text are there: each in place of the one
    /// that has its name now, or in a new file of `directory`.
    ///
    /// In a file that is there, nothing is changed but the document itself, from the comment above it to
    /// its last line. The whole that comes of it is checked; nothing is written before
    /// [`Change::commit`]. `name` stands for the text in mistakes.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, and every conflict with other definitions; a definition that is an item
    /// of a list in its file; a new definition without `directory`.
    pub fn apply(&self, text: &str, name: &str, directory: Option<&Path>) -> Result<Change, ChangeError> {
        change::apply(self, text, name, directory)
    }

    /// What is to be written so that this definition is there no more. A file goes with its last
    /// definition.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or two; when it is an item of a list; when the others have
    /// mistakes.
    pub fn delete(&self, id: &DefinitionId) -> Result<Change, ChangeError> {
        change::delete(self, id)
    }

    /// What is to be written so that the candidate of this stage is its plugin. Comments stay, but for
    /// those in what is taken away.
    ///
    /// # Errors
    ///
    /// When there is no such stage, or two; when it has no candidate; when the document is written in a
    /// way that must be edited by hand; when there are mistakes in the definitions.
    pub fn promote(&self, stage: &StageId) -> Result<Change, ChangeError> {
        change::promote(self, stage)
    }
}
