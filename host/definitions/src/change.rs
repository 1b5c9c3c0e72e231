//! Plans which files to write or remove in order to apply or delete definitions, or to promote a stage's candidate.
//!
//! A file with one definition is replaced or removed as a whole. A definition that shares its file with others cannot
//! be changed; the error tells where to edit it by hand.

mod apply;
mod error;
pub(crate) mod import;
mod promote;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_admission::enumerated;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use self::error::PlanError;
pub(crate) use self::{
    apply::{apply, chains_of, free_path, new_file_path},
    promote::promote,
};
use crate::{
    DefinitionFile, DefinitionId, DefinitionSet, StoreKind,
    document::Mistakes,
    set::{ParsedDefinition, chains, id_of, reads::ReadFile},
};

/// A change to definitions that has been checked, but not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The set of all definitions after the change.
    pub set: DefinitionSet,
    /// The effect of the change on each definition, in the order in which the request lists them.
    pub effects: Vec<(DefinitionId, AppliedEffect)>,
    /// The files that the change writes or removes; empty if it changes nothing.
    pub files: Vec<FileChange>,
    /// Warnings about what is lost when the files are rewritten, such as comments.
    pub losses: Vec<String>,
}

/// The expected state of the definitions before they are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExpectedDefinitions {
    /// The applied definitions may or may not exist. Existing ones are replaced, and missing ones are created.
    #[default]
    Any,
    /// None of the applied definitions may exist yet.
    New,
    /// All of the applied definitions must exist already.
    Existing,
}

/// The destination of a new definition: the kind of store, and the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Whether the definition is written to a file or to an entry of a store.
    pub kind: StoreKind,
    /// The path of the new file or entry. If a file with this path exists, the new file gets a similar name.
    pub path: PathBuf,
}

/// The effect of a change on a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AppliedEffect {
    /// The definition is created.
    Created,
    /// The definition is changed.
    Changed,
    /// The definition is unchanged.
    Unchanged,
    /// The definition is deleted.
    Deleted,
}

/// The text of a file before and after a change of definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileChange {
    /// The path of the changed file, spelled as in the definition set.
    pub path: PathBuf,
    /// The text of the file before the change; `None` if the file does not exist yet.
    pub before: Option<String>,
    /// The text of the file after the change; `None` if the change removes the file.
    pub after: Option<String>,
}

impl FileChange {
    /// Creates the change of the file's text from `before` to `after`. `None` means that the file does not exist.
    pub fn new(path: impl Into<PathBuf>, before: Option<String>, after: Option<String>) -> Self {
        Self {
            path: path.into(),
            before,
            after,
        }
    }

    /// Returns the change that undoes this one.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self::new(&self.path, self.after.clone(), self.before.clone())
    }
}

impl Change {
    fn between(old: &DefinitionSet, set: DefinitionSet, effects: Vec<(DefinitionId, AppliedEffect)>) -> Self {
        let text = |set: &DefinitionSet, path: &Path| {
            let file = set.all_files().find(|file| file.path == path);
            file.map(|file| file.text.clone())
        };
        let mut files: Vec<FileChange> = Vec::new();
        for file in old.all_files().chain(set.all_files()) {
            let (before, after) = (text(old, &file.path), text(&set, &file.path));
            if before != after && files.iter().all(|change| change.path != file.path) {
                files.push(FileChange {
                    path: file.path.clone(),
                    before,
                    after,
                });
            }
        }
        Self {
            set,
            effects,
            files,
            losses: Vec::new(),
        }
    }
}

pub(crate) fn delete(set: &DefinitionSet, id: &DefinitionId) -> Result<Change, PlanError> {
    let effects = vec![(id.clone(), AppliedEffect::Deleted)];
    if let Some(path) = unusable_path(set, id) {
        let rest = set.unusable_files().iter().filter(|file| file.path != path).cloned();
        let new = set.clone().with_unusable_files(rest.collect());
        return Ok(Change::between(set, new, effects));
    }
    let mut mistakes = Mistakes::new();
    let existing = set.read_files(&mut mistakes);
    let definitions = set.definitions_in(&existing);
    let definition = find_definition(&definitions, id)?;
    ensure_alone(definition, &existing)?;
    let other_definitions = existing
        .iter()
        .enumerate()
        .filter(|(file, _)| *file != definition.file)
        .flat_map(|(_, file)| file.definitions.iter().flatten());
    chains::define(other_definitions, mistakes)?;
    let effects = vec![(definition.id.clone(), AppliedEffect::Deleted)];
    Ok(Change::between(set, set.with_text(definition.file, None), effects))
}

fn ensure_alone(definition: &ParsedDefinition<'_>, existing: &[Arc<ReadFile>]) -> Result<(), PlanError> {
    let (id, location) = (definition.id.clone(), definition.root.location());
    match existing.get(definition.file).map(|file| file.documents.len()) {
        _ if definition.is_item() => Err(PlanError::Conflict(format!(
            "{id} is an item of the list in {location}; edit that file"
        ))),
        Some(1) => Ok(()),
        _ => Err(PlanError::Conflict(format!(
            "{id} is one of several documents in its file, at {location}; edit that file"
        ))),
    }
}

fn unusable_path<'s>(set: &'s DefinitionSet, id: &DefinitionId) -> Option<&'s Path> {
    let matches_id = |file: &&DefinitionFile| id_of(set, file).is_some_and(|other| other.is_same(id));
    set.unusable_files()
        .iter()
        .find(matches_id)
        .map(|file| file.path.as_path())
}

fn find_definition<'d, 'a>(
    definitions: &'d [ParsedDefinition<'a>],
    id: &DefinitionId,
) -> Result<&'d ParsedDefinition<'a>, PlanError> {
    let matches: Vec<_> = definitions
        .iter()
        .filter(|definition| definition.id.is_same(id))
        .collect();
    match matches.as_slice() {
        [only] => Ok(*only),
        [] => Err(unknown_definition_error(id, definitions)),
        several => {
            let locations = several.iter().map(|definition| definition.root.location().to_string());
            Err(PlanError::Conflict(format!(
                "there are several of the name {id}: {}; edit the file",
                enumerated(locations, "or")
            )))
        }
    }
}

fn unknown_definition_error(id: &DefinitionId, existing: &[ParsedDefinition<'_>]) -> PlanError {
    PlanError::unknown("", &id.to_string(), existing.iter().map(|other| &other.id))
}

fn pretty_json(value: &Json) -> String {
    format!("{value:#}\n")
}
