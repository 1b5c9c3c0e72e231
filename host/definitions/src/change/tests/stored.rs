//! Tests of changes when definitions are in files and in a store of entries.

use std::path::Path;

use super::{chain, chain_json, chain_line, destination_in, file_text, summary};
use crate::{DefinitionFile, DefinitionId, DefinitionSet, Destination, ExpectedDefinitions, StageId, StoreKind};

/// Returns a set with the chain `a` in the file `f.yaml`, and with these entries of a store, each a path and a text.
fn set_with_entries(stored: &[(&str, &str)]) -> DefinitionSet {
    let entry = |(path, text): &(&str, &str)| DefinitionFile::entry(path, *text, None);
    let file = DefinitionFile::file("f.yaml", chain("a"));
    DefinitionSet::of_files(stored.iter().map(entry).chain([file]).collect())
}

fn files_of_kind(set: &DefinitionSet, kind: StoreKind) -> Vec<&DefinitionFile> {
    set.files().iter().filter(|file| file.kind == kind).collect()
}

fn with_absolute_path(text: &str) -> String {
    text.replace("file:s.wasm", "file:/s.wasm")
}

fn store_destination(id: &DefinitionId) -> Option<Destination> {
    Some(Destination {
        kind: StoreKind::Entries,
        path: Path::new("store:/x").join(&id.name),
    })
}

fn with_metadata(labels: &str, annotations: &str) -> String {
    let metadata = format!(r#"{{"name": "b", "labels": {labels}, "annotations": {annotations}}}"#);
    with_absolute_path(&chain_json("b")).replace(r#"{"name": "b"}"#, &metadata)
}

#[test]
fn labels_and_annotations_that_other_tools_wrote_are_kept() {
    let stored_text = with_metadata(r#"{"team": "a", "helm": "x"}"#, r#"{"backup": "1"}"#);
    let old = set_with_entries(&[("store:/x/b", &stored_text)]);
    let merged_text =
        |team: &str| with_metadata(&format!(r#"{{"team": "{team}", "helm": "x"}}"#), r#"{"backup": "1"}"#);
    for (new, effect, expected) in [
        (with_absolute_path(&chain_json("b")), "Unchanged", merged_text("a")),
        (with_metadata(r#"{"team": "a"}"#, "{}"), "Unchanged", merged_text("a")),
        (with_metadata(r#"{"team": "b"}"#, "{}"), "Changed", merged_text("b")),
        (
            with_absolute_path(&chain_json("b")).replace("CREATE", "UPDATE"),
            "Changed",
            merged_text("a").replace("CREATE", "UPDATE"),
        ),
    ] {
        let change = old
            .apply(&new, "new", ExpectedDefinitions::Any, &store_destination)
            .unwrap();
        assert!(summary(&change).contains(effect), "{new}: {}", summary(&change));
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let text = file_text(&change.set, "store:/x/b").unwrap();
        assert_eq!(json(&text), json(&expected), "{new}");
    }
}

#[test]
fn the_items_of_a_list_are_applied_one_by_one() {
    let list = |items: &[String]| {
        let items = items.join(", ");
        format!("apiVersion: v1\nkind: List\nitems: [ {items} ]\n")
    };
    let [b, c] = ["b", "c"].map(|name| with_absolute_path(&chain_json(name)));
    let old = set_with_entries(&[("store:/x/b", &b)]);
    let both = list(&[b.clone(), c]);
    for (new, expected) in [
        (
            both.clone(),
            "AdmissionChain/b Unchanged, AdmissionChain/c Created; +store:/x/c",
        ),
        (
            format!("{both}---\n{}\n", with_absolute_path(&chain_line("d"))),
            "AdmissionChain/b Unchanged, AdmissionChain/c Created, AdmissionChain/d Created; +store:/x/c +store:/x/d",
        ),
        (
            list(&[b.replace("CREATE", "UPDATE")]),
            "AdmissionChain/b Changed; ~store:/x/b",
        ),
    ] {
        let change = old
            .apply(&new, "new", ExpectedDefinitions::Any, &store_destination)
            .unwrap();
        assert_eq!(summary(&change), expected, "{new}");
    }
    let wrong = list(&[b.replace("CREATE", "CREAT")]);
    let error = old
        .apply(&wrong, "new", ExpectedDefinitions::Any, &store_destination)
        .unwrap_err();
    assert!(error.to_string().starts_with("new:3:"), "{error}");
}

#[test]
fn a_change_writes_entries_of_a_store() {
    let [b, c] = ["b", "c"].map(|name| with_absolute_path(&chain_json(name)));
    let old = set_with_entries(&[("store:/x/c", &c), ("store:/x/b", &b)]);
    let paths: Vec<_> = files_of_kind(&old, StoreKind::Entries)
        .into_iter()
        .map(|file| file.path.display().to_string())
        .collect();
    assert_eq!(paths, ["store:/x/b", "store:/x/c"]);
    let changed = |text: &str| text.replace("CREATE", "UPDATE");
    let updated = changed(&b);
    let pretty = |text: &str| format!("{:#}", serde_json::from_str::<serde_json::Value>(text).unwrap());
    // (applied text, summary of the change, text of the entry afterwards)
    let table = [
        (b.clone(), "AdmissionChain/b Unchanged;", b.clone()),
        (pretty(&b), "AdmissionChain/b Unchanged;", b.clone()),
        (
            with_absolute_path(&chain_line("b")),
            "AdmissionChain/b Unchanged;",
            b.clone(),
        ),
        (
            updated.clone(),
            "AdmissionChain/b Changed; ~store:/x/b",
            updated.clone(),
        ),
        (
            pretty(&updated),
            "AdmissionChain/b Changed; ~store:/x/b",
            pretty(&updated),
        ),
        // YAML is converted to JSON for an entry, because other programs that read the store expect JSON.
        (
            format!("# Comment.\n{}", changed(&with_absolute_path(&chain_line("b")))),
            "AdmissionChain/b Changed; ~store:/x/b",
            pretty(&updated),
        ),
        (
            format!("{}\n", with_absolute_path(&chain_json("d"))),
            "AdmissionChain/d Created; +store:/x/d",
            with_absolute_path(&chain_json("d")),
        ),
        (
            with_absolute_path(&chain("d")),
            "AdmissionChain/d Created; +store:/x/d",
            pretty(&with_absolute_path(&chain_json("d"))),
        ),
        (
            format!("{}---\n{}\n", chain("a"), with_absolute_path(&chain_line("d"))),
            "AdmissionChain/a Unchanged, AdmissionChain/d Created; +store:/x/d",
            pretty(&with_absolute_path(&chain_json("d"))),
        ),
    ];
    for (new, expected, there) in table {
        let change = old
            .apply(&new, "new", ExpectedDefinitions::Any, &store_destination)
            .unwrap();
        assert_eq!(summary(&change), expected, "{new}");
        let path = if expected.contains("/d ") {
            "store:/x/d"
        } else {
            "store:/x/b"
        };
        assert_eq!(file_text(&change.set, path), Some(there), "{new}");
        assert_eq!(
            files_of_kind(&change.set, StoreKind::Files),
            files_of_kind(&old, StoreKind::Files)
        );
    }
}

#[test]
fn definitions_in_a_store_can_be_deleted_and_promoted_like_files() {
    let [b, c] = ["b", "c"].map(|name| with_absolute_path(&chain_json(name)));
    let old = set_with_entries(&[("store:/x/b", &b), ("store:/x/c", &c)]);
    for (id, expected, left) in [
        ("AdmissionChain/a", "AdmissionChain/a Deleted; -f.yaml", (0, 2)),
        ("AdmissionChain/b", "AdmissionChain/b Deleted; -store:/x/b", (1, 1)),
    ] {
        let change = old.delete(&id.parse().unwrap()).unwrap();
        assert_eq!(summary(&change), expected);
        let number = |kind| files_of_kind(&change.set, kind).len();
        assert_eq!((number(StoreKind::Files), number(StoreKind::Entries)), left);
    }

    let candidate = b.replace(
        r#""plugin": {"source": "file:/s.wasm"}"#,
        r#""plugin": {"source": "file:/s.wasm"}, "candidate": {"source": "file:/t.wasm"}"#,
    );
    for candidate in [
        candidate.clone(),
        serde_json::from_str::<serde_json::Value>(&candidate)
            .unwrap()
            .to_string(),
    ] {
        let old = set_with_entries(&[("store:/x/b", &candidate)]);
        let stage: StageId = "b/s".parse().unwrap();
        let change = old.promote(&stage).unwrap();
        assert_eq!(summary(&change), "AdmissionChain/b Changed; ~store:/x/b");
        let promoted: serde_json::Value = serde_json::from_str(&file_text(&change.set, "store:/x/b").unwrap()).unwrap();
        let expected = b.replace("file:/s.wasm", "file:/t.wasm");
        assert_eq!(promoted, serde_json::from_str::<serde_json::Value>(&expected).unwrap());
        assert_eq!(files_of_kind(&change.set, StoreKind::Entries).len(), 1);
    }
}

/// The path for the new definition is already taken: the entry there is another definition, or is not a definition at
/// all.
#[test]
fn an_entry_with_another_definition_is_not_overwritten() {
    for stored_text in [with_absolute_path(&chain_json("c")), "nonsense".to_owned()] {
        let old = set_with_entries(&[("store:/x/b", &stored_text)]);
        let error = old
            .apply(
                &with_absolute_path(&chain_json("b")),
                "new",
                ExpectedDefinitions::Any,
                &store_destination,
            )
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "AdmissionChain/b cannot be written to store:/x/b, which already exists; remove it first"
        );
    }
}

/// A relative path starts in the directory of the file that contains it. An entry of a store has no directory, so its
/// paths must be absolute.
#[test]
fn a_relative_path_in_an_entry_is_a_mistake() {
    let path = |file: &str, column: usize| {
        format!(
            "{file}:1:{column}: spec.stages[0].plugin.source: the path \"s.wasm\" is relative, and this definition is \
             not in a directory; write an absolute path, or `https:` or `oci:`"
        )
    };
    let stored_set = set_with_entries(&[("store:/x/b", &chain_json("b"))]);
    let column = chain_json("b").find("\"file:").unwrap() + 1;
    assert_eq!(stored_set.chains().unwrap_err().to_string(), path("store:/x/b", column));
    let empty = set_with_entries(&[]);
    let error = empty
        .apply(&chain_json("b"), "new", ExpectedDefinitions::Any, &store_destination)
        .unwrap_err();
    assert_eq!(error.to_string(), path("new", column));
    let old = set_with_entries(&[("store:/x/b", &with_absolute_path(&chain_json("b")))]);
    let error = old
        .apply(&chain_json("b"), "new", ExpectedDefinitions::Any, &store_destination)
        .unwrap_err();
    assert_eq!(error.to_string(), path("new", column));
    empty
        .apply(
            &chain_json("b"),
            "new",
            ExpectedDefinitions::Any,
            &destination_in(Path::new("chains")),
        )
        .unwrap();
}
