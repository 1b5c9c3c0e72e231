//! Tests the examples on the page about exceptions: with `check`, with `run`, and in a running driver.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use admittance::Moment;
use admittance_tests::{Admittance, FinishedProgram};
use serde_json::{Value, json};

use crate::{
    documents::page::Page,
    scene::{ProgramScene, application, bcs_message},
};

fn moment_after(seconds: u64) -> Moment {
    Moment(SystemTime::now() + Duration::from_secs(seconds))
}

async fn run_admittance(directory: &Path, arguments: &[&str]) -> FinishedProgram {
    let path = |argument: &&str| {
        if argument.ends_with(".yaml") || argument.ends_with(".json") {
            directory.join(argument).into_os_string()
        } else {
            argument.into()
        }
    };
    Admittance::run(arguments.iter().map(path)).await.unwrap()
}

fn deployment(name: &str, replicas: u32) -> String {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
                        "metadata": {"name": name, "namespace": "shop"}});
    object.to_string()
}

#[tokio::test]
async fn the_exceptions_example_passes_check_and_exempts_requests() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let page = Page::read("docs/exceptions.md").yaml();
    let example = page[0].replace("expires: 2027-11-30", &format!("expires: {}", moment_after(3600)));
    assert_ne!(example, page[0]);
    fs::write(at.join("chains.yaml"), &example).unwrap();
    let checked = run_admittance(at, &["check", "chains.yaml"]).await;
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert!(
        checked.stdout.contains("exception big-shop until "),
        "{}",
        checked.stdout
    );
    assert!(!checked.stdout.contains("warning"), "{}", checked.stdout);

    for (name, replicas, code, expected) in [
        ("shop-web", 6, 0, "exception big-shop"),
        ("shop-web", 5, 0, "exception big-shop"),
        ("web", 5, 0, "allowed"),
        ("web", 6, 1, "at most 5 replicas are allowed"),
    ] {
        fs::write(at.join("deployment.json"), deployment(name, replicas)).unwrap();
        let run = run_admittance(at, &["run", "chains.yaml", "deployment.json"]).await;
        assert_eq!(run.code, Some(code), "{name} {replicas}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains(expected), "{name} {replicas}: {}", run.stdout);
        let run = run_admittance(at, &["run", "chains.yaml", "deployment.json", "-o", "json"]).await;
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let exception = report["stages"][0]["exception"].as_str();
        assert_eq!(exception, expected.strip_prefix("exception "), "{report:#}");
    }

    let expired = page[0].replace("expires: 2027-11-30", "expires: 2020-11-30");
    fs::write(at.join("chains.yaml"), expired).unwrap();
    let checked = run_admittance(at, &["check", "chains.yaml"]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    assert!(
        checked.stdout.contains("exception big-shop expired at 2020-12-01T"),
        "{}",
        checked.stdout
    );
    fs::write(at.join("deployment.json"), deployment("shop-web", 6)).unwrap();
    let run = run_admittance(at, &["run", "chains.yaml", "deployment.json"]).await;
    assert_eq!(run.code, Some(1), "{}", run.stdout);

    let misspelt = example.replace("stages: [replicas/limit]", "stages: [replicas/limits]");
    fs::write(at.join("chains.yaml"), misspelt).unwrap();
    let checked = run_admittance(at, &["check", "chains.yaml"]).await;
    assert_eq!(checked.code, Some(1), "{}", checked.stdout);
    let mistake = "chains.yaml:26:12: spec.stages[0]: there is no stage replicas/limits; did you mean replicas/limit?";
    assert!(checked.stdout.contains(mistake), "{}", checked.stdout);
}

#[tokio::test]
async fn test_cases_can_contain_exceptions() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let page = Page::read("docs/exceptions.md").yaml();
    let example = page[0].replace("expires: 2027-11-30", &format!("expires: {}", moment_after(3600)));
    fs::write(at.join("chains.yaml"), &example).unwrap();
    let case = |name: &str, expected: bool| {
        let object: Value = serde_json::from_str(&deployment(name, 6)).unwrap();
        json!({"name": name, "request": {"object": object}, "expect": {"allowed": expected}})
    };
    let mut excepted = case("shop-web", true);
    excepted["expect"]["stages"] = json!([]);
    let cases = json!({"cases": [excepted, case("web", false)]});
    fs::write(at.join("cases.json"), cases.to_string()).unwrap();
    let tested = run_admittance(at, &["test", "chains.yaml", "--cases", "cases.json"]).await;
    assert_eq!(tested.code, Some(0), "{}{}", tested.stdout, tested.stderr);
}

const CHAIN: &str = r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: names }
spec:
  rules: [{ operations: [CREATE], kinds: [application] }]
  stages:
    - name: short
      cel:
        validations: [{ expression: "size(object.metadata.name) < 4", message: too long }]
"#;

#[tokio::test]
async fn uses_of_an_exception_are_logged_and_counted() {
    let exception = |until: Moment| {
        format!(
            "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionException
metadata: {{ name: long }}
spec:
  owner: team-shop
  reason: ticket 4711
  expires: {until}
  stages: [names/short]
  namespaces: [shop]
"
        )
    };
    let mut scene = ProgramScene::start_bcs(&format!("{CHAIN}{}", exception(moment_after(3600)))).await;
    let frontend = |namespace: &str| application(namespace, "frontend", "nginx");
    assert_eq!(scene.create(&frontend("shop")).await.status, 200);
    let refused = scene.create(&frontend("other")).await;
    assert!(bcs_message(&refused).contains("too long"), "{}", refused.text());

    let line = scene
        .program
        .wait_for_log("the use", |line| line.message() == "an exception let the request pass")
        .await
        .unwrap();
    assert_eq!((line.field("exception"), line.field("stage")), ("long", "short"));
    let metrics = scene.program.metrics().await.unwrap();
    let labels = [("exception", "long"), ("stage", "short")];
    assert_eq!(metrics.sum("admittance_exceptions_total", &labels), Some(1.0));
    let end = metrics.sum("admittance_exception_expiry_timestamp_seconds", &labels[..1]);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(end.unwrap() > now.as_secs_f64());
    let server = scene.program.admin_url("");
    let status = Admittance::run(["status", "--server", &server]).await.unwrap();
    assert!(status.stdout.contains("team-shop") && status.stdout.contains("Mutating:names/short"));

    // This exception expires while the program runs. The program logs the expiry.
    let mark = scene.program.mark();
    let soon = format!("{CHAIN}{}", exception(moment_after(2)));
    admittance_tests::replace(&scene.directory.path().join("chains.yaml"), soon).unwrap();
    scene
        .program
        .wait_for_log_after(mark, "its end", |line| {
            line.message().contains("the exception long has expired")
        })
        .await
        .unwrap();
    let refused = scene.create(&frontend("shop")).await;
    assert!(bcs_message(&refused).contains("too long"), "{}", refused.text());
    let status = scene.program.status().await.unwrap();
    assert_eq!(status["exceptions"][0]["expired"], json!(true), "{status:#}");
}
