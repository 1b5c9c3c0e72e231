//! Compares the parser with kubectl's. The expected values were produced by sigs.k8s.io/yaml 1.4, which kubectl uses.

use serde_json::{Value as Json, json};

use super::{BYTE_ORDER_MARK, LARGEST_FILE, MAX_VALUE_COUNT, SyntaxMistake, mistakes_in, yaml};
use crate::{ChainDefinition, PluginDefinition, load_text};

/// Each line contains a text and the values of its documents, or no values if kubectl refuses the text.
const TEXTS: &str = include_str!("kubectl.jsonl");

fn read_yaml(text: &str) -> Result<Vec<Json>, String> {
    let mut flaws = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let trees = yaml::read(text, LARGEST_FILE, &mut flaws);
    if let Some(SyntaxMistake { message, .. }) = flaws.into_iter().next() {
        return Err(message);
    }
    let values = trees.iter().map(|(root, _)| serde_json::to_value(root).unwrap());
    Ok(values.filter(|value| !value.is_null()).collect())
}

#[test]
fn yaml_is_parsed_to_the_values_that_kubectl_sends() {
    for line in TEXTS.lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let text = row["yaml"].as_str().unwrap();
        let documents = read_yaml(text);
        match row.get("json") {
            Some(values) => assert_eq!(documents.map(Json::from).as_ref(), Ok(values), "{text}"),
            None => assert!(documents.is_err(), "{text:?}: {documents:?}"),
        }
    }
}

#[test]
fn a_duplicate_key_is_a_mistake_although_kubectl_uses_the_last_value() {
    for text in [
        "a: 1\na: 2\n",
        "1: a\n'1': b",
        "on: 1\nyes: 2\n",
        "&a a: 1\n*a : 2",
        "y: {a: 0, <<: {a: 1}, a: 2}",
    ] {
        let message = read_yaml(text).unwrap_err();
        assert!(message.contains("is written a second time"), "{text:?}: {message}");
    }
}

#[test]
fn some_yaml_is_not_read_as_kubectl_reads_it() {
    // kubectl refuses these texts, although they are valid YAML 1.2. This parser accepts them: (text, values of its
    // documents).
    for (text, values) in [
        ("%YAML 1.2\n---\na: 1\n", json!([{"a": 1}])),
        ("a: 1\n...\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("a: \"\\/\\ud83d\\ude00\"", json!([{"a": "/😀"}])),
        ("-\ta\n", json!([["a"]])),
        ("a: 1\n\t# c\nb: 2\n", json!([{"a": 1, "b": 2}])),
        ("a: {x\n y: 1}", json!([{"a": {"x y": 1}}])),
        ("x: &é 1\nz: *é", json!([{"x": 1, "z": 1}])),
        ("x: &x [{a: 1}]\nz: {<<: *x}", json!([{"x": [{"a": 1}], "z": {"a": 1}}])),
        ("a: !!timestamp x", json!([{"a": "x"}])),
    ] {
        assert_eq!(read_yaml(text).map(Json::from), Ok(values), "{text:?}");
    }
    // kubectl accepts each of these texts. This program refuses them, because the parser fails or because JSON cannot
    // represent a value.
    for (text, expected) in [
        ("{a: 1}# c", "comments must be separated"),
        ("a: 'x'# c", "comments must be separated"),
        ("a:\n|\n  x\n", "simple key expected"),
        (".inf: a", "a number that JSON cannot hold"),
    ] {
        let message = read_yaml(text).unwrap_err();
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

/// Texts of a few hundred bytes. If their nested aliases were expanded, they would take gigabytes.
fn bombs() -> Vec<(&'static str, String)> {
    let nested = |open: &str, close: &str, entry: fn(usize, usize) -> String| {
        let mut text = "a0: &a0 {x: 1}\n".to_owned();
        for line in 1..10 {
            let entries: Vec<String> = (0..9).map(|index| entry(line - 1, index)).collect();
            text += &format!("a{line}: &a{line} {open}{}{close}\n", entries.join(","));
        }
        text
    };
    vec![
        ("lists", nested("[", "]", |line, _| format!("*a{line}"))),
        ("maps", nested("{", "}", |line, index| format!("k{index}: *a{line}"))),
        ("merged maps", nested("{<<: [", "]}", |line, _| format!("*a{line}"))),
        (
            "merged maps one by one",
            nested("{", "}", |line, _| format!("<<: *a{line}")),
        ),
    ]
}

#[test]
fn aliases_may_expand_a_document_at_most_a_hundredfold() {
    for (name, text) in bombs() {
        let expected = "the aliases (`*name`) up to here repeat over 99 times as much as is written";
        assert_eq!(read_yaml(&text), Err(expected.to_owned()), "{name}");
    }
    let (_, lists) = bombs().swap_remove(0);
    assert!(
        mistakes_in("f.yaml", &lists).starts_with("f.yaml:5:10: the aliases"),
        "{}",
        mistakes_in("f.yaml", &lists)
    );
    let aliases = |count: usize| format!("a: &a 1\nb: [{}]", vec!["*a"; count].join(","));
    assert!(read_yaml(&aliases(4000)).is_ok());
    let text = format!("a: &a \"{}\"\nb: [{}]", "x".repeat(1 << 16), vec!["*a"; 65].join(","));
    assert_eq!(
        read_yaml(&text),
        Err("as JSON it is larger than the 4194304 bytes that are allowed here".to_owned())
    );
}

#[test]
fn the_number_of_values_in_a_file_is_limited() {
    for (name, at, places) in [("f.yaml", "# YAML\n", (2, 2)), ("f.json", "", (1, 2))] {
        let text = format!("{at}[{}1]", "1,".repeat(MAX_VALUE_COUNT));
        let (line, width) = places;
        let column = (MAX_VALUE_COUNT - 1) * width + 2;
        assert_eq!(
            mistakes_in(name, &text),
            format!("{name}:{line}:{column}: the file has more than 500000 values; split it")
        );
    }
}

#[test]
fn mistakes_have_positions_within_the_text() {
    let pieces = [
        "a: ", "- ", "\n", "\n\n", "  ", "&x ", "*x", "{", "[", "]", "? ", "'", "\"", "#", "!!int ", "---\n", "|\n",
        "\r\n", "\r", "\t", "%",
    ];
    for first in pieces {
        for second in pieces {
            for third in pieces {
                let text = format!("{first}{second}{third}");
                let mut mistakes = super::Mistakes::new();
                super::read_text("f", &text, &mut mistakes);
                let lines = text.replace("\r\n", "\n").split(['\r', '\n']).count();
                for mistake in &mistakes {
                    assert!(mistake.location.line as usize <= lines, "{text:?}: {mistake}");
                }
            }
        }
    }
    assert!(mistakes_in("f", "a:\n  - b: {\n\n\n").starts_with("f:2:8: "));
    assert!(mistakes_in("f.json", "{\n  \"a\": [\n\n\n").starts_with("f.json:2:9: "));
}

#[test]
fn documents_that_kubectl_accepts_are_parsed() {
    for text in [
        "validations:\n    - expression: \"object.metadata.name != 'x' ||\n      object.metadata.namespace != 'y'\"",
        "validations:\n    - expression: 'true ||\n false'",
        "validations: [\n    { expression: \"true\" },\n  ]",
        "validations:\n  - {\n    expression: \"true\"\n  }",
        "validations:\n  - {\n\texpression: \"true\"\n\t}",
        "variables: [ { name: v, expression: &e \"true\" } ]\n  validations: [ { expression: *e } ]",
    ] {
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{ name: a }}
spec:
  matchConstraints:
    resourceRules: [
      {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }},
    ]
  {text}
"
        );
        let chains = load_text("policy.yaml", &text);
        assert!(
            chains.as_ref().is_ok_and(|chains| chains.len() == 1),
            "{text}\n{chains:?}"
        );
    }
}

fn settings(chain: &ChainDefinition) -> &Json {
    &chain.stages[0].hook.get::<PluginDefinition>().unwrap().settings
}

#[test]
fn a_file_mode_in_a_sidecar_set_is_read_as_octal() {
    let text = "apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: { name: conf }
spec:
  selector: { matchLabels: { app: a } }
  updateStrategy: { type: NotUpdate }
  containers: [ { name: side, image: \"nginx:1\", volumeMounts: [ { name: conf, mountPath: /conf } ] } ]
  volumes: [ { name: conf, configMap: { name: conf, defaultMode: 0644 } } ]
";
    let chains = load_text("set.yaml", text).unwrap();
    let volumes = "/sidecarSet/volumes/0/configMap/defaultMode";
    assert_eq!(
        settings(&chains[0]).pointer(volumes),
        Some(&json!(420)),
        "{:?}",
        settings(&chains[0])
    );
}

#[test]
fn a_chain_warns_of_values_that_yaml_1_2_reads_differently() {
    let text = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: a }
spec:
  rules: [ { operations: [CREATE], kinds: [pod] } ]
  stages:
    - name: s
      plugin:
        source: file:s.wasm
        settings:
          volumes: [ { secret: { defaultMode: 0400, other: 256 } } ]
          on: [ yes, true, \"no\", 1_000, 0x10, !!bool yes ]
";
    let chains = load_text("a.yaml", text).unwrap();
    assert_eq!(
        settings(&chains[0]),
        &json!({
            "volumes": [{"secret": {"defaultMode": 256, "other": 256}}],
            "true": [true, true, "no", 1000, 16, true],
        })
    );
    let warnings: Vec<String> = chains[0].warnings.iter().map(ToString::to_string).collect();
    let warning = |location: &str, text: &str, kubectl_value: &str, other_value: &str| {
        format!(
            "a.yaml:{location}: `{text}` is {kubectl_value}, as kubectl reads it (YAML 1.1); in YAML 1.2 it is {other_value}; write {kubectl_value} or \
             {other_value}"
        )
    };
    assert_eq!(
        warnings,
        [
            warning(
                "11:47: spec.stages[0].plugin.settings.volumes[0].secret.defaultMode",
                "0400",
                "256",
                "400"
            ),
            warning("12:11: spec.stages[0].plugin.settings.on", "on", "true", "\"on\""),
            warning(
                "12:17: spec.stages[0].plugin.settings.true[0]",
                "yes",
                "true",
                "\"yes\""
            ),
            warning(
                "12:34: spec.stages[0].plugin.settings.true[3]",
                "1_000",
                "1000",
                "\"1_000\""
            ),
        ]
    );
    let json = serde_json::to_string(&read_yaml(text).unwrap()[0]).unwrap();
    assert_eq!(load_text("a.json", &json).unwrap()[0].warnings, []);
}
