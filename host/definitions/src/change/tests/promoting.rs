use serde_json::Value as Json;

use super::{file_text, set_of_files, summary};
use crate::document::to_json;

const PIN: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn promote_file(file: &str, old: &str) -> String {
    let set = set_of_files(&[(file, old)]);
    let chains = set.chains().unwrap();
    let id = format!("{}/{}", chains[0].name, chains[0].stages[0].spec.name);
    let change = set.promote(&id.parse().unwrap()).unwrap();
    file_text(&change.set, file).unwrap()
}

fn parse_yaml(text: &str) -> Json {
    to_json("f.yaml", text).unwrap()
}

const HEAD: &str = "# All.\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: c }\nspec:\n  rules:\n    \
                    - operations: [CREATE]\n      kinds: [pod]\n  stages:\n";

#[test]
fn a_promoted_stage_gets_the_fields_of_its_candidate() {
    // (stage, stage after the promotion)
    let table = [
        (
            "{ name: s, plugin: { source: file:a.wasm }, candidate: { source: file:b.wasm, share: 10% }, timeout: 1s }",
            "{ name: s, plugin: { source: file:b.wasm }, timeout: 1s }",
        ),
        (
            "{ candidate: { source: file:b.wasm }, plugin: { source: file:a.wasm }, name: s }",
            "{ plugin: { source: file:b.wasm }, name: s }",
        ),
        (
            "{ name: s, plugin: { digest: '{PIN}', source: file:a.wasm, settings: { a: 1 }, memory: 1MiB }, candidate: { source: 'oci://r.example.com/b:2', refresh: 1h } }",
            "{ name: s, plugin: { source: 'oci://r.example.com/b:2', settings: { a: 1 }, memory: 1MiB, refresh: 1h } }",
        ),
        (
            "{ name: s, plugin: { source: 'oci://r.example.com/a:1', refresh: 1h }, candidate: { source: 'oci://r.example.com/a:2', digest: '{PIN}' } }",
            "{ name: s, plugin: { source: 'oci://r.example.com/a:2', digest: '{PIN}' } }",
        ),
        (
            "{ name: s, plugin: { source: file:a.wasm, settings: { old: true } }, candidate: { source: file:b.wasm, settings: { a: [1, 2] }, allow: { environment: { A: x } }, memory: 2MiB } }",
            "{ name: s, plugin: { source: file:b.wasm, settings: { a: [1, 2] }, allow: { environment: { A: x } }, memory: 2MiB } }",
        ),
        // A field of the candidate that has no value, such as `settings: ,` or `memory: ~`, counts as missing.
        (
            "{ name: s, plugin: { source: file:a.wasm, digest: , settings: { a: 1 } }, candidate: { source: file:é.wasm, settings: , memory: ~ } }",
            "{ name: s, plugin: { source: file:é.wasm, settings: { a: 1 } } }",
        ),
    ];
    for (old, new) in table {
        let [old, new] = [old, new].map(|stage| format!("{HEAD}    - {}\n", stage.replace("{PIN}", PIN)));
        for (above, below) in [("", ""), ("\u{feff}# More.\n---\n", "# Below.\n---\n# Nothing more.\n")] {
            let promoted_text = promote_file("f.yaml", &format!("{above}{old}{below}"));
            assert_eq!(parse_yaml(&promoted_text), parse_yaml(&new), "{old}");
            let comments = format!(
                "{}# All.\napiVersion: admittance.dev/v1alpha1\n",
                above.trim_start_matches('\u{feff}')
            );
            assert!(promoted_text.starts_with(&comments), "{promoted_text}");
        }
    }
}

#[test]
fn a_file_can_still_be_read_after_a_promotion() {
    let stage = "    - name: s\n      plugin:\n        source: file:../a.wasm # A.\n        settings: { name: a }\n      \
                 candidate:\n        source: file:../b.wasm\n";
    let promoted_text = promote_file("f.yaml", &format!("{HEAD}{stage}"));
    let expected = "# All.\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata:\n  name: c\nspec:\n  \
                    rules:\n    - operations:\n        - CREATE\n      kinds:\n        - pod\n  stages:\n    - name: \
                    s\n      plugin:\n        source: \"file:../b.wasm\"\n        settings:\n          name: a\n";
    assert_eq!(promoted_text, expected);
}

#[test]
fn candidates_are_promoted_in_documents_of_every_system() {
    let kubernetes = |stage: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{ name: c }}\nwebhooks:\n- \
             name: a.b.c\n  rules:\n  - {{ operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'] }}\n{stage}"
        )
    };
    let bcs = |stage: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: m, name: c }}\nresourcesRef: {{ operation: create, kind: \
             secret }}\nAdmissionWebhooks:\n- name: s\n{stage}"
        )
    };
    let json = |stage: &str| {
        format!(
            r#"{{"apiVersion": "admittance.dev/v1alpha1", "kind": "AdmissionChain", "metadata": {{"name": "c"}}, "spec": {{"rules":
            [{{"operations": ["*"], "kinds": ["*"]}}], "stages": [{{"name": "s", {stage}}}]}}}}"#
        )
    };
    let table = [
        (
            "f.yaml",
            kubernetes("  plugin:\n    source: file:a.wasm\n  candidate:\n    source: file:b.wasm\n"),
            kubernetes("  plugin:\n    source: file:b.wasm\n"),
        ),
        (
            "f.yaml",
            bcs("  Plugin: { source: file:a.wasm }\n  CANDIDATE: { source: file:b.wasm }\n"),
            bcs("  Plugin: { source: file:b.wasm }\n"),
        ),
        (
            "f.json",
            json(
                r#""candidate": {"source": "file:\u00fc.wasm"}, "plugin": {"source": "file:a.wasm", "memory": 1048576}"#,
            ),
            json(r#""plugin": {"source": "file:\u00fc.wasm", "memory": 1048576}"#),
        ),
    ];
    for (file, old, new) in table {
        let promoted_text = promote_file(file, &old);
        assert_eq!(parse_yaml(&promoted_text), parse_yaml(&new), "{old}");
        assert_eq!(
            file == "f.json",
            serde_json::from_str::<Json>(&promoted_text).is_ok(),
            "{promoted_text}"
        );
    }
}

#[test]
fn a_refused_promotion_says_why() {
    let stages = "    - { name: images, plugin: { source: file:a.wasm }, candidate: { source: file:b.wasm } }\n    \
                  - { name: other, plugin: { source: file:a.wasm } }\n";
    let mutating = format!("{HEAD}{stages}").replace("name: c", "name: pods");
    let validating = mutating.replace("  rules:", "  phase: Validating\n  rules:");
    let both = set_of_files(&[("m.yaml", &mutating), ("v.yaml", &validating)]);
    let table = [
        ("pods/image", "there is no stage pods/image; did you mean pods/images?"),
        (
            "Mutating:pods/image",
            "there is no stage Mutating:pods/image; did you mean Mutating:pods/images",
        ),
        ("x/y", "there is no stage x/y"),
        (
            "pods/images",
            "there are several stages of the name pods/images; write Mutating:pods/images or Validating:pods/images",
        ),
        (
            "Validating:pods/other",
            "v.yaml:12:7: the stage Validating:pods/other has no `candidate`, so there is nothing to promote",
        ),
    ];
    for (id, expected) in table {
        let error = both.promote(&id.parse().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let change = both.promote(&"Validating:pods/images".parse().unwrap()).unwrap();
    assert_eq!(summary(&change), "AdmissionChain/pods Changed; ~v.yaml");

    let beside = set_of_files(&[("f.yaml", &format!("{mutating}---\n{}", super::chain("other")))]);
    let error = beside.promote(&"pods/images".parse().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "AdmissionChain/pods is one of several documents in its file, at f.yaml:2:1; edit that file"
    );

    let error = set_of_files(&[("m.yaml", &mutating), ("w.yaml", "kind: Pod")])
        .promote(&"pods/images".parse().unwrap())
        .unwrap_err();
    assert!(error.to_string().starts_with("w.yaml:1:7: "), "{error}");
}

#[test]
fn a_promotion_reports_the_comments_that_it_drops() {
    let old = format!(
        "{HEAD}    # Old and new.\n    - name: s # The stage.\n      plugin: {{ source: file:a.wasm }}\n      candidate: \
         {{ source: file:b.wasm }}\n"
    );
    let set = set_of_files(&[("f.yaml", &old)]);
    let change = set.promote(&"c/s".parse().unwrap()).unwrap();
    let expected = "f.yaml: the definition is written anew, without the comments of the lines 10, 11";
    assert_eq!(change.losses, [expected]);
}
