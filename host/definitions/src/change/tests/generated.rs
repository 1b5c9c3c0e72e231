//! Files that nobody wrote: whatever is around a document, changing it and changing it back leaves every
//! byte as it was.

use proptest::prelude::*;

use super::{chain, json, line, set, text, to};
use crate::{DefinitionId, Expected};

/// What can stand between two documents, and belongs to neither.
fn between() -> impl Strategy<Value = String> {
    let lines = prop_oneof![Just(""), Just("# A comment."), Just("#"), Just("   ")];
    prop::collection::vec(lines, 0..4).prop_map(|lines| {
        // A comment right above a document would be its own.
        lines
            .into_iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            + "\n"
    })
}

fn marker() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("---\n"),
        Just("--- # A comment.\n"),
        Just("---\n---\n"),
        Just("...\n---\n")
    ]
}

fn document(index: usize) -> impl Strategy<Value = String> {
    let name = format!("c{index}");
    let commented = format!("# Above.\n{}      # Inside.\n", chain(&name));
    prop_oneof![
        Just(chain(&name)),
        Just(commented),
        Just(format!("{}\n", line(&name))),
        Just(format!("{}\n", json(&name))),
        Just(chain(&name).replace("source: file:s.wasm", "source: 'file:é---.wasm' # 語")),
    ]
}

/// The documents of a file, and the file.
fn file() -> impl Strategy<Value = (Vec<String>, String)> {
    let parts = |count: usize| {
        let documents: Vec<_> = (0..count).map(document).collect();
        let around = prop::collection::vec((between(), marker()), count);
        (documents, around, between(), any::<bool>(), any::<bool>())
    };
    (1_usize..4)
        .prop_flat_map(parts)
        .prop_map(|(documents, around, last, marked, windows)| {
            let mut text = String::new();
            for (index, (document, (between, marker))) in documents.iter().zip(around).enumerate() {
                if index > 0 || marked {
                    text.push_str(&between);
                    text.push_str(marker);
                }
                text.push_str(document);
            }
            text.push_str(&last);
            let lines = |text: &str| {
                if windows {
                    text.replace('\n', "\r\n")
                } else {
                    text.to_owned()
                }
            };
            let documents = documents.iter().map(|document| lines(document)).collect();
            (documents, lines(&text))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_and_changed_back((documents, whole) in file()) {
        let old = set(&[("f.yaml", &whole)]);
        let stored: Vec<String> = old.documents().into_iter().map(|stored| stored.text).collect();
        prop_assert_eq!(&stored, &documents);
        for document in &documents {
            let other = document.replace("CREATE", "DELETE");
            let changed = old.apply(&other, "new", Expected::Any, &|_| None).unwrap().set;
            let expected = whole.replacen(document.as_str(), &other, 1);
            prop_assert_eq!(text(&changed, "f.yaml").unwrap(), expected);
            prop_assert_eq!(changed.apply(document, "new", Expected::Any, &|_| None).unwrap().set, old.clone());
        }
    }

    #[test]
    fn created_and_deleted((_, whole) in file()) {
        let directory = tempfile::tempdir().unwrap();
        let old = set(&[("f.yaml", &whole)]);
        let created = old.apply(&chain("new"), "new", Expected::Any, &to(directory.path())).unwrap().set;
        let id: DefinitionId = "AdmissionChain/new".parse().unwrap();
        prop_assert_eq!(created.delete(&id).unwrap().set, old);
    }

    #[test]
    fn what_is_deleted_is_gone_and_the_rest_is_there((documents, whole) in file(), index in 0_usize..3) {
        let old = set(&[("f.yaml", &whole)]);
        let mut kept = old.documents();
        let gone = kept.remove(index % documents.len());
        let new = old.delete(&gone.id).unwrap().set;
        let found: Vec<_> = new.documents().into_iter().map(|stored| (stored.id, stored.chain)).collect();
        let kept: Vec<_> = kept.into_iter().map(|stored| (stored.id, stored.chain)).collect();
        prop_assert_eq!(found, kept);
    }
}
