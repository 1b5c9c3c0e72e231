//! Creates chains from definitions, and finds conflicts between definitions.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use admittance_admission::{Phase, pause_between_items};

use super::reads::Reads;
use crate::{
    ChainDefinition, DefinitionSet, ExceptionDefinition, Location,
    document::{Mistake, Mistakes, PAUSE_INTERVAL, quoted},
    forms::{DocumentForm, FormDocuments, ReadDefinition, TakenName},
    store::read_readable_files,
};

/// Loads the chains in these files, and in the files `*.yaml`, `*.yml` and `*.json` of these directories, without their
/// subdirectories, hidden files and editors' backups.
///
/// The mutating chains come first, then the validating ones, each sorted by name. They are called in this order for a
/// request, as kube-apiserver calls webhook configurations. Two chains of one phase cannot have the same name, and two
/// BCS definitions cannot have the same operation and kind, as BCS documents it.
///
/// # Errors
///
/// Returns every mistake in every file.
pub fn load(paths: &[PathBuf]) -> Result<Vec<ChainDefinition>, Mistakes> {
    Ok(Definitions::load(paths)?.chains)
}

/// Loads chains like [`load`], from a text that is treated as the content of the file `name`.
///
/// # Errors
///
/// Returns every mistake in the text.
pub fn load_text(name: &str, text: &str) -> Result<Vec<ChainDefinition>, Mistakes> {
    let read_file = Reads::default().read_text(name, text);
    define(read_file.definitions.iter().flatten(), read_file.mistakes).map(|definitions| definitions.chains)
}

/// The chains and exceptions that documents define.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Definitions {
    /// The chains, in the order in which they are called. Their stages contain the exceptions that apply to them.
    pub chains: Vec<ChainDefinition>,
    /// All exceptions, sorted by name.
    pub exceptions: Vec<ExceptionDefinition>,
    /// The sorted kinds and names of definitions that define no chain, but on which chains depend, such as a `SyncSet`.
    pub supporting: Vec<String>,
}

impl Definitions {
    /// Loads the chains like [`load`], and the exceptions.
    ///
    /// # Errors
    ///
    /// Returns every mistake in every file.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::new();
        DefinitionSet::of_files(read_readable_files(paths, &mut mistakes)).define_after(mistakes)
    }
}

/// Returns the chains and exceptions that these documents define. `mistakes` are those that the parser already found.
pub(crate) fn define<'a>(
    read_definitions: impl IntoIterator<Item = &'a Arc<ReadDefinition>>,
    mut mistakes: Mistakes,
) -> Result<Definitions, Mistakes> {
    let mut chains = Chains::default();
    chains.add_all(read_definitions, &mut mistakes);
    let definitions = chains.definitions(&mut mistakes);
    mistakes.into_result(definitions)
}

/// Collects definitions one by one, and remembers their names. Two definitions with the same name are a conflict,
/// unless both of them permit that the name is shared.
#[derive(Default)]
pub(crate) struct Chains {
    accepted_by_form: Vec<(Arc<dyn DocumentForm>, Vec<Arc<ReadDefinition>>)>,
    /// The names that are already taken.
    /// The key is (kind of thing such as `binding`, phase, name).
    /// The value is (location of the first definition with the name, whether further definitions may share the name).
    names: HashMap<(&'static str, Phase, String), (Location, bool)>,
}

impl Chains {
    pub(crate) fn add_all<'a>(
        &mut self,
        definitions: impl IntoIterator<Item = &'a Arc<ReadDefinition>>,
        mistakes: &mut Mistakes,
    ) {
        for (index, definition) in definitions.into_iter().enumerate() {
            pause_between_items(index, PAUSE_INTERVAL);
            self.add(definition, mistakes);
        }
    }

    /// Adds a definition, unless it is incomplete or conflicts with an earlier one.
    pub(crate) fn add(&mut self, definition: &Arc<ReadDefinition>, mistakes: &mut Mistakes) {
        mistakes.extend(definition.mistakes.iter().cloned());
        let mistakes_before = mistakes.len();
        for name in definition.names() {
            self.claim_name(name, definition, mistakes);
        }
        let form = &definition.form;
        let index = self
            .accepted_by_form
            .iter()
            .position(|(other, _)| Arc::ptr_eq(other, form))
            .unwrap_or_else(|| {
                self.accepted_by_form.push((form.clone(), Vec::new()));
                self.accepted_by_form.len() - 1
            });
        if let Some((form, earlier)) = self.accepted_by_form.get_mut(index) {
            form.check_conflicts(definition, earlier, mistakes);
            if mistakes.len() == mistakes_before {
                earlier.push(definition.clone());
            }
        }
    }

    /// Returns the chains in this file that consist of one document each. A chain of several documents, such as a
    /// policy with its bindings, is left out.
    pub(crate) fn chains_of_file(&self, file: &str) -> impl Iterator<Item = &ChainDefinition> {
        let all = self.accepted_by_form.iter().flat_map(|(_, definitions)| definitions);
        all.filter(move |definition| definition.location().file == file)
            .filter_map(|definition| definition.chain())
    }

    pub(crate) fn forget_file(&mut self, file: &str) {
        for (_, definitions) in &mut self.accepted_by_form {
            definitions.retain(|definition| definition.location().file != file);
        }
        self.names.retain(|_, (location, _)| location.file != file);
    }

    /// Returns the chains and exceptions. Reports definitions that refer to a missing one, or contradict another.
    pub(crate) fn definitions(&self, mistakes: &mut Mistakes) -> Definitions {
        let mut defined = Definitions::default();
        let all = self.accepted_by_form.iter().flat_map(|(_, definitions)| definitions);
        let supporting: Vec<_> = all
            .filter(|definition| definition.kind.is_supporting)
            .cloned()
            .collect();
        for (form, own_definitions) in &self.accepted_by_form {
            let supporting = &supporting;
            form.define(
                FormDocuments {
                    definitions: own_definitions,
                    supporting,
                },
                &mut defined,
                mistakes,
            );
        }
        let names = supporting.iter().filter_map(|definition| {
            let name = &definition.names().first()?.name;
            Some(format!("{} {name}", definition.kind.name))
        });
        defined.supporting.extend(names);
        let Definitions {
            chains,
            exceptions,
            supporting,
        } = &mut defined;
        chains.sort_by(|a, b| (a.phase, &a.name).cmp(&(b.phase, &b.name)));
        exceptions.sort_by(|a, b| a.exception.name.cmp(&b.exception.name));
        for exception in exceptions {
            exception.attach(chains);
        }
        supporting.sort();
        supporting.dedup();
        defined
    }

    fn claim_name(&mut self, name: &TakenName, definition: &ReadDefinition, mistakes: &mut Mistakes) {
        let TakenName {
            noun: of,
            phase,
            name,
            is_shared,
        } = name;
        let key = (*of, *phase, name.clone());
        match self.names.get(&key) {
            None => drop(self.names.insert(key, (definition.location().clone(), *is_shared))),
            Some((_, true)) if *is_shared => {}
            Some((first, _)) => {
                mistakes.push(Mistake {
                    location: definition.location().clone(),
                    path: definition.name_path(),
                    message: format!("{} is also the name of the {of} in {first}", quoted(name)),
                    fix: format!("give each {of} its own name"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
