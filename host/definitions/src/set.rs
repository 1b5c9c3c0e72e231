//! Sets of definitions: the texts in all stores of definitions, and what they define.

pub(crate) mod chains;
pub(crate) mod reads;
mod stored;
mod usable_definitions;

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, iter, sync::Arc};

use self::reads::{ReadFile, Reads};
pub use self::{
    stored::StoredDefinition,
    usable_definitions::{BadDefinition, OnBadDefinition, Served, Usable},
};
pub(crate) use self::{
    stored::{ParsedDefinition, definition_text},
    usable_definitions::id_of,
};
use crate::{
    ChainDefinition, ChainId, Change, DefinitionFile, DefinitionId, Definitions, Destination, DocumentForms,
    ExpectedDefinitions, PlanError, StageId, StoreKind, change, document::Mistakes,
};

/// The texts in all stores of definitions at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSet {
    /// The files of the set, and then its entries. Both are sorted by path.
    files: Arc<[DefinitionFile]>,
    /// The entries of the stores that [cannot be used](Self::usable_definitions).
    unusable_files: Arc<[DefinitionFile]>,
    pub(crate) reads: Reads,
}

impl DefinitionSet {
    /// Creates a set of these texts.
    pub fn of_files(files: Vec<DefinitionFile>) -> Self {
        Self::default().with_contents(files)
    }

    /// Creates a set of these texts. They may contain documents of the policy systems in `forms`.
    pub fn of_forms(files: Vec<DefinitionFile>, forms: &DocumentForms) -> Self {
        Self {
            files: sort_files(files),
            reads: Reads::new(forms.clone()),
            ..Self::default()
        }
    }

    /// Returns a set of these texts. A text that is in this set as well is not parsed again.
    #[must_use]
    pub fn with_contents(&self, files: Vec<DefinitionFile>) -> Self {
        Self {
            files: sort_files(files),
            unusable_files: Arc::default(),
            reads: self.reads.clone(),
        }
    }

    /// Returns whether the files to which definitions refer, such as settings files, still have the text that was read.
    pub fn is_current(&self) -> bool {
        self.reads.are_current()
    }

    /// Returns the set with an empty cache, so that all texts are parsed again and all files are read again.
    #[must_use]
    pub fn uncached(self) -> Self {
        Self {
            reads: self.reads.uncached(),
            ..self
        }
    }

    pub(crate) fn with_unusable_files(self, unusable: Vec<DefinitionFile>) -> Self {
        Self {
            unusable_files: sort_files(unusable),
            ..self
        }
    }

    /// Returns the set after a change of its file number `index`. `text` is the new content; `None` removes the file.
    pub(crate) fn with_text(&self, index: usize, text: Option<String>) -> Self {
        let mut files = self.files.to_vec();
        match (text, files.get_mut(index)) {
            (Some(text), Some(file)) => file.text = text,
            (None, Some(_)) => drop(files.remove(index)),
            (_, None) => {}
        }
        Self {
            files: files.into(),
            ..self.clone()
        }
    }

    /// Returns the set with `files` in place of its files. Its entries are kept.
    #[must_use]
    pub fn with_files(&self, files: impl Iterator<Item = DefinitionFile>) -> Self {
        let entries = self.files.iter().filter(|file| file.kind == StoreKind::Entries);
        Self {
            files: sort_files(files.chain(entries.cloned()).collect()),
            ..self.clone()
        }
    }

    pub(crate) fn unusable_files(&self) -> &[DefinitionFile] {
        &self.unusable_files
    }

    /// Returns the files of the set, and then its usable entries. Both are sorted by path.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
    }

    /// Returns the files of the set and all its entries, including the unusable ones.
    pub fn all_files(&self) -> impl Iterator<Item = &DefinitionFile> {
        self.files.iter().chain(self.unusable_files.iter())
    }

    /// Returns the chains that the texts of the set define, in the order of [`load`](crate::load).
    ///
    /// # Errors
    ///
    /// Returns every mistake in every file.
    pub fn chains(&self) -> Result<Vec<ChainDefinition>, Mistakes> {
        Ok(self.definitions()?.chains)
    }

    /// Returns the chains and exceptions that the texts of the set define.
    ///
    /// # Errors
    ///
    /// Returns every mistake in every file.
    pub fn definitions(&self) -> Result<Definitions, Mistakes> {
        self.define_after(Mistakes::new())
    }

    pub(crate) fn define_after(&self, mut mistakes: Mistakes) -> Result<Definitions, Mistakes> {
        let read_files = self.read_files(&mut mistakes);
        chains::define(
            read_files.iter().flat_map(|file| file.definitions.iter().flatten()),
            mistakes,
        )
    }

    pub(crate) fn read_files(&self, mistakes: &mut Mistakes) -> Vec<Arc<ReadFile>> {
        let read_files: Vec<_> = self.files.iter().map(|file| self.reads.file(file)).collect();
        mistakes.extend(read_files.iter().flat_map(|file| file.mistakes.iter().cloned()));
        read_files
    }

    pub(crate) fn definitions_in<'a>(&self, files: &'a [Arc<ReadFile>]) -> Vec<ParsedDefinition<'a>> {
        self.reads.definitions(files.iter().map(|file| &**file))
    }

    /// Returns the stored definitions in the order of files and lines, followed by the unusable entries. Definitions
    /// with mistakes are included. If the kind and name of a definition cannot be read, it is included only if it is an
    /// entry whose path identifies it.
    pub fn documents(&self) -> Vec<StoredDefinition> {
        stored::stored_definitions(self)
    }

    /// Returns the definition of a chain. If its stages are separate definitions, such as the bindings of a policy,
    /// these are returned too.
    pub fn documents_of_chain(&self, id: &ChainId) -> Vec<StoredDefinition> {
        let chains = self.chains().unwrap_or_default();
        let matches_id = |chain: &&ChainDefinition| chain.phase == id.phase && chain.name == id.name;
        let Some(chain) = chains.iter().find(matches_id) else {
            return Vec::new();
        };
        let mut documents = self.documents();
        let stages = chain.stages.iter().map(|stage| &stage.location);
        let locations = iter::once(&chain.location).chain(stages);
        let chain_indexes: BTreeSet<usize> = locations
            .filter_map(|location| stored::index_at(&documents, location))
            .collect();
        let mut index = 0..;
        documents.retain(|_| index.next().is_some_and(|index| chain_indexes.contains(&index)));
        documents
    }

    /// Plans the writes that apply the definitions in `text`. Each definition replaces the stored definition with the
    /// same name. If there is none, the new definition is written to its `destination`.
    ///
    /// A file with one definition is replaced as a whole. The resulting set is checked as a whole. Mistakes in the text
    /// give `name` as the name of its file.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the text, and every conflict with other definitions. Also fails if a definition
    /// contradicts `expected`, would replace one in a file with several definitions, or is new and has no destination.
    /// An [unusable](Self::usable_definitions) entry conflicts with nothing, and may be replaced.
    pub fn apply(
        &self,
        text: &str,
        name: &str,
        expected: ExpectedDefinitions,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Change, PlanError> {
        change::apply(self, text, name, expected, destination)
    }

    /// Returns the chains that the text defines by itself, without the definitions of the set. Nothing is written.
    /// Relative paths start in the directory of the file to which [`apply`](Self::apply) would write the text. Mistakes
    /// give `name` as the name of the file.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the text. Also fails if the text defines no chain.
    pub fn chains_of(
        &self,
        text: &str,
        name: &str,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Vec<ChainDefinition>, PlanError> {
        change::chains_of(self, text, name, destination)
    }

    /// Plans the removal of a definition and its file. If there are two entries with this name, one of which is
    /// [unusable](Self::usable_definitions), the unusable one is removed.
    ///
    /// # Errors
    ///
    /// Fails if no definition has this name, or several have it; if the file contains further definitions; or if the
    /// remaining definitions have mistakes.
    pub fn delete(&self, id: &DefinitionId) -> Result<Change, PlanError> {
        change::delete(self, id)
    }

    /// Plans the writes that replace a stage's plugin by its candidate. The definition is written anew: comments above
    /// it stay, but comments inside it are lost.
    ///
    /// # Errors
    ///
    /// Fails if no stage has this name, or several have it; if the stage has no candidate; if the file contains further
    /// definitions; or if any definition has mistakes.
    pub fn promote(&self, stage: &StageId) -> Result<Change, PlanError> {
        change::promote(self, stage)
    }
}

fn sort_files(mut files: Vec<DefinitionFile>) -> Arc<[DefinitionFile]> {
    files.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    files.into()
}
