//! Tests with generated files that each document of a file can be used alone, whatever precedes and follows it.

use proptest::prelude::*;

use super::{chain, chain_json, chain_line, destination_in, file_text, set_of_files};
use crate::{ChainDefinition, DefinitionId, ExpectedDefinitions};

/// Generates blank lines and comments, which are put between two documents.
fn comment_lines() -> impl Strategy<Value = String> {
    let lines = prop_oneof![Just("\n"), Just("# A comment.\n"), Just("#\n"), Just("   \n")];
    prop::collection::vec(lines, 0..4).prop_map(|lines| lines.concat())
}

fn marker() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("---\n"),
        Just("--- # A comment.\n"),
        Just("---\n---\n"),
        Just("...\n---\n"),
        Just("...\n%YAML 1.2\n---\n")
    ]
}

fn document(index: usize) -> impl Strategy<Value = String> {
    let name = format!("c{index}");
    let commented = format!("# Above.\n{}      # Inside.\n", chain(&name));
    prop_oneof![
        Just(chain(&name)),
        Just(commented),
        Just(format!("{}\n", chain_line(&name))),
        Just(format!("{}\n", chain_json(&name))),
        Just(chain(&name).replace("source: file:s.wasm", "source: 'file:é---.wasm' # 語")),
    ]
}

fn file() -> impl Strategy<Value = (usize, String)> {
    let parts = |count: usize| {
        let documents: Vec<_> = (0..count).map(document).collect();
        let around = prop::collection::vec((comment_lines(), marker()), count);
        (documents, around, comment_lines(), any::<bool>(), any::<bool>())
    };
    (1_usize..4)
        .prop_flat_map(parts)
        .prop_map(|(documents, around, last, marked, windows)| {
            let mut text = String::new();
            for (index, (document, (between, marker))) in documents.iter().zip(around).enumerate() {
                if index > 0 {
                    text += &between;
                    text += marker;
                } else if marked {
                    text += &between;
                    text += "---\n";
                }
                text += document;
            }
            text += &last;
            let text = if windows { text.replace('\n', "\r\n") } else { text };
            (documents.len(), text)
        })
}

fn names(chains: &[ChainDefinition]) -> Vec<&str> {
    chains.iter().map(|chain| chain.name.as_str()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_document_of_a_file_can_be_used_alone((count, whole) in file()) {
        let old = set_of_files(&[("f.yaml", &whole)]);
        let stored = old.documents();
        prop_assert_eq!(stored.len(), count, "{}", whole);
        for one in &stored {
            let alone = set_of_files(&[("f.yaml", &one.text)]).documents();
            let definitions: Vec<_> = alone.into_iter().map(|stored| (stored.id, stored.chain)).collect();
            prop_assert_eq!(definitions, vec![(one.id.clone(), one.chain.clone())], "{}", one.text);
            let again = old.apply(&one.text, "new", ExpectedDefinitions::Any, &|_| None).unwrap();
            prop_assert_eq!(&again.files, &[]);
            prop_assert_eq!(old.delete(&one.id).is_ok(), count == 1);
        }
    }

    #[test]
    fn each_applied_document_gets_its_own_file((count, whole) in file()) {
        let directory = tempfile::tempdir().unwrap();
        let change = set_of_files(&[]).apply(&whole, "new", ExpectedDefinitions::New, &destination_in(directory.path())).unwrap();
        prop_assert_eq!(change.files.len(), count);
        let chains = set_of_files(&[("f.yaml", &whole)]).chains().unwrap();
        let applied = change.set.chains().unwrap();
        prop_assert_eq!(names(&applied), names(&chains));
    }

    #[test]
    fn deleting_a_new_definition_restores_the_files((_, whole) in file()) {
        let directory = tempfile::tempdir().unwrap();
        let old = set_of_files(&[("f.yaml", &whole)]);
        let created = old.apply(&chain("new"), "new", ExpectedDefinitions::Any, &destination_in(directory.path())).unwrap().set;
        prop_assert_eq!(file_text(&created, "f.yaml"), Some(whole));
        let id: DefinitionId = "AdmissionChain/new".parse().unwrap();
        prop_assert_eq!(created.delete(&id).unwrap().set, old);
    }
}
