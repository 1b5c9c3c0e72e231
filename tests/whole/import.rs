//! Tests that chains which `admittance import` writes decide like the imported documents.

use std::fs;

use admittance_tests::{Admittance, Artifacts, FinishedProgram, finish};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    scene::{application, store, write},
    webhooks::{issue_certificate, start_tls_server, start_webhook_server},
};

/// Runs the program in a directory, with the stock plugins of this build.
pub(crate) async fn run_admittance(directory: &TempDir, arguments: &[&str]) -> FinishedProgram {
    let mut program = Admittance::command().unwrap();
    program.args(arguments).current_dir(directory.path());
    program.env("ADMITTANCE_PLUGINS", stock_plugin_directory(directory));
    program.env("ADMITTANCE_STORE", store());
    finish(program).await.unwrap()
}

fn stock_plugin_directory(directory: &TempDir) -> std::path::PathBuf {
    let plugins = directory.path().join("plugins");
    if !plugins.exists() {
        let built = Artifacts::find().unwrap().component("sidecar-injector").unwrap();
        fs::create_dir(&plugins).unwrap();
        fs::copy(built, plugins.join("sidecar_injector.wasm")).unwrap();
    }
    plugins
}

/// Returns the result of each request: whether the request is allowed, the object, the warnings, and the code of a
/// denial. An imported chain may deny a request with another message than the original policy. So the results have the
/// message only if `with_messages` is set.
async fn run_decisions(directory: &TempDir, chains: &str, with_messages: bool) -> Vec<Value> {
    let run_output = run_admittance(directory, &["run", chains, "requests.json", "--output", "json"]).await;
    assert!(
        run_output.code < Some(2),
        "{chains}: {}{}",
        run_output.stdout,
        run_output.stderr
    );
    let report: Value = serde_json::from_str(&run_output.stdout).unwrap();
    let requests = report["requests"].as_array().unwrap().iter();
    requests
        .map(|request| {
            let refusal = &request["refusal"];
            let message = if with_messages {
                refusal["message"].clone()
            } else {
                Value::Null
            };
            json!({
                "allowed": request["allowed"],
                "object": request["object"],
                "warnings": request["warnings"],
                "code": refusal["code"],
                "message": message,
            })
        })
        .collect()
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": labels},
           "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}})
}

const POD_RULE: &str = "{ apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE] }";

fn webhook_configuration(port: u16, bundle: &str) -> String {
    let webhook = |name: &str, path: &str, selector: &str| {
        format!(
            "  - name: {name}.example.com
    rules: [ {POD_RULE} ]
    clientConfig: {{ url: 'https://localhost:{port}/review/{path}', caBundle: {bundle} }}
    admissionReviewVersions: [v1]
    sideEffects: None
    objectSelector: {{ matchExpressions: [ {{ key: tea, operator: {selector} }} ] }}
"
        )
    };
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{ name: tea }}
webhooks:
{}{}",
        webhook("denies", "denies", "Exists"),
        webhook("patches", "patches", "DoesNotExist")
    )
}

const POLICIES: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: teams }
spec:
  matchConstraints:
    resourceRules: [ RULE ]
  matchConditions: [ { name: not-exempt, expression: \"!has(object.metadata.labels.exempt)\" } ]
  variables: [ { name: team, expression: \"object.metadata.?labels[?'team'].orValue('')\" } ]
  validations: [ { expression: \"variables.team != ''\", reason: Forbidden, messageExpression: \"'no team for ' + object.metadata.name\" } ]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: everywhere }
spec: { policyName: teams, validationActions: [Deny], matchResources: { objectSelector: { matchExpressions: [ { key: test, operator: DoesNotExist } ] } } }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: zone }
spec:
  matchConstraints:
    resourceRules: [ RULE ]
  reinvocationPolicy: Never
  mutations:
    - { patchType: ApplyConfiguration, applyConfiguration: { expression: 'Object{metadata: Object.metadata{labels: {\"zone\": \"a\"}}}' } }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: everywhere }
spec: { policyName: zone }
";

const SIDECAR_SET: &str = "apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: { name: logs }
spec:
  selector: { matchLabels: { team: a } }
  namespace: shop
  updateStrategy: { type: NotUpdate }
  containers: [ { name: agent, image: 'agent:1', shareVolumePolicy: { type: enabled }, volumeMounts: [ { name: logs, mountPath: /logs } ] } ]
  volumes: [ { name: logs, emptyDir: {} } ]
";

fn kubewarden_policy() -> String {
    let module = Artifacts::find().unwrap().policy("guest_policy").unwrap();
    format!(
        "apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {{ name: labels }}
spec:
  module: file://{}
  rules: [ {POD_RULE} ]
  mutating: true
  settings: {{ required: team, add: {{ checked: \"yes\" }} }}
",
        module.display()
    )
}

fn bcs_definition(port: u16, bundle: &str) -> String {
    format!(
        "apiVersion: v4
kind: admissionwebhook
metadata: {{ name: hooks, namespace: bcs-system }}
resourcesRef: {{ operation: Create, kind: Application }}
admissionWebhooks:
  - name: annotates
    failurePolicy: Fail
    clientConfig: {{ caBundle: {bundle}, url: 'https://localhost:{port}/annotates' }}
    namespaceSelector: {{ operator: NotIn, values: [kube-system] }}
"
    )
}

#[tokio::test]
async fn imported_chains_decide_like_the_imported_documents() {
    let certificates = tempfile::tempdir().unwrap();
    let bundle = issue_certificate(certificates.path(), "--host", "localhost").await;
    let port = start_webhook_server(certificates.path(), "localhost").await.port();
    let no_labels = json!({});
    let pods = [
        pod("none", &no_labels),
        pod("team", &json!({"team": "a"})),
        pod("exempt", &json!({"exempt": "", "tea": "green"})),
        pod("test", &json!({"test": ""})),
    ];
    let applications = ["shop", "kube-system"].map(|namespace| application(namespace, "web", "nginx:1.29"));
    // (imported system, documents, requests, how exact each import is, number of refused requests, number of changed
    // requests)
    for (system, documents, requests, result, refused_count, changed_count) in [
        (
            "webhooks",
            webhook_configuration(port, &bundle),
            &pods[..],
            "exact",
            1,
            3,
        ),
        (
            "policies",
            POLICIES.replace("RULE", POD_RULE),
            &pods[..],
            "differs",
            1,
            3,
        ),
        ("kubewarden", kubewarden_policy(), &pods[..], "exact", 3, 1),
        ("sidecar-set", SIDECAR_SET.to_owned(), &pods[..], "exact", 0, 1),
        ("bcs", bcs_definition(port, &bundle), &applications[..], "differs", 0, 1),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "documents.yaml", &documents);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": requests});
        write(&directory, "requests.json", list.to_string());
        let arguments = ["import", "documents.yaml", "--to", "imported.yaml", "--output", "json"];
        let imported = run_admittance(&directory, &arguments).await;
        assert_eq!(
            imported.code,
            Some(0),
            "{system}: {}{}",
            imported.stdout,
            imported.stderr
        );
        let report: Value = serde_json::from_str(&imported.stdout).unwrap();
        for definition in report["definitions"].as_array().unwrap() {
            assert_eq!(definition["result"], result, "{definition}");
        }
        let imported_text = fs::read_to_string(directory.path().join("imported.yaml")).unwrap();
        let kinds: Vec<_> = imported_text
            .lines()
            .filter(|line| line.starts_with("kind: "))
            .collect();
        assert!(
            !kinds.is_empty() && kinds.iter().all(|kind| *kind == "kind: AdmissionChain"),
            "{imported_text}"
        );
        let has_same_messages = result == "exact";
        let original = run_decisions(&directory, "documents.yaml", has_same_messages).await;
        let native = run_decisions(&directory, "imported.yaml", has_same_messages).await;
        assert_eq!(original, native, "{system}");
        let is_allowed = |decision: &&Value| decision["allowed"] == true;
        let decisions_and_requests = original.iter().zip(requests);
        let is_changed =
            |(decision, request): &(&Value, &Value)| is_allowed(decision) && decision["object"] != **request;
        let counts = (
            original.len() - original.iter().filter(is_allowed).count(),
            decisions_and_requests.filter(is_changed).count(),
        );
        assert_eq!(counts, (refused_count, changed_count), "{system}: {original:?}");
    }
}

#[tokio::test]
async fn import_overwrites_a_file_only_with_force() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "documents.yaml", SIDECAR_SET);
    let import_arguments =
        |options: &[&'static str]| [&["import", "documents.yaml", "--to", "a.yaml"], options].concat();
    let output_text = || fs::read_to_string(directory.path().join("a.yaml")).ok();

    let dry_run = run_admittance(&directory, &import_arguments(&["--dry-run"])).await;
    assert_eq!((dry_run.code, output_text()), (Some(0), None), "{}", dry_run.stderr);
    for expected in ["SidecarSet/logs  exact   kruise-sidecarset-logs", "nothing was written"] {
        assert!(dry_run.stdout.contains(expected), "{}", dry_run.stdout);
    }
    let first_import = run_admittance(&directory, &import_arguments(&[])).await;
    assert_eq!(first_import.code, Some(0), "{}", first_import.stderr);
    let text = output_text().unwrap();
    write(&directory, "a.yaml", "# mine");
    let second_import = run_admittance(&directory, &import_arguments(&[])).await;
    assert_eq!(second_import.code, Some(2), "{}", second_import.stdout);
    assert!(
        second_import.stderr.contains("a.yaml already exists; give --force"),
        "{}",
        second_import.stderr
    );
    assert_eq!(output_text().as_deref(), Some("# mine"));
    let forced_import = run_admittance(&directory, &import_arguments(&["--force"])).await;
    assert_eq!(forced_import.code, Some(0), "{}", forced_import.stderr);
    assert_eq!(output_text(), Some(text));

    write(
        &directory,
        "documents.yaml",
        format!(
            "{SIDECAR_SET}---\n{}",
            SIDECAR_SET.replace("name: logs }\nspec", "name: Logs }\nspec")
        ),
    );
    let partial_import = run_admittance(&directory, &import_arguments(&["--force"])).await;
    assert_eq!(partial_import.code, Some(1), "{}", partial_import.stdout);
    assert!(
        partial_import.stdout.contains("documents.yaml:13:19: metadata.name"),
        "{}",
        partial_import.stdout
    );
    for (document, report) in [("", ": metadata.name"), ("apiVersion: v1\nkind: Pod\n", "passed over")] {
        let invalid = SIDECAR_SET.replace("name: logs }\nspec", "name: Logs }\nspec");
        write(
            &directory,
            "documents.yaml",
            if document.is_empty() {
                invalid.as_str()
            } else {
                document
            },
        );
        let failed_import = run_admittance(&directory, &import_arguments(&["--force"])).await;
        assert_eq!(
            failed_import.code,
            Some(1),
            "{}{}",
            failed_import.stdout,
            failed_import.stderr
        );
        for expected in [report, "nothing was written"] {
            assert!(failed_import.stdout.contains(expected), "{}", failed_import.stdout);
        }
    }
}

/// ADMITTANCE_PLUGINS names the directory of stock plugins. The message about a missing plugin names its file.
#[tokio::test]
async fn a_sidecar_set_needs_the_stock_plugin() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "set.yaml", SIDECAR_SET);
    let check_output = run_admittance(&directory, &["check", "set.yaml"]).await;
    assert_eq!(
        check_output.code,
        Some(0),
        "{}{}",
        check_output.stdout,
        check_output.stderr
    );
    write(
        &directory,
        "set.yaml",
        SIDECAR_SET.replace("type: NotUpdate", "type: RollingUpdate"),
    );
    let check_output = run_admittance(&directory, &["check", "set.yaml"]).await;
    assert!(
        check_output
            .stdout
            .contains("warning: set.yaml:7:19: spec.updateStrategy: containers are injected when a Pod is created"),
        "{}",
        check_output.stdout
    );
    write(
        &directory,
        "set.yaml",
        SIDECAR_SET.replace("name: logs, mountPath", "name: none, mountPath"),
    );
    let check_output = run_admittance(&directory, &["check", "set.yaml"]).await;
    assert_eq!(check_output.code, Some(1), "{}", check_output.stdout);
    assert!(
        check_output
            .stdout
            .contains("set.yaml:8:112: stage logs of chain kruise-sidecarset-logs"),
        "{}",
        check_output.stdout
    );
    assert!(
        check_output.stdout.contains("the SidecarSet has no volume \"none\""),
        "{}",
        check_output.stdout
    );
    fs::remove_file(directory.path().join("plugins/sidecar_injector.wasm")).unwrap();
    let check_output = run_admittance(&directory, &["check", "set.yaml"]).await;
    assert_eq!(check_output.code, Some(1), "{}", check_output.stdout);
    for expected in [
        "plugins/sidecar_injector.wasm",
        "set the environment variable ADMITTANCE_PLUGINS",
    ] {
        assert!(check_output.stdout.contains(expected), "{}", check_output.stdout);
    }
}

/// The expected containers are those that OpenKruise's `sidecarsetMutatingPod` returns.
#[tokio::test]
async fn a_canary_sidecar_set_is_injected_in_place_of_its_base_set() {
    let directory = tempfile::tempdir().unwrap();
    let set = |name: &str, annotations: &str, label: &str, container: &str| {
        format!(
            "---\napiVersion: apps.kruise.io/v1beta1\nkind: SidecarSet\nmetadata: {{ name: {name}, annotations: {{ {annotations} }} }}\n\
             spec: {{ selector: {{ matchLabels: {{ {label} }} }}, updateStrategy: {{ type: NotUpdate }}, containers: [ {container} ] }}\n"
        )
    };
    let transfer = "transferEnv: [ { sourceContainerNameFrom: { fieldRef: { fieldPath: \"metadata.labels['main']\" } }, \
                    envNames: [A] } ]";
    let canary = "apps.kruise.io/sidecarset-canary: \"true\", apps.kruise.io/sidecarset-base: base";
    write(
        &directory,
        "sets.yaml",
        [
            set(
                "base",
                "",
                "app: a",
                &format!("{{ name: z, image: 'old:1', {transfer} }}"),
            ),
            set("canary", canary, "track: new", "{ name: z2, image: 'new:1' }"),
        ]
        .concat(),
    );
    for (track, expected) in [("old", json!(["z", "web"])), ("new", json!(["z2", "web"]))] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
                         "metadata": {"name": "web", "namespace": "shop",
                                      "labels": {"app": "a", "track": track, "main": "web"}},
                         "spec": {"containers": [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}]}]}});
        write(&directory, "pod.json", pod.to_string());
        let run_output = run_admittance(&directory, &["run", "sets.yaml", "pod.json", "--output", "json"]).await;
        assert_eq!(run_output.code, Some(0), "{}{}", run_output.stdout, run_output.stderr);
        let report: Value = serde_json::from_str(&run_output.stdout).unwrap();
        let containers = report["object"]["spec"]["containers"].as_array().unwrap().iter();
        let names: Value = containers.map(|container| container["name"].clone()).collect();
        assert_eq!(names, expected, "{track}: {}", run_output.stdout);
    }
    // The SidecarSet `base` applies only to Pods to which the SidecarSet `canary` does not apply. The import does not
    // convert such a pair. It copies both of them as they are.
    let imported = run_admittance(&directory, &["import", "sets.yaml", "--to", "a.yaml"]).await;
    let imported_text = fs::read_to_string(directory.path().join("a.yaml")).unwrap();
    assert_eq!(
        imported_text.matches("kind: SidecarSet").count(),
        2,
        "{}{imported_text}",
        imported.stdout
    );
}

pub(crate) fn kubeconfig(port: u16, bundle: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: test
clusters: [ {{ name: test, cluster: {{ server: 'https://localhost:{port}', certificate-authority-data: {bundle} }} }} ]
contexts: [ {{ name: test, context: {{ cluster: test, user: test }} }} ]
users: [ {{ name: test, user: {{ token: t }} }} ]
"
    )
}

#[tokio::test]
async fn import_reads_policies_stored_in_a_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = issue_certificate(directory.path(), "--host", "localhost").await;
    // Like a real API server, this one omits the `kind` of the items in a list. Unknown resources get 404.
    let answer = |path: &str| match path {
        "/apis/policies.kubewarden.io/v1/clusteradmissionpolicies" => Some(json!({
            "apiVersion": "policies.kubewarden.io/v1", "kind": "ClusterAdmissionPolicyList", "metadata": {"resourceVersion": "1"},
            "items": [{"metadata": {"name": "labels", "uid": "u", "managedFields": []}, "spec": {
                "module": "registry://registry.example.com/labels:v1", "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}}]})),
        // The import looks for MutatingAdmissionPolicies in several API versions. This cluster serves only `v1beta1`,
        // as Kubernetes 1.34 does.
        "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies" => {
            Some(json!({"kind": "MutatingAdmissionPolicyList", "items": []}))
        }
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations" => {
            Some(json!({"kind": "ValidatingWebhookConfigurationList", "items": [
            {"metadata": {"name": "tea"}, "webhooks": []}]}))
        }
        "/apis/templates.gatekeeper.sh/v1/constrainttemplates" => {
            let rego = "package labels\nviolation[{\"msg\": \"no\"}] { false }";
            let targets = json!([{"target": "admission.k8s.gatekeeper.sh", "rego": rego}]);
            let spec = json!({"crd": {"spec": {"names": {"kind": "Labels"}}}, "targets": targets});
            Some(json!({"items": [{"metadata": {"name": "labels"}, "spec": spec, "status": {"created": true}}]}))
        }
        "/apis/constraints.gatekeeper.sh/v1beta1/labels" => {
            Some(json!({"items": [{"metadata": {"name": "owners"}, "spec": {}, "status": {"totalViolations": 1}}]}))
        }
        "/apis/mutations.gatekeeper.sh/v1beta1/assignmetadata" => Some(json!({"items": [{
            "metadata": {"name": "owner", "generation": 1}, "spec": {"location": "metadata.labels.owner",
            "parameters": {"assign": {"value": "a"}}}, "status": {"byPod": []}}]})),
        "/apis/policies.kyverno.io/v1/validatingpolicies" => {
            let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
            let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
            Some(json!({"items": [{"metadata": {"name": "data"}, "spec": spec}]}))
        }
        _ => None,
    };
    let port = start_tls_server(directory.path(), "localhost", &[], move |_, request| async move {
        let listing = answer(request.uri().path());
        let status = if listing.is_some() { 200 } else { 404 };
        let body = listing.unwrap_or_else(|| json!({"kind": "Status", "message": "there is none"}));
        Ok(Response::builder()
            .status(status)
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap())
    })
    .await
    .port();
    write(&directory, "kubeconfig", kubeconfig(port, &bundle));
    let arguments = [
        "import",
        "--kubeconfig",
        "kubeconfig",
        "--to",
        "a.yaml",
        "--output",
        "json",
    ];
    let imported = run_admittance(&directory, &arguments).await;
    assert_eq!(imported.code, Some(0), "{}{}", imported.stdout, imported.stderr);
    let report: Value = serde_json::from_str(&imported.stdout).unwrap();
    let results: Vec<_> = report["definitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|definition| {
            (
                definition["kind"].as_str().unwrap(),
                definition["result"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        results,
        [
            ("ValidatingWebhookConfiguration", "left-out"),
            ("ClusterAdmissionPolicy", "exact"),
            ("Labels", "kept"),
            ("ConstraintTemplate", "kept"),
            ("AssignMetadata", "kept"),
            ("ValidatingPolicy", "differs"),
        ]
    );
    let check_output = run_admittance(&directory, &["check", "--documents-only", "a.yaml"]).await;
    assert_eq!(check_output.code, Some(0), "{}", check_output.stdout);

    // If the API server replies with an error instead of a list, the error message names the path of the request.
    let refusing_server = start_tls_server(directory.path(), "localhost", &[], |_, _| async {
        let body = json!({"kind": "Status", "message": "user t cannot list"}).to_string();
        Ok(Response::builder()
            .status(403)
            .body(Full::new(Bytes::from(body)))
            .unwrap())
    });
    write(
        &directory,
        "kubeconfig",
        kubeconfig(refusing_server.await.port(), &bundle),
    );
    let refused_import = run_admittance(&directory, &["import", "--kubeconfig", "kubeconfig", "--dry-run"]).await;
    assert_eq!(refused_import.code, Some(2), "{}", refused_import.stdout);
    assert!(
        refused_import.stderr.contains("user t cannot list")
            && refused_import.stderr.contains("/apis/admissionregistration.k8s.io/v1/"),
        "{}",
        refused_import.stderr
    );
}
