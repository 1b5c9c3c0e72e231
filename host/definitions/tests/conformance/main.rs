//! Compares Kubernetes policies with the recorded responses of kube-apiserver 1.36.2, which are in `data`.
//!
//! Each test runs a file of recorded cases, and collects those with a different result. They must be exactly the
//! intended differences in `differences.rs`: the test fails if a difference is missing there, or if a case there does
//! not differ.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "JSON in tests is what was recorded")]

mod answers;
mod cluster;
mod differences;
mod documents;
mod expressions;
mod reported;
mod requests;

use std::{collections::BTreeMap, fs, path::PathBuf};

use admittance_definitions::{ChainDefinition, load};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn data_path(name: &str) -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.join("tests/conformance/data").join(name)
}

fn read_lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let text = fs::read_to_string(data_path(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}")))
        .collect()
}

fn load_chains(documents: &[Value]) -> Result<Vec<ChainDefinition>, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policies.json");
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents});
    fs::write(&file, list.to_string()).unwrap();
    load(&[file]).map_err(|mistakes| mistakes.to_string())
}

/// Fails unless exactly the cases in `listed_cases` differ. `different_cases` has a description of each case that
/// differs.
fn assert_differences(
    noun: &str,
    case_count: usize,
    different_cases: BTreeMap<String, String>,
    listed_cases: &[(&str, &str)],
) {
    let is_listed = |name: &str| listed_cases.iter().any(|(listed_name, _)| *listed_name == name);
    let unexpected: Vec<_> = different_cases
        .iter()
        .filter(|(name, _)| !is_listed(name))
        .map(|(name, difference)| format!("{name}: {difference}"))
        .collect();
    let agreeing: Vec<_> = listed_cases
        .iter()
        .filter(|(name, _)| !different_cases.contains_key(*name))
        .map(|(name, _)| *name)
        .collect();
    println!(
        "{noun}: {} of {case_count} agree, {} differ",
        case_count - different_cases.len(),
        different_cases.len()
    );
    assert!(
        unexpected.is_empty() && agreeing.is_empty(),
        "{noun}: {} of {case_count} cases differ.\nnot listed ({}):\n{}\nlisted, but equal ({}): {agreeing:?}",
        different_cases.len(),
        unexpected.len(),
        unexpected.join("\n"),
        agreeing.len(),
    );
}
