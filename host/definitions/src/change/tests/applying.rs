use std::path::Path;

use super::{chain, json, line, set, text, to, told};
use crate::{DefinitionId, DefinitionSet, Destination, Expected};

/// The text of the file after applying this.
fn applied(file: &str, text_of_file: &str, new: &str) -> Result<String, String> {
    let old = set(&[(file, text_of_file)]);
    let change = old
        .apply(new, "new.yaml", Expected::Any, &|_| None)
        .map_err(|error| error.to_string())?;
    Ok(text(&change.set, file).unwrap())
}

#[test]
fn what_is_around_a_document_stays() {
    let [a, b] = ["a", "b"].map(chain);
    let new = b.replace("[CREATE]", "[CREATE, UPDATE]");
    // The file, where {b} is replaced.
    for around in [
        "{b}",
        "---\n{b}",
        "\u{feff}---\n{b}",
        "# Of us all.\n\n{b}",
        "# Of us all.\n---\n{b}",
        "{a}---\n{b}",
        "{b}---\n{a}",
        "{a}# About b.\n---\n\n{b}# About nothing.\n\n# At the end.\n",
        "--- # First.\n{b}--- # Second.\n{a}...\n",
        "---\n# Nothing.\n---\n{b}\n\n",
        "%YAML 1.2\n---\n{b}...\n%YAML 1.2\n---\n{a}",
    ] {
        let around = around.replace("{a}", &a);
        let found = applied("f.yaml", &around.replace("{b}", &b), &new);
        assert_eq!(found, Ok(around.replace("{b}", &new)), "{around}");
        // In Windows' lines.
        let windows = around.replace('\n', "\r\n");
        let found = applied("f.yaml", &windows.replace("{b}", &b.replace('\n', "\r\n")), &new);
        assert_eq!(
            found,
            Ok(windows.replace("{b}", &new.replace('\n', "\r\n"))),
            "{windows}"
        );
        // The same again is nothing.
        let old = around.replace("{b}", &b);
        for same in [
            b.clone(),
            b.replace('\n', "\r\n"),
            format!("---\n{b}"),
            format!("\u{feff}{b}\n\n"),
        ] {
            let change = set(&[("f.yaml", &old)])
                .apply(&same, "new.yaml", Expected::Any, &|_| None)
                .unwrap();
            assert_eq!(told(&change), "AdmissionChain/b Unchanged;", "{around}");
        }
    }
}

#[test]
fn what_a_document_is_replaced_by() {
    let [a, b] = ["a", "b"].map(chain);
    let changed = |name: &str| line(name).replace("CREATE", "UPDATE");
    let table = [
        // The comment right above goes with it, and comes with it.
        (
            "f.yaml",
            format!("# Old.\n{b}"),
            format!("# Applied.\n\n# New.\n{}\n# Below.\n", changed("b")),
            format!("# New.\n{}\n", changed("b")),
        ),
        (
            "f.yaml",
            format!("{b}    # Indented.\n# Not so.\n---\n{a}"),
            changed("b"),
            format!("{}\n# Not so.\n---\n{a}", changed("b")),
        ),
        // On the line of the marker.
        (
            "f.yaml",
            format!("--- {}\n--- {}", line("a"), line("b")),
            changed("b"),
            format!("--- {}\n--- {}", line("a"), changed("b")),
        ),
        (
            "f.yaml",
            format!("--- {}\n--- {}", line("a"), changed("b")),
            b.clone(),
            format!("--- {}\n--- \n{}", line("a"), b.trim_end()),
        ),
        // A file without an end of its last line, and a text without.
        ("f.yaml", b.trim_end().to_owned(), changed("b"), changed("b")),
        ("f.yaml", b.clone(), changed("b"), format!("{}\n", changed("b"))),
        // JSON among YAML.
        (
            "f.yaml",
            format!("{a}---\n{b}"),
            json("b").replace("CREATE", "UPDATE"),
            format!("{a}---\n{}\n", json("b").replace("CREATE", "UPDATE")),
        ),
        (
            "f.yaml",
            format!("{a}---\n{b}"),
            json("b").replace("file:s.wasm", "file:\\ud83d\\ude00.wasm"),
            format!(
                "{a}---\n{:#}\n",
                serde_json::from_str::<serde_json::Value>(&json("b").replace("file:s.wasm", "file:😀.wasm")).unwrap()
            ),
        ),
        // A JSON file stays one.
        (
            "f.json",
            format!("{}\n", json("b")),
            json("b").replace("CREATE", "UPDATE"),
            format!("{}\n", json("b").replace("CREATE", "UPDATE")),
        ),
        (
            "f.json",
            json("b"),
            changed("b"),
            format!(
                "{:#}",
                serde_json::from_str::<serde_json::Value>(&json("b").replace("CREATE", "UPDATE")).unwrap()
            ),
        ),
        // Several at once.
        (
            "f.yaml",
            format!("{a}---\n{b}"),
            format!("{}\n---\n{}\n", changed("b"), changed("a")),
            format!("{}\n---\n{}\n", changed("a"), changed("b")),
        ),
        // A kind of BCS in another case is the same.
        (
            "f.yaml",
            "{ kind: admissionwebhook, metadata: { namespace: n, name: x }, resourcesRef: { operation: create, kind: secret }, admissionWebhooks: [] }".to_owned(),
            "{ Kind: AdmissionWebhook, metadata: { namespace: n, name: x }, resourcesRef: { operation: update, kind: secret }, admissionWebhooks: [] }".to_owned(),
            "{ Kind: AdmissionWebhook, metadata: { namespace: n, name: x }, resourcesRef: { operation: update, kind: secret }, admissionWebhooks: [] }".to_owned(),
        ),
    ];
    for (file, old, new, expected) in table {
        assert_eq!(applied(file, &old, &new), Ok(expected), "{old}\nand\n{new}");
    }
}

#[test]
fn one_of_each_phase() {
    let of = |phase: &str, operation: &str| {
        let whole = line("a").replace("spec: {", &format!("spec: {{ phase: {phase},"));
        whole.replace("CREATE", operation)
    };
    let (mutating, validating) = (of("Mutating", "CREATE"), of("Validating", "CREATE"));
    let both = set(&[("m.yaml", &mutating), ("v.yaml", &validating)]);
    let change = both
        .apply(&of("Validating", "DELETE"), "n", Expected::Any, &|_| None)
        .unwrap();
    assert_eq!(told(&change), "AdmissionChain/a Changed; ~v.yaml");
    let change = both
        .apply(
            &format!("{}\n---\n{mutating}", of("Validating", "DELETE")),
            "n",
            Expected::Any,
            &|_| None,
        )
        .unwrap();
    assert_eq!(
        told(&change),
        "AdmissionChain/a Changed, AdmissionChain/a Unchanged; ~v.yaml"
    );
    // Alone, it may change its phase.
    let one = set(&[("m.yaml", &mutating)]);
    assert_eq!(
        told(&one.apply(&validating, "n", Expected::Any, &|_| None).unwrap()),
        "AdmissionChain/a Changed; ~m.yaml"
    );
    // The other beside it is new.
    let directory = tempfile::tempdir().unwrap();
    let change = one.apply(
        &format!("{mutating}\n---\n{validating}"),
        "n",
        Expected::Any,
        &to(directory.path()),
    );
    let path = directory.path().join("a.yaml");
    assert_eq!(
        told(&change.unwrap()),
        format!(
            "AdmissionChain/a Unchanged, AdmissionChain/a Created; +{}",
            path.display()
        )
    );
}

#[test]
fn new_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("taken.yaml"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", path("taken-2.yaml")).unwrap();
    let bcs = |name: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: n, name: '{name}' }}\nresourcesRef: {{ operation: Create, kind: \
             Secret }}\nadmissionWebhooks: []"
        )
    };
    // What is applied, and the files that come of it.
    let table = [
        (chain("pods"), vec![("pods.yaml", chain("pods"))]),
        (
            format!("# Above.\n---\n{}# Below.\n", chain("pods")),
            vec![("pods.yaml", format!("# Above.\n---\n{}# Below.\n", chain("pods")))],
        ),
        (json("pods"), vec![("pods.json", format!("{}\n", json("pods")))]),
        (chain("taken"), vec![("taken-3.yaml", chain("taken"))]),
        (
            format!("# Of both.\n\n# A.\n{}---\n{}", chain("a"), chain("b")),
            vec![
                ("a.yaml", format!("# A.\n{}", chain("a"))),
                ("b.yaml", chain("b")),
            ],
        ),
        (bcs("..\\x"), vec![("n-..-x.yaml", format!("{}\n", bcs("..\\x")))]),
        (
            format!("{}\n", bcs("é"))
                .replace('\n', "\r\n")
                .replace("n, name", ".m, name"),
            vec![("--é.yaml", String::new())],
        ),
        (
            bcs(&"x".repeat(300)),
            vec![("y", format!("{}\n", bcs(&"x".repeat(300))))],
        ),
    ];
    for (new, expected) in table {
        let change = DefinitionSet::default()
            .apply(&new, "n", Expected::Any, &to(directory.path()))
            .unwrap();
        let found: Vec<_> = change
            .set
            .files()
            .iter()
            .map(|file| (file.path.clone(), file.text.clone()))
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(name, text)| match name {
                "--é.yaml" => (path("-m--.yaml"), new.clone()),
                "y" => (path(&format!("n-{}.yaml", "x".repeat(98))), text),
                name => (path(name), text),
            })
            .collect();
        assert_eq!(found, expected);
        assert!(change.files().iter().all(|file| file.before.is_none()));
    }
}

#[test]
fn a_new_file_is_where_reading_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["b", "d"] {
        std::fs::write(directory.path().join(format!("{name}.yaml")), chain(name)).unwrap();
    }
    let alone = tempfile::tempdir().unwrap();
    let alone = alone.path().join("x.yaml");
    std::fs::write(&alone, chain("x")).unwrap();
    let paths = [directory.path().to_owned(), alone];
    for name in ["a", "c", "e"] {
        let set = DefinitionSet::read(&paths).unwrap();
        let change = set
            .apply(&chain(name), "n", Expected::Any, &to(directory.path()))
            .unwrap();
        let journal = tempfile::tempdir().unwrap();
        change.commit(&journal.path().join("journal")).unwrap();
        assert_eq!(DefinitionSet::read(&paths).unwrap(), change.set);
    }
}

#[test]
fn why_a_text_is_not_applied() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: [ {items} ]\n");
    let [a, b] = ["a", "b"].map(chain);
    let beside = format!("{a}---\n{b}");
    let bcs = |name: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: n, name: {name} }}\nresourcesRef: {{ operation: Create, \
             kind: Secret }}\nadmissionWebhooks: []\n"
        )
    };
    // The file, the text, the error.
    let table = [
        (beside.clone(), String::new(), "new.yaml: there is no definition in it".to_owned()),
        (beside.clone(), "# a\n---\n".to_owned(), "new.yaml: there is no definition in it".to_owned()),
        (
            beside.clone(),
            format!("{b}---\n{}", b.replace("kind: Adm", "kid: Adm")),
            "new.yaml:14:1: kind: missing; write an AdmissionChain".to_owned(),
        ),
        (
            beside.clone(),
            format!("\n{}", b.replace("CREATE", "CREAT")),
            "new.yaml:8:20: spec.rules[0].operations[0]: \"CREAT\" is no operation; did you mean CREATE?".to_owned(),
        ),
        (
            beside.clone(),
            format!("{b}---\n{b}"),
            "new.yaml:14:1: metadata.name: \"b\" is also the name of the chain in new.yaml:1:1; give each chain its own name".to_owned(),
        ),
        (
            beside.clone(),
            list(&line("b")),
            "new.yaml:1:1: lists of definitions cannot be applied; write its items as documents of their own, with `---` between them".to_owned(),
        ),
        (
            beside.clone(),
            chain("c"),
            "AdmissionChain/c is new, and there is no directory to write it to: all that is configured are single files, and stores that take no such definition; add a directory to `definitions`".to_owned(),
        ),
        (
            format!("{}---\n{b}", list(&line("a"))),
            a.clone(),
            "AdmissionChain/a is an item of the list in f.yaml:3:10; edit that file".to_owned(),
        ),
        // Of two files with one mistake, both are told.
        (
            beside.clone(),
            "{ apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: { name: b } }".to_owned(),
            "new.yaml:1:1: metadata.name: \"b\" is also the name of the chain in f.yaml:14:1; give each chain its own name".to_owned(),
        ),
        (
            bcs("x"),
            bcs("y"),
            "new.yaml:3:15: resourcesRef: f.yaml:3:15 already defines hooks for Create of secret; BCS has one definition".to_owned(),
        ),
        (
            format!("{a}---\nkind: Pod\n"),
            a.replace("CREATE", "UPDATE"),
            "f.yaml:14:7: kind: \"Pod\" is not known here; write".to_owned(),
        ),
        (
            format!("{a}---\na: ["),
            a.replace("CREATE", "UPDATE"),
            "f.yaml:15:1: this is not YAML".to_owned(),
        ),
    ];
    for (old, new, expected) in table {
        let set = set(&[("f.yaml", &old)]);
        let has_directory = expected.contains("already") || expected.contains("also");
        let directory = |_: &DefinitionId| has_directory.then(|| Destination::Directory(".".into()));
        let found = set
            .apply(&new, "new.yaml", Expected::Any, &directory)
            .unwrap_err()
            .to_string();
        assert!(found.starts_with(&expected), "{found}\nfor\n{expected}");
    }
    // What is wrong in a document goes when the document is replaced.
    let wrong = b.replace("CREATE", "CREAT");
    assert_eq!(
        applied("f.yaml", &format!("{a}---\n{wrong}"), &b),
        Ok(format!("{a}---\n{b}"))
    );
}

/// Its relative paths are taken from the directory of the file that it comes to.
#[test]
fn modules_are_beside_the_file() {
    let set = set(&[("chains/f.yaml", &chain("a"))]);
    let change = set
        .apply(
            &line("a"),
            "elsewhere/new.yaml",
            Expected::Any,
            &to(Path::new("more")),
        )
        .unwrap();
    let plugin = |set: &DefinitionSet| format!("{:?}", set.chains().unwrap()[0].stages[0].hook);
    assert_eq!(plugin(&change.set), plugin(&set));
    let change = set
        .apply(
            &line("b"),
            "elsewhere/new.yaml",
            Expected::Any,
            &to(Path::new("more")),
        )
        .unwrap();
    let chains = change.set.chains().unwrap();
    assert!(format!("{:?}", chains[1].stages[0].hook).contains("more/s.wasm"));
}
