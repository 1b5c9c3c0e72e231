//! Tests that the same policies and bindings are accepted here as by kube-apiserver.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{assert_differences, differences, load_chains, read_lines};

#[derive(Deserialize)]
struct DocumentCase {
    name: String,
    document: DocumentList,
    status: u16,
    message: Option<String>,
}

#[derive(Deserialize)]
struct DocumentList {
    items: Vec<Value>,
}

#[test]
fn documents_are_accepted_and_refused_as_in_kube_apiserver() {
    let cases: Vec<DocumentCase> = read_lines("accepts.jsonl");
    let mut different_cases = BTreeMap::new();
    for case in &cases {
        let outcome = load_chains(&case.document.items);
        if outcome.is_ok() != (case.status == 201) {
            let expected = case.message.as_deref().unwrap_or("accepted");
            let actual = outcome.err().unwrap_or_else(|| "accepted".to_owned());
            different_cases.insert(case.name.clone(), format!("kube-apiserver: {expected}; here: {actual}"));
        }
    }
    assert_differences("documents", cases.len(), different_cases, differences::DOCUMENTS);
}
