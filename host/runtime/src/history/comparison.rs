use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    slice,
};

use admittance_admission::Digest;
use admittance_definitions::{
    DefinitionId, definition_name,
    document::{Mistakes, read_text},
};
use diffy::DiffOptions;

use super::{Comparison, ModuleChange, RevisionDetail, RevisionModule};

/// The maximum number of line pairs for which a diff is computed. In the worst case, all pairs are compared.
const MAX_LINE_PAIRS: usize = 25_000_000;

pub(crate) fn compare(from: &RevisionDetail, to: &RevisionDetail) -> Comparison {
    Comparison {
        from: from.revision.number,
        to: to.revision.number,
        text: unified_diff(from, to),
        modules: module_changes(&from.revision.modules, &to.revision.modules),
    }
}

/// The path of a definition file, and its text in each of two revisions; `None` for a revision without this file.
type FileTexts<'a> = (&'a Path, [Option<&'a str>; 2]);

fn changed_files<'a>(from: &'a RevisionDetail, to: &'a RevisionDetail) -> impl Iterator<Item = FileTexts<'a>> {
    let mut files: BTreeMap<&Path, [Option<&str>; 2]> = BTreeMap::new();
    for file in &from.files {
        files.entry(&file.path).or_default()[0] = Some(&file.text);
    }
    for file in &to.files {
        files.entry(&file.path).or_default()[1] = Some(&file.text);
    }
    files.into_iter().filter(|(_, [old, new])| old != new)
}

fn unified_diff(from: &RevisionDetail, to: &RevisionDetail) -> String {
    let mut text = String::new();
    for (path, [old, new]) in changed_files(from, to) {
        let name = |text: Option<&str>| match text {
            Some(_) => path.display().to_string(),
            None => "/dev/null".to_owned(),
        };
        text += &line_diff([name(old), name(new)], old.unwrap_or_default(), new.unwrap_or_default());
    }
    text
}

/// Returns the names of the definitions that differ between two revisions, and of the stages whose plugin differs. A
/// file is listed by its path if only its comments differ, or if it cannot be parsed.
pub(crate) fn changed_names(from: &RevisionDetail, to: &RevisionDetail) -> Vec<String> {
    let mut names: Vec<_> = changed_files(from, to).flat_map(changed_definitions).collect();
    let has_definitions = !names.is_empty();
    for change in module_changes(&from.revision.modules, &to.revision.modules) {
        let candidate = if change.candidate { " (candidate)" } else { "" };
        let stage = format!("{}{candidate}", change.stage);
        match (&change.from, &change.to) {
            (Some(_), Some(to)) => names.push(format!("{stage}: {}", plugin_text(to))),
            _ if has_definitions => {}
            (_, Some(to)) => names.push(format!("added {stage}: {}", plugin_text(to))),
            (_, None) => names.push(format!("removed {stage}")),
        }
    }
    names
}

/// Describes the plugin of a stage by its name, version and short digest: `images 1.1.0 (2c26b46b68ff)`.
fn plugin_text(module: &RevisionModule) -> String {
    let digest = module
        .digest
        .parse()
        .map_or_else(|_| module.digest.clone(), Digest::to_short_hex);
    format!("{} {} ({digest})", module.plugin, module.version)
}

fn changed_definitions((path, [old, new]): FileTexts<'_>) -> Vec<String> {
    let [old, new] = [old, new].map(Option::unwrap_or_default);
    let (before, after) = (parse_definitions(path, old, new), parse_definitions(path, new, old));
    let ids: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut names: Vec<_> = ids
        .into_iter()
        .filter_map(|id| match (before.get(id), after.get(id)) {
            (None, _) => Some(format!("added {id}")),
            (_, None) => Some(format!("removed {id}")),
            (before, after) => (before != after).then(|| id.to_string()),
        })
        .collect();
    if names.is_empty() {
        names.push(path.display().to_string());
    }
    names
}

/// Parses the definitions in `text`, the content of a definition file. Skips the YAML documents that are also in
/// `other`, the content of the file in the other revision.
fn parse_definitions(path: &Path, text: &str, other: &str) -> BTreeMap<DefinitionId, Vec<serde_json::Value>> {
    const MARKER: &str = "\n---\n";
    let other_documents: BTreeSet<&str> = other.split(MARKER).map(str::trim).collect();
    let different_documents: Vec<&str> = text
        .split(MARKER)
        .filter(|part| !other_documents.contains(part.trim()))
        .collect();
    let mut documents_by_id = BTreeMap::<_, Vec<_>>::new();
    let name = path.display().to_string();
    for document in read_text(&name, &different_documents.join(MARKER), &mut Mistakes::new()) {
        let value = document.root_ignoring_mistakes().json();
        let items = value.get("items").and_then(serde_json::Value::as_array);
        for item in items.map_or(slice::from_ref(&value), Vec::as_slice) {
            if let Some(id) = id_of(item) {
                documents_by_id.entry(id).or_default().push(item.clone());
            }
        }
    }
    documents_by_id
}

fn id_of(document: &serde_json::Value) -> Option<DefinitionId> {
    let field = |pointer| document.pointer(pointer)?.as_str();
    let name = field("/metadata/name")?;
    Some(DefinitionId {
        kind: field("/kind")?.to_owned(),
        name: definition_name(field("/metadata/namespace").unwrap_or_default(), name),
    })
}

/// Returns a unified diff of two texts. If the texts are too long to compare, the diff replaces all lines.
fn line_diff([old_name, new_name]: [String; 2], old: &str, new: &str) -> String {
    let (old_lines, new_lines) = (old.lines().count(), new.lines().count());
    if old_lines * new_lines <= MAX_LINE_PAIRS {
        let mut options = DiffOptions::new();
        options.set_original_filename(old_name);
        options.set_modified_filename(new_name);
        return options.create_patch(old, new).to_string();
    }
    let mut text = format!("--- {old_name}\n+++ {new_name}\n@@ -1,{old_lines} +1,{new_lines} @@\n");
    for (sign, line) in old
        .lines()
        .map(|line| ('-', line))
        .chain(new.lines().map(|line| ('+', line)))
    {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{sign}{line}");
    }
    text
}

fn module_changes(from: &[RevisionModule], to: &[RevisionModule]) -> Vec<ModuleChange> {
    type Pair<'a> = (Option<&'a RevisionModule>, Option<&'a RevisionModule>);
    let mut stages: BTreeMap<(&str, bool), Pair<'_>> = BTreeMap::new();
    for module in from {
        stages.entry((&module.stage, module.candidate)).or_default().0 = Some(module);
    }
    for module in to {
        stages.entry((&module.stage, module.candidate)).or_default().1 = Some(module);
    }
    stages
        .into_iter()
        .filter(|(_, (from, to))| from != to)
        .map(|((stage, candidate), (from, to))| ModuleChange {
            stage: stage.to_owned(),
            candidate,
            from: from.cloned(),
            to: to.cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::entry;

    #[test]
    fn revisions_are_compared_by_the_texts_of_files_and_the_modules_of_stages() {
        let (mut from, mut to) = (entry(1, "a\nb\n").detail, entry(2, "a\nc\n").detail);
        from.revision.modules[0].digest = "sha256:01".to_owned();
        to.files.push(crate::RevisionFile {
            path: "new.yaml".into(),
            text: "d\n".to_owned(),
        });
        let comparison = compare(&from, &to);
        assert_eq!(
            comparison.text,
            "--- chains/a.yaml\n+++ chains/a.yaml\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\
             --- /dev/null\n+++ new.yaml\n@@ -0,0 +1 @@\n+d\n"
        );
        let [change] = comparison.modules.as_slice() else {
            panic!("{comparison:?}");
        };
        let digest = |module: &Option<RevisionModule>| module.as_ref().map(|module| module.digest.clone());
        assert_eq!(digest(&change.from).as_deref(), Some("sha256:01"));
        assert_ne!(digest(&change.to), digest(&change.from));
        let same = compare(&to, &to);
        assert_eq!((same.text.as_str(), same.modules.len()), ("", 0));
    }

    fn names_between(before: &str, after: &str) -> Vec<String> {
        changed_names(&entry(1, before).detail, &entry(2, after).detail)
    }

    #[test]
    fn a_comparison_lists_added_changed_and_removed_definitions() {
        let document = |kind: &str, name: &str, spec: &str| {
            format!("apiVersion: admittance.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
        };
        let chain = |name: &str, spec: &str| document("AdmissionChain", name, spec);
        let both = format!("{}---\n{}", chain("a", "1"), chain("b", "1"));
        assert_eq!(names_between(&both, &chain("a", "1")), ["removed AdmissionChain/b"]);
        assert_eq!(names_between(&chain("b", "1"), &both), ["added AdmissionChain/a"]);
        assert_eq!(
            names_between(&both, ""),
            ["removed AdmissionChain/a", "removed AdmissionChain/b"]
        );
        assert_eq!(
            names_between(&both, &both.replace("b }\nspec: 1", "b }\nspec: 2")),
            ["AdmissionChain/b"]
        );
        let list = "kind: List\nitems:\n- {kind: Binding, metadata: {name: x, namespace: shop}}\n";
        assert_eq!(names_between("", list), ["added Binding/shop/x"]);
        assert_eq!(names_between(&both, &format!("# note\n{both}")), ["chains/a.yaml"]);
        assert_eq!(names_between("{", "}"), ["chains/a.yaml"]);
        assert_eq!(names_between(&both, &both), [] as [&str; 0]);
    }

    #[test]
    fn a_comparison_lists_plugins_that_changed_without_their_definitions() {
        let (from, to) = (entry(1, "a").detail, entry(2, "a").detail);
        let with = |change: &dyn Fn(&mut Vec<RevisionModule>)| {
            let mut other = from.clone();
            change(&mut other.revision.modules);
            other
        };
        let older = with(&|modules| modules[0].version = "0.9.0".to_owned());
        let candidate = with(&|modules| {
            let mut candidate = modules[0].clone();
            candidate.candidate = true;
            modules.push(candidate);
        });
        let plugin = format!("b 1.0.0 ({})", Digest::of_bytes("b").to_short_hex());
        for (from, to, name) in [
            (&older, &to, format!("Mutating:a/b: {plugin}")),
            (&to, &candidate, format!("added Mutating:a/b (candidate): {plugin}")),
            (&candidate, &to, "removed Mutating:a/b (candidate)".to_owned()),
        ] {
            assert_eq!(changed_names(from, to), [name]);
        }
    }

    #[test]
    fn very_long_texts_are_not_compared_line_by_line() {
        let text = |line: &str| format!("{line}\n").repeat(20_000);
        let names = || ["a".to_owned(), "b".to_owned()];
        let difference = line_diff(names(), &text("x"), &text("y"));
        assert!(difference.starts_with("--- a\n+++ b\n@@ -1,20000 +1,20000 @@\n-x\n"));
        assert_eq!(difference.lines().filter(|line| *line == "+y").count(), 20_000);
    }
}
