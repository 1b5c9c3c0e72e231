use std::path::Path;

use super::{chain, chain_json, chain_line, destination_in, file_text, set_of_files, summary};
use crate::{DefinitionId, DefinitionSet, Destination, ExpectedDefinitions, StoreKind, read_files};

fn apply_to_file(file: &str, text_of_file: &str, new: &str) -> Result<String, String> {
    let old = set_of_files(&[(file, text_of_file)]);
    let change = old
        .apply(new, "new.yaml", ExpectedDefinitions::Any, &|_| None)
        .map_err(|error| error.to_string())?;
    Ok(file_text(&change.set, file).unwrap())
}

#[test]
fn a_file_with_one_definition_is_replaced_as_a_whole() {
    let b = chain("b");
    let changed = |text: &str| text.replace("CREATE", "UPDATE");
    let pretty = |text: &str| format!("{:#}\n", serde_json::from_str::<serde_json::Value>(text).unwrap());
    let bcs = |kind: &str, operation: &str| {
        format!(
            "{{ kind: {kind}, metadata: {{ namespace: m, name: x }}, resourcesRef: {{ operation: {operation}, kind: \
             secret }}, admissionWebhooks: [] }}\n"
        )
    };
    // (file name, text of the file, applied text, resulting text of the file)
    let table = [
        (
            "f.yaml",
            b.clone(),
            changed(&chain_line("b")),
            format!("{}\n", changed(&chain_line("b"))),
        ),
        (
            "f.yaml",
            format!("\u{feff}# Old.\n\n{b}    # Old.\n"),
            format!("\u{feff}# New.\n---\n{}# Below.\n", changed(&b)),
            format!("# New.\n---\n{}# Below.\n", changed(&b)),
        ),
        ("f.yaml", b.clone(), format!("# New.\n{b}"), format!("# New.\n{b}")),
        (
            "f.yaml",
            b.clone(),
            changed(&chain_json("b")),
            format!("{}\n", changed(&chain_json("b"))),
        ),
        (
            "f.json",
            chain_json("b"),
            changed(&chain_json("b")),
            format!("{}\n", changed(&chain_json("b"))),
        ),
        (
            "f.json",
            chain_json("b"),
            changed(&chain_line("b")),
            pretty(&changed(&chain_json("b"))),
        ),
        // BCS kinds are compared without regard to case, so the kind may be spelled differently in the file.
        (
            "f.yaml",
            bcs("admissionwebhook", "create"),
            bcs("AdmissionWebhook", "update"),
            bcs("AdmissionWebhook", "update"),
        ),
    ];
    for (file, old, new, expected) in table {
        assert_eq!(apply_to_file(file, &old, &new), Ok(expected), "{old}\nand\n{new}");
    }
    let a = chain("a");
    let both = set_of_files(&[("a.yaml", &a), ("b.yaml", &b)]);
    let several = format!("# Of b.\n{}--- # Of a.\n{}", changed(&b), changed(&a));
    let change = both
        .apply(&several, "new.yaml", ExpectedDefinitions::Any, &|_| None)
        .unwrap();
    assert_eq!(
        summary(&change),
        "AdmissionChain/b Changed, AdmissionChain/a Changed; ~a.yaml ~b.yaml"
    );
    assert_eq!(file_text(&change.set, "a.yaml"), Some(changed(&a)));
    assert_eq!(
        file_text(&change.set, "b.yaml"),
        Some(format!("# Of b.\n{}", changed(&b)))
    );
    for same in [
        b.clone(),
        b.replace('\n', "\r\n"),
        format!("---\n{b}"),
        format!("\u{feff}{b}\n\n"),
    ] {
        let change = both
            .apply(&same, "new.yaml", ExpectedDefinitions::Any, &|_| None)
            .unwrap();
        assert_eq!(summary(&change), "AdmissionChain/b Unchanged;", "{same}");
    }
}

#[test]
fn a_file_with_several_definitions_cannot_be_changed() {
    let [a, b] = ["a", "b"].map(chain);
    let applied_to = |text: &str, new: &str| {
        let change = set_of_files(&[("f.yaml", text)]).apply(new, "new.yaml", ExpectedDefinitions::Any, &|_| None);
        change.map(|change| summary(&change)).map_err(|error| error.to_string())
    };
    let changed = b.replace("CREATE", "UPDATE");
    for (text, line) in [
        (format!("# All.\n{a}---\n{b}"), 15),
        (format!("{b}---\nkind: Pod\n"), 1),
    ] {
        let message =
            format!("AdmissionChain/b is one of several documents in its file, at f.yaml:{line}:1; edit that file");
        assert_eq!(applied_to(&text, &changed), Err(message));
    }
    assert_eq!(
        applied_to(
            &format!("{a}---\n{b}"),
            &format!("--- {}\n--- {}\n", chain_line("b"), chain_line("a"))
        ),
        Ok("AdmissionChain/b Unchanged, AdmissionChain/a Unchanged;".to_owned())
    );
}

#[test]
fn chains_of_different_phases_may_have_the_same_name() {
    let chain_of_phase = |phase: &str, operation: &str| {
        let chain_text = chain_line("a").replace("spec: {", &format!("spec: {{ phase: {phase},"));
        chain_text.replace("CREATE", operation)
    };
    let (mutating, validating) = (
        chain_of_phase("Mutating", "CREATE"),
        chain_of_phase("Validating", "CREATE"),
    );
    let both = set_of_files(&[("m.yaml", &mutating), ("v.yaml", &validating)]);
    let change = both
        .apply(
            &chain_of_phase("Validating", "DELETE"),
            "n",
            ExpectedDefinitions::Any,
            &|_| None,
        )
        .unwrap();
    assert_eq!(summary(&change), "AdmissionChain/a Changed; ~v.yaml");
    let change = both
        .apply(
            &format!("{}\n---\n{mutating}", chain_of_phase("Validating", "DELETE")),
            "n",
            ExpectedDefinitions::Any,
            &|_| None,
        )
        .unwrap();
    assert_eq!(
        summary(&change),
        "AdmissionChain/a Changed, AdmissionChain/a Unchanged; ~v.yaml"
    );
    let one = set_of_files(&[("m.yaml", &mutating)]);
    assert_eq!(
        summary(
            &one.apply(&validating, "n", ExpectedDefinitions::Any, &|_| None)
                .unwrap()
        ),
        "AdmissionChain/a Changed; ~m.yaml"
    );
    let directory = tempfile::tempdir().unwrap();
    let change = one.apply(
        &format!("{mutating}\n---\n{validating}"),
        "n",
        ExpectedDefinitions::Any,
        &destination_in(directory.path()),
    );
    let path = directory.path().join("AdmissionChain-a.yaml");
    assert_eq!(
        summary(&change.unwrap()),
        format!(
            "AdmissionChain/a Unchanged, AdmissionChain/a Created; +{}",
            path.display()
        )
    );
}

#[test]
fn a_new_definition_gets_an_unused_file_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("AdmissionChain-taken.yaml"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", path("AdmissionChain-taken-2.yaml")).unwrap();
    let bcs = |name: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: m, name: '{name}' }}\nresourcesRef: {{ operation: Create, kind: \
             Secret }}\nadmissionWebhooks: []\n"
        )
    };
    let long = bcs(&"x".repeat(300));
    let long_name = format!("admissionwebhook-m-{}.yaml", "x".repeat(81));
    let phases = ["Mutating", "Validating"]
        .map(|phase| chain_line("p").replace("spec: {", &format!("spec: {{ phase: {phase},")));
    // (applied text, paths of the new files)
    let table = [
        (chain("pods"), vec![("AdmissionChain-pods.yaml", chain("pods"))]),
        (
            format!("# Above.\n---\n{}# Below.\n", chain("pods")),
            vec![(
                "AdmissionChain-pods.yaml",
                format!("# Above.\n---\n{}# Below.\n", chain("pods")),
            )],
        ),
        (
            chain_json("pods"),
            vec![("AdmissionChain-pods.yaml", format!("{}\n", chain_json("pods")))],
        ),
        (chain("taken"), vec![("AdmissionChain-taken-3.yaml", chain("taken"))]),
        (
            format!("# A.\n{}---\n{}", chain("a"), chain("b")),
            vec![
                ("AdmissionChain-a.yaml", format!("# A.\n{}", chain("a"))),
                ("AdmissionChain-b.yaml", chain("b")),
            ],
        ),
        (
            format!("--- {}\n--- {}\n", phases[0], phases[1]),
            vec![
                ("AdmissionChain-p-2.yaml", format!("{}\n", phases[1])),
                ("AdmissionChain-p.yaml", format!("{}\n", phases[0])),
            ],
        ),
        (bcs("..\\x"), vec![("admissionwebhook-m-..-x.yaml", bcs("..\\x"))]),
        (bcs("é"), vec![("admissionwebhook-m--.yaml", bcs("é"))]),
        (long.clone(), vec![(long_name.as_str(), long)]),
    ];
    for (new, expected) in table {
        let change = DefinitionSet::default()
            .apply(&new, "n", ExpectedDefinitions::Any, &destination_in(directory.path()))
            .unwrap();
        let files: Vec<_> = change
            .set
            .files()
            .iter()
            .map(|file| (file.path.clone(), file.text.clone()))
            .collect();
        let expected: Vec<_> = expected.into_iter().map(|(name, text)| (path(name), text)).collect();
        assert_eq!(files, expected);
        assert!(change.files.iter().all(|file| file.before.is_none()));
    }
}

#[test]
fn a_new_file_is_found_by_the_next_read() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["b", "d"] {
        std::fs::write(directory.path().join(format!("{name}.yaml")), chain(name)).unwrap();
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let alone = elsewhere.path().join("x.yaml");
    std::fs::write(&alone, chain("x")).unwrap();
    let paths = [directory.path().to_owned(), alone];
    for name in ["a", "c", "e"] {
        let set = DefinitionSet::of_files(read_files(&paths).unwrap());
        let change = set
            .apply(
                &chain(name),
                "n",
                ExpectedDefinitions::Any,
                &destination_in(directory.path()),
            )
            .unwrap();
        for file in &change.files {
            std::fs::write(&file.path, file.after.as_ref().unwrap()).unwrap();
        }
        assert_eq!(DefinitionSet::of_files(read_files(&paths).unwrap()), change.set);
    }
}

#[test]
fn a_refused_apply_says_why() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: [ {items} ]\n");
    let [a, b] = ["a", "b"].map(chain);
    let beside = format!("{a}---\n{b}");
    let bcs = |name: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: m, name: {name} }}\nresourcesRef: {{ operation: Create, \
             kind: Secret }}\nadmissionWebhooks: []\n"
        )
    };
    // (text of the existing file, applied text, expected error)
    let table = [
        (beside.clone(), String::new(), "new.yaml: it contains no definition".to_owned()),
        (beside.clone(), "# a\n---\n".to_owned(), "new.yaml: it contains no definition".to_owned()),
        (
            beside.clone(),
            format!("{b}---\n{}", b.replace("kind: Adm", "kid: Adm")),
            "new.yaml:14:1: kind: missing; write an AdmissionChain".to_owned(),
        ),
        (
            beside.clone(),
            format!("\n{}", b.replace("CREATE", "CREAT")),
            "new.yaml:8:20: spec.rules[0].operations[0]: \"CREAT\" is not a valid operation; did you mean CREATE?".to_owned(),
        ),
        (
            beside.clone(),
            format!("{b}---\n{b}"),
            "new.yaml:14:1: metadata.name: \"b\" is also the name of the chain in new.yaml:1:1; give each chain its own name".to_owned(),
        ),
        (
            beside.clone(),
            chain("c"),
            "AdmissionChain/c is new, and there is no directory to write it to: only single files and stores that do not accept it are configured; add a directory to `definitions`".to_owned(),
        ),
        (
            format!("{}---\n{b}", list(&chain_line("a"))),
            a.clone(),
            "AdmissionChain/a is an item of the list in f.yaml:3:10; edit that file".to_owned(),
        ),
        (
            beside.clone(),
            "{ apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: { name: b } }".to_owned(),
            "new.yaml:1:1: metadata.name: \"b\" is also the name of the chain in f.yaml:14:1; give each chain its own name".to_owned(),
        ),
        (
            bcs("x"),
            bcs("z"),
            "new.yaml:3:15: resourcesRef: f.yaml:3:15 already defines hooks for Create of secret; BCS has one definition".to_owned(),
        ),
    ];
    for (old, new, expected) in table {
        let set = set_of_files(&[("f.yaml", &old)]);
        let has_directory = expected.contains("already") || expected.contains("also");
        let directory = |_: &DefinitionId| {
            has_directory.then(|| Destination {
                kind: StoreKind::Files,
                path: "new.yaml".into(),
            })
        };
        let message = set
            .apply(&new, "new.yaml", ExpectedDefinitions::Any, &directory)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with(&expected), "{message}\nfor\n{expected}");
    }
    assert_eq!(apply_to_file("f.yaml", &b.replace("CREATE", "CREAT"), &b), Ok(b));
    for (other, expected) in [
        ("kind: Pod\n", "o.yaml:1:7: kind: \"Pod\" is not known here; write"),
        ("a: [", "o.yaml:1:4: this is not YAML"),
    ] {
        let error = set_of_files(&[("f.yaml", &a), ("o.yaml", other)])
            .apply(
                &a.replace("CREATE", "UPDATE"),
                "new.yaml",
                ExpectedDefinitions::Any,
                &|_| None,
            )
            .unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn relative_module_paths_start_at_the_directory_of_the_file() {
    let set = set_of_files(&[("chains/f.yaml", &chain("a"))]);
    let change = set
        .apply(
            &chain_line("a"),
            "elsewhere/new.yaml",
            ExpectedDefinitions::Any,
            &destination_in(Path::new("more")),
        )
        .unwrap();
    let plugin = |set: &DefinitionSet| format!("{:?}", set.chains().unwrap()[0].stages[0].hook);
    assert_eq!(plugin(&change.set), plugin(&set));
    let change = set
        .apply(
            &chain_line("b"),
            "elsewhere/new.yaml",
            ExpectedDefinitions::Any,
            &destination_in(Path::new("more")),
        )
        .unwrap();
    let chains = change.set.chains().unwrap();
    assert!(format!("{:?}", chains[1].stages[0].hook).contains("more/s.wasm"));
}

#[test]
fn the_chains_of_a_text_can_be_listed_without_applying_it() {
    let set = set_of_files(&[("old/pods.yaml", &chain("pods"))]);
    let destination = destination_in(Path::new("new"));
    let source = |name: &str| {
        let chains = set.chains_of(&chain(name), "text", &destination).unwrap();
        let [only] = chains.as_slice() else {
            panic!("{chains:?}");
        };
        let (_, plugin) = only.stages[0].plugins().next().unwrap();
        plugin.source.to_string()
    };
    assert_eq!(source("pods"), "file:old/s.wasm");
    assert_eq!(source("jobs"), "file:new/s.wasm");
    let error_message = |text: &str| set.chains_of(text, "text", &destination).unwrap_err().to_string();
    assert_eq!(error_message("# Nothing."), "text: it contains no definition");
    let message = error_message(&chain("pods").replace("rules", "rulez"));
    assert!(message.contains("text:6:3: spec.rulez"), "{message}");
}
