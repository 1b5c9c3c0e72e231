//! Builds chains from documents, and checks for conflicts between them.

use std::{collections::HashMap, path::PathBuf};

use admittance_admission::Phase;

use crate::{
    DefinitionSet, bcs,
    document::{self, Document, Location, Mistake, Mistakes, Node, quoted},
    form::{self, Form},
    kubernetes,
    model::ChainDefinition,
    native,
    store::read_what_is_there,
};

/// Read the chains of these files, and of the files `*.yaml`, `*.yml` and `*.json` in these directories
/// (not in directories inside of them; hidden files and editors' backups are passed over).
///
/// The mutating chains come first, then the validating ones, each sorted by name: the order they are
/// called in, as kube-apiserver orders webhook configurations. A name is unique in its phase, and of BCS
/// definitions there is one for each operation and kind, as BCS documents it.
///
/// # Errors
///
/// Every mistake of every file.
pub fn load(paths: &[PathBuf]) -> Result<Vec<ChainDefinition>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let files = read_what_is_there(paths, &mut mistakes);
    DefinitionSet::of_files(files).chains_after(mistakes)
}

/// As [`load`], from a text. `name` stands for the file in mistakes; relative paths in the text are
/// taken from its directory.
///
/// # Errors
///
/// Every mistake in it.
pub fn load_text(name: &str, text: &str) -> Result<Vec<ChainDefinition>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let documents = document::read_text(name, text, &mut mistakes);
    of_documents(&documents, mistakes)
}

/// The chains of these documents, in the order they are called; `mistakes` are those of reading them.
pub(crate) fn of_documents<'a>(
    documents: impl IntoIterator<Item = &'a Document>,
    mut mistakes: Mistakes,
) -> Result<Vec<ChainDefinition>, Mistakes> {
    let mut chains = Chains::default();
    chains.read_all(documents, &mut mistakes);
    let mut chains = chains.chains;
    chains.sort_by(|a, b| (a.phase, &a.name).cmp(&(b.phase, &b.name)));
    mistakes.into_result(chains)
}

/// The chain of a single definition; `None` if it is incomplete.
pub(crate) fn of_definition(form: Form, root: &Node<'_>) -> Option<ChainDefinition> {
    let mut chains = Chains::default();
    chains.read(form, root, &mut Mistakes::new());
    chains.chains.pop()
}

/// The chains that were read so far, and the names that must be unique.
#[derive(Default)]
pub(crate) struct Chains {
    chains: Vec<ChainDefinition>,
    names: HashMap<(Phase, String), Location>,
    subjects: HashMap<bcs::Subject, Location>,
}

impl Chains {
    /// The definitions of these documents.
    pub(crate) fn read_all<'a>(
        &mut self,
        documents: impl IntoIterator<Item = &'a Document>,
        mistakes: &mut Mistakes,
    ) {
        for document in documents {
            for (form, root) in form::definitions(document, mistakes) {
                self.read(form, &root, mistakes);
            }
        }
    }

    /// Removes the chains of this file.
    pub(crate) fn forget(&mut self, file: &str) {
        self.chains.retain(|chain| chain.source.file != file);
        self.names.retain(|_, location| location.file != file);
        self.subjects.retain(|_, location| location.file != file);
    }

    fn read(&mut self, form: Form, root: &Node<'_>, mistakes: &mut Mistakes) {
        let chain = match form {
            Form::Native => native::read(root, mistakes),
            Form::Kubernetes(phase, version) => kubernetes::read(root, phase, version, mistakes),
            Form::Bcs => bcs::read(root, mistakes).and_then(|read| self.of_bcs(read, mistakes)),
            Form::BcsResource => {
                bcs::read_custom_resource(root, mistakes).and_then(|read| self.of_bcs(read, mistakes))
            }
        };
        let Some(chain) = chain else {
            return;
        };
        let key = (chain.phase, chain.name.clone());
        if let Some(first) = self.names.get(&key) {
            let path = match root.path() {
                "" => "metadata.name".to_owned(),
                path => format!("{path}.metadata.name"),
            };
            mistakes.push(Mistake {
                location: chain.source,
                path,
                message: format!("{} is also the name of the chain in {first}", quoted(&chain.name)),
                fix: "give each chain its own name".to_owned(),
            });
            return;
        }
        self.names.insert(key, chain.source.clone());
        self.chains.push(chain);
    }

    /// The chain of a BCS definition, whose subject is held to be the only one.
    fn of_bcs(&mut self, read: bcs::BcsDefinition<'_>, mistakes: &mut Mistakes) -> Option<ChainDefinition> {
        if let Some((subject, node)) = read.subject {
            match self.subjects.get(&subject) {
                None => {
                    self.subjects.insert(subject, node.location());
                }
                Some(first) => {
                    let message = format!("{first} already defines hooks for {subject}");
                    let fix = "BCS has one definition for each operation and kind: put the hooks into one";
                    node.wrong(message, fix, mistakes);
                }
            }
        }
        read.chain
    }
}

#[cfg(test)]
mod tests;
