//! Tests that the same policies and bindings are accepted here as by kube-apiserver.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{assert_differences, chains, differences, lines};

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
    let cases: Vec<DocumentCase> = lines("accepts.jsonl");
    let mut found = BTreeMap::new();
    for case in &cases {
        let read = chains(&case.document.items);
        if read.is_ok() != (case.status == 201) {
            let theirs = case.message.as_deref().unwrap_or("accepted");
            let ours = read.err().unwrap_or_else(|| "accepted".to_owned());
            found.insert(
                case.name.clone(),
                format!("kube-apiserver: {theirs}; here: {ours}"),
            );
        }
    }
    assert_differences("documents", cases.len(), found, differences::DOCUMENTS);
}
