//! Collects the documents and modules of an installation, and adapts their paths to the directories of a Pod.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    path::{Path, PathBuf},
};

use admittance_catalog::signature::SIGNATURE_SUFFIXES;
use admittance_definitions::{DefinitionFile, DefinitionSet, Definitions, ModuleReference};

use super::{
    files::config_map_key,
    layout::{CHAINS, MODULES, RELATIVE_MODULES},
    rewrite::{self, NewSource},
};
use crate::files;

/// The maximum total size of the values in a ConfigMap, in bytes. Kubernetes accepts no more.
const MAX_CONFIG_MAP_SIZE: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) documents: BTreeMap<String, String>,
    /// The modules, sorted by name; empty if the image contains them.
    pub(super) modules: Vec<BundledModule>,
    /// The directory of the stock plugins in a Pod. `None` if it is not needed.
    pub(super) stock_directory: Option<String>,
}

#[derive(Debug)]
pub(super) struct BundledModule {
    pub(super) suffix: String,
    /// The names and contents of the module's file and its signature files.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Bundle {
    pub(super) fn collect(
        set: &DefinitionSet,
        definitions: &Definitions,
        image_directory: Option<&str>,
    ) -> crate::Result<Self> {
        let directory = image_directory.unwrap_or(RELATIVE_MODULES);
        let mut modules = CollectedModules::default();
        let mut by_file: BTreeMap<String, Vec<NewSource>> = BTreeMap::new();
        for stage in definitions.chains.iter().flat_map(|chain| &chain.stages) {
            for (part, plugin) in stage.plugins() {
                // Modules with a URL or in a registry are fetched by the Pod itself, so only files must be collected.
                if let ModuleReference::File(path) = &plugin.source {
                    let file_name = modules.add(path)?;
                    let source = format!("file:{directory}/{file_name}");
                    let new_source = NewSource {
                        may_be_implied: plugin.source.stock_name().is_some(),
                        ..NewSource::new(&part, source)
                    };
                    by_file
                        .entry(new_source.location.file.clone())
                        .or_default()
                        .push(new_source);
                }
            }
        }
        let mut documents = BTreeMap::new();
        let mut names = TakenNames::default();
        // All files are added, because a file without stages may contain bindings, parameters or exceptions.
        for file in set.files() {
            let name = document_name(&file.path);
            names.add(&name, &file.path)?;
            let path = file.path.display().to_string();
            let new_sources = by_file.remove(path.as_str()).unwrap_or_default();
            documents.insert(name, rewrite::replace_sources(&path, &file.text, &new_sources)?);
        }
        let size: usize = documents.values().map(String::len).sum();
        if size > MAX_CONFIG_MAP_SIZE {
            return Err(format!(
                "the definitions have {size} bytes together; the limit of a ConfigMap is {MAX_CONFIG_MAP_SIZE}; \
                 split the installation with --name"
            )
            .into());
        }
        let uses_stock = uses_unnamed_stock_plugin(&documents, directory)?;
        let modules = if image_directory.is_none() {
            modules.into_config_maps()?
        } else {
            Vec::new()
        };
        let stock_directory = uses_stock.then(|| image_directory.unwrap_or(MODULES).to_owned());
        Ok(Self {
            documents,
            modules,
            stock_directory,
        })
    }
}

/// Returns whether a stage uses a stock plugin, such as the one that runs Gatekeeper policies. `documents` are as the
/// Pod reads them: the sources of all other plugins should already be files in `directory`. If a source is not in
/// `directory`, it could not be replaced, and this is an error.
fn uses_unnamed_stock_plugin(documents: &BTreeMap<String, String>, directory: &str) -> crate::Result<bool> {
    let folder = Path::new(CHAINS);
    let files = documents
        .iter()
        .map(|(name, text)| DefinitionFile::file(folder.join(name), text));
    let definitions = DefinitionSet::of_files(files.collect()).definitions()?;
    let modules = folder.join(directory);
    let mut uses_stock = false;
    for stage in definitions.chains.iter().flat_map(|chain| &chain.stages) {
        for (_, plugin) in stage.plugins() {
            let ModuleReference::File(path) = &plugin.source else {
                continue;
            };
            let is_stock = plugin.source.stock_name().is_some();
            if path.parent() != Some(&modules) && !is_stock {
                let file = Path::new(&stage.location.file).file_name().unwrap_or_default();
                return Err(format!(
                    "{}: the sources of its plugins cannot be edited in place; write each as `source: file:...` on \
                     a line of its own",
                    file.display()
                )
                .into());
            }
            uses_stock |= is_stock;
        }
    }
    Ok(uses_stock)
}

/// Returns the name that a document's file gets in the Pod. Its extension is one that Pods read.
fn document_name(file: &Path) -> String {
    let path_key = config_map_key(file);
    let name = path_key.trim_start_matches('.');
    let extension = file.extension().unwrap_or_default().to_ascii_lowercase();
    if ["yaml", "yml", "json"]
        .iter()
        .any(|known_extension| extension == *known_extension)
    {
        name.to_owned()
    } else {
        format!("{name}.yaml")
    }
}

#[derive(Default)]
struct TakenNames(BTreeMap<String, PathBuf>);

impl TakenNames {
    fn add(&mut self, name: &str, path: &Path) -> Result<(), String> {
        match self.0.insert(name.to_owned(), path.to_owned()) {
            None => Ok(()),
            Some(first) => Err(name_clash(&first, path, name)),
        }
    }
}

fn name_clash(first: &Path, second: &Path, name: &str) -> String {
    let (first, second) = (first.display(), second.display());
    format!("{first} and {second} differ but would both be named {name}; rename one of them")
}

#[derive(Default)]
struct CollectedModules(BTreeMap<String, (PathBuf, Vec<u8>)>);

impl CollectedModules {
    fn add(&mut self, path: &Path) -> Result<String, String> {
        let file_name = config_map_key(path);
        let bytes = files::read_bytes(path).map_err(|error| {
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
                if *present != bytes {
                    return Err(name_clash(first, path, &file_name));
                }
            }
        }
        Ok(file_name)
    }

    fn into_config_maps(self) -> Result<Vec<BundledModule>, String> {
        let mut names = TakenNames::default();
        let mut modules = Vec::new();
        for (file_name, (path, bytes)) in self.0 {
            if bytes.len() > MAX_CONFIG_MAP_SIZE {
                return Err(format!(
                    "the plugin {} has {} bytes; the limit of a ConfigMap is {MAX_CONFIG_MAP_SIZE}; put the plugins \
                     into the image, and name their directory there with --modules-in-image",
                    path.display(),
                    bytes.len()
                ));
            }
            let suffix = format!("module-{}", slug(&file_name));
            names.add(&suffix, &path)?;
            let mut parts = vec![(file_name.clone(), bytes)];
            for suffix in SIGNATURE_SUFFIXES {
                let mut path = path.clone().into_os_string();
                path.push(suffix);
                match files::read_bytes(path.as_ref()) {
                    Ok(bytes) => parts.push((format!("{file_name}{suffix}"), bytes)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(files::error_at(Path::new(&path))(error)),
                }
            }
            modules.push(BundledModule { suffix, files: parts });
        }
        Ok(modules)
    }
}

fn slug(file_name: &str) -> String {
    let stem = file_name.strip_suffix(".wasm").unwrap_or(file_name);
    let stem: String = stem.to_ascii_lowercase().chars().take(200).collect();
    let slug = stem.replace(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()), "-");
    match slug.trim_matches('-') {
        "" => "plugin".to_owned(),
        slug => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn signatures_are_in_the_config_map_of_their_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("a.wasm", "a"), ("a.wasm.sig", "signature"), ("b.wasm", "b")] {
            fs::write(path(name), text).unwrap();
        }
        let mut modules = CollectedModules::default();
        for name in ["a.wasm", "b.wasm"] {
            assert_eq!(modules.add(&path(name)).unwrap(), name);
        }
        let modules = modules.into_config_maps().unwrap();
        let files_by_suffix: Vec<_> = modules
            .iter()
            .map(|module| (module.suffix.as_str(), module.files.as_slice()))
            .collect();
        let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
        let signed = [file("a.wasm", "a"), file("a.wasm.sig", "signature")];
        assert_eq!(
            files_by_suffix,
            [("module-a", &signed[..]), ("module-b", &[file("b.wasm", "b")])]
        );
    }
}
