//! From files to chains: which documents there are, and what must hold between them.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use admittance_admission::Phase;

use crate::{
    bcs,
    document::{self, Document, Location, Mistake, Mistakes, Node, quoted},
    form::{self, Form},
    kubernetes,
    model::ChainDefinition,
    native,
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
    let mut seen = HashSet::new();
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path, &mut mistakes) {
            // A file may be named beside its directory. One that cannot be found is reported by reading it.
            let identity = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if seen.insert(identity) {
                documents.extend(document::read_file(&file, &mut mistakes));
            }
        }
    }
    chains(&documents, mistakes)
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
    chains(&documents, mistakes)
}

fn files(path: &Path, mistakes: &mut Mistakes) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let found = std::fs::read_dir(path).and_then(|entries| {
        let mut files = Vec::new();
        for entry in entries {
            let file = entry?.path();
            // A symbolic link to a file is a file: Kubernetes mounts ConfigMaps so.
            if is_definition(&file) && !file.is_dir() {
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    });
    found.unwrap_or_else(|error| {
        mistakes.push(Mistake {
            location: Location::of_file(path.display().to_string()),
            path: String::new(),
            message: format!("the directory cannot be read: {error}"),
            fix: String::new(),
        });
        Vec::new()
    })
}

/// By its name alone. Backups (`a.yaml~`, `#a.yaml#`, `a.yaml.bak`) have another ending; `.#a.yaml` is
/// hidden.
fn is_definition(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let known = file.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    });
    known && !hidden
}

fn chains(documents: &[Document], mut mistakes: Mistakes) -> Result<Vec<ChainDefinition>, Mistakes> {
    let mut chains = Chains::default();
    for document in documents {
        for (form, root) in form::definitions(document, &mut mistakes) {
            chains.read(form, &root, &mut mistakes);
        }
    }
    let mut chains = chains.chains;
    chains.sort_by(|a, b| (a.phase, &a.name).cmp(&(b.phase, &b.name)));
    mistakes.into_result(chains)
}

/// The chains that were read so far, and what may be there once.
#[derive(Default)]
struct Chains {
    chains: Vec<ChainDefinition>,
    names: HashMap<(Phase, String), Location>,
    subjects: HashMap<bcs::Subject, Location>,
}

impl Chains {
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
