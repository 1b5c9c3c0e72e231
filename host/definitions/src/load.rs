//! From files to chains: which documents there are, and what must hold between them.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use crate::{
    bcs,
    document::{self, Document, Location, Mistake, Mistakes, quoted},
    model::ChainDefinition,
    native,
};

const NATIVE: &str = "admittance.dev/v1alpha1";
const BCS_RESOURCE: &str = "bkbcs.tencent.com/v2";
const KNOWN: &str = "write an AdmissionChain (admittance.dev/v1alpha1), an admissionwebhook (v4) or an \
                     AdmissionWebhookConfiguration (bkbcs.tencent.com/v2)";

/// Read the chains of these files, and of the files `*.yaml`, `*.yml` and `*.json` in these directories
/// (not in directories inside of them; hidden files and editors' backups are passed over).
///
/// The chains come sorted by name, which is the order they are called in, as kube-apiserver orders
/// webhook configurations. A name is unique, and of BCS definitions there is one for each operation and
/// kind, as BCS documents it.
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
    let mut chains: Vec<ChainDefinition> = Vec::new();
    let mut names: HashMap<String, Location> = HashMap::new();
    let mut subjects: HashMap<bcs::Subject, Location> = HashMap::new();
    for document in documents {
        let chain = match form(document, &mut mistakes) {
            None => None,
            Some(Form::Native) => native::read(document, &mut mistakes),
            Some(form @ (Form::Bcs | Form::BcsResource)) => {
                let definition = match form {
                    Form::Bcs => bcs::read(document, &mut mistakes),
                    _ => bcs::read_custom_resource(document, &mut mistakes),
                };
                definition.and_then(|definition| {
                    if let Some((subject, node)) = definition.subject {
                        match subjects.get(&subject) {
                            None => {
                                subjects.insert(subject, node.location());
                            }
                            Some(first) => {
                                let message = format!("{first} already defines hooks for {subject}");
                                let fix = "BCS has one definition for each operation and kind: put the hooks into one";
                                node.wrong(message, fix, &mut mistakes);
                            }
                        }
                    }
                    definition.chain
                })
            }
        };
        let Some(chain) = chain else {
            continue;
        };
        if let Some(first) = names.get(&chain.name) {
            mistakes.push(Mistake {
                location: chain.source,
                path: "metadata.name".to_owned(),
                message: format!("{} is also the name of the chain in {first}", quoted(&chain.name)),
                fix: "give each chain its own name".to_owned(),
            });
            continue;
        }
        names.insert(chain.name.clone(), chain.source.clone());
        chains.push(chain);
    }
    chains.sort_by(|a, b| a.name.cmp(&b.name));
    mistakes.into_result(chains)
}

/// Which form a document has.
enum Form {
    Native,
    Bcs,
    BcsResource,
}

fn form(document: &Document, mistakes: &mut Mistakes) -> Option<Form> {
    let root = document.root();
    let mut fields = root.object_of_any_case(mistakes)?;
    let kind_node = fields.required("kind", KNOWN, mistakes);
    let kind = kind_node.as_ref().and_then(|kind| kind.text(mistakes))?;
    let version_node = fields.optional("apiVersion");
    let version = match &version_node {
        Some(version) => version.string(mistakes)?,
        None => "",
    };
    let wrong_version = |versions: &str, mistakes: &mut Mistakes| {
        let fix = format!("write `apiVersion: {versions}`");
        match &version_node {
            Some(node) => node.wrong(
                format!(
                    "{version} is no version of {kind} that is known here",
                    version = quoted(version)
                ),
                fix,
                mistakes,
            ),
            None => root.wrong("apiVersion is missing", fix, mistakes),
        }
    };
    if version.starts_with("admissionregistration.k8s.io/") {
        let message = format!("{kind} is not supported yet by this version");
        let fix = "write an AdmissionChain with a webhook of protocol AdmissionReview";
        root.wrong(message, fix, mistakes);
        return None;
    }
    match (kind, version) {
        ("AdmissionChain", NATIVE) => return Some(Form::Native),
        ("AdmissionChain", _) => wrong_version(NATIVE, mistakes),
        ("AdmissionWebhookConfiguration", BCS_RESOURCE) => return Some(Form::BcsResource),
        ("AdmissionWebhookConfiguration", _) => wrong_version(BCS_RESOURCE, mistakes),
        (kind, "v4" | "") if kind.eq_ignore_ascii_case("admissionwebhook") => return Some(Form::Bcs),
        (kind, _) if kind.eq_ignore_ascii_case("admissionwebhook") => wrong_version("v4", mistakes),
        _ => {
            if let Some(node) = &kind_node {
                let of = if version.is_empty() {
                    String::new()
                } else {
                    format!(" of {version}")
                };
                node.wrong(
                    format!("{kind}{of} is not known here", kind = quoted(kind)),
                    KNOWN,
                    mistakes,
                );
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
