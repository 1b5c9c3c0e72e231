use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use diffy::DiffOptions;

use super::{Comparison, ModuleChange, RevisionDetail, RevisionModule};

/// The most pairs of lines of two texts that are compared, because texts without common lines take time for each pair.
const MOST_PAIRS: usize = 25_000_000;

pub(crate) fn compare(from: &RevisionDetail, to: &RevisionDetail) -> Comparison {
    Comparison {
        from: from.revision.number,
        to: to.revision.number,
        text: texts(from, to),
        modules: modules(&from.revision.modules, &to.revision.modules),
    }
}

/// The texts of a file in two revisions; `None` where the revision does not have it.
type FileTexts<'a> = (&'a Path, [Option<&'a str>; 2]);

fn changed_files<'a>(
    from: &'a RevisionDetail,
    to: &'a RevisionDetail,
) -> impl Iterator<Item = FileTexts<'a>> {
    let mut files: BTreeMap<&Path, [Option<&str>; 2]> = BTreeMap::new();
    for file in &from.files {
        files.entry(&file.path).or_default()[0] = Some(&file.text);
    }
    for file in &to.files {
        files.entry(&file.path).or_default()[1] = Some(&file.text);
    }
    files.into_iter().filter(|(_, [old, new])| old != new)
}

fn texts(from: &RevisionDetail, to: &RevisionDetail) -> String {
    let mut text = String::new();
    for (path, [old, new]) in changed_files(from, to) {
        let name = |text: Option<&str>| match text {
            Some(_) => path.display().to_string(),
            None => "/dev/null".to_owned(),
        };
        text += &difference(
            [name(old), name(new)],
            old.unwrap_or_default(),
            new.unwrap_or_default(),
        );
    }
    text
}

pub(crate) fn changed_names(from: &RevisionDetail, to: &RevisionDetail) -> Vec<String> {
    let modules = modules(&from.revision.modules, &to.revision.modules);
    let mut names: Vec<_> = modules.into_iter().map(|change| change.stage).collect();
    names.dedup();
    names.extend(changed_files(from, to).map(|(path, [old, new])| {
        let path = path.display();
        match (old, new) {
            (None, _) => format!("{path} (new)"),
            (_, None) => format!("{path} (removed)"),
            _ => path.to_string(),
        }
    }));
    names
}

/// Writes a unified diff. For texts with too many lines it removes all old lines and adds all new ones.
fn difference([old_name, new_name]: [String; 2], old: &str, new: &str) -> String {
    let (old_lines, new_lines) = (old.lines().count(), new.lines().count());
    if old_lines * new_lines <= MOST_PAIRS {
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
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign}{line}");
    }
    text
}

fn modules(from: &[RevisionModule], to: &[RevisionModule]) -> Vec<ModuleChange> {
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
    fn texts_are_compared_file_by_file_and_modules_stage_by_stage() {
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
        assert_eq!(
            changed_names(&from, &to),
            [change.stage.as_str(), "chains/a.yaml", "new.yaml (new)"]
        );
        assert_eq!(changed_names(&to, &to), [] as [&str; 0]);
        let same = compare(&to, &to);
        assert_eq!((same.text.as_str(), same.modules.len()), ("", 0));
    }

    #[test]
    fn long_texts_without_common_lines_are_not_compared() {
        let text = |line: &str| format!("{line}\n").repeat(20_000);
        let names = || ["a".to_owned(), "b".to_owned()];
        let difference = difference(names(), &text("x"), &text("y"));
        assert!(difference.starts_with("--- a\n+++ b\n@@ -1,20000 +1,20000 @@\n-x\n"));
        assert_eq!(difference.lines().filter(|line| *line == "+y").count(), 20_000);
    }
}
