//! Tests Kubernetes policies in CEL and stages with expressions, with the examples in the documentation.

use std::{fs, path::Path};

use admittance::Host;
use admittance_tests::{Admittance, FinishedProgram};
use serde_json::{Value, json};

use crate::documents::page::Page;

fn deployment(replicas: u32, labels: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
           "metadata": {"name": "web", "namespace": "shop", "labels": labels}})
}

async fn run_admittance(directory: &Path, arguments: &[&str]) -> FinishedProgram {
    let path = |argument: &&str| {
        if argument.contains(['.', '/']) && !argument.contains('=') {
            directory.join(argument).into_os_string()
        } else {
            argument.into()
        }
    };
    Admittance::run(arguments.iter().map(path)).await.unwrap()
}

#[tokio::test]
async fn kubernetes_policies_run_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let pages = Page::read("docs/kubernetes-policies.md").yaml();
    fs::create_dir(directory_path.join("chains")).unwrap();
    fs::write(directory_path.join("chains/replicas.yaml"), &pages[0]).unwrap();
    fs::write(directory_path.join("chains/sidecar.yaml"), &pages[1]).unwrap();
    let manifests = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits", "namespace": "policies"}, "data": {"maxReplicas": "5"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"environment": "production"}}},
    ]});
    fs::write(directory_path.join("manifests.json"), manifests.to_string()).unwrap();
    for environment in ["test", "production"] {
        let labels = json!({"environment": environment});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}});
        fs::write(
            directory_path.join(format!("{environment}.json")),
            namespace.to_string(),
        )
        .unwrap();
    }
    let check_output = run_admittance(directory_path, &["check", "chains/"]).await;
    assert_eq!(
        check_output.code,
        Some(0),
        "{}{}",
        check_output.stdout,
        check_output.stderr
    );

    let denied = "ValidatingAdmissionPolicy 'replica-limit' with binding 'production' denied request: ";
    let cluster = ["--cluster", "manifests.json"];
    // (replicas of the Deployment, labels of the Deployment, additional arguments, expected exit code, whether the
    // validations are evaluated, expected output)
    for (replicas, labels, cluster, code, is_evaluated, expected) in [
        (5, json!({}), &cluster[..], 0, true, ""),
        (6, json!({}), &cluster[..], 1, true, "at most 5 replicas are allowed"),
        (6, json!({"exempt": "yes"}), &cluster[..], 0, false, ""),
        (
            6,
            json!({}),
            &["--cluster", "test.json"][..],
            0,
            false,
            "namespaceSelector does not match",
        ),
        (
            5,
            json!({}),
            &["--cluster", "production.json"][..],
            1,
            false,
            "failed to configure binding: no params found",
        ),
    ] {
        fs::write(
            directory_path.join("deployment.json"),
            deployment(replicas, &labels).to_string(),
        )
        .unwrap();
        let arguments = [&["run", "chains/", "deployment.json", "--output", "json"][..], cluster].concat();
        let output = run_admittance(directory_path, &arguments).await;
        assert_eq!(
            output.code,
            Some(code),
            "{replicas} {labels}: {}{}",
            output.stdout,
            output.stderr
        );
        let text = format!("{}{}", output.stdout, output.stderr);
        assert!(text.contains(expected), "{replicas} {labels}: {text}");
        assert_eq!(text.contains(denied), code == 1, "{text}");
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        let note = json!({"stage": "production", "key": "replicas", "value": replicas.to_string()});
        let notes: Vec<Value> = is_evaluated.then_some(note).into_iter().collect();
        assert_eq!(report["auditAnnotations"], json!(notes), "{text}");
    }

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
                     "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    fs::write(directory_path.join("pod.json"), pod.to_string()).unwrap();
    let pod_output = run_admittance(directory_path, &["run", "chains/", "pod.json", "--output", "json"]).await;
    assert_eq!(pod_output.code, Some(0), "{}{}", pod_output.stdout, pod_output.stderr);
    for expected in ["registry.example.com/proxy:1.2", "example.com/proxy", "restartPolicy"] {
        assert!(pod_output.stdout.contains(expected), "{}", pod_output.stdout);
    }
}

#[tokio::test]
async fn a_stage_with_expressions_needs_no_module() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/definitions-expressions.md").yaml();
    let chain = page.iter().find(|text| text.contains("mutations:")).unwrap();
    fs::write(directory_path.join("chain.yaml"), chain).unwrap();
    let host = Host::builder()
        .definitions(directory_path.join("chain.yaml"))
        .build()
        .await
        .unwrap();
    let status = host.status();
    let hooks: Vec<_> = status.chains[0]
        .stages
        .iter()
        .map(|stage| (stage.hook.kind.as_str(), stage.hook.fact_text("expressions")))
        .collect();
    assert_eq!(hooks, [("cel", Some("1 mutation")), ("cel", Some("1 validation"))]);
    for (replicas, code, expected) in [
        (3, 0, r#""team": "unknown""#),
        (6, 1, "at most 5 replicas are allowed, not 6"),
    ] {
        fs::write(
            directory_path.join("object.json"),
            deployment(replicas, &json!({})).to_string(),
        )
        .unwrap();
        let output = run_admittance(
            directory_path,
            &["run", "chain.yaml", "object.json", "--output", "json"],
        )
        .await;
        assert_eq!(output.code, Some(code), "{}{}", output.stdout, output.stderr);
        assert!(output.stdout.contains(expected), "{}", output.stdout);
    }
}
