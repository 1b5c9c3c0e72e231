//! Changes of definition files that leave alone what they do not mean.

mod apply;
mod commit;
mod delete;
mod error;
mod extent;
mod journal;
mod promote;
mod rewrite;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub(crate) use self::{
    apply::{apply, file_name},
    delete::delete,
    extent::{Extent, extents},
    promote::promote,
};
pub use self::{
    commit::CommitError,
    error::ChangeError,
    journal::{Recovery, recover},
};
use crate::{ChainDefinition, DefinitionFile, DefinitionId, DefinitionSet, Location};

/// A change of definition files that was checked and not yet written. Lives until it is committed or
/// dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The definitions as they will be.
    pub set: DefinitionSet,
    /// What happens to each definition that the change is about, in the order they were named.
    pub effects: Vec<(DefinitionId, Effect)>,
    files: Vec<FileChange>,
}

/// What is expected of the definitions that are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expected {
    /// Nothing: those that are there are replaced, and the others are new.
    #[default]
    Any,
    /// None of them is there.
    New,
    /// Each of them is there.
    There,
}

/// Where a definition that is new is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a file of its own in this directory.
    Directory(PathBuf),
    /// To this path of a store.
    Store(PathBuf),
}

/// What a change does to a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Effect {
    /// There was none of its name.
    Created,
    /// It is written in another way.
    Changed,
    /// It is there as it is to be.
    Unchanged,
    /// It is there no more.
    Deleted,
}

/// What a change does to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file, as its set names it.
    pub path: PathBuf,
    /// Its text now; none when there is no such file.
    pub before: Option<String>,
    /// Its text then; none when there will be no such file.
    pub after: Option<String>,
}

impl Change {
    /// The change from `old` to `set`.
    fn between(old: &DefinitionSet, set: DefinitionSet, effects: Vec<(DefinitionId, Effect)>) -> Self {
        let all = |set: &DefinitionSet| -> Vec<DefinitionFile> {
            set.files().iter().chain(set.unusable()).cloned().collect()
        };
        let (before, after) = (all(old), all(&set));
        let text = |files: &[DefinitionFile], path: &Path| {
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.text.clone())
        };
        let mut files = Vec::new();
        for file in &before {
            let after = text(&after, &file.path);
            if after.as_ref() != Some(&file.text) {
                files.push(FileChange {
                    path: file.path.clone(),
                    before: Some(file.text.clone()),
                    after,
                });
            }
        }
        for file in &after {
            if text(&before, &file.path).is_none() {
                files.push(FileChange {
                    path: file.path.clone(),
                    before: None,
                    after: Some(file.text.clone()),
                });
            }
        }
        Self { set, effects, files }
    }

    /// The files that it writes and removes; none when nothing changes.
    pub fn files(&self) -> &[FileChange] {
        &self.files
    }

    /// Write it: all of it or nothing.
    ///
    /// What is to be done is written to `journal` first, a file beside which nobody else writes. When the
    /// program is killed in between, [`recover`] does the rest at its next start. A definition file that
    /// is a symbolic link is written where the link leads to; when it is removed, the link is. A file
    /// keeps its mode.
    ///
    /// # Errors
    ///
    /// When a file is not what it was when the set was read, or cannot be written. Nothing was changed
    /// then, but for [`CommitError::Unfinished`].
    pub fn commit(&self, journal: &Path) -> Result<(), CommitError> {
        write(&self.files, journal)
    }
}

/// Write these changes: all of them or nothing, as [`Change::commit`].
pub(crate) fn write(files: &[FileChange], journal: &Path) -> Result<(), CommitError> {
    commit::commit(files, journal, &mut |_| Ok(()))
}

/// Whether both are the same, wherever they are written.
fn mean_the_same(a: &[ChainDefinition], b: &[ChainDefinition]) -> bool {
    let without_places = |chains: &[ChainDefinition]| {
        let mut chains = chains.to_vec();
        for chain in &mut chains {
            chain.source = Location::of_file("");
            for stage in &mut chain.stages {
                stage.location = Location::of_file("");
            }
        }
        chains
    };
    without_places(a) == without_places(b)
}
