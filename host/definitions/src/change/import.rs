//! Converts definitions of other policy systems, such as Kubernetes or Kubewarden, to equivalent native chains.
//!
//! Each native chain is read again and compared with the original. If they differ, the original definition is kept.

mod compare;

use std::{path::Path, sync::Arc};

use admittance_admission::{ModuleReference, Reinvocation, keywords};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    ChainDefinition, DefinitionFile, DefinitionId, Location, StageDefinition,
    document::{self, Document, Mistake, Mistakes},
    forms::ReadDefinition,
    forms::native::write,
    load_text,
    set::{
        ParsedDefinition,
        chains::Chains,
        definition_text,
        reads::{ReadFile, Reads},
    },
};

/// The result of importing files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The result for each definition, in the order of files and lines.
    pub definitions: Vec<ImportedDefinition>,
    /// The reasons why documents were skipped, a sentence each.
    pub skipped_mistakes: Vec<String>,
    /// The text of a file with the native chains and the definitions that were not converted.
    pub text: String,
}

/// The result of importing one definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ImportedDefinition {
    /// The kind and name of the imported definition.
    #[serde(flatten)]
    pub id: DefinitionId,
    /// The location of the imported definition in its file.
    #[serde(flatten)]
    pub location: Location,
    /// Whether the definition was converted, and whether the native chain is equivalent.
    pub result: ImportResult,
    /// The name of the chain to which the imported definition belongs, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Remarks on the result: how the native chain differs from the original, or why the definition was not converted.
    pub notes: Vec<String>,
}

/// Whether a definition was converted, and whether the native chain is equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportResult {
    /// The definition was converted to an equivalent native chain.
    Exact,
    /// The definition was converted to a native chain with the same decisions, but other names or messages.
    Differs,
    /// The definition is kept unchanged, because no native chain is equivalent.
    Kept,
    /// The definition is omitted from the new file, because it calls no hooks or is native already.
    LeftOut,
    /// The definition has mistakes, so it was not converted.
    Invalid,
}

keywords!(ImportResult, "result": Exact = "exact", Differs = "differs", Kept = "kept", LeftOut = "left-out",
    Invalid = "invalid");

/// Converts the definitions in these files to native chains. The caller writes the resulting text to `target`.
///
/// # Errors
///
/// Returns the syntax errors of the files.
pub fn import(files: &[DefinitionFile], target: &Path) -> Result<Import, Mistakes> {
    let mut mistakes = Mistakes::new();
    let documents: Vec<_> = files.iter().map(|file| file.documents(&mut mistakes)).collect();
    mistakes.into_result(())?;
    let read_documents = |documents| Reads::default().read_documents(documents, Mistakes::new());
    let read_files: Vec<ReadFile> = documents.into_iter().map(read_documents).collect();
    let skipped = read_files
        .iter()
        .flat_map(|file| &file.mistakes)
        .map(|mistake| format!("{}: {}", mistake.location, mistake.message))
        .collect();
    let (mut entries, mut chains) = read_entries(&read_files);
    let mut text = String::new();
    let canary_names: Vec<Arc<str>> = chains.iter().flat_map(canary_names_of).collect();
    for chain in &mut chains {
        let mut parts: Vec<_> = entries.iter_mut().filter(|entry| entry.is_part_of(chain)).collect();
        let is_unconverted =
            |entry: &&mut ImportEntry<'_>| entry.result == ImportResult::Invalid || entry.result_of_kind().is_some();
        if parts.iter().any(is_unconverted) {
            continue;
        }
        let outcome = if canary_names.iter().any(|canary_name| **canary_name == chain.name) {
            let note = "it is a canary, which has no native form";
            Conversion::without_text(&chain.name, ImportResult::Kept, vec![note.to_owned()])
        } else {
            Conversion::new(chain, target)
        };
        for entry in &mut parts {
            entry.result = outcome.result;
            entry.chain = Some(outcome.name.clone());
            entry.notes.clone_from(&outcome.notes);
            if outcome.result == ImportResult::Kept {
                text.push_str(&entry.text(files, &read_files));
            }
        }
        text.push_str(&outcome.text);
    }
    for entry in &mut entries {
        let Some((result, note)) = entry.result_of_kind().filter(|_| entry.result != ImportResult::Invalid) else {
            continue;
        };
        entry.result = result;
        entry.notes.push(note.to_owned());
        if result == ImportResult::Kept {
            text.push_str(&entry.text(files, &read_files));
        }
    }
    Ok(Import {
        definitions: entries.into_iter().map(ImportEntry::into_imported).collect(),
        skipped_mistakes: skipped,
        text,
    })
}

fn read_entries(files: &[ReadFile]) -> (Vec<ImportEntry<'_>>, Vec<ChainDefinition>) {
    let mut chains = Chains::default();
    let mut entries: Vec<_> = Reads::default()
        .definitions_with_default_ids(files, |read_definition| {
            let name = read_definition.names().first().map(|name| name.name.clone());
            Some(DefinitionId {
                kind: read_definition.kind.name.to_owned(),
                name: name.unwrap_or_default(),
            })
        })
        .into_iter()
        .map(|definition| {
            let mut mistakes = definition.read_definition.mistakes.clone();
            if mistakes.is_empty() {
                chains.add(definition.read_definition, &mut mistakes);
            }
            ImportEntry::new(definition, &mistakes)
        })
        .collect();
    let mut chain_mistakes = Mistakes::new();
    let chains = chains.definitions(&mut chain_mistakes).chains;
    for mistake in &chain_mistakes {
        let starts_before = |entry: &&mut ImportEntry<'_>| {
            let start = entry.definition.root.location();
            start.file == mistake.location.file && start.line <= mistake.location.line
        };
        if let Some(entry) = entries.iter_mut().rfind(starts_before) {
            entry.result = ImportResult::Invalid;
            entry.notes.push(mistake.to_string());
        }
    }
    (entries, chains)
}

struct ImportEntry<'a> {
    definition: ParsedDefinition<'a>,
    result: ImportResult,
    chain: Option<String>,
    notes: Vec<String>,
}

impl<'a> ImportEntry<'a> {
    fn new(definition: ParsedDefinition<'a>, mistakes: &Mistakes) -> Self {
        Self {
            definition,
            result: if mistakes.is_empty() {
                ImportResult::LeftOut
            } else {
                ImportResult::Invalid
            },
            chain: None,
            notes: mistakes.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the result of importing this definition, with the reason, if all documents of its kind have the same
    /// result. Returns `None` if the result depends on the document.
    fn result_of_kind(&self) -> Option<(ImportResult, &'static str)> {
        let ReadDefinition { form, kind, .. } = &**self.definition.read_definition;
        form.import(kind)
    }

    fn text(&self, files: &[DefinitionFile], read_files: &[ReadFile]) -> String {
        let index = self.definition.file;
        let file = files.get(index).zip(read_files.get(index));
        file.map(|(file, read_file)| document_text(&self.definition, file, &read_file.documents))
            .unwrap_or_default()
    }

    fn is_part_of(&self, chain: &ChainDefinition) -> bool {
        let location = self.definition.root.location();
        location == chain.location || chain.stages.iter().any(|stage| stage.location == location)
    }

    fn into_imported(self) -> ImportedDefinition {
        ImportedDefinition {
            location: self.definition.root.location(),
            id: self.definition.id,
            result: self.result,
            chain: self.chain,
            notes: self.notes,
        }
    }
}

fn document_text(definition: &ParsedDefinition<'_>, file: &DefinitionFile, documents: &[Document]) -> String {
    if !definition.is_item() {
        let full_text = definition_text(definition, file, documents).unwrap_or_default();
        let text = full_text.trim_start_matches('\u{feff}').trim_end();
        let separator = if text.starts_with("---") { "" } else { "---\n" };
        return format!("{separator}{text}\n");
    }
    // An item of a list may omit `kind` and `apiVersion`, because the list implies them. The new document is not in a
    // list, so both are added.
    let mut object = definition.root.json();
    if let Json::Object(fields) = &mut object {
        let list = documents
            .get(definition.document)
            .map(|list| list.root_ignoring_mistakes().json());
        let version = list.and_then(|list| list.get("apiVersion").cloned());
        if !fields.contains_key("kind") {
            fields.insert("kind".to_owned(), definition.read_definition.kind.name.into());
            fields.insert("apiVersion".to_owned(), version.unwrap_or_default());
        }
    }
    document::to_yaml(&object)
}

struct Conversion {
    result: ImportResult,
    name: String,
    notes: Vec<String>,
    text: String,
}

impl Conversion {
    fn without_text(name: &str, result: ImportResult, notes: Vec<String>) -> Self {
        Self {
            result,
            name: name.to_owned(),
            notes,
            text: String::new(),
        }
    }

    fn new(chain: &mut ChainDefinition, target: &Path) -> Self {
        let name = native_name(&chain.name);
        let outcome = |result, notes| Self::without_text(&chain.name, result, notes);
        if chain.stages.is_empty() {
            let note = "nothing is called for it: it has no rules, no binding, or is paused";
            return outcome(ImportResult::LeftOut, vec![note.to_owned()]);
        }
        let foreign_properties = compare::foreign_properties(chain);
        if !foreign_properties.is_empty() {
            return outcome(ImportResult::Kept, foreign_properties);
        }
        // Relative paths of modules become absolute, because the new file may be in a different directory.
        for plugin in chain.stages.iter_mut().flat_map(StageDefinition::plugins_mut) {
            if let ModuleReference::File(path) = &mut plugin.source
                && let Ok(absolute) = std::path::absolute(&*path)
            {
                *path = absolute;
            }
        }
        let text = document::to_yaml(&write::chain_json(chain, &name));
        let native_chains = match load_text(&target.display().to_string(), &text) {
            Ok(chains) => chains,
            Err(mistakes) => {
                let reason = |mistake: &Mistake| format!("{}: {}", mistake.path, mistake.message);
                return outcome(ImportResult::Kept, mistakes.iter().map(reason).collect());
            }
        };
        let Some(native_chain) = native_chains.first() else {
            return outcome(ImportResult::Kept, Vec::new());
        };
        let lost_properties = compare::lost_properties(chain, native_chain);
        if !lost_properties.is_empty() {
            return outcome(ImportResult::Kept, lost_properties);
        }
        let mut notes = Vec::new();
        if name != chain.name {
            notes.push(format!("the chain is called {name}"));
        }
        for stage in &chain.stages {
            for note in stage.hook.native_form_differences() {
                if !notes.iter().any(|existing| existing == note) {
                    notes.push(note.to_owned());
                }
            }
        }
        let is_reinvoked = |stage: &StageDefinition| {
            stage.spec.reinvoked_by_itself && stage.spec.reinvocation == Reinvocation::IfNeeded
        };
        if chain.stages.iter().any(is_reinvoked) {
            notes.push("a stage is not called again after its own change".to_owned());
        }
        let result = if notes.is_empty() {
            ImportResult::Exact
        } else {
            ImportResult::Differs
        };
        notes.extend(chain.warnings.iter().map(|warning| warning.message.clone()));
        Self {
            result,
            name,
            notes,
            text,
        }
    }
}

fn canary_names_of(chain: &ChainDefinition) -> impl Iterator<Item = Arc<str>> {
    let specs = chain.stages.iter().map(|stage| &stage.spec);
    specs.flat_map(|spec| spec.yields_to.iter().map(|other| other.chain.clone()))
}

fn native_name(name: &str) -> String {
    name.replace('/', ".").to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
