//! The commands for authors of plugins: `admittance new`, `test` and `dev`.

mod languages;

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use admittance_tests::{Admittance, Artifacts, Client, FinishedProgram, POLL_INTERVAL, replace, repository};
use http::{Request, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::scene::{store, write};

fn admittance_command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Admittance::command().unwrap();
    command
        .args(arguments)
        .current_dir(directory)
        .env("ADMITTANCE_STORE", store())
        // Cargo needs no network: the dependencies of the SDK were downloaded when this workspace was built.
        .env("CARGO_NET_OFFLINE", "true");
    command
}

async fn run_admittance(directory: &Path, arguments: &[&str]) -> FinishedProgram {
    run_to_end(admittance_command(directory, arguments)).await
}

async fn run_to_end(mut command: Command) -> FinishedProgram {
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    FinishedProgram {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Returns a new project with the SDK of this workspace and a target directory that is kept between test runs.
async fn new_project(name: &str, template: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let new_output = run_admittance(folder.path(), &["new", name, "--template", template]).await;
    assert_eq!(new_output.code, Some(0), "{}", new_output.stderr);
    let directory = folder.path().join(name);
    fs::copy(repository().join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("template");
    fs::create_dir_all(&target).unwrap();
    symlink(target, directory.join("target")).unwrap();
    folder
}

#[tokio::test]
async fn a_new_project_passes_its_tests() {
    let folder = new_project("require-label", "validating").await;
    let directory = folder.path().join("require-label");
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stdout.ends_with("\n5 passed, 0 failed\n"), "{}", check.stdout);
    assert!(check.stdout.contains("ok    cargo test"), "{}", check.stdout);
    assert!(
        check
            .stderr
            .contains("every_mistake_in_the_settings_is_reported ... ok"),
        "{}",
        check.stderr
    );

    // `admittance test` runs the test cases before the plugin's native tests, because `cargo test` takes longer.
    let mut combined_command = Command::new("sh");
    combined_command
        .args(["-c", "\"$0\" test 2>&1"])
        .arg(Admittance::command().unwrap().as_std().get_program())
        .current_dir(&directory)
        .env("ADMITTANCE_STORE", store())
        .env("CARGO_NET_OFFLINE", "true");
    let combined_output = run_to_end(combined_command).await.stdout;
    let case = combined_output
        .find("ok    a Pod without the label is refused")
        .unwrap();
    assert!(case < combined_output.find("cargo test").unwrap(), "{combined_output}");

    for arguments in [&["check", "chain.yaml"][..], &["run", "chain.yaml", "pod.yaml"]] {
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b, labels: {team: shop}}}";
        fs::write(directory.join("pod.yaml"), pod).unwrap();
        let run = run_admittance(&directory, arguments).await;
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
        assert!(!run.stdout.contains("warning"), "{}", run.stdout);
    }

    let code = directory.join("src/lib.rs");
    let text = fs::read_to_string(&code).unwrap();
    fs::write(&code, text.replacen("is missing; add it", "is absent; add it", 1)).unwrap();
    let check = run_admittance(&directory, &["test", "--output", "json"]).await;
    assert_eq!(check.code, Some(1), "{}{}", check.stdout, check.stderr);
    let report: Value = serde_json::from_str(&check.stdout).unwrap();
    let has_failed = |case: &&Value| case["passed"] == false;
    let failed_cases: Vec<_> = report["cases"].as_array().unwrap().iter().filter(has_failed).collect();
    let names: Vec<_> = failed_cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a Pod without the label is refused", "cargo test"]);
    assert_eq!(failed_cases[0]["failures"][0]["what"], "message");

    for (code_with_mistake, message) in [
        ("compile_error!(\"not yet\");".to_owned(), "not yet"),
        (text.replace("#[settings]\n", ""), "put `#[settings]` on `Settings`"),
        (text.replacen("#[view]\n", "", 1), "put `#[view]` on `Object`"),
    ] {
        fs::write(&code, code_with_mistake).unwrap();
        let check = run_admittance(&directory, &["test"]).await;
        assert_eq!(check.code, Some(2), "{}{}", check.stdout, check.stderr);
        assert!(
            check.stderr.contains(message) && check.stderr.contains("does not compile"),
            "{}",
            check.stderr
        );
    }

    // A plugin compiles even if its Cargo.toml has no `crate-type`, so the compiler does not report this mistake. The
    // command `test` has to report it.
    fs::write(&code, text).unwrap();
    let manifest = directory.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("crate-type"));
    fs::write(&manifest, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(2), "{}{}", check.stdout, check.stderr);
    assert!(
        check
            .stderr
            .contains("write `crate-type = [\"cdylib\", \"rlib\"]` under `[lib]`"),
        "{}",
        check.stderr
    );
}

#[tokio::test]
async fn projects_from_other_templates_pass_their_tests() {
    for template in ["mutating", "capabilities"] {
        let name = format!("{template}-label");
        let folder = new_project(&name, template).await;
        let test = run_admittance(&folder.path().join(&name), &["test"]).await;
        assert_eq!(test.code, Some(0), "{}{}", test.stdout, test.stderr);
        assert!(test.stdout.ends_with("\n4 passed, 0 failed\n"), "{}", test.stdout);
    }
}

#[tokio::test]
async fn bench_reports_the_memory_of_an_instance_and_its_guest() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    write(
        &folder,
        "pod.json",
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}"#,
    );
    let bench = async |options: &[&str]| {
        let arguments = ["bench", plugin.to_str().unwrap(), "pod.json", "--for", "10ms"];
        let run = run_admittance(folder.path(), &[&arguments, options].concat()).await;
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    let report: Value = serde_json::from_str(&bench(&["--output", "json"]).await).unwrap();
    let measured_row = &report["measured"][0];
    let measurement = |name: &str| measured_row[name].as_f64().unwrap();
    let parts = [
        measurement("p50InstanceMicroseconds"),
        measurement("p50GuestMicroseconds"),
    ];
    assert!(
        parts
            .iter()
            .all(|part| *part > 0.0 && *part < measurement("p99Microseconds")),
        "{measured_row}"
    );
    // The program reports how much of its linear memory the plugin has touched, in pages of 4 KiB. These are the pages
    // of its stack and heap, which are much smaller than the whole linear memory.
    let touched_bytes = measured_row["touchedBytes"].as_u64().unwrap();
    assert!(
        (8_192..1_048_576).contains(&touched_bytes) && touched_bytes.is_multiple_of(4096),
        "{measured_row}"
    );
    let text = bench(&[]).await;
    let headings: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
    assert!(
        headings.ends_with(&["P50", "P99", "INSTANCE", "GUEST", "MEMORY"]),
        "{text}"
    );
}

#[tokio::test]
async fn run_with_watch_repeats_the_request_after_each_change() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    let write_pod = |image: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                         "spec": {"containers": [{"name": "web", "image": image}]}});
        fs::write(folder.path().join("pod.json"), pod.to_string()).unwrap();
    };
    write_pod("nginx:latest");
    let settings = r#"{"refuseLatest": true}"#;
    let arguments = [
        "run",
        plugin.to_str().unwrap(),
        "pod.json",
        "--settings",
        settings,
        "--watch",
    ];
    let mut child = admittance_command(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut wait_for_line = async |words: &str| {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.starts_with(words) {
                return;
            }
        }
        panic!("`run` ended before it wrote {words}");
    };
    wait_for_line("refused (403)").await;
    write_pod("nginx:1.29");
    wait_for_line("allowed").await;
}

/// While a plugin's code does not compile, `dev` serves the last version that did.
#[tokio::test]
async fn dev_reloads_a_changed_plugin() {
    let folder = new_project("dev-label", "validating").await;
    let directory = folder.path().join("dev-label");
    // `dev` logs only errors. More lines would fill the pipe, which the test does not read while it sends requests.
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--log", "error"];
    let mut child = admittance_command(&directory, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut wait_for_line = async |words: &str| {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(words) {
                return line;
            }
        }
        panic!("`dev` ended before it wrote {words}");
    };
    let line = wait_for_line("POST AdmissionReviews to ").await;
    let url = line.rsplit(' ').next().unwrap().to_owned();
    wait_for_line("waiting for a change").await;
    let client = Client::new().unwrap();
    let denial_message = async || {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": "web", "namespace": "shop",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}},
            },
        });
        let request = Request::post(&url).header(CONTENT_TYPE, "application/json");
        let reply = client.send(request.body(review.to_string()).unwrap()).await.unwrap();
        reply.json().unwrap()["response"]["status"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(denial_message().await.ends_with("`team` is missing; add it"));

    let code = directory.join("src/lib.rs");
    let text = fs::read_to_string(&code).unwrap();
    replace(&code, text.replace("is missing; add it", "is absent; add it")).unwrap();
    // Even if the plugin's tests fail, `dev` serves the plugin.
    wait_for_line("failed").await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !denial_message().await.ends_with("`team` is absent; add it") {
        assert!(Instant::now() < deadline, "the new plugin is not served");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn run_test_cases(cases: &str, options: &[&str]) -> FinishedProgram {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "cases.yaml", cases);
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    let arguments = [&["test", plugin.to_str().unwrap(), "--cases", "cases.yaml"], options].concat();
    run_admittance(folder.path(), &arguments).await
}

fn case_file(image: &str, expect: &str) -> String {
    format!(
        "settings: {{ refuseLatest: true, rewrites: {{ docker.io: mirror.example.com }} }}
cases:
  - name: one
    request: {{ object: {{ apiVersion: v1, kind: Pod, metadata: {{ name: a, namespace: b }}, \
         spec: {{ containers: [ {{ name: web, image: \"{image}\" }} ] }} }} }}
    expect: {expect}
"
    )
}

#[tokio::test]
async fn test_cases_with_unexpected_answers_are_reported() {
    const REWRITTEN_IMAGE: &str = "mirror.example.com/library/nginx:1";
    // (image of the Pod, `expect` of the test case, reported failure, or `None` if the case passes)
    for (image, expect, failure) in [
        ("nginx:1", "{ allowed: true }", None),
        ("nginx:1", "{ allowed: false }", Some("allowed: the request is allowed")),
        (
            "nginx",
            "{ allowed: true }",
            Some("allowed: the request is refused: stage image_policy"),
        ),
        ("nginx", "{ allowed: false, message: refuseLatest, code: 403 }", None),
        ("nginx", "{ allowed: false, message: '/no tag .*refuseLatest/' }", None),
        (
            "nginx",
            "{ allowed: false, message: digest }",
            Some("message: `digest` is not in the message: "),
        ),
        (
            "nginx",
            "{ allowed: false, code: 422 }",
            Some("code: expected 422, and it is 403"),
        ),
        (
            "nginx",
            "{ allowed: false, failure: trap }",
            Some("failure: expected trap, found none"),
        ),
        (
            "nginx:1",
            "{ allowed: true, stages: [image_policy], warnings: [] }",
            None,
        ),
        (
            "nginx:1",
            "{ allowed: true, stages: [image_policy/image_policy] }",
            None,
        ),
        (
            "nginx:1",
            "{ allowed: true, stages: [] }",
            Some("stages: expected none, and image_policy are called"),
        ),
        (
            "nginx:1",
            "{ allowed: true, warnings: [old] }",
            Some("warnings: they differ"),
        ),
        (
            "nginx:1",
            "{ allowed: true, patch: [] }",
            Some("+     \"path\": \"/spec/containers/0/image\","),
        ),
        (
            "nginx:1",
            "{ allowed: true, object: { kind: Pod } }",
            Some("+   \"apiVersion\": \"v1\","),
        ),
        (
            "nginx:1",
            "{ allowed: true, fields: { spec: { containers: [ { image: \"nginx:1\" } ] } } }",
            Some("+         \"image\": \"mirror.example.com/library/nginx:1\""),
        ),
        (
            "nginx:1",
            "{ allowed: true, fields: { kind: Pod, status: null } }",
            None,
        ),
    ] {
        let run = run_test_cases(&case_file(image, expect), &[]).await;
        let code = if failure.is_some() { 1 } else { 0 };
        assert_eq!(run.code, Some(code), "{expect}: {}{}", run.stdout, run.stderr);
        assert!(
            run.stdout.contains(failure.unwrap_or("1 passed, 0 failed")),
            "{expect}: {}",
            run.stdout
        );
    }
    let expect =
        format!("{{ allowed: true, fields: {{ spec: {{ containers: [ {{ image: \"{REWRITTEN_IMAGE}\" }} ] }} }} }}");
    let run = run_test_cases(&case_file("nginx:1", &expect), &["--output", "json"]).await;
    assert_eq!(run.stdout.matches("\"passed\": true").count(), 1, "{}", run.stdout);
}

#[tokio::test]
async fn mistakes_in_test_cases_are_reported_with_file_and_line() {
    let case_text =
        |request: &str, expect: &str| format!("cases:\n  - name: one\n    request: {request}\n    expect: {expect}\n");
    let pod = "{ object: { kind: Pod } }";
    let allowed = "{ allowed: true }";
    for (text, message) in [
        ("cases: []".to_owned(), "cases.yaml:1:8: cases: the list is empty"),
        ("case: []".to_owned(), "case: unknown field; did you mean `cases`?"),
        ("cases: [ { name: a } ]".to_owned(), "cases[0].request: missing"),
        (
            case_text("{}", allowed),
            "cases.yaml:3:14: cases[0].request: a case has one request; write one of `object`",
        ),
        (
            case_text("{ object: { name: a } }", allowed),
            "cases[0].request.object: the object has no `kind`",
        ),
        (
            case_text("{ object: none.yaml }", allowed),
            "none.yaml: the file cannot be read",
        ),
        (
            case_text("{ object: { kind: Pod }, operation: create }", allowed),
            "case matters: write CREATE",
        ),
        (
            case_text("{ object: { kind: Pod }, usr: {} }", allowed),
            "request.usr: unknown field; did you mean `user`?",
        ),
        (
            case_text("{ http: \"GET / HTTP/1.1\\n\\n\" }", allowed),
            "request.http: / is not a path of the BCS driver",
        ),
        (case_text("{ recording: none }", allowed), "request.recording: "),
        (
            case_text(pod, "{}"),
            "cases[0].expect.allowed: missing; write true or false",
        ),
        (
            case_text(pod, "{ allowed: true, message: a }"),
            "an allowed request has no `message`",
        ),
        (
            case_text(pod, "{ allowed: false, patch: [] }"),
            "a refused request has no `patch`",
        ),
        (
            case_text(pod, "{ allowed: false, message: /(/ }"),
            "is not a valid regular expression",
        ),
        (
            case_text(pod, "{ allowed: false, failure: slow }"),
            "\"slow\" is not a valid failure",
        ),
        (
            format!("chain: a.yaml\nsettings: {{}}\n{}", case_text(pod, allowed)),
            "a chain has its own plugins",
        ),
        (
            format!("cluster: [ {{ kind: Node }} ]\n{}", case_text(pod, allowed)),
            "cluster: object 1 of the cluster: `apiVersion` is missing",
        ),
    ] {
        let run = run_test_cases(&text, &[]).await;
        assert_eq!(run.code, Some(2), "{text}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(message), "{text}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    let run = run_test_cases(&case_file("nginx", allowed), &["--run", "other"]).await;
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("no case in cases.yaml has `other` in its name"),
        "{}",
        run.stderr
    );
    // These settings are valid YAML, so only the plugin can reject them.
    let run = run_test_cases(&format!("settings: {{ a: 1 }}\n{}", case_text(pod, allowed)), &[]).await;
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stdout.contains("the plugin rejected its settings"),
        "{}",
        run.stdout
    );
}

#[tokio::test]
async fn test_cases_can_run_whole_chains() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    write(
        &folder,
        "chain.yaml",
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  rules: [ {{ operations: [CREATE], resources: [pods] }} ]
  stages:
    - name: tags
      plugin: {{ source: \"file:{}\", settings: {{ refuseLatest: true }} }}
      namespaceSelector: {{ matchLabels: {{ tier: production }} }}
",
            plugin.display()
        ),
    );
    fs::create_dir(folder.path().join("tests")).unwrap();
    write(
        &folder,
        "shop.yaml",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tier: production}}}",
    );
    let object = |kind: &str, namespace: &str| {
        format!(
            "{{ apiVersion: v1, kind: {kind}, metadata: {{ name: a, namespace: {namespace} }}, \
             spec: {{ containers: [ {{ name: web, image: nginx }} ] }} }}"
        )
    };
    write(
        &folder,
        "tests/cases.yaml",
        format!(
            "cluster: [../shop.yaml]
cases:
  - {{ name: selected, request: {{ object: {} }}, expect: {{ allowed: false, stages: [tags], message: refuseLatest }} }}
  - {{ name: not selected, request: {{ object: {} }}, expect: {{ allowed: true }} }}
  - {{ name: not selected on purpose, request: {{ object: {} }}, expect: {{ allowed: true, stages: [] }} }}
  - {{ name: not matched, request: {{ object: {} }}, expect: {{ allowed: true }} }}
",
            object("Pod", "shop"),
            object("Pod", "other"),
            object("Pod", "other"),
            object("Service", "shop"),
        ),
    );
    let run = run_admittance(folder.path(), &["test", "chain.yaml"]).await;
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    for expected_text in [
        "ok    selected ",
        "FAIL  not selected ",
        "no stage is called (tags: namespaceSelector does not match); if that is right, expect `stages: []`",
        "ok    not selected on purpose",
        "FAIL  not matched",
        "no chain is for the request (images: no rule of the chain is for CREATE of v1/services, kind Service: \
         `resources` has pods); if that is right",
        "2 passed, 2 failed",
    ] {
        assert!(run.stdout.contains(expected_text), "{expected_text} in {}", run.stdout);
    }
}

#[tokio::test]
async fn a_test_case_can_take_its_request_from_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let reviews = repository().join("tests/whole/kubernetes/reviews");
    let reviews = ["pod-create.json", "ns-create.json"].map(|name| {
        let text = fs::read_to_string(reviews.join(name)).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        recorded[0]["review"].to_string()
    });
    write(&folder, "requests.ndjson", reviews.join("\n"));
    write(
        &folder,
        "cases.yaml",
        "cases:
  - { name: first, request: { recording: requests.ndjson }, expect: { allowed: true, fields: { kind: Pod } } }
  - name: second
    request: { recording: requests.ndjson, number: 2 }
    expect: { allowed: true, fields: { kind: Namespace } }
",
    );
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    let arguments = ["test", plugin.to_str().unwrap(), "--cases", "cases.yaml"];
    let run = run_admittance(folder.path(), &arguments).await;
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}
