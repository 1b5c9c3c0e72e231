use std::path::Path;

use admittance::definitions::PluginDefinition;
use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::table::strip_styles;

#[derive(Parser)]
struct ReplayCommand {
    #[command(flatten)]
    arguments: Arguments,
}

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    let words = ["replay"].into_iter().chain(line.split_whitespace());
    ReplayCommand::try_parse_from(words).map(|command| command.arguments)
}

/// Returns a chain with one stage. The stage has a webhook that is never called: the stage's match condition is false
/// for some objects of these tests, and fails with an error for the other objects. `policy` is the failure policy of
/// the stage.
fn chain_yaml(policy: &str) -> String {
    format!(
        r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: pods }}
spec:
  rules: [{{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }}]
  stages:
    - name: limits
      webhook: {{ protocol: AdmissionReview, url: "https://127.0.0.1:1/" }}
      matchConditions: [{{ name: large, expression: "object.spec.size > 10" }}]
      failurePolicy: {policy}
"#
    )
}

fn review(uid: &str, object: &Value, response: Option<Value>) -> String {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "a"},
            "object": object,
            "oldObject": null,
            "dryRun": false,
        },
    });
    if let Some(response) = response {
        review["response"] = response;
    }
    format!("{review}\n")
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run_replay(line: &str) -> crate::Result<ReplayReport> {
    crate::block_on(replay(&parse(line).unwrap())).unwrap()
}

#[test]
fn differences_from_recorded_answers_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (small, odd) = (pod(&json!({"size": 1})), pod(&json!({})));
    let allowed = json!({"uid": "u", "allowed": true});
    let warned = json!({"uid": "u", "allowed": true, "warnings": ["it is old"]});
    let requests = [
        review("u-1", &small, Some(allowed.clone())),
        review("u-2", &odd, Some(allowed)),
        review("u-3", &small, Some(warned)),
    ];
    let requests = write(folder.path(), "requests.ndjson", &requests.concat());
    let strict = write(folder.path(), "strict.yaml", &chain_yaml("Fail"));
    let store = folder.path().join("store");
    let report = run_replay(&format!(
        "{requests} {strict} --call-webhooks --store {}",
        store.display()
    ))
    .unwrap();
    assert_eq!((report.requests, report.same, report.different), (3, 1, 2));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["differences"][0]["uid"], "u-2");
    assert_eq!(json["differences"][0]["different"], json!(["verdict", "message"]));
    assert_eq!(json["differences"][0]["before"]["allowed"], true);
    assert_eq!(json["differences"][0]["after"]["allowed"], false);
    assert_eq!(json["differences"][1]["different"], json!(["warnings"]));
    let text = strip_styles(&report.text());
    for line in [
        "request 2  CREATE of v1/Pod default/web  uid u-2\n  verdict   - allowed\n            + refused (",
        "request 3  CREATE of v1/Pod default/web  uid u-3\n  warnings  - it is old\n            + -\n",
        "3 requests: 1 the same, 2 different\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn differences_between_two_sets_of_chains_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let review = |uid| review(uid, &pod(&json!({})), None);
    let pretty: Value = serde_json::from_str(&review("u-1")).unwrap();
    let requests = format!("{pretty:#}\n{}", review("u-2"));
    let requests = write(folder.path(), "reviews.json", &requests);
    let strict = write(folder.path(), "strict.yaml", &chain_yaml("Fail"));
    let lax = write(folder.path(), "lax.yaml", &chain_yaml("Ignore"));
    let store = folder.path().join("store");
    let common = format!("--call-webhooks --store {}", store.display());

    let report = run_replay(&format!("{requests} {lax} {common} --against {strict}")).unwrap();
    assert_eq!((report.requests, report.different), (2, 2));
    let report = run_replay(&format!("{requests} {lax} {common} --against {lax}")).unwrap();
    assert_eq!((report.requests, report.different), (2, 0));

    let empty = write(folder.path(), "empty.ndjson", "\n");
    let broken = write(folder.path(), "broken.ndjson", "{\"kind\": 1");
    for (line, expected) in [
        (
            format!("{requests} {lax} {common}"),
            "request 1 has no response to compare with",
        ),
        (format!("{requests} {lax}"), "give --call-webhooks to allow that"),
        (format!("{empty} {lax} {common}"), "it contains no request"),
        (format!("{broken} {lax} {common}"), "broken.ndjson: request 1: "),
        (
            format!("{requests} {lax} {common} --module file:a.wasm --stage pods/limits"),
            "calls no plugin and has no module",
        ),
        (
            format!("{requests} {lax} {common} --module file:a.wasm --stage pods/limit"),
            "there is no stage pods/limit; did you mean pods/limits?",
        ),
    ] {
        let error = run_replay(&line).unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
    let none = folder.path().join("none").display().to_string();
    for line in [format!("{none} {lax} {common}"), format!("{requests} {none} {common}")] {
        let error = parse(&line).unwrap_err().to_string();
        assert!(error.contains("there is no such file"), "{line}: {error}");
    }
}

#[test]
fn the_module_of_a_stage_can_be_replaced() {
    let plugin = r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  rules: [{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }]
  stages:
    - name: images
      plugin:
        source: https://example.com/images.wasm
        refresh: 1h
        settings: { registries: [a] }
      candidate:
        source: file:next.wasm
        share: 10%
"#;
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = write(folder.path(), "chain.yaml", plugin).into();
    let mut definitions = chains::load_without_candidates(std::slice::from_ref(&path), false).unwrap();
    let module: ModuleReference = "file:/other.wasm".parse().unwrap();
    for id in ["pods/images", "Mutating:pods/images"] {
        chains::replace_module(&mut definitions, &id.parse().unwrap(), &module).unwrap();
    }
    let stage = &definitions[0].stages[0];
    assert_eq!(stage.candidate, None);
    let Some(plugin) = stage.hook.get::<PluginDefinition>() else {
        panic!("{stage:?}");
    };
    assert_eq!(plugin.source, module);
    assert_eq!(plugin.refresh, None);
    assert_eq!(plugin.settings, json!({"registries": ["a"]}));

    let wrong = chains::replace_module(&mut definitions, &"Validating:pods/images".parse().unwrap(), &module);
    assert!(wrong.unwrap_err().to_string().contains("there is no stage"));
    let both = std::fs::read_to_string(&path).unwrap();
    let validating = both.replace("  rules:", "  phase: Validating\n  rules:");
    let path: PathBuf = write(folder.path(), "both.yaml", &format!("{both}---\n{validating}")).into();
    let mut definitions = chains::load_without_candidates(&[path], false).unwrap();
    let wrong = chains::replace_module(&mut definitions, &"pods/images".parse().unwrap(), &module);
    assert!(wrong.unwrap_err().to_string().contains("in both phases"));
}

#[test]
fn invalid_arguments_of_replay_are_refused() {
    crate::assert_acceptance(&[
        ("replay Cargo.toml src", true),
        ("replay Cargo.toml src src/remote --against src/test -o json", true),
        ("replay Cargo.toml --config Cargo.toml", true),
        ("replay Cargo.toml", false),
        ("replay Cargo.toml src --module file:a.wasm", false),
        ("replay Cargo.toml src --stage pods/a", false),
        ("replay Cargo.toml src --module file:a.wasm --stage pods", false),
        ("replay Cargo.toml src --module file:a.wasm --stage pods/a", true),
    ]);
}
