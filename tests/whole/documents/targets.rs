//! Checks that docs/logs.md lists every log target of the program.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use admittance_tests::repository;

fn collect_source_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            collect_source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

/// Returns the default log target of events in a source file below `host`: the path of the file's module.
fn module_target(path: &Path) -> String {
    let path = path.strip_prefix(repository().join("host")).unwrap();
    let mut names: Vec<_> = path
        .with_extension("")
        .iter()
        .map(|name| name.to_str().unwrap().to_owned())
        .collect();
    let is_root = |name: &String| ["lib", "main", "mod"].contains(&name.as_str());
    names.pop_if(|name| is_root(name));
    let package = match names[0].as_str() {
        "runtime" | "cli" => "admittance".to_owned(),
        name => format!("admittance_{name}"),
    };
    [&[package], &names[2..]].concat().join("::")
}

/// Returns the log targets of all events in the source files of the host.
fn source_targets() -> BTreeSet<String> {
    let mut files = Vec::new();
    for name in fs::read_dir(repository().join("host")).unwrap() {
        collect_source_files(&name.unwrap().path().join("src"), &mut files);
    }
    let mut targets = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for part in code.split("tracing::").skip(1) {
            let Some((level, arguments)) = part.split_once("!(") else {
                continue;
            };
            if !["error", "warn", "info", "debug", "trace"].contains(&level) {
                continue;
            }
            let target_argument = arguments
                .trim_start()
                .strip_prefix("target: ")
                .and_then(|rest| rest.split([',', ')']).next());
            targets.insert(match target_argument {
                None => module_target(&file),
                // For log lines of plugins, the target is not a string in the source but the constant `TARGET`.
                Some("TARGET") => "admittance::plugin".to_owned(),
                Some(target) => target.trim_matches('"').to_owned(),
            });
        }
    }
    targets
}

#[test]
fn every_log_target_is_documented() {
    let page = fs::read_to_string(repository().join("docs/logs.md")).unwrap();
    let (_, table) = page.split_once("| target | lines |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let cells = table.lines().map(|line| line.split('|').nth(1).unwrap());
    let documented_targets: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let targets = source_targets();
    let covers = |row: &str, target: &str| {
        let rest = target.strip_prefix(row);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let missing: Vec<_> = targets
        .iter()
        .filter(|target| !documented_targets.iter().any(|row| covers(row, target)))
        .collect();
    assert!(missing.is_empty(), "add these to docs/logs.md: {missing:?}");
    for row in documented_targets {
        assert!(
            targets.iter().any(|target| covers(row, target)),
            "nothing logs with the target {row}"
        );
    }
}
