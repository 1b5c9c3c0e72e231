use super::{set, text, told};

const PIN: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The file after the candidate of its stage `s` was promoted.
fn promoted(file: &str, old: &str) -> Result<String, String> {
    let set = set(&[(file, old)]);
    let stage = set.chains().map_err(|error| error.to_string())?;
    let id = format!("{}/{}", stage[0].name, stage[0].stages[0].name);
    let change = set
        .promote(&id.parse().unwrap())
        .map_err(|error| error.to_string())?;
    Ok(text(&change.set, file).unwrap())
}

const HEAD: &str = "# All.\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: c }\nspec:\n  rules:\n    \
                    - operations: [CREATE]\n      kinds: [pod]\n  stages:\n";

#[test]
fn native_chains_in_block_style() {
    // The stage and what it becomes.
    let table = [
        (
            "    - name: s # S.\n      plugin: # P.\n        # Old.\n        source: file:a.wasm # A.\n      candidate:\n        source: file:b.wasm\n      timeout: 1s\n",
            "    - name: s # S.\n      plugin: # P.\n        # Old.\n        source: file:b.wasm # A.\n      timeout: 1s\n",
        ),
        // As the last of the stage, and of the file.
        (
            "    - name: s\n      plugin:\n        source: file:a.wasm\n      candidate: # C.\n        share: 10%\n        source: file:b.wasm",
            "    - name: s\n      plugin:\n        source: file:b.wasm\n",
        ),
        // As the first.
        (
            "    - candidate:\n        source: file:b.wasm\n      plugin:\n        source: file:a.wasm\n      name: s\n",
            "    - plugin:\n        source: file:b.wasm\n      name: s\n",
        ),
        (
            "    - candidate: { source: file:b.wasm } # C.\n      plugin: { source: file:a.wasm }\n      name: s\n",
            "    -  # C.\n      plugin: { source: file:b.wasm }\n      name: s\n",
        ),
        // What the candidate does not say goes, or stays.
        (
            "    - name: s\n      plugin:\n        digest: '{PIN}'\n        source: file:a.wasm\n        settings:\n          # One.\n          a: 1\n        memory: 1MiB\n      candidate:\n        source: oci://r.example.com/b:2\n        refresh: 1h\n",
            "    - name: s\n      plugin:\n        source: oci://r.example.com/b:2\n        settings:\n          # One.\n          a: 1\n        memory: 1MiB\n        refresh: 1h\n",
        ),
        // A digest for a `refresh`; the last field goes and another comes.
        (
            "    - name: s\n      plugin:\n        source: oci://r.example.com/a:1\n        refresh: 1h\n      candidate:\n        source: oci://r.example.com/a:2\n        digest: {PIN}\n",
            "    - name: s\n      plugin:\n        source: oci://r.example.com/a:2\n        digest: {PIN}\n",
        ),
        // Deeper by more, and by less.
        (
            "    - name: s\n      candidate:\n              source: file:b.wasm\n              settings:\n                a:\n                  - 1\n\n                  # Two.\n                  - 2\n                b: |\n                  x\n                    y\n      plugin:\n        source: file:a.wasm\n        settings: { old: true } # Old.\n        memory: 1MiB\n",
            "    - name: s\n      plugin:\n        source: file:b.wasm\n        settings:\n          a:\n            - 1\n\n            # Two.\n            - 2\n          b: |\n            x\n              y\n        memory: 1MiB\n",
        ),
        (
            "    - name: s\n      plugin:\n            source: file:a.wasm\n            # Last.\n      candidate:\n        source: file:b.wasm\n        settings:\n          a: [ 1,\n            2 ]\n        allow:\n          environment:\n            A: >-\n              x\n              y\n",
            "    - name: s\n      plugin:\n            source: file:b.wasm\n            settings:\n              a: [ 1,\n                2 ]\n            allow:\n              environment:\n                A: >-\n                  x\n                  y\n            # Last.\n",
        ),
        // Between brackets, all or one of the two.
        (
            "    - { name: s, plugin: { source: file:a.wasm, digest: '{PIN}' }, candidate: { source: file:b.wasm, settings: { a: [1] }, share: 1% }, timeout: 1s }\n",
            "    - { name: s, plugin: { source: file:b.wasm, settings: { a: [1] } }, timeout: 1s }\n",
        ),
        (
            "    - { name: s, candidate: { source: file:b.wasm }, plugin: { source: file:a.wasm } }\n",
            "    - { name: s, plugin: { source: file:b.wasm } }\n",
        ),
        (
            "    - name: s\n      plugin: { source: file:a.wasm, settings: {} }\n      candidate:\n        source: file:b,c.wasm\n        settings:\n          a: 1\n        memory: 2MiB\n",
            "    - name: s\n      plugin: { source: \"file:b,c.wasm\", settings: {\"a\":1}, memory: \"2MiB\" }\n",
        ),
        (
            "    - name: s\n      plugin:\n        source: file:a.wasm\n      candidate: { source: file:b.wasm, settings: { a: 1,\n        b: 2 } }\n",
            "    - name: s\n      plugin:\n        source: file:b.wasm\n        settings: {\"a\":1,\"b\":2}\n",
        ),
        // What is empty counts as not there.
        (
            "    - name: s\n      plugin:\n        source: file:a.wasm\n        digest:\n        settings: { a: 1 }\n      candidate:\n        source: file:b.wasm\n        settings:\n        memory: ~\n",
            "    - name: s\n      plugin:\n        source: file:b.wasm\n        settings: { a: 1 }\n",
        ),
        (
            "    - name: s\n      plugin:\n        source: file:a.wasm\n        memory:\n      candidate:\n        source: file:b.wasm\n        memory: 2MiB\n",
            "    - name: s\n      plugin:\n        source: file:b.wasm\n        memory: 2MiB\n",
        ),
        // With quotes around keys, and characters of many bytes.
        (
            "    - name: s\n      \"plugin\": { 'source': 'file:é.wasm' } # 語\n      \"candidate\": { 'source': 'file:ü.wasm' } # 語\n      timeout: 1s # 語\n",
            "    - name: s\n      \"plugin\": { 'source': 'file:ü.wasm' } # 語\n      timeout: 1s # 語\n",
        ),
    ];
    for (old, new) in table {
        let [old, new] = [old, new].map(|text| text.replace("{PIN}", PIN));
        for (mark, tail) in [("", ""), ("\u{feff}---\n", "---\n# Nothing more.\n")] {
            for end in ["\n", "\r\n"] {
                if !tail.is_empty() && !old.ends_with('\n') {
                    continue;
                }
                let whole = |stage: &str| format!("{mark}{HEAD}{stage}{tail}").replace('\n', end);
                assert_eq!(promoted("f.yaml", &whole(&old)), Ok(whole(&new)), "{old}");
            }
        }
    }
}

#[test]
fn other_forms() {
    let kubernetes = |stage: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: admissionregistration.k8s.io/v1\n  kind: \
             ValidatingWebhookConfiguration\n  metadata: {{ name: c }}\n  webhooks:\n  - name: a.b.c\n    rules:\n    - {{ \
             operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'] }}\n{stage}"
        )
    };
    let bcs = |stage: &str| {
        format!(
            "kind: admissionwebhook\nmetadata: {{ namespace: n, name: c }}\nresourcesRef: {{ operation: create, kind: \
             secret }}\nAdmissionWebhooks:\n- name: s\n{stage}"
        )
    };
    let pretty = |stage: &str| {
        format!(
            "{{\n  \"apiVersion\": \"admittance.dev/v1alpha1\",\n  \"kind\": \"AdmissionChain\",\n  \"metadata\": {{\"name\": \"c\"}},\n  \
             \"spec\": {{\n    \"rules\": [{{\"operations\": [\"*\"], \"kinds\": [\"*\"]}}],\n    \"stages\": [\n      {{\n        \
             \"name\": \"s\",\n{stage}\n      }}\n    ]\n  }}\n}}\n"
        )
    };
    let table = [
        (
            "f.yaml",
            kubernetes("    plugin:\n      source: file:a.wasm\n    candidate:\n      source: file:b.wasm\n"),
            kubernetes("    plugin:\n      source: file:b.wasm\n"),
        ),
        (
            "f.yaml",
            bcs("  Plugin: { source: file:a.wasm }\n  CANDIDATE: { source: file:b.wasm }\n"),
            bcs("  Plugin: { source: file:b.wasm }\n"),
        ),
        (
            "f.json",
            pretty(
                "        \"plugin\": {\n          \"source\": \"file:a.wasm\"\n        },\n        \"candidate\": {\n          \
                 \"source\": \"file:b.wasm\",\n          \"settings\": {\n            \"a\": 1\n          },\n          \"share\": \"5%\"\n        }",
            ),
            pretty(
                "        \"plugin\": {\n          \"source\": \"file:b.wasm\",\n          \"settings\": {\n            \"a\": 1\n          }\n        }",
            ),
        ),
        (
            "f.json",
            pretty(
                "        \"candidate\": {\"source\": \"file:\\u00fc.wasm\"},\n        \"plugin\": {\"source\": \"file:a.wasm\", \"memory\": 1048576}",
            ),
            pretty("        \"plugin\": {\"source\": \"file:\\u00fc.wasm\", \"memory\": 1048576}"),
        ),
    ];
    for (file, old, new) in table {
        assert_eq!(promoted(file, &old), Ok(new), "{old}");
    }
}

#[test]
fn why_a_candidate_is_not_promoted() {
    let stages = "    - { name: images, plugin: { source: file:a.wasm }, candidate: { source: file:b.wasm } }\n    \
                  - { name: other, plugin: { source: file:a.wasm } }\n";
    let mutating = format!("{HEAD}{stages}").replace("name: c", "name: pods");
    let validating = mutating.replace("  rules:", "  phase: Validating\n  rules:");
    let both = set(&[("m.yaml", &mutating), ("v.yaml", &validating)]);
    let table = [
        (
            "pods/image",
            "there is no stage pods/image; did you mean pods/images or pods/images?",
        ),
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
    assert_eq!(told(&change), "AdmissionChain/pods Changed; ~v.yaml");

    // What nobody writes.
    let careless = "    - name: s\n      plugin: { source: file:a.wasm }\n      ? candidate\n      : { source: file:b.wasm }\n";
    assert_eq!(
        promoted("f.yaml", &format!("{HEAD}{careless}")),
        Err(
            "f.yaml:10:7: this is written in a way that cannot be changed safely from here; edit the file by hand"
                .to_owned()
        )
    );
    // What is wrong anywhere keeps the whole from being right.
    let error = set(&[("m.yaml", &mutating), ("w.yaml", "kind: Pod")])
        .promote(&"pods/images".parse().unwrap())
        .unwrap_err();
    assert!(error.to_string().starts_with("w.yaml:1:7: "), "{error}");
}
