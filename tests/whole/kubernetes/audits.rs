//! Tests that the leader audits existing objects and keeps its reports up to date.

use admittance_tests::Admittance;
use serde_json::{Value, json};

use super::{
    hooks::{HookAnswer, Hooks},
    resources::CHAIN_PLURAL,
    server::{Server, certificates},
};
use crate::{
    audit::{LOOKUP_FINDINGS, check_access_reviews, lookup_chain, put_lookup_objects},
    replicas::changes_of_soak,
    scene::source,
    setting::{Setting, TOKEN, wait_until},
};

const REPORT_NAME: &str = "admittance-audit";

fn chain(message: &str) -> Value {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": "teams"},
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE", "UPDATE"], "resources": ["pods", "nodes"]}],
            "stages": [{"name": "team", "cel": {"validations": [
                {"expression": "object.metadata.?labels[?'team'].hasValue()", "message": message},
            ]}}],
        },
    })
}

fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "labels": labels}, "spec": {"containers": []}})
}

/// Creates a fake cluster with six Pods, which its API server lists in pages of two.
fn setting_with_pods() -> Setting {
    let setting = Setting::new();
    let server = &setting.server;
    server.set_page_size(2);
    for (name, labels) in [
        ("shop", json!({})),
        ("web", json!({})),
        ("left-out", json!({})),
        ("ignored", json!({"admittance.dev/ignore": "true"})),
    ] {
        server.put("namespaces", json!({"metadata": {"name": name, "labels": labels}}));
    }
    for (namespace, name, labels) in [
        ("shop", "bad", json!({})),
        ("shop", "good", json!({"team": "a"})),
        ("shop", "worse", json!({})),
        ("web", "good", json!({"team": "a"})),
        ("left-out", "bad", json!({})),
        ("ignored", "bad", json!({})),
    ] {
        server.put("pods", pod(namespace, name, &labels));
    }
    server.put(CHAIN_PLURAL, chain("no team"));
    setting
}

async fn start(setting: &Setting) -> Server {
    start_with_audit(setting, "rate: 1000, page: 2, excludeNamespaces: [left-out]", "").await
}

async fn start_with_audit(setting: &Setting, audit: &str, additions: &str) -> Server {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let config = format!(
        "
dialect: {{ kubernetes: {{ audit: {{ {audit} }} }} }}
listen: {{ tls: {{ certificate: localhost.pem, key: localhost.key }} }}
cluster: {{ kubeconfig: {} }}
definitions: [ {{ kubernetes: {{}} }} ]
{additions}
",
        kubeconfig.display()
    );
    Server::start_in(directory, &config, "").await
}

fn result_pairs(report: &Value) -> Vec<(&str, &str)> {
    let results = report["results"].as_array().into_iter().flatten();
    results
        .map(|result| {
            let name = result["resources"][0]["name"].as_str().unwrap();
            (name, result["message"].as_str().unwrap())
        })
        .collect()
}

/// Waits until the report of this namespace has exactly the expected pairs of an object and a message.
async fn until_reported(setting: &Setting, plural: &str, namespace: &str, expected: &[(&str, &str)]) -> Value {
    let mut report = None;
    wait_until(&format!("{plural} in {namespace}: {expected:?}"), async || {
        report = setting.server.object(plural, namespace, REPORT_NAME);
        match &report {
            Some(report) => !expected.is_empty() && result_pairs(report) == expected,
            None => expected.is_empty(),
        }
    })
    .await;
    report.unwrap_or_default()
}

async fn audit(program: &Admittance) -> Value {
    program.status().await.unwrap()["audit"].take()
}

#[tokio::test]
async fn audit_reports_are_updated_when_objects_chains_or_the_leader_change() {
    let setting = setting_with_pods();
    let mut first = start(&setting).await;
    let report = until_reported(&setting, "reports", "shop", &[("bad", "no team"), ("worse", "no team")]).await;
    assert_eq!(report["apiVersion"], "openreports.io/v1alpha1");
    assert_eq!(
        report["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "admittance"})
    );
    assert_eq!(
        report["summary"],
        json!({"pass": 1, "fail": 2, "warn": 0, "error": 0, "skip": 0})
    );
    let result = &report["results"][0];
    assert_eq!(
        (&result["policy"], &result["rule"], &result["result"]),
        (&json!("teams"), &json!("team"), &json!("fail"))
    );
    assert_eq!(
        setting.server.objects("reports").len(),
        1,
        "only what fails is reported"
    );
    let second = start(&setting).await;
    let status = audit(&first.program).await;
    assert_eq!(status["objects"]["denied"], 2, "{status}");
    assert_eq!(
        (
            &status["objects"]["allowed"],
            &status["last"]["listed"],
            &status["reports"]
        ),
        (&json!(2), &json!(6), &json!("openreports.io/v1alpha1"))
    );
    assert_eq!(status["problems"], json!({}));
    let metrics = first.program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_audits_total", &[("result", "ok")]), Some(1.0));
    assert_eq!(
        metrics.sum("admittance_audit_objects", &[("verdict", "denied")]),
        Some(2.0)
    );
    let calls = &first.program.status().await.unwrap()["chains"][0]["stages"][0]["calls"];
    assert_eq!(calls["total"], 0);

    setting.server.put("pods", pod("shop", "bad", &json!({"team": "b"})));
    setting.server.put("pods", pod("web", "new", &json!({})));
    until_reported(&setting, "reports", "shop", &[("worse", "no team")]).await;
    until_reported(&setting, "reports", "web", &[("new", "no team")]).await;
    setting.server.delete("pods", "shop", "worse");
    until_reported(&setting, "reports", "shop", &[]).await;
    // The API server forgets earlier changes, so the leader cannot resume its watches and lists all objects again.
    setting.server.compact();
    setting.server.put("nodes", json!({"metadata": {"name": "n1"}}));
    until_reported(&setting, "clusterreports", "", &[("n1", "no team")]).await;
    assert_eq!(audit(&first.program).await["objects"]["denied"], 2);

    setting.server.put(CHAIN_PLURAL, chain("name a team"));
    until_reported(&setting, "reports", "web", &[("new", "name a team")]).await;
    until_reported(&setting, "clusterreports", "", &[("n1", "name a team")]).await;

    // The second replica becomes the leader. It removes outdated reports of the first one, and no others.
    assert_eq!(audit(&second.program).await["isAuditor"], false);
    let labels = json!({"app.kubernetes.io/managed-by": "admittance"});
    let report =
        |name: &str, labels: &Value| json!({"metadata": {"namespace": "shop", "name": name, "labels": labels}});
    setting.server.put("reports", report(REPORT_NAME, &labels));
    setting.server.put("reports", report("of-others", &json!({})));
    setting
        .server
        .put("reports", report("of-another-installation", &labels));
    first.program.terminate().unwrap();
    first.program.wait_for_end().await.unwrap();
    until_reported(&setting, "reports", "shop", &[]).await;
    assert_eq!(setting.server.objects("reports").len(), 3);
    setting.server.put("pods", pod("web", "new", &json!({"team": "c"})));
    until_reported(&setting, "reports", "web", &[]).await;
    assert_eq!(audit(&second.program).await["isAuditor"], true);
}

/// Several kinds of reports exist. If the cluster serves more than one of them, the leader writes the newest.
#[tokio::test]
async fn audit_reports_have_a_kind_that_the_cluster_serves() {
    for (absent, expected) in [
        (&["openreports.io"][..], "reports.x-k8s.io/v1beta2"),
        (&["openreports.io", "policyreports"], "reports.x-k8s.io/v1beta2"),
        (&["reports.x-k8s.io"], "openreports.io/v1alpha1"),
    ] {
        let setting = setting_with_pods();
        for name in absent {
            setting.server.remove_kind(name);
        }
        setting.server.put("nodes", json!({"metadata": {"name": "n1"}}));
        let server = start(&setting).await;
        let of_cluster = until_reported(&setting, "clusterreports", "", &[("n1", "no team")]).await;
        let both = [("bad", "no team"), ("worse", "no team")];
        let of_namespace = until_reported(&setting, "reports", "shop", &both).await;
        for (report, kind) in [(of_cluster, "ClusterReport"), (of_namespace, "Report")] {
            assert_eq!(
                (&report["apiVersion"], &report["kind"]),
                (&json!(expected), &json!(kind))
            );
            assert_eq!(report["source"], "admittance");
        }
        assert_eq!(audit(&server.program).await["reports"], expected);
    }
}

#[tokio::test]
async fn audit_reports_are_written_once_their_kind_is_installed() {
    let setting = setting_with_pods();
    let groups = ["openreports.io", "reports.x-k8s.io", "wgpolicyk8s.io"];
    for group in groups {
        setting.server.remove_kind(group);
    }
    let server = start(&setting).await;
    wait_until("an audit has ended", async || {
        audit(&server.program).await["last"].is_object()
    })
    .await;
    assert_eq!(audit(&server.program).await["reports"], Value::Null);
    setting.server.add_kind("wgpolicyk8s.io");
    let both = [("bad", "no team"), ("worse", "no team")];
    until_reported(&setting, "policyreports", "shop", &both).await;
    assert_eq!(audit(&server.program).await["reports"], "wgpolicyk8s.io/v1alpha2");
}

#[tokio::test]
async fn an_incomplete_audit_reports_what_it_could_not_read() {
    let setting = setting_with_pods();
    setting.server.remove_kind("reports");
    setting.server.forbid("list", "nodes");
    let mut server = start(&setting).await;
    let report = until_reported(
        &setting,
        "policyreports",
        "shop",
        &[("bad", "no team"), ("worse", "no team")],
    )
    .await;
    assert_eq!(report["kind"], "PolicyReport");
    let reports_refusal = |line: &admittance_tests::ProgramLogLine| {
        line.message().contains("the audit is not complete")
            && line.message().contains("cannot list resource \"nodes\"")
    };
    server
        .program
        .wait_for_log("the refusal", reports_refusal)
        .await
        .unwrap();
    let status = audit(&server.program).await;
    assert!(
        status["problems"]["nodes"].as_str().unwrap().contains("403"),
        "{status}"
    );
    let metrics = server.program.metrics().await.unwrap();
    let incomplete = metrics.sum("admittance_audits_total", &[("result", "incomplete")]);
    assert_eq!(incomplete, Some(1.0));
    let status_output = server.run_command(&["status"]).await;
    assert!(
        status_output.stdout.contains("objects: 2 allowed, 2 denied"),
        "{}",
        status_output.stdout
    );

    setting.server.put("nodes", json!({"metadata": {"name": "n1"}}));
    setting.server.allow("list", "nodes");
    until_reported(&setting, "clusterpolicyreports", "", &[("n1", "no team")]).await;
    wait_until("nothing is missing", async || {
        audit(&server.program).await["problems"] == json!({})
    })
    .await;

    setting.server.forbid("patch", "policyreports");
    setting.server.put("pods", pod("web", "new", &json!({})));
    let reports_refusal =
        |line: &admittance_tests::ProgramLogLine| line.message().contains("cannot patch resource \"policyreports\"");
    server
        .program
        .wait_for_log("the refusal", reports_refusal)
        .await
        .unwrap();
    setting.server.become_unavailable();
    setting.server.allow("patch", "policyreports");
    setting.server.become_available();
    setting.server.put("pods", pod("shop", "bad", &json!({"team": "a"})));
    setting.server.put(CHAIN_PLURAL, chain("again"));
    until_reported(&setting, "policyreports", "shop", &[("worse", "again")]).await;
    until_reported(&setting, "policyreports", "web", &[("new", "again")]).await;
}

/// An audit evaluates plugins and reports their messages. It calls webhooks only if the configuration allows it.
#[tokio::test]
async fn existing_objects_are_audited_by_plugins_and_webhooks() {
    let setting = Setting::new();
    let directory = tempfile::tempdir().unwrap();
    let hooks = Hooks::start(directory.path(), |call, _| async move {
        let is_worse = call.review["request"]["object"]["metadata"]["name"] == "worse";
        HookAnswer::Review(json!({"allowed": !is_worse, "status": {"message": "worse than others"}}))
    })
    .await;
    for (name, registry) in [("bad", "other"), ("good", "registry"), ("worse", "registry")] {
        let mut pod = pod("shop", name, &json!({}));
        let image = format!("{registry}.example.com/web:1");
        pod["spec"]["containers"] = json!([{"name": "web", "image": image}]);
        setting.server.put("pods", pod);
    }
    setting.server.put("namespaces", json!({"metadata": {"name": "shop"}}));
    let mut webhook = hooks.client_by_url("/ask");
    webhook["protocol"] = json!("AdmissionReview");
    let mut chain = chain("");
    chain["spec"]["stages"] = json!([
        {"name": "images", "plugin": {
            "source": source("image-policy"),
            "settings": {"allowedRegistries": ["registry.example.com"]},
        }},
        {"name": "ask", "webhook": webhook},
    ]);
    setting.server.put(CHAIN_PLURAL, chain);
    let until_denied = async |expected: &[(&str, &str)]| {
        wait_until(&format!("{expected:?} are denied"), async || {
            let report = setting
                .server
                .object("reports", "shop", REPORT_NAME)
                .unwrap_or_default();
            let results = report["results"].as_array().cloned().unwrap_or_default();
            let pairs = results.iter().map(|result| {
                let name = result["resources"][0]["name"].as_str().unwrap();
                (name, result["rule"].as_str().unwrap())
            });
            pairs.eq(expected.iter().copied())
        })
        .await;
    };

    let audit = "rate: 1000";
    let mut first = start_with_audit(&setting, audit, &hooks.resolve_config()).await;
    until_denied(&[("bad", "images")]).await;
    assert_eq!(hooks.calls("/ask").len(), 0);
    first.program.terminate().unwrap();
    first.program.wait_for_end().await.unwrap();

    let audit = format!("{audit}, callWebhooks: true");
    let _second = start_with_audit(&setting, &audit, &hooks.resolve_config()).await;
    until_denied(&[("bad", "images"), ("worse", "ask")]).await;
    let calls = hooks.calls("/ask");
    assert!(calls.iter().all(|call| call.review["request"]["dryRun"] == true));
}

/// The verdicts depend on labels of namespaces, permissions of the audit's user, and objects of the cluster.
#[tokio::test]
async fn the_leader_makes_lookups_of_an_audit_as_the_configured_user() {
    let setting = Setting::new();
    put_lookup_objects(&setting);
    setting.server.put(CHAIN_PLURAL, lookup_chain());
    let user_options = "rate: 1000, user: auditor, groups: [ops, dev]";
    let server = start_with_audit(&setting, user_options, "").await;
    let first_results = |report: &Value| {
        let mut object_results: Vec<_> = result_pairs(report)
            .into_iter()
            .map(|(name, message)| (name.to_owned(), message.to_owned()))
            .collect();
        // If the messages for CREATE and UPDATE differ, an object has two results in the report. Only the first result
        // of each object is kept.
        object_results.dedup_by_key(|(name, _)| name.clone());
        object_results
    };
    wait_until("what is refused is reported", async || {
        let report = setting
            .server
            .object("reports", "shop", REPORT_NAME)
            .unwrap_or_default();
        let reported_results = first_results(&report);
        let is_reported =
            |((name, actual_message), (expected, _, message)): (&(String, String), (&str, &str, &str))| {
                name == expected && actual_message.contains(message)
            };
        reported_results.len() == LOOKUP_FINDINGS.len() && reported_results.iter().zip(LOOKUP_FINDINGS).all(is_reported)
    })
    .await;
    assert_eq!(setting.server.object("reports", "web", REPORT_NAME), None);
    assert_eq!(audit(&server.program).await["objects"]["allowed"], 2);
    check_access_reviews(&setting);
}

/// The leader audits all objects again after each interval `every`. It then also repairs reports whose deletion it has
/// not noticed.
#[tokio::test]
async fn all_objects_are_audited_at_each_interval() {
    let setting = setting_with_pods();
    let server = start_with_audit(&setting, "every: 1s, rate: 1000", "").await;
    let expected = [("bad", "no team"), ("worse", "no team")];
    until_reported(&setting, "reports", "shop", &expected).await;
    // The leader does not watch reports, so only the next audit writes the deleted report again.
    setting.server.delete("reports", "shop", REPORT_NAME);
    until_reported(&setting, "reports", "shop", &expected).await;
    let metrics = server.program.metrics().await.unwrap();
    let audits = metrics.sum("admittance_audits_total", &[("result", "ok")]);
    assert!(audits > Some(1.0), "{audits:?}");
    // The definitions have not changed, so only the interval can have started the second audit.
    assert_eq!(audit(&server.program).await["last"]["revision"], 1);
}

#[tokio::test]
async fn slow_audits_report_findings_before_they_end() {
    let setting = setting_with_pods();
    let _server = start_with_audit(&setting, "every: 1s, rate: 4, page: 2", "").await;
    let left_out = [("bad", "no team")];
    until_reported(&setting, "reports", "left-out", &left_out).await;
    setting
        .server
        .put("pods", pod("left-out", "bad", &json!({"team": "b"})));
    setting.server.put("pods", pod("web", "new", &json!({})));
    until_reported(&setting, "reports", "left-out", &[]).await;
    until_reported(&setting, "reports", "web", &[("new", "no team")]).await;
}

/// An audit of a large cluster takes at most a minute and little memory. `cargo task soak` runs this test at full size.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_cluster_is_audited_with_bounded_time_and_memory() {
    /// The time within which 20,000 objects of 1.6 kB each must be audited.
    const MAX_SECONDS: f64 = 60.0;
    /// The maximum resident memory of the program during the audit, in bytes.
    const MAX_MEMORY: u64 = 200_000_000;
    let is_soak = changes_of_soak().is_some();
    let objects = if is_soak { 20_000 } else { 1_200 };
    let setting = Setting::new();
    for namespace in 0..20 {
        let name = format!("n{namespace}");
        setting.server.put("namespaces", json!({"metadata": {"name": name}}));
    }
    let container = |number: usize| {
        let variables = (0..20).map(|variable| json!({"name": format!("V{variable}"), "value": "some value"}));
        json!({"name": format!("c{number}"), "image": "registry.example.com/team/app:1.2.3",
               "env": variables.collect::<Vec<_>>()})
    };
    for number in 0..objects {
        let labels = match number % 10 {
            0 => json!({}),
            _ => json!({"team": "a"}),
        };
        let mut pod = pod(&format!("n{}", number % 20), &format!("pod-{number}"), &labels);
        pod["spec"]["containers"] = json!([container(0), container(1)]);
        setting.server.put("pods", pod);
    }
    setting.server.put(CHAIN_PLURAL, chain("no team"));
    let server = start_with_audit(&setting, "rate: 1000", "").await;
    let initial_memory = server.program.resident_memory().unwrap();
    let mut peak_memory = initial_memory;
    let mut last = Value::Null;
    wait_until("everything is audited", async || {
        peak_memory = peak_memory.max(server.program.resident_memory().unwrap());
        last = audit(&server.program).await["last"].take();
        !last.is_null()
    })
    .await;
    let seconds = last["seconds"].as_f64().unwrap();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "audit of {objects} objects: {seconds:.1} s, {:.0} MB of memory before and {:.0} MB at most",
        megabytes(initial_memory),
        megabytes(peak_memory)
    );
    assert_eq!(last["listed"], objects);
    assert_eq!(audit(&server.program).await["objects"]["denied"], objects / 10);
    if is_soak {
        assert!(
            seconds < MAX_SECONDS && peak_memory < MAX_MEMORY,
            "{seconds} s, {peak_memory} bytes"
        );
    }
}
