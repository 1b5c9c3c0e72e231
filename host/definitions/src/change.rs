//! What is written so that definitions are applied, deleted or promoted.
//!
//! A file that holds one definition is written whole, or removed. In a file of several nothing is changed: the
//! error says where to edit it.

mod apply;
mod error;
mod promote;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use self::error::ChangeError;
use self::error::near;
pub(crate) use self::{
    apply::{apply, file_of},
    promote::promote,
};
use crate::{
    DefinitionFile, DefinitionId, DefinitionSet, chains,
    document::{Document, Mistakes},
    set::{Definition, definitions, id_of},
};

/// A change of definitions that was checked and not yet written. Lives until it is written or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The definitions as they will be.
    pub set: DefinitionSet,
    /// What happens to each definition that the change is about, in the order they were named.
    pub effects: Vec<(DefinitionId, Effect)>,
    /// What is written and removed; nothing when nothing changes.
    pub files: Vec<FileChange>,
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
    /// To this file, or one of a similar name when there is something already.
    File(PathBuf),
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let text = |set: &DefinitionSet, path: &Path| {
            let mut files = set.files().iter().chain(set.unusable());
            files.find(|file| file.path == path).map(|file| file.text.clone())
        };
        let mut files: Vec<FileChange> = Vec::new();
        for file in [old, &set]
            .iter()
            .flat_map(|set| set.files().iter().chain(set.unusable()))
        {
            let (before, after) = (text(old, &file.path), text(&set, &file.path));
            if before != after && files.iter().all(|change| change.path != file.path) {
                files.push(FileChange {
                    path: file.path.clone(),
                    before,
                    after,
                });
            }
        }
        Self { set, effects, files }
    }
}

/// The change that removes this definition.
pub(crate) fn delete(set: &DefinitionSet, id: &DefinitionId) -> Result<Change, ChangeError> {
    let effects = vec![(id.clone(), Effect::Deleted)];
    if let Some(path) = unusable(set, id) {
        let rest = set.unusable().iter().filter(|file| file.path != path).cloned();
        let new = set.clone().with_unusable(rest.collect::<Vec<_>>());
        return Ok(Change::between(set, new, effects));
    }
    let mut mistakes = Mistakes::new();
    let there = set.parse(&mut mistakes);
    let definitions = definitions(&there);
    let found = find(&definitions, id)?;
    alone(found, &there)?;
    let others = there.iter().enumerate().filter(|(file, _)| *file != found.file);
    chains::of_documents(others.flat_map(|(_, documents)| documents), mistakes)?;
    let effects = vec![(found.id.clone(), Effect::Deleted)];
    Ok(Change::between(set, set.with_text(found.file, None), effects))
}

/// That the definition is all that its file holds.
fn alone(definition: &Definition<'_>, there: &[Vec<Document>]) -> Result<(), ChangeError> {
    let (id, location) = (definition.id.clone(), definition.root.location());
    match there.get(definition.file).map(Vec::len) {
        _ if definition.is_item() => Err(ChangeError::InList { id, location }),
        Some(1) => Ok(()),
        _ => Err(ChangeError::SharesFile { id, location }),
    }
}

/// Where a store holds something of this name that cannot be used.
fn unusable<'s>(set: &'s DefinitionSet, id: &DefinitionId) -> Option<&'s Path> {
    let is_it = |file: &&DefinitionFile| id_of(file).is_some_and(|other| other.is(id));
    set.unusable().iter().find(is_it).map(|file| file.path.as_path())
}

fn find<'d, 'a>(
    definitions: &'d [Definition<'a>],
    id: &DefinitionId,
) -> Result<&'d Definition<'a>, ChangeError> {
    let found: Vec<_> = definitions
        .iter()
        .filter(|definition| definition.id.is(id))
        .collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] => Err(unknown(id, definitions)),
        several => Err(ChangeError::Ambiguous {
            id: id.clone(),
            locations: several
                .iter()
                .map(|definition| definition.root.location())
                .collect(),
        }),
    }
}

fn unknown(id: &DefinitionId, there: &[Definition<'_>]) -> ChangeError {
    ChangeError::Unknown {
        id: id.clone(),
        near: near(
            &id.to_string(),
            there.iter().map(|other| other.id.clone()).collect(),
        ),
    }
}

/// A JSON text for a file of its own.
fn pretty_json(value: &Json) -> String {
    format!("{value:#}\n")
}
