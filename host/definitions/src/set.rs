//! The texts in all stores, and their definitions.

pub(crate) mod chains;
pub(crate) mod reads;
mod stored;
mod usable;

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, iter, sync::Arc};

use self::reads::{ReadFile, Reads};
pub use self::{
    stored::StoredDefinition,
    usable::{BadDefinition, OnBadDefinition, Served, Usable},
};
pub(crate) use self::{
    stored::{ParsedDefinition, text_of},
    usable::id_of,
};
use crate::{
    ChainDefinition, ChainId, Change, ChangeError, DefinitionFile, DefinitionId, Definitions, Destination,
    DocumentForms, Expected, StageId, StoreKind, change, document::Mistakes,
};

/// The texts in all stores at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSet {
    /// The files, then the entries, each sorted by path.
    files: Arc<[DefinitionFile]>,
    /// The entries that [cannot be used](Self::usable).
    unusable: Arc<[DefinitionFile]>,
    pub(crate) reads: Reads,
}

impl DefinitionSet {
    /// Creates a set of these texts.
    pub fn of_files(files: Vec<DefinitionFile>) -> Self {
        Self::default().with_contents(files)
    }

    /// Creates a set of these texts, which may contain documents of these systems.
    pub fn of_forms(files: Vec<DefinitionFile>, forms: &DocumentForms) -> Self {
        Self {
            files: sorted(files),
            reads: Reads::new(forms.clone()),
            ..Self::default()
        }
    }

    /// Returns a set of other texts. Texts that are in both sets are not parsed again.
    #[must_use]
    pub fn with_contents(&self, files: Vec<DefinitionFile>) -> Self {
        Self {
            files: sorted(files),
            unusable: Arc::default(),
            reads: self.reads.clone(),
        }
    }

    /// Returns whether files that definitions refer to, such as files of settings, are unchanged since they were read.
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

    pub(crate) fn with_unusable(self, unusable: Vec<DefinitionFile>) -> Self {
        Self {
            unusable: sorted(unusable),
            ..self
        }
    }

    /// Returns the set with `text` in the file of this index, or without the file if `text` is `None`.
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

    /// Returns the set with other files and the same entries.
    #[must_use]
    pub fn with_files(&self, files: impl Iterator<Item = DefinitionFile>) -> Self {
        let entries = self.files.iter().filter(|file| file.kind == StoreKind::Entries);
        Self {
            files: sorted(files.chain(entries.cloned()).collect()),
            ..self.clone()
        }
    }

    pub(crate) fn unusable(&self) -> &[DefinitionFile] {
        &self.unusable
    }

    /// Returns the files, then the usable entries, each sorted by path.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
    }

    /// Returns the files and all entries.
    pub fn all(&self) -> impl Iterator<Item = &DefinitionFile> {
        self.files.iter().chain(self.unusable.iter())
    }

    /// Returns the chains in the texts, in the order of [`load`](crate::load).
    ///
    /// # Errors
    ///
    /// Returns every mistake in every file.
    pub fn chains(&self) -> Result<Vec<ChainDefinition>, Mistakes> {
        Ok(self.definitions()?.chains)
    }

    /// Returns the chains and exceptions in the texts.
    ///
    /// # Errors
    ///
    /// Returns every mistake in every file.
    pub fn definitions(&self) -> Result<Definitions, Mistakes> {
        self.definitions_after(Mistakes::new())
    }

    pub(crate) fn definitions_after(&self, mut mistakes: Mistakes) -> Result<Definitions, Mistakes> {
        let files = self.read(&mut mistakes);
        chains::define(
            files.iter().flat_map(|file| file.definitions.iter().flatten()),
            mistakes,
        )
    }

    /// Parses each file that is not in the cache.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Vec<Arc<ReadFile>> {
        let read: Vec<_> = self.files.iter().map(|file| self.reads.file(file)).collect();
        mistakes.extend(read.iter().flat_map(|file| file.mistakes.iter().cloned()));
        read
    }

    /// Returns the definitions in these files, except those whose name cannot be read.
    pub(crate) fn definitions_in<'a>(&self, files: &'a [Arc<ReadFile>]) -> Vec<ParsedDefinition<'a>> {
        self.reads.definitions(files.iter().map(|file| &**file))
    }

    /// Returns the stored definitions in the order of files and lines, and then the unusable entries. Definitions with
    /// mistakes are included. A definition whose kind and name cannot be read is included only if it is an entry whose
    /// path identifies it.
    pub fn documents(&self) -> Vec<StoredDefinition> {
        stored::all(self)
    }

    /// Returns the definition of a chain, and the definitions of its stages if they are separate, such as bindings.
    pub fn documents_of(&self, id: &ChainId) -> Vec<StoredDefinition> {
        let chains = self.chains().unwrap_or_default();
        let matches_id = |chain: &&ChainDefinition| chain.phase == id.phase && chain.name == id.name;
        let Some(chain) = chains.iter().find(matches_id) else {
            return Vec::new();
        };
        let mut documents = self.documents();
        let stages = chain.stages.iter().map(|stage| &stage.location);
        let locations = iter::once(&chain.source).chain(stages);
        let own: BTreeSet<usize> = locations
            .filter_map(|location| stored::index_at(&documents, location))
            .collect();
        let mut index = 0..;
        documents.retain(|_| index.next().is_some_and(|index| own.contains(&index)));
        documents
    }

    /// Plans the writes that store the definitions in `text`. Each definition in the text replaces the definition with
    /// the same name, or is written to its `destination`.
    ///
    /// A file with one definition is replaced as a whole. The whole set is checked. Mistakes name the text `name`.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the text, and every conflict with other definitions. Also fails if a definition
    /// contradicts `expected`, shares its file with others, or is new and has no destination. An
    /// [unusable](Self::usable) entry conflicts with nothing, and may be replaced.
    pub fn apply(
        &self,
        text: &str,
        name: &str,
        expected: Expected,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Change, ChangeError> {
        change::apply(self, text, name, expected, destination)
    }

    /// Returns the chains that this text defines on its own, without applying it. Relative paths start in the directory
    /// of the file that [`apply`](Self::apply) would write. Mistakes name the text `name`.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the text. Also fails if the text defines no chain.
    pub fn chains_of(
        &self,
        text: &str,
        name: &str,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Vec<ChainDefinition>, ChangeError> {
        change::chains_of(self, text, name, destination)
    }

    /// Plans the removal of a definition and its file. If one of two entries with this name is
    /// [unusable](Self::usable), that entry is removed.
    ///
    /// # Errors
    ///
    /// Fails if no definition or several have this name, the definition shares its file with others, or the remaining
    /// definitions have mistakes.
    pub fn delete(&self, id: &DefinitionId) -> Result<Change, ChangeError> {
        change::delete(self, id)
    }

    /// Plans the writes that replace a stage's plugin by its candidate. The document is rewritten: comments above it
    /// stay, and comments inside it are lost.
    ///
    /// # Errors
    ///
    /// Fails if no stage or several have this name, the stage has no candidate, the definition shares its file with
    /// others, or the definitions have mistakes.
    pub fn promote(&self, stage: &StageId) -> Result<Change, ChangeError> {
        change::promote(self, stage)
    }
}

fn sorted(mut files: Vec<DefinitionFile>) -> Arc<[DefinitionFile]> {
    files.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    files.into()
}
