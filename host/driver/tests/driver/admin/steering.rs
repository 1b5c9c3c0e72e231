use std::{fs, path::Path};

use admittance::{Applied, AppliedEffect, Comparison, Origin, Revision, RevisionDetail, Status, Switched};
use admittance_admin::api::{CandidateList, DefinitionList, ErrorReply, RevisionList};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{RunningDriver, Setup, echo_upstream, status_and_text},
    tls::wait_until,
};

/// Returns a chain with one webhook stage. No test calls the webhook, whose URL ends with `path`.
fn chain_yaml(name: &str, path: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: {name}
spec:
  rules:
    - operations: [DELETE]
      kinds: [Pod]
  stages:
    - name: hook
      webhook:
        protocol: AdmissionReview
        url: https://127.0.0.1:1/{path}
"
    )
}

pub(super) async fn start_driver(directory: &Path) -> RunningDriver {
    Setup::new(&[echo_upstream().await])
        .with_definition_files(directory)
        .start()
        .await
}

pub(super) async fn call_ok<T: serde::de::DeserializeOwned>(
    driver: &RunningDriver,
    method: &str,
    path: &str,
    body: impl Into<Body>,
) -> T {
    let (status, reply) = driver.call_admin(method, path, body).await;
    assert_eq!(status, 200, "{method} {path}: {reply}");
    serde_json::from_value(reply).unwrap()
}

#[tokio::test]
async fn definitions_are_applied_listed_rolled_back_and_deleted() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let count_files = || fs::read_dir(directory.path().join("chains")).unwrap().count();
    let fetch_status = async || call_ok::<Status>(&driver, "GET", "/v1/status", "").await;

    let applied: Applied = call_ok(&driver, "POST", "/v1/definitions?dryRun=true", chain_yaml("pods", "a")).await;
    assert!(applied.dry_run);
    assert_eq!(applied.definitions[0].id, "AdmissionChain/pods");
    assert_eq!(applied.definitions[0].effect, AppliedEffect::Created);
    assert_eq!((fetch_status().await.revision, count_files()), (1, 0));

    let two_chains = [chain_yaml("pods", "a"), chain_yaml("jobs", "a")].join("---\n");
    let applied: Applied = call_ok(&driver, "POST", "/v1/definitions", two_chains).await;
    assert_eq!((applied.revision, applied.dry_run), (2, false));
    let live_status = fetch_status().await;
    assert_eq!((live_status.revision, live_status.origin), (2, Origin::Applied));
    assert_eq!(live_status.by.as_deref(), Some("loopback"));
    assert!(count_files() > 0);

    let json = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": "jobs"},
        "spec": {
            "rules": [{"operations": ["DELETE"], "kinds": ["Job"]}],
            "stages": [{
                "name": "hook",
                "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/b"},
            }],
        },
    });
    let applied: Applied = call_ok(&driver, "POST", "/v1/definitions", json.to_string()).await;
    assert_eq!(applied.definitions[0].effect, AppliedEffect::Changed);
    assert_eq!(applied.revision, 3);
    assert!(applied.comparison.text.contains("https://127.0.0.1:1/b"), "{applied:?}");

    let all_definitions: DefinitionList = call_ok(&driver, "GET", "/v1/definitions", "").await;
    let mut names: Vec<_> = all_definitions
        .definitions
        .iter()
        .map(|definition| &*definition.id.name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["jobs", "pods"]);
    let pods_definitions: DefinitionList = call_ok(&driver, "GET", "/v1/definitions/AdmissionChain/pods", "").await;
    assert_eq!(pods_definitions.definitions.len(), 1);
    assert_eq!(
        pods_definitions.definitions[0].text.trim(),
        chain_yaml("pods", "a").trim()
    );
    let chain = pods_definitions.definitions[0].chain.as_ref().map(ToString::to_string);
    assert_eq!(chain.as_deref(), Some("Mutating:pods"));
    let candidates: CandidateList = call_ok(&driver, "GET", "/v1/candidates", "").await;
    assert!(candidates.candidates.is_empty());

    let history: RevisionList = call_ok(&driver, "GET", "/v1/history", "").await;
    let numbers: Vec<_> = history.revisions.iter().map(|entry| entry.revision.number).collect();
    assert_eq!(numbers, [3, 2, 1]);
    let revision_detail: RevisionDetail = call_ok(&driver, "GET", "/v1/history/2", "").await;
    assert!(
        revision_detail
            .files
            .iter()
            .any(|file| file.text.contains("name: jobs"))
    );
    let diff: Comparison = call_ok(&driver, "GET", "/v1/diff?from=2&to=3", "").await;
    assert!(diff.text.contains("https://127.0.0.1:1/b"), "{diff:?}");

    let rollback: Revision = call_ok(&driver, "POST", "/v1/rollback", r#"{"revision":2}"#).await;
    assert_eq!((rollback.number, &rollback.origin), (4, &Origin::RolledBack { to: 2 }));
    let live = fetch_status().await;
    assert_eq!(live.origin, Origin::RolledBack { to: 2 });
    assert_eq!((live.revision, live.by.as_deref()), (4, Some("loopback")));
    let pods_after_rollback: DefinitionList = call_ok(&driver, "GET", "/v1/definitions/AdmissionChain/pods", "").await;
    assert_eq!(pods_after_rollback.rolled_back_to, Some(2));
    let (code, reply) = driver
        .call_admin("GET", "/v1/definitions/AdmissionChain/other", "")
        .await;
    assert_eq!(code, 404);
    assert!(
        reply.to_string().contains("a rollback to revision 2 is live"),
        "{reply}"
    );
    let deleted: Applied = call_ok(&driver, "DELETE", "/v1/definitions/AdmissionChain/jobs", "").await;
    assert_eq!(deleted.definitions[0].effect, AppliedEffect::Deleted);
    let live = fetch_status().await;
    let chains: Vec<_> = live.chains.iter().map(|chain| &*chain.name).collect();
    assert_eq!(chains, ["c", "pods"]);
}

#[tokio::test]
async fn invalid_requests_to_the_admin_api_are_refused() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(&driver, "POST", "/v1/definitions", chain_yaml("pods", "a")).await;
    let misspelled_chain = chain_yaml("jobs", "a").replace("protocol", "protokoll");
    let chain_without_module = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: jobs }
spec:
  rules: [ { operations: [CREATE], kinds: [Job] } ]
  stages: [ { name: hook, plugin: { source: \"file:missing.wasm\" } } ]
";
    let oversized_body = "#".repeat(8 * 1024 * 1024 + 1);
    for (method, path, media_type, body, expected, part) in [
        (
            "POST",
            "/v1/definitions?name=jobs.yaml",
            "",
            &*misspelled_chain,
            422,
            "jobs.yaml:",
        ),
        ("POST", "/v1/definitions", "", chain_without_module, 422, "missing.wasm"),
        (
            "POST",
            "/v1/definitions?dryRun=true",
            "",
            chain_without_module,
            422,
            "missing.wasm",
        ),
        ("POST", "/v1/definitions", "", "", 400, "no definition"),
        (
            "POST",
            "/v1/definitions?dryrun=true",
            "",
            &chain_yaml("x", "a"),
            400,
            "dryrun",
        ),
        (
            "POST",
            "/v1/definitions?dryRun=yes",
            "",
            &chain_yaml("x", "a"),
            400,
            "query",
        ),
        ("POST", "/v1/definitions", "text/html", "<p>", 415, "text/html"),
        ("POST", "/v1/definitions", "", &oversized_body, 413, "8388608"),
        (
            "GET",
            "/v1/definitions/AdmissionChain/pod",
            "",
            "",
            404,
            "there is no AdmissionChain/pod; did you mean AdmissionChain/pods?",
        ),
        (
            "DELETE",
            "/v1/definitions/AdmissionChain/jobs",
            "",
            "",
            404,
            "AdmissionChain/jobs",
        ),
        (
            "DELETE",
            "/v1/definitions/AdmissionChain",
            "",
            "",
            404,
            "/v1/openapi.json",
        ),
        ("DELETE", "/v1/status", "", "", 405, "method"),
        ("GET", "/v1/history/7", "", "", 404, "there is no revision 7"),
        ("GET", "/v1/history/last", "", "", 400, "last"),
        ("GET", "/v1/diff?from=1", "", "", 400, "to"),
        ("GET", "/v1/diff?from=1&to=7", "", "", 404, "there is no revision 7"),
        (
            "POST",
            "/v1/rollback",
            "",
            r#"{"revision":7}"#,
            404,
            "there is no revision 7",
        ),
        ("POST", "/v1/rollback", "", r#"{"to":1}"#, 400, "to"),
        ("POST", "/v1/rollback", "application/yaml", "revision: 1", 415, "yaml"),
        (
            "POST",
            "/v1/promote",
            "",
            r#"{"stage":"pods/hook"}"#,
            409,
            "no `candidate`",
        ),
        (
            "POST",
            "/v1/promote",
            "",
            r#"{"stage":"pods/other"}"#,
            404,
            "pods/other",
        ),
        (
            "POST",
            "/v1/promote",
            "",
            r#"{"stage":"pods"}"#,
            400,
            "is not the name of a stage",
        ),
        (
            "POST",
            "/v1/stages/disable",
            "",
            r#"{"stage":"pods/other","expiresIn":60,"reason":"x"}"#,
            404,
            "the stages are: Mutating:c/judge, Mutating:pods/hook",
        ),
        (
            "POST",
            "/v1/stages/disable",
            "",
            r#"{"stage":"pods/hook","expiresIn":86401,"reason":"x"}"#,
            400,
            "1s to 24h",
        ),
        (
            "POST",
            "/v1/stages/disable",
            "",
            r#"{"stage":"pods/hook","expiresIn":60}"#,
            400,
            "reason",
        ),
        (
            "POST",
            "/v1/stages/disable",
            "",
            r#"{"stage":"pods","expiresIn":60,"reason":"x"}"#,
            400,
            "is not the name of a stage",
        ),
        (
            "POST",
            "/v1/stages/enable",
            "",
            r#"{"stage":"pods/hook"}"#,
            404,
            "the stage pods/hook is not disabled",
        ),
    ] {
        let mut request = Request::builder().method(method).uri(path);
        if !media_type.is_empty() {
            request = request.header("content-type", media_type);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (status, reply) = status_and_text(driver.send_to_admin(request).await).await;
        assert_eq!(status, expected, "{method} {path}: {reply}");
        assert!(reply.contains(part), "{method} {path}: {reply}");
        let reply: ErrorReply = serde_json::from_str(&reply).unwrap();
        assert_eq!(
            reply.error.mistakes.is_empty(),
            expected != 422,
            "{method} {path}: {reply:?}"
        );
    }
    let status: Status = call_ok(&driver, "GET", "/v1/status", "").await;
    assert_eq!(status.revision, 2, "nothing of it had an effect");
}

#[tokio::test]
async fn reports_explain_why_the_newest_definitions_are_not_live() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(&driver, "POST", "/v1/definitions", chain_yaml("pods", "a")).await;
    assert_eq!(driver.status().await["problem"], Value::Null);
    let file = directory.path().join("chains/broken.yaml");
    fs::write(&file, chain_yaml("jobs", "a").replace("stages", "stagees")).unwrap();
    wait_until("the problem", async || {
        let status = driver.status().await;
        assert_eq!(status["revision"], 2);
        status["problem"]["mistakes"][0]
            .as_str()
            .is_some_and(|mistake| mistake.contains("broken.yaml"))
    })
    .await;
    let (status, reply) = driver
        .call_admin("POST", "/v1/definitions", chain_yaml("more", "a"))
        .await;
    assert_eq!(status, 200, "{reply}");
    assert!(reply["warnings"].to_string().contains("broken.yaml"), "{reply}");
    assert!(
        !driver.status().await["problem"].is_null(),
        "the mistake is still there"
    );
    fs::remove_file(&file).unwrap();
    wait_until("its end", async || driver.status().await["problem"].is_null()).await;
}

#[tokio::test]
async fn a_stage_can_be_disabled_without_a_history() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(&driver, "POST", "/v1/definitions", chain_yaml("pods", "a")).await;
    fs::remove_dir_all(directory.path().join("history")).unwrap();
    fs::write(directory.path().join("history"), "").unwrap();
    let request = r#"{"stage":"pods/hook","expiresIn":60,"reason":"x","audit":true}"#;
    let switched: Switched = call_ok(&driver, "POST", "/v1/stages/disable", request).await;
    assert!(switched.not_kept.unwrap().contains("history"));
    let status = driver.status().await;
    let disabled = &status["chains"][1]["stages"][0]["disabled"];
    assert_eq!(
        (&disabled["by"], &disabled["audit"]),
        (&json!("loopback"), &json!(true)),
        "{status}"
    );
    let switched: Switched = call_ok(&driver, "POST", "/v1/stages/enable", r#"{"stage":"pods/hook"}"#).await;
    assert_eq!(switched.disabled.reason, "x");
    assert_eq!(driver.status().await["chains"][1]["stages"][0]["disabled"], Value::Null);
}

/// A rollback that is not in the history is forgotten at the next restart. So a rollback is refused if it cannot be
/// written to the history.
#[tokio::test]
async fn a_rollback_that_cannot_be_recorded_is_refused() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(&driver, "POST", "/v1/definitions", chain_yaml("pods", "a")).await;
    fs::remove_dir_all(directory.path().join("history")).unwrap();
    fs::write(directory.path().join("history"), "").unwrap();
    let (status, reply) = driver.call_admin("POST", "/v1/rollback", r#"{"revision":1}"#).await;
    assert_eq!(status, 503, "{reply}");
    let live_status: Status = call_ok(&driver, "GET", "/v1/status", "").await;
    assert_eq!(live_status.revision, 2);
}

#[tokio::test]
async fn the_audit_log_names_the_user_of_each_change() {
    let log = crate::log::TestLog::of_audits();
    let directory = TempDir::new().unwrap();
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(
        &driver,
        "POST",
        "/v1/definitions?name=audited.yaml",
        chain_yaml("pods", "a"),
    )
    .await;
    assert_eq!(
        driver
            .call_admin("POST", "/v1/rollback", r#"{"revision":7007}"#)
            .await
            .0,
        404
    );
    let _: Status = call_ok(&driver, "GET", "/v1/status", "").await;
    let audit: Vec<_> = log
        .text()
        .lines()
        .filter_map(|line| Some(line.split_once("INFO admittance::audit: ")?.1.to_owned()))
        .filter(|line| line.contains("audited.yaml") || line.contains("7007"))
        .collect();
    let [applied_line, refused_line] = &audit[..] else {
        panic!("there are two changes: {audit:?}");
    };
    assert!(
        applied_line.starts_with("loopback: apply audited.yaml "),
        "{applied_line}"
    );
    assert!(applied_line.contains("revision=2"), "{applied_line}");
    assert!(
        refused_line.starts_with("loopback: rollback 7007 was refused: there is no revision 7007"),
        "{refused_line}"
    );
}
