//! The documents and modules of an installation, in the form for a Pod.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use admittance_catalog::signature::SIGNATURE_SUFFIXES;
use admittance_definitions::{ChainDefinition, ModuleReference, load_text};

use super::{
    Error,
    layout::{self, CHAINS, MODULES_FROM_BESIDE},
    rewrite::{self, NewSource},
};

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
    pub(super) slug: String,
    /// The name of its file.
    pub(super) file_name: String,
    pub(super) bytes: Vec<u8>,
    /// The suffixes and contents of its signature files.
    pub(super) signatures: Vec<(&'static str, Vec<u8>)>,
}

/// The location of modules for a Pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModuleHome<'a> {
    /// In ConfigMaps.
    ConfigMaps,
    /// In this directory of the image.
    Image(&'a str),
}

impl Bundle {
    /// The documents of these chains, with their modules.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or changed, two would have the same name, or one is too large.
    pub(super) fn of(chains: &[ChainDefinition], home: ModuleHome<'_>) -> Result<Self, Error> {
        let mut modules = Modules::default();
        let mut by_file: BTreeMap<&str, Vec<NewSource>> = BTreeMap::new();
        for chain in chains {
            let new = by_file.entry(&chain.source.file).or_default();
            for stage in &chain.stages {
                for (role, plugin) in rewrite::plugins(stage) {
                    // Modules that are fetched are also fetched by the Pod.
                    let ModuleReference::File(path) = &plugin.source else {
                        continue;
                    };
                    let file_name = modules.add(path)?;
                    let folder = match home {
                        ModuleHome::ConfigMaps => MODULES_FROM_BESIDE,
                        ModuleHome::Image(folder) => folder,
                    };
                    new.push(NewSource {
                        stage: stage.location.clone(),
                        role,
                        source: format!("file:{folder}/{file_name}"),
                    });
                }
            }
        }
        let mut documents = BTreeMap::new();
        let mut origins: BTreeMap<String, &str> = BTreeMap::new();
        for (file, new) in by_file {
            let name = document_name(file);
            if let Some(first) = origins.insert(name.clone(), file) {
                return Err(Error::SameName {
                    first: first.into(),
                    second: file.into(),
                    name,
                });
            }
            documents.insert(name.clone(), document(file, &name, &new)?);
        }
        let size: usize = documents.values().map(String::len).sum();
        if size > LARGEST_CONFIG_MAP {
            return Err(Error::DocumentsTooLarge { size });
        }
        let modules = match home {
            ModuleHome::ConfigMaps => modules.of_config_maps()?,
            ModuleHome::Image(_) => Vec::new(),
        };
        Ok(Self { documents, modules })
    }
}

/// The text of a document with the module locations of a Pod.
fn document(file: &str, name: &str, new: &[NewSource]) -> Result<String, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::File {
        path: file.into(),
        source,
    })?;
    let text = rewrite::sources(file, &text, new)?;
    // The result is parsed again, as a Pod would.
    let folder = Path::new(CHAINS);
    let chains = load_text(&folder.join(name).display().to_string(), &text)?;
    let expected = new
        .iter()
        .map(|new| folder.join(new.source.trim_start_matches("file:")));
    let mut left: Vec<_> = expected.collect();
    for stage in chains.iter().flat_map(|chain| &chain.stages) {
        for (_, plugin) in rewrite::plugins(stage) {
            let ModuleReference::File(path) = &plugin.source else {
                continue;
            };
            match left.iter().position(|expected| expected == path) {
                Some(index) => drop(left.swap_remove(index)),
                None => return Err(Error::NotRewritten(file.into())),
            }
        }
    }
    Ok(text)
}

/// The name of a document's file in the directory of the chains, where only some extensions are read.
fn document_name(file: &str) -> String {
    let path = Path::new(file);
    let name = layout::key(&path.file_name().unwrap_or_default().to_string_lossy());
    let name = name.trim_start_matches('.');
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    if ["yaml", "yml", "json"].iter().any(|known| ending == *known) {
        name.to_owned()
    } else {
        format!("{name}.yaml")
    }
}

/// The modules so far, by the names of their files.
#[derive(Default)]
struct Modules(BTreeMap<String, (PathBuf, Vec<u8>)>);

impl Modules {
    /// Reads a module, unless it was already read, and returns the name of its file.
    fn add(&mut self, path: &Path) -> Result<String, Error> {
        let file_name = layout::key(&path.file_name().unwrap_or_default().to_string_lossy());
        let bytes = fs::read(path).map_err(|source| Error::Module {
            path: path.to_owned(),
            source,
        })?;
        match self.0.get(&file_name) {
            // The same module by another path is kept once.
            Some((_, there)) if *there == bytes => {}
            Some((first, _)) => {
                return Err(Error::SameName {
                    first: first.clone(),
                    second: path.to_owned(),
                    name: file_name,
                });
            }
            None => {
                self.0.insert(file_name.clone(), (path.to_owned(), bytes));
            }
        }
        Ok(file_name)
    }

    fn of_config_maps(self) -> Result<Vec<Module>, Error> {
        let mut slugs: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut modules = Vec::new();
        for (file_name, (path, bytes)) in self.0 {
            if bytes.len() > LARGEST_CONFIG_MAP {
                return Err(Error::ModuleTooLarge {
                    path,
                    size: bytes.len(),
                });
            }
            let slug = slug(&file_name);
            if let Some(first) = slugs.insert(slug.clone(), path.clone()) {
                return Err(Error::SameName {
                    first,
                    second: path,
                    name: slug,
                });
            }
            modules.push(Module {
                slug,
                file_name,
                bytes,
                signatures: signatures(&path)?,
            });
        }
        Ok(modules)
    }
}

/// The signatures next to a module, which the Pod checks as well.
fn signatures(module: &Path) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    let mut signatures = Vec::new();
    for ending in SIGNATURE_SUFFIXES {
        let mut name = module.as_os_str().to_owned();
        name.push(ending);
        let path = PathBuf::from(name);
        match fs::read(&path) {
            Ok(bytes) => signatures.push((ending, bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::File { path, source }),
        }
    }
    Ok(signatures)
}

/// A file's name as the suffix of a ConfigMap's name.
fn slug(file_name: &str) -> String {
    let stem = file_name.strip_suffix(".wasm").unwrap_or(file_name);
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let slug: String = stem
        .to_ascii_lowercase()
        .chars()
        // Names of objects have at most 253 characters.
        .take(200)
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() {
        "plugin".to_owned()
    } else {
        slug.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_signs_a_module_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("a.wasm", "a"), ("a.wasm.sig", "signature"), ("b.wasm", "b")] {
            fs::write(path(name), text).unwrap();
        }
        let mut modules = Modules::default();
        for name in ["a.wasm", "b.wasm"] {
            assert_eq!(modules.add(&path(name)).unwrap(), name);
        }
        let modules = modules.of_config_maps().unwrap();
        let found: Vec<_> = modules
            .iter()
            .map(|module| (module.slug.as_str(), module.signatures.as_slice()))
            .collect();
        let signature = [(".sig", b"signature".to_vec())];
        assert_eq!(found, [("a", signature.as_slice()), ("b", &[])]);
    }
}
