//! Audits of the cluster's objects: by `admittance audit`, and by the leader, which writes reports.

use std::{fs, sync::Arc};

use admittance_tests::Admittance;
use serde_json::{Value, json};

use super::resources::{crd, denying_chain, install_resources};
use crate::{
    cluster::{ClusterUser, TestCluster},
    process::wait_until,
    scene::{GOOD_IMAGE, Scene, pod},
};

const REPORT_QUERY: &str = "report admittance-audit";

/// Returns a CustomResourceDefinition for a kind of reports with the fields of OpenReports. The fields must be listed,
/// because this API server drops others.
fn report_crd(plural: &str, kind: &str, scope: &str) -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let reference = json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text, "name": text, "namespace": text, "uid": text,
    }});
    let outcomes = ["pass", "fail", "warn", "error", "skip"];
    let counts: serde_json::Map<_, _> = outcomes
        .iter()
        .map(|outcome| ((*outcome).to_owned(), json!({"type": "integer"})))
        .collect();
    let result = json!({"type": "object", "required": ["policy"], "properties": {
        "source": text,
        "policy": text,
        "rule": text,
        "message": text,
        "result": {"type": "string", "enum": outcomes},
        "scored": {"type": "boolean"},
        "timestamp": {"type": "object", "required": ["seconds", "nanos"], "properties": {
            "seconds": {"type": "integer"}, "nanos": {"type": "integer"},
        }},
        "properties": texts,
        "resources": {"type": "array", "items": reference},
    }});
    let mut crd = crd("openreports.io", "v1alpha1", plural, kind, scope);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "source": text,
        "results": {"type": "array", "items": result},
        "summary": {"type": "object", "properties": counts},
    }});
    crd
}

fn reported_names(report: &Value) -> Vec<&str> {
    let results = report["results"].as_array().into_iter().flatten();
    results
        .map(|result| result["resources"][0]["name"].as_str().unwrap_or_default())
        .collect()
}

pub(crate) async fn existing_objects_are_audited(cluster: Arc<TestCluster>) {
    let dialect = json!({"kubernetes": {"audit": {
        "resources": ["pods"], "page": 2, "rate": 100, "every": "5s",
    }}});
    let definitions = json!([{"kubernetes": {}}]);
    install_resources(
        &cluster,
        &json!({"dialect": dialect, "cluster": {}, "definitions": definitions}),
    )
    .await;
    let kubeconfig = cluster.kubeconfig(ClusterUser::Admittance);
    let more = json!({"cluster": {"kubeconfig": kubeconfig}, "definitions": definitions});
    let scene = Scene::start_with_dialect(Arc::clone(&cluster), dialect, more, &[]).await;
    for (plural, kind, scope) in [
        ("reports", "Report", "Namespaced"),
        ("clusterreports", "ClusterReport", "Cluster"),
    ] {
        scene.apply(&report_crd(plural, kind, scope)).await.assert_success();
    }
    for number in 0..5 {
        scene
            .create(&pod(&format!("good-{number}"), GOOD_IMAGE))
            .await
            .assert_success();
    }
    scene.create(&pod("worse", "bad")).await.assert_success();
    let ignored = format!("{}-ignored", scene.namespace);
    scene
        .make_namespace(&ignored, json!({"admittance.dev/ignore": "true"}))
        .await;
    let mut ignored_pod = pod("ignored", "bad");
    ignored_pod["metadata"]["namespace"] = json!(ignored);
    scene.create(&ignored_pod).await.assert_success();

    let chain = denying_chain(&scene, "by a chain");
    let all = chain.to_string().replace("c.image != 'bad'", "c.image == ''");
    let (path, all_path) = (scene.path("new.json"), scene.path("all.json"));
    fs::write(&path, chain.to_string()).unwrap();
    fs::write(&all_path, all).unwrap();
    let admin = cluster.kubeconfig(ClusterUser::Admin);
    let audit = async |more: &[&str]| {
        let (path, admin) = (path.to_str().unwrap(), admin.to_str().unwrap());
        let arguments = ["audit", path, "--kubeconfig", admin, "--page", "2", "--rate", "100"];
        let only = ["--namespace", scene.namespace.as_str()];
        Admittance::run([&arguments[..], &only, more].concat()).await.unwrap()
    };
    let audit_output = audit(&["--output", "json"]).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    let audit_report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    let finding = &audit_report["findings"][0];
    assert_eq!(
        (&finding["name"], &finding["verdict"], &finding["message"]),
        (&json!("worse"), &json!("denied"), &json!("by a chain")),
        "{audit_report}"
    );
    assert_eq!(audit_report["objects"], json!({"pods": 6}), "{audit_report}");
    let comparison_output = audit(&["--against", all_path.to_str().unwrap(), "--output", "json"]).await;
    let comparison_report: Value = serde_json::from_str(&comparison_output.stdout).unwrap();
    assert_eq!(
        comparison_report["findings"].as_array().unwrap().len(),
        5,
        "{comparison_report}"
    );

    let report_output = audit(&["--output", "reports"]).await;
    let arguments = ["apply", "--namespace", &scene.namespace, "-f", "-"];
    let apply_output = scene
        .kubectl
        .run_with_input(&arguments, &report_output.stdout)
        .await
        .unwrap();
    apply_output.assert_success();

    scene.apply(&chain).await.assert_success();
    let report = async || {
        let output = scene.run(&format!("get {REPORT_QUERY} --output=json")).await;
        if output.is_success {
            output.json()
        } else {
            assert!(output.stderr.contains("NotFound"), "{}", output.stderr);
            Value::Null
        }
    };
    let until_reported = async |expected: &[&str]| {
        wait_until(&format!("a report of {expected:?}"), async || {
            let report = report().await;
            (reported_names(&report) == expected && report.is_null() == expected.is_empty()).then_some(report)
        })
        .await
    };
    let stored = until_reported(&["worse"]).await;
    assert_eq!(
        stored["summary"],
        json!({"pass": 5, "fail": 1, "warn": 0, "error": 0, "skip": 0})
    );
    let result = &stored["results"][0];
    assert_eq!(
        (
            &result["policy"],
            &result["rule"],
            &result["result"],
            &result["message"]
        ),
        (
            &json!(scene.namespace),
            &json!("images"),
            &json!("fail"),
            &json!("by a chain")
        )
    );
    scene
        .run("delete pod worse --grace-period=0 --force")
        .await
        .assert_success();
    until_reported(&[]).await;
    scene.create(&pod("later", "bad")).await.assert_success();
    until_reported(&["later"]).await;
    scene.run(&format!("delete {REPORT_QUERY}")).await.assert_success();
    until_reported(&["later"]).await;
    let status = scene.running_program().status().await.unwrap();
    assert_eq!(status["audit"]["problems"], json!({}), "{status}");
    let output = scene
        .kubectl
        .run(&["get", "reports", "--namespace", &ignored, "--output=name"])
        .await
        .unwrap();
    assert_eq!(output.stdout, "", "nothing is said of a namespace that is ignored");
    scene
        .run(&format!("delete admissionchain {}", scene.namespace))
        .await
        .assert_success();
    until_reported(&[]).await;
}
