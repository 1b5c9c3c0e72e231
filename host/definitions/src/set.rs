//! The texts of all stores, and their definitions.

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
    stored::{Definition, text_of},
    usable::id_of,
};
use crate::{
    ChainDefinition, ChainId, Change, ChangeError, DefinitionFile, DefinitionId, Definitions, Destination,
    DocumentForms, Expected, StageId, StoreKind, change, document::Mistakes,
};

/// The texts of all stores as they were at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSet {
    /// Files come before entries; each are sorted by path.
    files: Arc<[DefinitionFile]>,
    /// Entries that [cannot be used](Self::usable).
    unusable: Arc<[DefinitionFile]>,
    pub(crate) reads: Reads,
}

impl DefinitionSet {
    /// The set of these texts.
    pub fn of_files(files: Vec<DefinitionFile>) -> Self {
        Self::default().with_contents(files)
    }

    /// The set of these texts, whose documents may be of these systems.
    pub fn of_forms(files: Vec<DefinitionFile>, forms: &DocumentForms) -> Self {
        let reads = Reads::new(forms.clone());
        Self {
            reads,
            ..Self::default()
        }
        .with_contents(files)
    }

    /// A set of these texts instead. What was read of a text of this one is not read again.
    #[must_use]
    pub fn with_contents(&self, files: Vec<DefinitionFile>) -> Self {
        Self {
            files: sorted(files),
            unusable: Arc::default(),
            reads: self.reads.clone(),
        }
    }

    /// Whether the files that definitions name, such as those with settings, are as they were read.
    pub fn is_current(&self) -> bool {
        self.reads.are_current()
    }

    /// Drops what was read of the texts.
    #[must_use]
    pub fn afresh(self) -> Self {
        Self {
            reads: self.reads.afresh(),
            ..self
        }
    }

    /// Replaces the entries that cannot be used.
    pub(crate) fn with_unusable(self, unusable: Vec<DefinitionFile>) -> Self {
        Self {
            unusable: sorted(unusable),
            ..self
        }
    }

    /// Copies the set with this text in the file of this index, or without the file.
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

    /// The set with these files in place of its own. Its entries stay.
    #[must_use]
    pub fn with_files(&self, files: impl Iterator<Item = DefinitionFile>) -> Self {
        let entries = self.files.iter().filter(|file| file.kind == StoreKind::Entries);
        Self {
            files: sorted(files.chain(entries.cloned()).collect()),
            ..self.clone()
        }
    }

    /// The entries that cannot be used, sorted by path.
    pub(crate) fn unusable(&self) -> &[DefinitionFile] {
        &self.unusable
    }

    /// The files, and after them the entries that can be used, each sorted by path.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
    }

    /// The files and all entries.
    pub fn all(&self) -> impl Iterator<Item = &DefinitionFile> {
        self.files.iter().chain(self.unusable.iter())
    }

    /// The chains that they define, as [`load`](crate::load) gives them.
    ///
    /// # Errors
    ///
    /// Every mistake of every file.
    pub fn chains(&self) -> Result<Vec<ChainDefinition>, Mistakes> {
        Ok(self.definitions()?.chains)
    }

    /// The chains and the exceptions that they define.
    ///
    /// # Errors
    ///
    /// Every mistake of every file.
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

    /// Returns what was read of each file.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Vec<Arc<ReadFile>> {
        let read = self.files.iter().map(|file| self.reads.file(file));
        let read: Vec<_> = read.collect();
        mistakes.extend(read.iter().flat_map(|file| file.mistakes.iter().cloned()));
        read
    }

    /// The definitions in these files, without those whose name cannot be read.
    pub(crate) fn definitions_in<'a>(&self, files: &'a [Arc<ReadFile>]) -> Vec<Definition<'a>> {
        self.reads.definitions(files.iter().map(|file| &**file))
    }

    /// The definitions in them, in the order of files and lines, and the entries that cannot be used. Definitions whose
    /// kind or name cannot be read are left out, unless the place of an entry identifies them; other mistakes do not
    /// matter.
    pub fn documents(&self) -> Vec<StoredDefinition> {
        stored::all(self)
    }

    /// Returns the definitions that make this chain: the chain's own, and the definitions of its stages if they are
    /// elsewhere, such as the bindings of a policy.
    pub fn documents_of(&self, id: &ChainId) -> Vec<StoredDefinition> {
        let documents = self.documents();
        let chains = self.chains().unwrap_or_default();
        let is_it = |chain: &&ChainDefinition| chain.phase == id.phase && chain.name == id.name;
        let own: BTreeSet<usize> = match chains.iter().find(is_it) {
            Some(chain) => {
                let stages = chain.stages.iter().map(|stage| &stage.location);
                let places = iter::once(&chain.source).chain(stages);
                places.filter_map(|place| stored::at(&documents, place)).collect()
            }
            None => BTreeSet::new(),
        };
        let numbered = documents.into_iter().enumerate();
        let of_chain = numbered.filter(|(index, _)| own.contains(index));
        of_chain.map(|(_, document)| document).collect()
    }

    /// Plans the writes after which the definitions of this text are there: each in place of the definition that has
    /// its name now, or where `destination` has it.
    ///
    /// A file that holds one definition is replaced whole. The resulting set is checked as a whole. `name` stands for
    /// the text in mistakes.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, and every conflict with other definitions; a definition that is not as `expected`;
    /// one that shares its file with others; a new one without a destination. An entry that [cannot be
    /// used](Self::usable) does not conflict with others, and may be replaced.
    pub fn apply(
        &self,
        text: &str,
        name: &str,
        expected: Expected,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Change, ChangeError> {
        change::apply(self, text, name, expected, destination)
    }

    /// The chains that this text defines by itself, without being applied. Relative paths in it are taken from the directory
    /// of the file to which [`apply`](Self::apply) would write. `name` stands for the text in mistakes.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, or that it defines no chain.
    pub fn chains_of(
        &self,
        text: &str,
        name: &str,
        destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
    ) -> Result<Vec<ChainDefinition>, ChangeError> {
        change::chains_of(self, text, name, destination)
    }

    /// The change that removes this definition with its file. Of two entries of the name, the one that
    /// [cannot be used](Self::usable) is removed first.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or two; when it shares its file with others; when those have
    /// mistakes.
    pub fn delete(&self, id: &DefinitionId) -> Result<Change, ChangeError> {
        change::delete(self, id)
    }

    /// Plans the writes after which the candidate of this stage is its plugin. The file is written anew, with the
    /// comments above its document and without the comments inside.
    ///
    /// # Errors
    ///
    /// When there is no such stage, or two; when it has no candidate; when the definition shares its file with
    /// others; when there are mistakes in the definitions.
    pub fn promote(&self, stage: &StageId) -> Result<Change, ChangeError> {
        change::promote(self, stage)
    }
}

fn sorted(mut files: Vec<DefinitionFile>) -> Arc<[DefinitionFile]> {
    files.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    files.into()
}
