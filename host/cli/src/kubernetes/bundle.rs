//! The documents and modules of an installation, in the form for a Pod.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, io,
    path::{Path, PathBuf},
};

use admittance_catalog::signature::SIGNATURE_SUFFIXES;
use admittance_definitions::{Definitions, ModuleReference, StageDefinition, load_text};

use super::{
    files::key,
    layout::{CHAINS, RELATIVE_MODULES},
    rewrite::{self, NewSource},
};
use crate::files;

/// The limit of Kubernetes for the total size of a ConfigMap's values.
const LARGEST_CONFIG_MAP: usize = 1024 * 1024;

/// The files that are mounted next to the configuration.
#[derive(Debug)]
pub(super) struct Bundle {
    /// File name and text, sorted by name.
    pub(super) documents: BTreeMap<String, String>,
    /// Sorted by name; empty when the image has them.
    pub(super) modules: Vec<Module>,
}

/// A module in a ConfigMap.
#[derive(Debug)]
pub(super) struct Module {
    /// The suffix of its ConfigMap's name.
    pub(super) suffix: String,
    /// The names and contents of the module's file and of its signature files.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Bundle {
    /// The documents of these definitions, with their modules, unless the image has them in this directory.
    pub(super) fn of(definitions: &Definitions, image_directory: Option<&str>) -> crate::Result<Self> {
        let directory = image_directory.unwrap_or(RELATIVE_MODULES);
        let mut modules = Modules::default();
        let mut by_file: BTreeMap<&str, Vec<NewSource>> = BTreeMap::new();
        for exception in &definitions.exceptions {
            by_file.entry(&exception.source.file).or_default();
        }
        for chain in &definitions.chains {
            let new = by_file.entry(&chain.source.file).or_default();
            for stage in &chain.stages {
                for (role, plugin) in stage.plugins() {
                    // Modules that are fetched are also fetched by the Pod.
                    if let ModuleReference::File(path) = &plugin.source {
                        let file_name = modules.add(path)?;
                        let source = format!("file:{directory}/{file_name}");
                        new.push(NewSource::of(stage, role, source));
                    }
                }
            }
        }
        let mut documents = BTreeMap::new();
        let mut names = Names::default();
        for (file, new) in by_file {
            let name = document_name(Path::new(file));
            names.add(&name, Path::new(file))?;
            documents.insert(name.clone(), document(file, &name, &new)?);
        }
        let size: usize = documents.values().map(String::len).sum();
        if size > LARGEST_CONFIG_MAP {
            return Err(format!(
                "the definitions have {size} bytes together; the limit of a ConfigMap is {LARGEST_CONFIG_MAP}; \
                 split the installation with --name"
            )
            .into());
        }
        let modules = match image_directory {
            None => modules.in_config_maps()?,
            Some(_) => Vec::new(),
        };
        Ok(Self { documents, modules })
    }
}

/// The text of a document with the module locations of a Pod.
fn document(file: &str, name: &str, new: &[NewSource]) -> crate::Result<String> {
    let text = rewrite::sources(file, &files::read(Path::new(file))?, new)?;
    // The result is parsed again, as a Pod would.
    let folder = Path::new(CHAINS);
    let chains = load_text(&folder.join(name).display().to_string(), &text)?;
    let new = new.iter();
    let mut expected: Vec<_> = new
        .map(|new| folder.join(new.source.trim_start_matches("file:")))
        .collect();
    let stages = chains.iter().flat_map(|chain| &chain.stages);
    for (_, plugin) in stages.flat_map(StageDefinition::plugins) {
        if let ModuleReference::File(path) = &plugin.source {
            let Some(index) = expected.iter().position(|expected| expected == path) else {
                return Err(format!(
                    "{file}: the sources of its plugins cannot be edited in place; write each as \
                     `source: file:...` on a line of its own"
                )
                .into());
            };
            expected.swap_remove(index);
        }
    }
    Ok(text)
}

/// The name of a document's file in the directory of the chains, where only some extensions are read.
fn document_name(file: &Path) -> String {
    let name = key(file);
    let name = name.trim_start_matches('.');
    let extension = file.extension().unwrap_or_default().to_ascii_lowercase();
    if ["yaml", "yml", "json"].iter().any(|known| extension == *known) {
        name.to_owned()
    } else {
        format!("{name}.yaml")
    }
}

/// The names that were given so far, with the files that have them.
#[derive(Default)]
struct Names(BTreeMap<String, PathBuf>);

impl Names {
    fn add(&mut self, name: &str, path: &Path) -> Result<(), String> {
        match self.0.insert(name.to_owned(), path.to_owned()) {
            None => Ok(()),
            Some(first) => Err(same_name(&first, path, name)),
        }
    }
}

fn same_name(first: &Path, second: &Path, name: &str) -> String {
    let (first, second) = (first.display(), second.display());
    format!("{first} and {second} differ but would both be named {name}; rename one of them")
}

/// The modules so far, by the names of their files.
#[derive(Default)]
struct Modules(BTreeMap<String, (PathBuf, Vec<u8>)>);

impl Modules {
    /// Reads a module, and returns the name of its file.
    fn add(&mut self, path: &Path) -> Result<String, String> {
        let file_name = key(path);
        let bytes = fs::read(path).map_err(|error| {
            format!(
                "the plugin {} cannot be read: {error}; build it (`cargo task plugins`), or change the definition",
                path.display()
            )
        })?;
        match self.0.entry(file_name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert((path.to_owned(), bytes));
            }
            Entry::Occupied(entry) => {
                let (first, present) = entry.get();
                // The same module by another path is kept once.
                if *present != bytes {
                    return Err(same_name(first, path, &file_name));
                }
            }
        }
        Ok(file_name)
    }

    fn in_config_maps(self) -> Result<Vec<Module>, String> {
        let mut names = Names::default();
        let mut modules = Vec::new();
        for (file_name, (path, bytes)) in self.0 {
            if bytes.len() > LARGEST_CONFIG_MAP {
                return Err(format!(
                    "the plugin {} has {} bytes; the limit of a ConfigMap is {LARGEST_CONFIG_MAP}; put the plugins \
                     into the image, and name their directory there with --modules-in-image",
                    path.display(),
                    bytes.len()
                ));
            }
            let suffix = format!("module-{}", slug(&file_name));
            names.add(&suffix, &path)?;
            let mut parts = vec![(file_name.clone(), bytes)];
            // The Pod checks the signatures next to a module as well.
            for suffix in SIGNATURE_SUFFIXES {
                let mut path = path.clone().into_os_string();
                path.push(suffix);
                match fs::read(&path) {
                    Ok(bytes) => parts.push((format!("{file_name}{suffix}"), bytes)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(files::at(Path::new(&path))(error)),
                }
            }
            modules.push(Module { suffix, files: parts });
        }
        Ok(modules)
    }
}

/// A file's name as a part of a ConfigMap's name.
fn slug(file_name: &str) -> String {
    let stem = file_name.strip_suffix(".wasm").unwrap_or(file_name);
    // Names of objects have at most 253 characters.
    let stem: String = stem.to_ascii_lowercase().chars().take(200).collect();
    let slug = stem.replace(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()), "-");
    match slug.trim_matches('-') {
        "" => "plugin".to_owned(),
        slug => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_next_to_their_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("a.wasm", "a"), ("a.wasm.sig", "signature"), ("b.wasm", "b")] {
            fs::write(path(name), text).unwrap();
        }
        let mut modules = Modules::default();
        for name in ["a.wasm", "b.wasm"] {
            assert_eq!(modules.add(&path(name)).unwrap(), name);
        }
        let modules = modules.in_config_maps().unwrap();
        let found: Vec<_> = modules
            .iter()
            .map(|module| (module.suffix.as_str(), module.files.as_slice()))
            .collect();
        let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
        let signed = [file("a.wasm", "a"), file("a.wasm.sig", "signature")];
        assert_eq!(
            found,
            [("module-a", &signed[..]), ("module-b", &[file("b.wasm", "b")])]
        );
    }
}
