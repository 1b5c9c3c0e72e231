use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_admission::Phase;
use serde_json::Value as Json;

use super::{
    AppliedEffect, Change, Destination, ExpectedDefinitions, PlanError, ensure_alone, pretty_json,
    unknown_definition_error, unusable_path,
};
use crate::{
    ChainDefinition, DefinitionFile, DefinitionId, DefinitionSet, Location, StoreKind,
    document::{self, BYTE_ORDER_MARK, Document, DocumentSyntax, Mistakes},
    set::{
        ParsedDefinition,
        chains::{self, Chains},
        reads::ReadFile,
    },
};

pub(crate) fn apply(
    set: &DefinitionSet,
    text: &str,
    name: &str,
    expected: ExpectedDefinitions,
    destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
) -> Result<Change, PlanError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut read_file = set.reads.read_text(name, text);
    let mut mistakes = read_file.mistakes.clone();
    // At this point, only conflicts between names in the text are mistakes. References, such as that of a binding to
    // its policy, are checked later, because the policy may be in another file.
    Chains::default().add_all(read_file.definitions.iter().flatten(), &mut mistakes);
    mistakes.into_result(())?;
    let items = without_lists(text, set, &read_file);
    let text = items.as_deref().unwrap_or(text);
    if items.is_some() {
        read_file = set.reads.read_text(name, text);
    }
    let applied = DefinitionInText::find_all(text, name, set, &read_file)?;

    let mut mistakes = Mistakes::new();
    let existing = set.read_files(&mut mistakes);
    let definitions = set.definitions_in(&existing);
    let goals = applied.iter().map(|applied_definition| {
        if let Some(definition) = find_replaced(&definitions, applied_definition, &applied) {
            return applied_definition.target_in_place_of(definition, set, &existing, expected);
        }
        let id = applied_definition.id.clone();
        if let Some(path) = unusable_path(set, &id) {
            let location = Location::of_file(path.display().to_string());
            return match expected {
                ExpectedDefinitions::New => Err(PlanError::AlreadyThere { id, location }),
                ExpectedDefinitions::Any | ExpectedDefinitions::Existing => Ok(WriteTarget::Overwrite(path.to_owned())),
            };
        }
        if expected == ExpectedDefinitions::Existing {
            return Err(unknown_definition_error(&id, &definitions));
        }
        let is_taken = |path: &Path| set.all_files().any(|file| file.path == path);
        match destination(&id) {
            None => Err(PlanError::Conflict(format!(
                "{id} is new, and there is no directory to write it to: only single files and stores that do not accept \
                 it are configured; add a directory to `definitions`"
            ))),
            Some(Destination {
                kind: StoreKind::Entries,
                path,
            }) if is_taken(&path) => Err(PlanError::Conflict(format!(
                "{id} cannot be written to {}, which already exists; remove it first",
                path.display()
            ))),
            Some(destination) => Ok(WriteTarget::Create(destination)),
        }
    }).collect::<Result<Vec<_>, _>>()?;

    // If an applied definition conflicts with an existing one, the mistake must be about the applied definition. It is
    // reported for the definition that is added later, so the existing ones are added first. An existing definition
    // that is replaced is not added.
    let is_replaced = |file: usize, document: usize| {
        let mut targets = goals.iter().filter_map(WriteTarget::existing_definition);
        targets.any(|target| (target.file, target.document) == (file, document))
    };
    let mut all_definitions = Vec::new();
    for (file, existing_file) in existing.iter().enumerate() {
        let documents = existing_file.definitions.iter().enumerate();
        let kept_documents = documents.filter(|(index, _)| !is_replaced(file, *index));
        all_definitions.extend(kept_documents.flat_map(|(_, definitions)| definitions).cloned());
    }
    let documents = applied
        .iter()
        .zip(&goals)
        .map(|(applied_definition, goal)| applied_definition.document.with_directory(goal.directory(set)));
    let new = set.reads.read_documents(documents.collect(), Mistakes::new());
    all_definitions.extend(new.definitions.into_iter().flatten());
    chains::define(&all_definitions, mistakes)?;
    Ok(build_change(set, &applied, goals))
}

pub(crate) fn chains_of(
    set: &DefinitionSet,
    text: &str,
    name: &str,
    destination: &dyn Fn(&DefinitionId) -> Option<Destination>,
) -> Result<Vec<ChainDefinition>, PlanError> {
    let read_file = set.reads.read_text(name, text);
    let existing = set.read_files(&mut Mistakes::new());
    let (new, old) = (set.reads.definitions([&read_file]), set.definitions_in(&existing));
    let directory = |definition: &ParsedDefinition<'_>| {
        let replaced = old.iter().find(|old| old.id.is_same(&definition.id));
        let (kind, path) = match replaced.and_then(|old| set.files().get(old.file)) {
            Some(file) => (file.kind, file.path.clone()),
            None => destination(&definition.id).map(|new| (new.kind, new.path))?,
        };
        (kind == StoreKind::Files).then(|| path.parent().map(Path::to_owned))?
    };
    let within = |(index, document): (usize, &Document)| {
        let first = new.iter().find(|definition| definition.document == index);
        document.with_directory(first.and_then(directory).as_deref())
    };
    let documents = read_file.documents.iter().enumerate().map(within).collect();
    let resolved_file = set.reads.read_documents(documents, read_file.mistakes.clone());
    let chains = chains::define(resolved_file.definitions.iter().flatten(), resolved_file.mistakes)?.chains;
    if chains.is_empty() {
        return Err(PlanError::Nothing(name.to_owned()));
    }
    Ok(chains)
}

struct DefinitionInText<'a> {
    id: DefinitionId,
    document: &'a Document,
    phase: Option<Phase>,
    text: &'a str,
}

impl<'a> DefinitionInText<'a> {
    fn find_all(
        text: &'a str,
        name: &str,
        set: &DefinitionSet,
        read_file: &'a ReadFile,
    ) -> Result<Vec<Self>, PlanError> {
        let documents = &read_file.documents;
        let mut all = Vec::new();
        for definition in set.reads.definitions([read_file]) {
            let Some(document) = documents.get(definition.document) else {
                continue;
            };
            all.push(Self {
                phase: definition.chain().map(|chain| chain.phase),
                id: definition.id,
                document,
                text: document.own_text(text, documents.len() == 1),
            });
        }
        if all.is_empty() {
            return Err(PlanError::Nothing(name.to_owned()));
        }
        Ok(all)
    }

    fn target_in_place_of<'d, 'n>(
        &self,
        definition: &'d ParsedDefinition<'n>,
        set: &DefinitionSet,
        existing_files: &[Arc<ReadFile>],
        expected: ExpectedDefinitions,
    ) -> Result<WriteTarget<'d, 'n>, PlanError> {
        if expected == ExpectedDefinitions::New {
            return Err(PlanError::AlreadyThere {
                id: self.id.clone(),
                location: definition.root.location(),
            });
        }
        let is_alone = ensure_alone(definition, existing_files);
        let is_same = match set.files().get(definition.file) {
            Some(file) if is_alone.is_ok() && file.kind == StoreKind::Files => {
                let new = self.text_to_write(file.kind, &file.path, None);
                content_of_document(&new)
                    .lines()
                    .eq(content_of_document(&file.text).lines())
            }
            // The parsed values of an entry are compared, not its text, because the store may have reformatted it.
            _ => {
                let new = self
                    .merge_with(definition)
                    .unwrap_or_else(|| self.document.root_ignoring_mistakes().json());
                !definition.is_item() && definition.root.json() == new
            }
        };
        if is_same {
            return Ok(WriteTarget::Keep(definition));
        }
        is_alone.map(|()| WriteTarget::Replace(definition))
    }

    fn text_to_write(&self, kind: StoreKind, path: &Path, replaced: Option<&ParsedDefinition<'_>>) -> String {
        let is_json = kind == StoreKind::Entries || document::is_named_json(path);
        let replaced = replaced.filter(|_| kind == StoreKind::Entries);
        let merged = replaced.and_then(|replaced| self.merge_with(replaced));
        let text = match (merged, self.document.syntax()) {
            (Some(merged), _) => pretty_json(&merged),
            (None, DocumentSyntax::Yaml) if is_json => pretty_json(&self.document.root_ignoring_mistakes().json()),
            (None, _) => self.text.to_owned(),
        };
        match kind {
            StoreKind::Files if !text.ends_with('\n') => text + "\n",
            StoreKind::Files => text,
            StoreKind::Entries => text.trim_end().to_owned(),
        }
    }

    /// Returns the object to store when this document replaces the definition `replaced`. `None` means that the
    /// document is stored unchanged.
    fn merge_with(&self, replaced: &ParsedDefinition<'_>) -> Option<Json> {
        let form = &replaced.read_definition.form;
        form.merge(self.document.root_ignoring_mistakes().json(), &replaced.root.json())
    }
}

/// Returns the text with the items of each list as separate documents; `None` if the text contains no list.
fn without_lists(text: &str, set: &DefinitionSet, read_file: &ReadFile) -> Option<String> {
    let definitions = set.reads.definitions([read_file]);
    if !definitions.iter().any(ParsedDefinition::is_item) {
        return None;
    }
    let documents = &read_file.documents;
    let texts = definitions.iter().filter_map(|definition| {
        let document = documents.get(definition.document)?;
        Some(if definition.is_item() {
            document::to_yaml(&definition.root.json())
        } else {
            document.own_text(text, documents.len() == 1).to_owned()
        })
    });
    Some(texts.collect::<Vec<_>>().join("\n---\n"))
}

enum WriteTarget<'d, 'a> {
    /// The document equals this existing definition, so nothing is written.
    Keep(&'d ParsedDefinition<'a>),
    Replace(&'d ParsedDefinition<'a>),
    /// The document replaces the unusable entry at this path.
    Overwrite(PathBuf),
    Create(Destination),
}

impl<'d, 'a> WriteTarget<'d, 'a> {
    fn existing_definition(&self) -> Option<&'d ParsedDefinition<'a>> {
        match self {
            Self::Keep(target) | Self::Replace(target) => Some(target),
            Self::Overwrite(_) | Self::Create(_) => None,
        }
    }

    fn directory<'s>(&'s self, set: &'s DefinitionSet) -> Option<&'s Path> {
        let (kind, path) = match self {
            Self::Keep(target) | Self::Replace(target) => {
                let file = set.files().get(target.file)?;
                (file.kind, &file.path)
            }
            Self::Create(Destination { kind, path }) => (*kind, path),
            Self::Overwrite(_) => return None,
        };
        path.parent().filter(|_| kind == StoreKind::Files)
    }
}

/// Removes the byte order mark, the document marker and surrounding white space from the text of a document.
fn content_of_document(text: &str) -> &str {
    let text = text.trim_start_matches(BYTE_ORDER_MARK).trim();
    text.strip_prefix("---\n").unwrap_or(text)
}

fn find_replaced<'d, 'a>(
    existing_definitions: &'d [ParsedDefinition<'a>],
    new_definition: &DefinitionInText<'_>,
    applied_definitions: &[DefinitionInText<'_>],
) -> Option<&'d ParsedDefinition<'a>> {
    let same: Vec<_> = existing_definitions
        .iter()
        .filter(|other| other.id.is_same(&new_definition.id))
        .collect();
    let sibling_count = applied_definitions
        .iter()
        .filter(|other| other.id.is_same(&new_definition.id))
        .count();
    match same.as_slice() {
        [only] if sibling_count == 1 => Some(*only),
        // A mutating and a validating chain may have the same name. In this case, the document replaces the chain that
        // has the same phase as the document.
        several => several.iter().copied().find(|other| {
            let phase = other.chain().map(|chain| chain.phase);
            phase.is_some() && phase == new_definition.phase
        }),
    }
}

fn build_change(set: &DefinitionSet, applied: &[DefinitionInText<'_>], goals: Vec<WriteTarget<'_, '_>>) -> Change {
    let mut files = set.files().to_vec();
    let mut unusable = set.unusable_files().to_vec();
    let mut effects = Vec::new();
    for (definition, goal) in applied.iter().zip(goals) {
        let effect = match goal {
            WriteTarget::Keep(_) => AppliedEffect::Unchanged,
            WriteTarget::Replace(target) => {
                if let Some(file) = files.get_mut(target.file) {
                    file.text = definition.text_to_write(file.kind, &file.path, Some(target));
                }
                AppliedEffect::Changed
            }
            WriteTarget::Overwrite(path) => {
                unusable.retain(|file| file.path != path);
                let text = definition.text_to_write(StoreKind::Entries, &path, None);
                files.push(DefinitionFile::entry(path, text, None));
                AppliedEffect::Changed
            }
            WriteTarget::Create(Destination { kind, path }) => {
                let path = match kind {
                    StoreKind::Files => free_path(path, &files),
                    StoreKind::Entries => path,
                };
                let text = definition.text_to_write(kind, &path, None);
                files.push(DefinitionFile::new(kind, path, text));
                AppliedEffect::Created
            }
        };
        effects.push((definition.id.clone(), effect));
    }
    let new = set.with_contents(files).with_unusable_files(unusable);
    Change::between(set, new, effects)
}

/// Returns the path for a new definition, `{directory}/{kind}-{name}.yaml`, even if a file with this path exists.
pub(crate) fn new_file_path(id: &DefinitionId, directory: &Path) -> PathBuf {
    const MAX_NAME_LENGTH: usize = 100;
    // Only these characters are kept: all file systems accept them, and without `/` the path stays in the directory.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = format!("{}-{}", id.kind, id.name)
        .chars()
        .take(MAX_NAME_LENGTH)
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    directory.join(format!("{name}.yaml"))
}

/// Returns a path that is neither on disk nor in `files`. This is `path` itself if it is unused. Otherwise, a number is
/// added to its name, as in `pods-2.yaml`.
pub(crate) fn free_path(path: PathBuf, files: &[DefinitionFile]) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut free = path.clone();
    let mut number = 2;
    while files.iter().any(|file| file.path == free) || free.symlink_metadata().is_ok() {
        free = path.with_file_name(format!("{stem}-{number}.yaml"));
        number += 1;
    }
    free
}
