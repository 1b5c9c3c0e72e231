//! Checks a definition before another program, such as an API server, stores it.

use std::path::Path;

use admittance_definitions::{DefinitionFile, DefinitionSet, StoreKind};

use crate::{
    Error, Host, ModuleReference,
    live::source::{modules_and_warnings, run_blocking},
};

/// The kind of definitions that contain exceptions. An exception refers to stages in other definitions.
const EXCEPTION_KIND: &str = "AdmissionException";

/// The result of checking a definition. Each message names the field, the problem and a fix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckResult {
    /// The mistakes that make the checked definition unusable.
    pub mistakes: Vec<String>,
    /// Warnings about settings of the checked definition that are valid but probably unintended.
    pub warnings: Vec<String>,
}

impl Host {
    /// Checks a version of a definition as if its store contained it. Checks the document, conflicts with the
    /// definition files that the host has read, the limits for namespaced chains, whether module files exist, and the
    /// memory of plugins. Fetches no module, and loads no plugin.
    ///
    /// # Errors
    ///
    /// Fails if the host is shutting down.
    pub async fn check(&self, version: DefinitionFile) -> Result<CheckResult, Error> {
        let source = self.0.state.lock().await.source.clone();
        let path = version.path.clone();
        // An exception may refer to stages in any of the definitions, so it is checked together with all of them.
        let names_others = version.expected_id.as_ref().is_some_and(|id| id.kind == EXCEPTION_KIND);
        let is_read = |file: &&DefinitionFile| file.path != path && (names_others || file.kind == StoreKind::Files);
        let mut files: Vec<_> = source.stores.known_set().all_files().filter(is_read).cloned().collect();
        files.push(version);
        let usable = source.find_usable(source.stores.new_set(files)).await?;
        let (reach, max_memory_limit) = (
            source.assembler.reach.clone(),
            source.assembler.sandbox.max_memory_limit,
        );
        run_blocking(move || {
            let bad = usable.bad_definitions.iter().filter(|bad| bad.path == path);
            let mut mistakes: Vec<_> = bad.flat_map(|bad| &bad.reasons).cloned().collect();
            let mut warnings = Vec::new();
            if mistakes.is_empty() {
                let served = usable.served_set();
                mistakes = plugin_mistakes(&served, &path, max_memory_limit);
                warnings = modules_and_warnings(&served, std::slice::from_ref(&path), &reach).1;
            }
            for text in mistakes.iter_mut().chain(&mut warnings) {
                *text = without_path(text, &path).to_owned();
            }
            CheckResult { mistakes, warnings }
        })
        .await
    }
}

fn plugin_mistakes(set: &DefinitionSet, path: &Path, max_memory_limit: usize) -> Vec<String> {
    let mut mistakes = Vec::new();
    for chain in set.chains().unwrap_or_default() {
        if Path::new(&chain.location.file) != path {
            continue;
        }
        for (index, stage) in chain.stages.iter().enumerate() {
            for (part, plugin) in stage.plugins() {
                let location = || format!("spec.stages[{index}]{}", part.path);
                if let Some(memory_size) = plugin.memory.filter(|memory_size| *memory_size > max_memory_limit) {
                    mistakes.push(format!(
                        "{}.memory: {memory_size} bytes are above this host's maximum of {max_memory_limit} bytes; write less, or let the \
                         operator raise `sandbox.memory`",
                        location()
                    ));
                }
                if let ModuleReference::File(file) = &plugin.source
                    && !file.exists()
                    && !admittance_catalog::stock::is_in_program(&plugin.source)
                {
                    mistakes.push(format!(
                        "{}.source: there is no file {}; correct the path, or write where the module is, `oci://` or \
                         `https://`",
                        location(),
                        file.display()
                    ));
                }
            }
        }
    }
    mistakes
}

fn without_path<'t>(text: &'t str, path: &Path) -> &'t str {
    let path_text = path.to_str().unwrap_or_default();
    let rest = text.strip_prefix(path_text).and_then(|rest| rest.split_once(": "));
    rest.map_or(text, |(_, rest)| rest)
}
