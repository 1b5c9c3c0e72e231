//! Reading chains in one step.

use std::path::PathBuf;

use crate::{
    ChainDefinition, DefinitionSet, chains,
    document::{self, Mistakes},
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
    let set = DefinitionSet::read_what_is_there(paths, &mut mistakes);
    set.chains_after(mistakes)
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
    chains::of_documents(&documents, mistakes)
}

#[cfg(test)]
mod tests;
