mod applying;
mod deleting;
mod generated;
mod promoting;
mod stored;

use std::path::Path;

use super::new_file_path;
use crate::{Change, DefinitionFile, DefinitionId, DefinitionSet, Destination, StoreKind};

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata:\n  name: {name}\nspec:\n  rules:\n    - \
         operations: [CREATE]\n      kinds: [pod]\n  stages:\n    - name: s\n      plugin:\n        source: file:s.wasm\n"
    )
}

/// Returns the definition of a native chain called `name`. The text of the definition is a single line.
fn chain_line(name: &str) -> String {
    format!(
        "{{ apiVersion: admittance.dev/v1alpha1, kind: AdmissionChain, metadata: {{ name: {name} }}, spec: {{ rules: \
         [ {{ operations: [CREATE], kinds: [pod] }} ], stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ] }} }}"
    )
}

fn chain_json(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "admittance.dev/v1alpha1", "kind": "AdmissionChain", "metadata": {{"name": "{name}"}}, "spec": {{"rules": [{{"operations": ["CREATE"], "kinds": ["pod"]}}], "stages": [{{"name": "s", "plugin": {{"source": "file:s.wasm"}}}}]}}}}"#
    )
}

fn set_of_files(files: &[(&str, &str)]) -> DefinitionSet {
    let file = |(path, text): &(&str, &str)| DefinitionFile::file(path, *text);
    DefinitionSet::of_files(files.iter().map(file).collect())
}

fn destination_in(directory: &Path) -> impl Fn(&DefinitionId) -> Option<Destination> {
    move |id| {
        Some(Destination {
            kind: StoreKind::Files,
            path: new_file_path(id, directory),
        })
    }
}

fn file_text(set: &DefinitionSet, path: &str) -> Option<String> {
    let mut files = set.files().iter();
    let file = files.find(|file| file.path == Path::new(path));
    file.map(|file| file.text.clone())
}

fn summary(change: &Change) -> String {
    let effects: Vec<String> = change
        .effects
        .iter()
        .map(|(id, effect)| format!("{id} {effect:?}"))
        .collect();
    let files: Vec<String> = change
        .files
        .iter()
        .map(|file| {
            let sign = match (&file.before, &file.after) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            format!("{sign}{}", file.path.display())
        })
        .collect();
    format!("{}; {}", effects.join(", "), files.join(" "))
        .trim_end()
        .to_owned()
}
