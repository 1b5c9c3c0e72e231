//! `admittance audit`: the verdicts of chains about the objects in a cluster.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use admittance_tests::FinishedProgram;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    import::{kubeconfig, run_admittance},
    scene::{source, write},
    setting::{Setting, TOKEN},
    webhooks::{issue_certificate, start_tls_server},
};

const CHAINS: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: teams }
spec:
  rules:
    - { operations: [CREATE, UPDATE], apiGroups: ['', apps], apiVersions: ['*'], resources: [pods, deployments, secrets] }
  stages:
    - name: zone
      rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: ['*'], resources: [pods] } ]
      cel:
        mutations:
          - patchType: JSONPatch
            jsonPatch:
              expression: \"has(object.metadata.labels.zone) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels/zone', value: 'a'}]\"
    - name: team
      cel:
        validations:
          - { expression: \"object.metadata.?labels[?'team'].hasValue()\", message: every object needs a team }
    - name: owner
      mode: Audit
      cel:
        validations:
          - { expression: \"object.metadata.?labels[?'owner'].hasValue()\", message: every object needs an owner }
";

fn pod(name: &str, labels: &Value) -> Value {
    // An API server omits the `kind` of the items in a list, so this Pod has none.
    json!({"metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": {"containers": []}})
}

fn pods() -> Vec<Value> {
    vec![
        pod("good", &json!({"team": "a", "zone": "a", "owner": "me"})),
        pod("no-team", &json!({"zone": "a", "owner": "me"})),
        pod("no-zone", &json!({"team": "a", "owner": "me"})),
        pod("no-owner", &json!({"team": "a", "zone": "a"})),
        pod("last", &json!({"team": "a", "zone": "a", "owner": "me"})),
    ]
}

/// Starts an API server that returns five Pods in pages of two, and returns the counters of its replies. Listing fails
/// in several ways, with which the audit must cope.
async fn start_api_server(directory: &TempDir) -> BTreeMap<&'static str, Arc<AtomicUsize>> {
    let bundle = issue_certificate(directory.path(), "--host", "localhost").await;
    let counts: BTreeMap<&str, Arc<AtomicUsize>> = ["overloaded", "expired", "pages"]
        .map(|name| (name, Arc::default()))
        .into();
    let counters = counts.clone();
    let answer = move |_, request: Request<Incoming>| {
        let counters = counters.clone();
        async move { Ok(answer_request(&request, &counters)) }
    };
    let port = start_tls_server(directory.path(), "localhost", &[], answer)
        .await
        .port();
    write(directory, "kubeconfig", kubeconfig(port, &bundle));
    counts
}

fn answer_request(
    request: &Request<Incoming>,
    counters: &BTreeMap<&'static str, Arc<AtomicUsize>>,
) -> Response<Full<Bytes>> {
    let reply = |status: u16, body: Value| {
        Response::builder()
            .status(status)
            .header("Retry-After", "0")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap()
    };
    let is_first = |name: &str| counters[name].fetch_add(1, Ordering::Relaxed) == 0;
    let resource = |name: &str, kind: &str, verbs: &[&str]| json!({"name": name, "kind": kind, "namespaced": true, "verbs": verbs});
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/api/v1" => reply(
            200,
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                resource("pods", "Pod", &["create", "list"]),
                resource("pods/status", "Pod", &["get"]),
                resource("services", "Service", &["list"]),
                resource("secrets", "Secret", &["create"]),
            ]}),
        ),
        "/apis" => reply(
            200,
            json!({"groups": [
                {"name": "apps", "versions": [{"groupVersion": "apps/v1beta1", "version": "v1beta1"}, {"groupVersion": "apps/v1", "version": "v1"}],
                 "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}},
                {"name": "down.example.com", "versions": [{"groupVersion": "down.example.com/v1", "version": "v1"}]},
            ]}),
        ),
        "/apis/apps/v1" | "/apis/apps/v1beta1" => {
            let version = request.uri().path().trim_start_matches("/apis/");
            reply(
                200,
                json!({"groupVersion": version, "resources": [resource("deployments", "Deployment", &["list"])]}),
            )
        }
        "/apis/apps/v1/deployments" => reply(403, json!({"message": "test cannot list deployments"})),
        "/api/v1/pods" | "/api/v1/namespaces/shop/pods" if query.starts_with("limit=2") => {
            let first_index = match query.strip_prefix("limit=2").unwrap() {
                "" if is_first("overloaded") => {
                    return reply(429, json!({"message": "too many requests"}));
                }
                "" => 0,
                "&continue=page%3D2" if is_first("expired") => {
                    return reply(
                        410,
                        json!({"kind": "Status", "metadata": {"continue": "page=2"}, "message": "too old"}),
                    );
                }
                "&continue=page%3D2" => 2,
                "&continue=page%3D3" => 4,
                other => panic!("an unknown query: {other}"),
            };
            counters["pages"].fetch_add(1, Ordering::Relaxed);
            let items: Vec<_> = pods().into_iter().skip(first_index).take(2).collect();
            let metadata = match first_index {
                4 => json!({}),
                _ => json!({"continue": format!("page={}", first_index / 2 + 2)}),
            };
            reply(200, json!({"kind": "PodList", "metadata": metadata, "items": items}))
        }
        _ => reply(404, json!({"message": "not found"})),
    }
}

async fn run_audit(directory: &TempDir, arguments: &[&str]) -> FinishedProgram {
    let mut all_arguments = vec![
        "audit",
        "chains.yaml",
        "--kubeconfig",
        "kubeconfig",
        "--page",
        "2",
        "--rate",
        "1000",
    ];
    all_arguments.extend(arguments);
    run_admittance(directory, &all_arguments).await
}

fn finding_rows(report: &Value) -> Vec<[&str; 4]> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| {
            ["name", "operation", "verdict", "message"].map(|field| finding[field].as_str().unwrap_or_default())
        })
        .collect()
}

#[tokio::test]
async fn objects_of_a_cluster_are_audited_page_by_page() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", CHAINS);
    let counts = start_api_server(&directory).await;
    let audit_output = run_audit(&directory, &["--output", "json"]).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    assert_eq!(
        finding_rows(&report),
        [
            ["no-owner", "CREATE", "would-be-denied", "every object needs an owner"],
            ["no-team", "CREATE", "denied", "every object needs a team"],
            ["no-zone", "CREATE", "changed", "a patch of 1 operation"],
            // `no-zone` has no row for UPDATE, because the stage that sets a missing zone matches only CREATE.
        ]
    );
    let finding = &report["findings"][2];
    assert_eq!(
        finding["patch"],
        json!([{"op": "add", "path": "/metadata/labels/zone", "value": "a"}])
    );
    assert_eq!(
        [
            &finding["apiVersion"],
            &finding["kind"],
            &finding["namespace"],
            &finding["stage"]
        ],
        [&json!("v1"), &json!("Pod"), &json!("shop"), &json!("teams/zone")]
    );
    assert_eq!(report["objects"], json!({"pods": 5}));
    assert_eq!(
        report["verdicts"],
        json!({"denied": 1, "failed": 0, "would-be-denied": 1, "failure-ignored": 0, "changed": 1, "allowed": 2})
    );
    // If the audit cannot list a resource, it reports the resource and continues.
    let not_listed = report["notListed"].as_array().unwrap();
    assert_eq!(not_listed.len(), 1, "{not_listed:?}");
    assert_eq!(not_listed[0]["resource"], "deployments.apps");
    assert!(
        not_listed[0]["message"]
            .as_str()
            .unwrap()
            .contains("test cannot list deployments")
    );
    assert!(
        audit_output.stderr.contains("down.example.com/v1 is not audited"),
        "{}",
        audit_output.stderr
    );
    let count = |name: &str| counts[name].load(Ordering::Relaxed);
    assert_eq!((count("overloaded"), count("expired"), count("pages")), (2, 2, 3));
}

#[tokio::test]
async fn an_audit_compares_new_chains_with_current_chains() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", CHAINS);
    start_api_server(&directory).await;
    let new_chains = CHAINS.replace("      mode: Audit\n", "").replace(
        "every object needs a team }",
        "every object needs a team }\n      mode: Audit",
    );
    write(&directory, "new.yaml", &new_chains);
    let arguments = ["--against", "new.yaml", "--resource", "pods", "--namespace", "shop"];
    let audit_output = run_audit(&directory, &[&arguments[..], &["--output", "json"]].concat()).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    assert_eq!(
        finding_rows(&report),
        [
            ["no-owner", "CREATE", "denied", "every object needs an owner"],
            ["no-team", "CREATE", "would-be-denied", "every object needs a team"],
        ]
    );
    assert_eq!(report["findings"][0]["before"]["verdict"], "would-be-denied");
    write(
        &directory,
        "new.yaml",
        CHAINS.replace(
            "expression: \"object.metadata.?labels[?'team'].hasValue()\"",
            "expression: 'true'",
        ),
    );
    let audit_output = run_audit(&directory, &arguments).await;
    assert_eq!(
        audit_output.code,
        Some(0),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    for expected in [
        "BEFORE",
        "shop/no-team",
        "denied",
        "5 objects of 1 resource",
        "1 difference",
    ] {
        assert!(
            audit_output.stdout.contains(expected),
            "{expected}: {}",
            audit_output.stdout
        );
    }
}

#[tokio::test]
async fn an_audit_writes_reports_in_the_openreports_format() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", CHAINS);
    start_api_server(&directory).await;
    let arguments = ["--resource", "pods", "--user", "auditor", "--group", "ops"];
    let report_output = run_audit(&directory, &[&arguments[..], &["--output", "reports"]].concat()).await;
    for expected in [
        "apiVersion: openreports.io/v1alpha1",
        "kind: Report",
        "namespace: shop",
        "  pass: 2\n  fail: 1\n  warn: 2\n",
        "policy: teams",
        "message: every object needs a team",
    ] {
        assert!(
            report_output.stdout.contains(expected),
            "{expected}: {}",
            report_output.stdout
        );
    }
    let text_output = run_audit(&directory, &arguments).await;
    for expected in ["RESOURCE", "would-be-denied", "5 objects of 1 resource: 1 denied, "] {
        assert!(
            text_output.stdout.contains(expected),
            "{expected}: {}",
            text_output.stdout
        );
    }
}

/// Returns a chain whose verdicts depend on labels of namespaces, the user, the user's permissions, and an object.
pub(crate) fn lookup_chain() -> Value {
    let validation =
        |expression: &str, message: &str| json!({"validations": [{"expression": expression, "message": message}]});
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": "looking-up"},
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE", "UPDATE"], "resources": ["pods"]}],
            "stages": [
                {"name": "access", "cel": validation(
                    "object.metadata.name != 'by-access' || authorizer.group('').resource('pods').namespace('shop').check('delete').allowed()",
                    "its user may not delete it",
                )},
                {"name": "namespace", "namespaceSelector": {"matchLabels": {"audited": "yes"}}, "cel": validation(
                    "object.metadata.name != 'by-namespace'",
                    "not in this namespace",
                )},
                // This stage always fails. Its plugin `misbehaves` first reads the Node `node-1`, and then fails with a
                // message that contains this Node.
                {
                    "name": "plugin",
                    "timeout": "10s",
                    "matchConditions": [{"name": "one", "expression": "object.metadata.name == 'by-plugin'"}],
                    "plugin": {
                        "source": source("guest-misbehaves"),
                        "settings": {"behaviour": "asks-for-cluster"},
                        "allow": {"cluster": ["v1/Node"]},
                    },
                },
                {
                    "name": "user",
                    "matchConditions": [{"name": "auditor", "expression": "request.userInfo.username == 'auditor' && 'ops' in request.userInfo.groups"}],
                    "cel": validation("object.metadata.name != 'by-user'", "not by an auditor"),
                },
            ],
        },
    })
}

/// The findings of the chain [`lookup_chain`] in the namespace `shop`, if the audit runs as the user `auditor` in the
/// group `ops`: (name of the object, verdict, part of the message).
pub(crate) const LOOKUP_FINDINGS: [(&str, &str, &str); 4] = [
    ("by-access", "denied", "its user may not delete it"),
    ("by-namespace", "denied", "not in this namespace"),
    ("by-plugin", "failed", "in-zone-a"),
    ("by-user", "denied", "not by an auditor"),
];

/// Creates the Pods with findings in [`LOOKUP_FINDINGS`], two without findings, and the objects that the chain looks
/// up.
pub(crate) fn put_lookup_objects(setting: &Setting) {
    let server = &setting.server;
    for (name, labels) in [("shop", json!({"audited": "yes"})), ("web", json!({"audited": "no"}))] {
        server.put("namespaces", json!({"metadata": {"name": name, "labels": labels}}));
    }
    server.put(
        "nodes",
        json!({"metadata": {"name": "node-1", "labels": {"zone": "in-zone-a"}}}),
    );
    let pod = |namespace: &str, name: &str| {
        server.put(
            "pods",
            json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"containers": []}}),
        );
    };
    for (name, _, _) in LOOKUP_FINDINGS {
        pod("shop", name);
    }
    pod("shop", "good");
    pod("web", "by-namespace");
    server.set_access(json!({"allowed": false}));
}

/// Checks that every SubjectAccessReview at the API server was for the audit's user.
pub(crate) fn check_access_reviews(setting: &Setting) {
    let reviews = setting.server.reviews();
    assert!(!reviews.is_empty());
    for review in reviews {
        assert_eq!(
            (&review["user"], &review["groups"]),
            (&json!("auditor"), &json!(["ops", "dev"]))
        );
    }
}

#[tokio::test]
async fn an_audit_makes_lookups_as_the_given_user() {
    let setting = Setting::new();
    put_lookup_objects(&setting);
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let directory = &setting.directory;
    write(directory, "chains.json", lookup_chain().to_string());
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = [
        "audit",
        "chains.json",
        "--kubeconfig",
        kubeconfig,
        "--rate",
        "1000",
        "--output",
        "json",
    ];
    let groups = ["--group", "ops", "--group", "dev"];
    let audit_output = run_admittance(directory, &[&arguments[..], &["--user", "auditor"], &groups].concat()).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    let mut report_rows = finding_rows(&report);
    // If the messages for CREATE and UPDATE differ, the audit reports an object twice. For example, a message looks
    // different if it contains a Node that comes from a watch. Only the first row of each object is kept.
    report_rows.dedup_by_key(|[name, ..]| *name);
    let verdicts: Vec<_> = report_rows
        .iter()
        .map(|[name, _, verdict, _]| (*name, *verdict))
        .collect();
    assert_eq!(
        verdicts,
        LOOKUP_FINDINGS.map(|(name, verdict, _)| (name, verdict)),
        "{report_rows:?}"
    );
    for ([_, _, _, reported_message], (name, _, message)) in report_rows.iter().zip(LOOKUP_FINDINGS) {
        assert!(reported_message.contains(message), "{name}: {reported_message}");
    }
    assert_eq!(report["verdicts"]["allowed"], 2);
    check_access_reviews(&setting);

    // The next audit runs as another user, who has all permissions.
    setting.server.set_access(json!({"allowed": true}));
    let audit_output = run_admittance(directory, &[&arguments[..], &["--user", "other"], &groups].concat()).await;
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    let mut names: Vec<_> = finding_rows(&report).into_iter().map(|[name, ..]| name).collect();
    names.dedup();
    assert_eq!(names, ["by-namespace", "by-plugin"]);
}

/// Returns a chain that denies Pods without this label. The chain also has the fields that an API server adds when it
/// stores the chain.
fn label_chain(name: &str, label: &str) -> Value {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {
            "name": name, "uid": "u", "generation": 2, "creationTimestamp": "2026-10-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": "label", "cel": {"validations": [
                {"expression": format!("object.metadata.?labels[?'{label}'].hasValue()"), "message": format!("no {label}")},
            ]}}],
        },
        "status": {"conditions": []},
    })
}

/// `audit` evaluates the chains stored in a cluster, and compares them with chains in files, which may also be the
/// output of `kubectl get -o yaml`.
#[tokio::test]
async fn an_audit_uses_the_chains_stored_in_the_cluster() {
    let setting = Setting::new();
    let server = &setting.server;
    for (name, labels) in [
        ("both", json!({"team": "a", "owner": "me"})),
        ("team", json!({"team": "a"})),
    ] {
        server.put("pods", pod(name, &labels));
    }
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let directory = &setting.directory;
    let write_config = |options: &str| {
        let config = format!(
            "dialect: {{ kubernetes: {{}} }}\ncluster: {{ kubeconfig: {} }}\n\
             definitions: [ {{ kubernetes: {{ {options} }} }} ]\n",
            kubeconfig.display()
        );
        write(directory, "admittance.yaml", config);
    };
    write_config("");
    let arguments = ["audit", "--config", "admittance.yaml", "--output", "json"];
    let empty_audit = run_admittance(directory, &arguments).await;
    assert_eq!(empty_audit.code, Some(2), "{}", empty_audit.stdout);
    assert!(
        empty_audit.stderr.contains("no definition was found in kubernetes"),
        "{}",
        empty_audit.stderr
    );

    server.put("admissionchains", label_chain("labels", "owner"));
    // A replica would refuse to use this chain, so the audit skips it with a warning.
    let mut namespaced_chain = label_chain("own", "other");
    namespaced_chain["kind"] = json!("NamespacedAdmissionChain");
    namespaced_chain["metadata"]["namespace"] = json!("shop");
    namespaced_chain["spec"]["stages"] =
        json!([{"name": "ask", "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/"}}]);
    server.put("namespacedadmissionchains", namespaced_chain);
    let audit_output = run_admittance(directory, &arguments).await;
    assert_eq!(
        audit_output.code,
        Some(1),
        "{}{}",
        audit_output.stdout,
        audit_output.stderr
    );
    assert!(
        audit_output.stderr.contains("is not allowed in a chain of a namespace"),
        "{}",
        audit_output.stderr
    );
    let report: Value = serde_json::from_str(&audit_output.stdout).unwrap();
    assert_eq!(finding_rows(&report), [["team", "CREATE", "denied", "no owner"]]);

    // A list from kubectl and a list from the API server have different kinds. The audit reads both.
    for (list, version) in [("List", "v1"), ("AdmissionChainList", "admittance.dev/v1alpha1")] {
        let mut item = label_chain("labels", "zone");
        if list != "List" {
            item.as_object_mut().unwrap().remove("kind");
        }
        let exported_list =
            json!({"apiVersion": version, "kind": list, "metadata": {"resourceVersion": ""}, "items": [item]});
        write(directory, "new.json", exported_list.to_string());
        let compared_audit = run_admittance(directory, &[&arguments[..], &["--against", "new.json"]].concat()).await;
        assert_eq!(
            compared_audit.code,
            Some(1),
            "{}{}",
            compared_audit.stdout,
            compared_audit.stderr
        );
        let report: Value = serde_json::from_str(&compared_audit.stdout).unwrap();
        let denials: Vec<_> = finding_rows(&report)
            .into_iter()
            .map(|[name, _, verdict, message]| (name, verdict, message))
            .collect();
        assert_eq!(denials, [("both", "denied", "no zone"), ("team", "denied", "no zone")]);
    }

    server.delete("admissionchains", "", "labels");
    let group = "admissionregistration.k8s.io";
    server.define_kind(
        &format!("{group}/v1"),
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        false,
    );
    server.define_kind(
        &format!("{group}/v1"),
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        false,
    );
    server.put("validatingadmissionpolicies", json!({"metadata": {"name": "owners"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
        "validations": [{"expression": "'owner' in object.metadata.labels", "message": "who owns it"}],
    }}));
    server.put(
        "validatingadmissionpolicybindings",
        json!({"metadata": {"name": "owners"}, "spec": {
            "policyName": "owners", "validationActions": ["Deny"],
        }}),
    );
    write_config("policies: [Kubernetes]");
    let policy_audit = run_admittance(directory, &arguments).await;
    let report: Value = serde_json::from_str(&policy_audit.stdout).unwrap();
    let names: Vec<_> = finding_rows(&report)
        .into_iter()
        .map(|[name, _, verdict, _]| (name, verdict))
        .collect();
    assert_eq!(names, [("team", "denied")], "{}", policy_audit.stderr);
}

#[tokio::test]
async fn the_audit_command_reports_wrong_arguments() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", CHAINS);
    start_api_server(&directory).await;
    write(
        &directory,
        "webhook.yaml",
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: { name: remote }
webhooks:
  - name: remote.example.com
    rules: [ { apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE] } ]
    clientConfig: { url: 'https://localhost/validate' }
    admissionReviewVersions: [v1]
    sideEffects: None
",
    );
    for (arguments, expected) in [
        (
            &["--resource", "services"][..],
            "no chain is for services in this cluster; chains are for pods, deployments.apps",
        ),
        (&["--against", "missing.yaml"], "missing.yaml"),
        (&["--against", "webhook.yaml"], "--call-webhooks"),
        (&["--context", "other"], "other"),
    ] {
        let audit_output = run_audit(&directory, arguments).await;
        assert_eq!(audit_output.code, Some(2), "{arguments:?}: {}", audit_output.stdout);
        assert!(
            audit_output.stderr.contains(expected),
            "{arguments:?}: {}",
            audit_output.stderr
        );
    }
}
