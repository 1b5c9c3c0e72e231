//! `admittance check` and `admittance run`, as scripts use them.

use std::{ffi::OsStr, fs, os::unix::fs::PermissionsExt as _, path::Path};

use admittance_tests::{Admittance, FinishedProgram};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{application, source, store, write};

async fn run_admittance(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> FinishedProgram {
    Admittance::run(arguments.into_iter().map(|argument| argument.as_ref().to_owned()))
        .await
        .unwrap()
}

const WRONG_CHAIN: &str = "\
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: Not A Name
spec:
  rules:
    - operations: [CREATE, DESTROY]
      kinds: [application]
  stages:
    - name: both
      plugin: { source: \"file:a.wasm\" }
      webhook: { protocol: BcsResource, url: \"https://localhost/\" }
    - name: typo
      plugin: { source: \"file:a.wasm\" }
      failurPolicy: Fail
      timeout: fast
    - name: no-bundle
      webhook:
        protocol: BcsResource
        service: { namespace: hooks, name: hook }
    - name: bundle
      webhook:
        protocol: BcsResource
        service: { namespace: hooks, name: hook }
        caBundle: bm8gcGVt
";

const WRONG_BCS: &str = r#"{
  "apiVersion": "v4",
  "kind": "admissionwebhook",
  "metadata": {"name": "wrong", "namespace": "defaultGroup"},
  "resourcesRef": {"operation": "Destroy", "kind": "application"},
  "admissionWebhooks": [
    {
      "name": "hook",
      "failurePolicy": "Sometimes",
      "clientConfig": {"namespace": "hooks", "name": "hook"},
      "namespaceSelector": {"operator": "Near", "values": ["a"]}
    }
  ]
}
"#;

fn directory_with_wrong_documents() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "a.yaml", WRONG_CHAIN);
    write(&directory, "b.json", WRONG_BCS);
    write(
        &directory,
        "c.yaml",
        "apiVersion: admittance.dev/v1alpha1\nkind: [AdmissionChain\n",
    );
    write(&directory, "ignored.txt", "not a definition");
    directory
}

#[tokio::test]
async fn check_reports_every_mistake_in_every_file() {
    let directory = directory_with_wrong_documents();
    let check = run_admittance([OsStr::new("check"), directory.path().as_os_str()]).await;
    assert_eq!(check.code, Some(1), "{}{}", check.stdout, check.stderr);
    // (file and line that `check` must name, part of the error message about this line)
    for (location, words) in [
        ("a.yaml:4:", "metadata.name"),
        ("a.yaml:7:", "spec.rules[0].operations[1]"),
        ("a.yaml:10:", "spec.stages[0]"),
        ("a.yaml:15:", "failurePolicy"),
        ("a.yaml:16:", "spec.stages[1].timeout"),
        ("a.yaml:19:", "caBundle"),
        ("a.yaml:25:", "spec.stages[3].webhook.caBundle"),
        ("b.json:5:", "resourcesRef.operation"),
        ("b.json:9:", "admissionWebhooks[0].failurePolicy"),
        ("b.json:10:", "caBundle"),
        ("b.json:11:", "admissionWebhooks[0].namespaceSelector.operator"),
        ("c.yaml:", ""),
    ] {
        let is_reported = check
            .stdout
            .lines()
            .any(|line| line.contains(location) && line.contains(words));
        assert!(is_reported, "{location} {words} in:\n{}", check.stdout);
    }
    assert!(!check.stdout.contains("ignored.txt"), "{}", check.stdout);

    let json_check = run_admittance([
        OsStr::new("check"),
        directory.path().as_os_str(),
        OsStr::new("--output=json"),
    ])
    .await;
    assert_eq!(json_check.code, Some(1));
    let report: Value = serde_json::from_str(&json_check.stdout).unwrap();
    assert_eq!(report["ok"], false);
    let text_lines = check
        .stdout
        .lines()
        .filter(|line| line.contains(".yaml:") || line.contains(".json:"))
        .count();
    assert_eq!(
        report["mistakes"].as_array().unwrap().len(),
        text_lines,
        "{}\n{}",
        check.stdout,
        json_check.stdout
    );
}

/// The configuration limits the capabilities of chains that belong to a namespace. `check` applies this limit to the
/// files in its arguments, but not to files that the configuration names.
#[tokio::test]
async fn the_check_command_limits_the_capabilities_of_namespaced_chains() {
    let directory = tempfile::tempdir().unwrap();
    let chain = |name: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: NamespacedAdmissionChain
metadata: {{ name: {name}, namespace: shop }}
spec:
  rules: [ {{ operations: [CREATE], resources: [pods] }} ]
  stages: [ {{ name: calls, webhook: {{ protocol: AdmissionReview, url: https://hooks.example.com/ }} }} ]
"
        )
    };
    let definition_path = write(&directory, "given.yaml", chain("given"));
    write(&directory, "own.yaml", chain("own"));
    let check = async |namespaced: &str| {
        let config = format!(
            "dialect: {{ kubernetes: {{}} }}\ncluster: {{}}\n\
             definitions: [ own.yaml, {{ kubernetes: {{ namespaced: {namespaced} }} }} ]\n"
        );
        let config = write(&directory, "admittance.yaml", config);
        let (definition, config) = (definition_path.as_os_str(), config.as_os_str());
        run_admittance([OsStr::new("check"), definition, OsStr::new("--config"), config]).await
    };
    let refused = check("{}").await;
    assert_eq!(refused.code, Some(1), "{}{}", refused.stdout, refused.stderr);
    for words in [
        "given.yaml:6:",
        "the webhook at https://hooks.example.com/",
        "namespaced.webhooks",
        "1 mistake",
    ] {
        assert!(refused.stdout.contains(words), "{words} in:\n{}", refused.stdout);
    }
    let allowed = check("{ webhooks: Any }").await;
    assert_eq!(allowed.code, Some(0), "{}{}", allowed.stdout, allowed.stderr);
}

#[tokio::test]
async fn check_loads_plugins_and_gives_them_their_settings() {
    let directory = tempfile::tempdir().unwrap();
    let object = write(
        &directory,
        "object.json",
        application("shop", "web", "nginx:1").to_string(),
    );
    let plugin_source = source("image-policy");
    let chain = |settings: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: images
      plugin: {{ source: \"{plugin_source}\", settings: {settings} }}
"
        )
    };
    for (settings, code, words) in [
        ("{ refuseLatest: true }", 0, "images"),
        (
            "{ refuseLatest: perhaps }",
            1,
            "images.yaml:8:{}: stage images of chain images: the plugin rejected its settings: /refuseLatest: ",
        ),
        ("{ refuseLates: true }", 1, "refuseLates"),
    ] {
        let text = chain(settings);
        let file = write(&directory, "images.yaml", &text);
        // An expected message may contain `{}`. It stands for the column in which the text `perhaps` begins.
        let value_column = text.lines().nth(7).unwrap().find("perhaps").map(|column| column + 1);
        let words = words.replace("{}", &value_column.unwrap_or_default().to_string());
        let arguments = [
            OsStr::new("check"),
            file.as_os_str(),
            OsStr::new("--store"),
            store().as_os_str(),
        ];
        let check = run_admittance(arguments).await;
        assert_eq!(check.code, Some(code), "{settings}: {}{}", check.stdout, check.stderr);
        assert!(check.stdout.contains(&words), "{settings}: {}", check.stdout);
        if code != 0 {
            let run = run_command(&file, &object, &[]).await;
            assert!(run.stderr.contains(&words), "{settings}: {}", run.stderr);
        }
    }
}

#[tokio::test]
async fn check_warns_of_definitions_that_are_probably_not_intended() {
    let directory = tempfile::tempdir().unwrap();
    let chain = |resources: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: images }}\n\
             spec:\n  phase: Validating\n  \
             rules: [{{ operations: [CREATE, UPDATE], apiGroups: [''], resources: [{resources}] }}]\n  \
             stages: [{{ name: tags, plugin: {{ source: \"{}\", settings: {{ refuseLatest: true }} }} }}]\n",
            source("image-policy")
        )
    };
    let certs = directory.path().join("certs");
    let certs_command = run_admittance([
        OsStr::new("certs"),
        "--host".as_ref(),
        "127.0.0.1".as_ref(),
        "--out".as_ref(),
        certs.as_os_str(),
    ]);
    assert_eq!(certs_command.await.code, Some(0));
    let config = write(
        &directory,
        "admittance.yaml",
        "listen: { tls: { certificate: certs/127.0.0.1.pem, key: certs/127.0.0.1.key } }\n\
         dialect: { kubernetes: {} }\ndefinitions: [images.yaml]\n",
    );
    let key = certs.join("127.0.0.1.key");
    let ephemeral_warning = "add pods/ephemeralcontainers to `resources`";
    let exposed_key_warning = "the private key is readable by every user of this machine: chmod o-r ";
    // (resources in the chain's rule, file mode of the private key, expected warnings)
    for (resources, mode, expected) in [
        ("pods, pods/ephemeralcontainers", 0o640, &[][..]),
        ("pods", 0o600, &[ephemeral_warning]),
        ("pods, pods/ephemeralcontainers", 0o644, &[exposed_key_warning]),
        ("pods", 0o644, &[exposed_key_warning, ephemeral_warning]),
    ] {
        write(&directory, "images.yaml", chain(resources));
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let check = async |output: &str| {
            let arguments = ["check", "--config", config.to_str().unwrap(), "--output", output];
            let check = run_admittance(arguments.iter().copied().chain(["--store", store().to_str().unwrap()])).await;
            assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
            check.stdout
        };
        let text = check("text").await;
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("warning: ")).collect();
        let json: Value = serde_json::from_str(&check("json").await).unwrap();
        let warnings = json["warnings"].as_array().unwrap();
        assert_eq!(
            (lines.len(), warnings.len()),
            (expected.len(), expected.len()),
            "{text}"
        );
        for ((line, warning), expected) in lines.iter().zip(warnings).zip(expected) {
            assert!(line.contains(expected), "{text}");
            assert_eq!(line.strip_prefix("warning: "), warning.as_str());
        }
    }
}

#[tokio::test]
async fn check_shows_warnings_about_scalars_even_if_there_are_mistakes() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{}      mode: 0400\n",
        WRONG_CHAIN.split_once("    - name: typo").unwrap().0
    );
    let file = write(&directory, "chain.yaml", text);
    let check = run_admittance([OsStr::new("check"), file.as_os_str()]).await;
    assert_eq!(check.code, Some(1));
    for part in ["mistakes", "warning", "`0400` is 256, as kubectl reads it"] {
        assert!(check.stdout.contains(part), "{part}: {}", check.stdout);
    }
}

#[tokio::test]
async fn commands_without_their_path_argument_say_what_to_pass() {
    let nowhere = tempfile::tempdir().unwrap();
    for (command, expected) in [("check", "admittance check chains/"), ("serve", "--config FILE")] {
        let mut program = Admittance::command().unwrap();
        let output = program.arg(command).current_dir(nowhere.path()).output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[tokio::test]
async fn an_object_without_kind_is_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    for text in ["{\"metadata\": {\"name\": \"a\"}}", "apiVersion: v4\nkind: ''\n"] {
        let object = write(&directory, "object.yaml", text);
        let run = run_command(&chains, &object, &[]).await;
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains("the object has no `kind`"), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[tokio::test]
async fn durations_are_printed_with_at_most_three_decimals() {
    let directory = tempfile::tempdir().unwrap();
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    let object = write(
        &directory,
        "object.json",
        application("shop", "web", "nginx:1.29").to_string(),
    );
    let mut duration_count = 0;
    // A duration must have at most three decimals. If the program did not round durations, at least one of eight runs
    // would show a duration with more decimals.
    for _ in 0..8 {
        let run = run_command(&chains, &object, &["--output", "json"]).await;
        let lines = run
            .stdout
            .lines()
            .filter_map(|line| line.trim().strip_prefix("\"microseconds\": "));
        for line in lines {
            let number = line.trim_end_matches(',');
            let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 3, "{number}");
            duration_count += 1;
        }
    }
    assert!(duration_count > 0);
}

#[tokio::test]
async fn check_accepts_the_definitions_in_the_examples() {
    let examples = admittance_tests::repository().join("docs/examples");
    let mut checked_count = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let chains = entry.unwrap().path().join("chains");
        if chains.is_dir() {
            let arguments = [
                OsStr::new("check"),
                chains.as_os_str(),
                OsStr::new("--store"),
                store().as_os_str(),
            ];
            let check = run_admittance(arguments).await;
            assert_eq!(
                check.code,
                Some(0),
                "{}: {}{}",
                chains.display(),
                check.stdout,
                check.stderr
            );
            assert!(!check.stdout.contains("warning"), "{}", check.stdout);
            checked_count += 1;
        }
    }
    assert!(checked_count > 0);
}

fn write_requests(directory: &TempDir, object: &Value) -> Vec<(&'static str, std::path::PathBuf)> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "5f3c6a1e-0000-4000-8000-000000000000",
            "kind": {"group": "", "version": "v4", "kind": "application"},
            "resource": {"group": "", "version": "v4", "resource": "applications"},
            "operation": "CREATE",
            "namespace": object["metadata"]["namespace"],
            "name": object["metadata"]["name"],
            "userInfo": {"username": "someone"},
            "object": object,
        },
    });
    let http = format!(
        "POST /mesosdriver/v4/namespaces/shop/applications HTTP/1.1\nHost: driver\nBCS-ClusterID: BCS-MESOS-10001\n\n{object}"
    );
    vec![
        ("an object", write(directory, "object.json", object.to_string())),
        (
            "an AdmissionReview",
            write(directory, "review.json", review.to_string()),
        ),
        ("an HTTP request", write(directory, "request.http", http)),
    ]
}

async fn run_command(hooks: &Path, request: &Path, options: &[&str]) -> FinishedProgram {
    let mut arguments = vec![OsStr::new("run"), hooks.as_os_str(), request.as_os_str()];
    arguments.extend([OsStr::new("--store"), store().as_os_str()]);
    arguments.extend(options.iter().map(OsStr::new));
    run_admittance(arguments).await
}

#[tokio::test]
async fn run_accepts_requests_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    let allowed_object = application("shop", "web", "docker.io/library/nginx:1.29");
    for (form, request) in write_requests(&directory, &allowed_object) {
        let run = run_command(&chains, &request, &["--output", "json"]).await;
        assert_eq!(run.code, Some(0), "{form}: {}{}", run.stdout, run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(
            (&report["allowed"], &report["changed"]),
            (&json!(true), &json!(true)),
            "{form}"
        );
        let verdicts: Vec<_> = report["stages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["verdict"])
            .collect();
        assert_eq!(verdicts, ["patch", "patch"], "{form}");
        let containers = &report["object"]["spec"]["template"]["spec"]["containers"];
        assert_eq!(
            containers[0]["image"], "mirror.example.com/library/nginx:1.29",
            "{form}"
        );
        assert_eq!(containers[1]["image"], "mirror.example.com/ops/log-agent:2.4", "{form}");
        assert!(!report["patch"].as_array().unwrap().is_empty(), "{form}");
    }

    let refused_object = application("shop", "web", "docker.io/library/nginx:latest");
    for (form, request) in write_requests(&directory, &refused_object) {
        let run = run_command(&chains, &request, &["--output", "json"]).await;
        assert_eq!(run.code, Some(1), "{form}: {}{}", run.stdout, run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(report["allowed"], false, "{form}");
        assert_eq!(report["refusal"]["stage"], "images", "{form}");
    }

    let excluded_object = application("bcs-system", "web", "docker.io/library/nginx:latest");
    let (_, request) = write_requests(&directory, &excluded_object).swap_remove(0);
    let run = run_command(&chains, &request, &["--output", "json"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["allowed"], &report["changed"]), (&json!(true), &json!(false)));
    assert_eq!(report["stages"][0]["why"], "namespaceSelector does not match");
}

#[tokio::test]
async fn chains_written_by_init_pass_check_and_refuse_the_example_request() {
    let repository = admittance_tests::repository();
    for (api, request, request_line) in [
        ("rest", "body.json", Some("PUT /v1/services/web")),
        ("kubernetes", "pod.yaml", None),
        ("bcs", "application.json", None),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let init_directory = directory.path().join("first");
        let init = ["init", api, "--directory", init_directory.to_str().unwrap()];
        let init_output = run_admittance(init).await;
        assert_eq!(init_output.code, Some(0), "{api}: {}", init_output.stderr);
        let config = init_directory.join("admittance.yaml");
        let check_output = run_admittance(["check", "--config", config.to_str().unwrap()]).await;
        assert_eq!(
            check_output.code,
            Some(0),
            "{api}: {}{}",
            check_output.stdout,
            check_output.stderr
        );

        let mut options = vec!["--output", "json", "--config", config.to_str().unwrap()];
        if let Some(line) = request_line {
            options.extend(["--request", line]);
        }
        let refused_run = run_command(&init_directory.join("chains"), &init_directory.join(request), &options).await;
        assert_eq!(
            refused_run.code,
            Some(1),
            "{api}: {}{}",
            refused_run.stdout,
            refused_run.stderr
        );
        let report: Value = serde_json::from_str(&refused_run.stdout).unwrap();
        assert_eq!(report["refusal"]["chain"], "first", "{api}: {report}");

        let second_init = run_admittance(init).await;
        assert_eq!(second_init.code, Some(2), "{api}");
        assert!(
            second_init.stderr.contains("admittance.yaml exists"),
            "{}",
            second_init.stderr
        );
        let config_text = fs::read_to_string(config).unwrap();
        let template = repository.join("sdk/templates/init").join(api).join("admittance.yaml");
        assert_eq!(config_text, fs::read_to_string(template).unwrap(), "{api}");
    }
}

#[tokio::test]
async fn doctor_reports_problems_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    // No machine has the address 192.0.2.1, which is reserved for documentation, and no server listens on port 1.
    let config = "listen: { address: 192.0.2.1:8080 }\nupstream: { servers: [\"http://127.0.0.1:1\"] }\nhistory: { \
                  directory: history }\ndialect: { bcs: { cluster: BCS-MESOS-10001 } }\ndefinitions: [chains/]\n";
    let config = write(&directory, "admittance.yaml", config);
    fs::create_dir(directory.path().join("chains")).unwrap();
    let doctor = async |config: &Path| {
        let config = config.to_str().unwrap();
        let store_path = directory.path().join("store");
        let store = store_path.to_str().unwrap();
        run_admittance(["doctor", "--output", "json", "--config", config, "--store", store]).await
    };
    let doctor_output = doctor(&config).await;
    assert_eq!(
        doctor_output.code,
        Some(1),
        "{}{}",
        doctor_output.stdout,
        doctor_output.stderr
    );
    let findings: Vec<Value> = serde_json::from_str(&doctor_output.stdout).unwrap();
    for (severity, subject, words) in [
        ("problem", "listen.address", "this machine has no such address"),
        ("problem", "upstream", "start it, or correct `upstream`"),
        ("ok", "store", "can be written"),
        ("warning", "definitions", "no definition was found"),
    ] {
        let has_subject = |finding: &&Value| finding["subject"] == subject;
        let finding = findings.iter().find(has_subject).unwrap();
        assert_eq!(finding["severity"], severity, "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(words), "{finding}");
    }
    // If the configuration is invalid, `doctor` reports only that.
    let invalid_config = write(&directory, "wrong.yaml", "listen: { adress: 127.0.0.1:8080 }\n");
    let doctor_output = doctor(&invalid_config).await;
    assert_eq!(
        doctor_output.code,
        Some(1),
        "{}{}",
        doctor_output.stdout,
        doctor_output.stderr
    );
    assert!(
        doctor_output.stdout.contains("unknown field"),
        "{}",
        doctor_output.stdout
    );
}

#[tokio::test]
async fn the_run_command_reports_swapped_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    let pod = write(&directory, "pod.yaml", pod);
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    let swapped_run = run_command(&pod, &chains, &[]).await;
    assert_eq!(swapped_run.code, Some(2), "{}", swapped_run.stdout);
    let advice = "is a chain or a plugin, which comes before the requests: `admittance run ";
    assert!(swapped_run.stderr.contains(advice), "{}", swapped_run.stderr);
}

#[tokio::test]
async fn run_accepts_a_request_line_and_files_with_bodies() {
    let directory = tempfile::tempdir().unwrap();
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    let object = application("shop", "web", "docker.io/library/nginx:latest");
    let body = write(&directory, "body.json", object.to_string());
    let request_line = "POST /mesosdriver/v4/namespaces/shop/applications";
    let header = "BCS-ClusterID: BCS-MESOS-10001";
    let refused = run_command(&chains, &body, &["--request", request_line, "--header", header]).await;
    assert_eq!(refused.code, Some(1), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("latest"), "{}", refused.stdout);

    for (options, expected) in [
        (["--request", "/v1/services/web"], "write a method and a path"),
        (["--request", "PUT /v1/services/web"], "admittance init rest"),
        (["--header", header], "--request"),
    ] {
        let failed_run = run_command(&chains, &body, &options).await;
        assert_eq!(failed_run.code, Some(2), "{options:?}: {}", failed_run.stdout);
        assert!(
            failed_run.stderr.contains(expected),
            "{options:?}: {}",
            failed_run.stderr
        );
    }
}

#[tokio::test]
async fn run_shows_a_row_for_each_stage_and_the_changes() {
    let directory = tempfile::tempdir().unwrap();
    let object = application("shop", "web", "docker.io/library/nginx:1.29");
    let (_, request) = write_requests(&directory, &object).swap_remove(0);
    let chains = admittance_tests::repository().join("docs/examples/demo/chains");
    let run = run_command(&chains, &request, &[]).await;
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    let has_line = |beginning: &str, words: &str| {
        lines
            .iter()
            .any(|line| line.trim_start().starts_with(beginning) && line.contains(words))
    };
    assert!(
        has_line("applications", "sidecar") && has_line("applications", "images"),
        "{}",
        run.stdout
    );
    assert!(has_line("-", "docker.io/library/nginx:1.29"), "{}", run.stdout);
    assert!(has_line("+", "mirror.example.com/library/nginx:1.29"), "{}", run.stdout);
    assert!(has_line("allowed", "changed by"), "{}", run.stdout);
    assert!(!run.stdout.contains('\u{1b}'), "no colours where there is no terminal");
}

#[tokio::test]
async fn run_accepts_a_plugin_with_its_settings() {
    let directory = tempfile::tempdir().unwrap();
    let object = application("shop", "web", "nginx:latest");
    let (_, request) = write_requests(&directory, &object).swap_remove(0);
    let source = source("image-policy");
    let plugin = Path::new(source.strip_prefix("file:").unwrap());
    for (settings, code) in [
        ("{refuseLatest: true}", 1),
        (r#"{"refuseLatest": false}"#, 0),
        ("{refuseLatest: 5}", 2),
    ] {
        let run = run_command(plugin, &request, &["--settings", settings]).await;
        assert_eq!(run.code, Some(code), "{settings}: {}{}", run.stdout, run.stderr);
    }
}

/// `run` accepts the output of `kubectl get -o yaml`, several documents, a directory and standard input.
#[tokio::test]
async fn run_accepts_lists_documents_directories_and_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let chain = write(
        &directory,
        "chain.yaml",
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: images }}\nspec:\n  \
             rules: [{{ operations: [CREATE], resources: [pods] }}]\n  \
             stages: [{{ name: tags, plugin: {{ source: \"{}\", settings: {{ refuseLatest: true }} }} }}]\n",
            source("image-policy")
        ),
    );
    let pod = |name: &str, image: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
               "spec": {"containers": [{"name": "web", "image": image}]}})
    };
    let folder = directory.path().join("objects");
    fs::create_dir(&folder).unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [pod("a", "nginx:1"), pod("b", "nginx")]});
    fs::write(folder.join("list.json"), list.to_string()).unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "d", "namespace": "shop"}});
    fs::write(
        folder.join("two.yaml"),
        format!("# one\n{}\n---\n{service}\n", pod("c", "nginx:2")),
    )
    .unwrap();
    fs::write(folder.join("README.md"), "not an object").unwrap();
    let run = run_command(&chain, &folder, &[]).await;
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    for (line, words) in lines.iter().skip(1).zip([
        ["allowed", "CREATE v1/Pod shop/a", "list.json: item 1", ""],
        ["refused", "CREATE v1/Pod shop/b", "list.json: item 2", "refuseLatest"],
        ["allowed", "CREATE v1/Pod shop/c", "two.yaml:2", ""],
        [
            "not matched",
            "CREATE v1/Service shop/d",
            "two.yaml:4",
            "images: no rule of the chain is for CREATE of v1/services, kind Service: `resources` has pods",
        ],
    ]) {
        for word in words {
            assert!(line.contains(word), "{word} in {line}");
        }
    }
    assert_eq!(
        lines.last(),
        Some(&"4 requests: 2 allowed, 1 refused, 1 not matched"),
        "{}",
        run.stdout
    );

    let json_run = self::run_command(&chain, &folder, &["--output", "json"]).await;
    let report: Value = serde_json::from_str(&json_run.stdout).unwrap();
    let allowed: Vec<_> = report["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|report| &report["allowed"])
        .collect();
    assert_eq!(allowed, [true, false, true, true]);

    let mut program = Admittance::command().unwrap();
    program.args([
        "run".as_ref(),
        chain.as_os_str(),
        "-".as_ref(),
        "--store".as_ref(),
        store().as_os_str(),
    ]);
    let input = fs::File::open(folder.join("two.yaml")).unwrap();
    let output = program.stdin(input).output().await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("2 requests: 1 allowed, 0 refused, 1 not matched"),
        "{stdout}"
    );

    let empty_file = write(&directory, "none.yaml", "# nothing\n");
    let run = self::run_command(&chain, &empty_file, &[]).await;
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("there is no request in"), "{}", run.stderr);
}

/// kubectl reads YAML 1.1, in which `yes` means true. `run` does the same, so policies see the Pod as kubectl sends it.
#[tokio::test]
async fn run_reads_a_manifest_as_kubectl_does() {
    let directory = tempfile::tempdir().unwrap();
    let chain = write(
        &directory,
        "chain.yaml",
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: host-network }
spec:
  phase: Validating
  rules: [ { operations: [CREATE], resources: [pods] } ]
  stages:
    - name: none
      cel: { validations: [ { expression: \"!(object.spec.?hostNetwork.orValue(false) == true)\" } ] }
",
    );
    for (value, code) in [("yes", 1), ("On", 1), ("'yes'", 0), ("no", 0), ("true", 1)] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{ name: web, namespace: shop }}\nspec: {{ hostNetwork: {value} }}\n"
        );
        let run = run_command(&chain, &write(&directory, "pod.yaml", pod), &[]).await;
        assert_eq!(run.code, Some(code), "{value}: {}{}", run.stdout, run.stderr);
    }
}

#[tokio::test]
async fn the_option_allow_of_the_run_command_grants_lookups() {
    let directory = tempfile::tempdir().unwrap();
    let plugin_source = source("edge-health");
    let plugin = Path::new(plugin_source.strip_prefix("file:").unwrap());
    let endpoints = write(
        &directory,
        "endpoints.yaml",
        "{apiVersion: v1, kind: Endpoints, metadata: {name: web, namespace: shop}, \
          subsets: [{notReadyAddresses: [{ip: 10.0.0.1, nodeName: far}]}]}",
    );
    let node =
        "{apiVersion: v1, kind: Node, metadata: {name: far}, status: {conditions: [{type: Ready, status: Unknown}]}}";
    let nodes_path = write(&directory, "nodes.yaml", node);
    let nodes = nodes_path.to_str().unwrap();
    for (options, code, message) in [
        (&["--allow", "cluster=v1/Node", "--cluster", nodes][..], 0, "changed by"),
        (&["--cluster", nodes], 1, "capability-denied"),
        (&["--allow", "cluster=v1/Node"], 1, "unavailable"),
        (&["--allow", "nodes"], 2, "write cluster=v1/Node"),
    ] {
        let run = run_command(plugin, &endpoints, options).await;
        assert_eq!(run.code, Some(code), "{options:?}: {}{}", run.stdout, run.stderr);
        assert!(
            run.stdout.contains(message) || run.stderr.contains(message),
            "{options:?}: {}{}",
            run.stdout,
            run.stderr
        );
    }
    let sending_source = source("guest-reaches-out");
    let sending_plugin = Path::new(sending_source.strip_prefix("file:").unwrap());
    let answers = "[{url: 'https://policy.example.com/rules', status: 201, body: [shop]}]";
    let answers = write(&directory, "answers.yaml", answers);
    let invalid_answers = write(
        &directory,
        "wrong.yaml",
        "[{url: 'https://policy.example.com/rules', state: 201}]",
    );
    let (answers, invalid_path) = (answers.to_str().unwrap(), invalid_answers.to_str().unwrap());
    let settings = "{target: http, url: 'https://policy.example.com/rules'}";
    let grant_options = ["--settings", settings, "--allow", "http=https://policy.example.com"];
    for (options, code, message) in [
        (&["--http", answers][..], 1, "201 [\"shop\"]"),
        (&[], 0, "there is no answer to `GET https://policy.example.com/rules`"),
        (&["--http", invalid_path], 2, "wrong.yaml:1:"),
    ] {
        let run = self::run_command(sending_plugin, &endpoints, &[&grant_options[..], options].concat()).await;
        assert_eq!(run.code, Some(code), "{options:?}: {}{}", run.stdout, run.stderr);
        let output = format!("{}{}", run.stdout, run.stderr);
        assert!(output.contains(message), "{options:?}: {output}");
    }
    let cluster = write(
        &directory,
        "cluster.yaml",
        "{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {providerID: x, unschedulable: true}}\n---\n\
         {apiVersion: v1, kind: Node, metadata: {name: b}}\n---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: shop}, \
          rules: [{verbs: [get], apiGroups: [''], resources: [secrets]}]}\n---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: shop}, \
          roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, name: jo}]}\n",
    );
    let cluster = ["--cluster", cluster.to_str().unwrap()];
    for (target, grant, message) in [
        (
            "{target: nodes}",
            "cluster=v1/Node",
            r#"[{"metadata":{"name":"a"},"spec":{"providerID":"x"}},{"metadata":{"name":"b"}}]"#,
        ),
        (
            "{target: access}",
            "cluster=authorization.k8s.io/v1/SubjectAccessReview",
            "get true, delete false",
        ),
        (
            "{target: access}",
            "cluster=authorization.k8s.io/v1/SelfSubjectAccessReview",
            "add `authorization.k8s.io/v1/SubjectAccessReview` to `allow.cluster` of the stage",
        ),
    ] {
        let options = [&cluster[..], &["--settings", target, "--allow", grant]].concat();
        let run = self::run_command(sending_plugin, &endpoints, &options).await;
        assert!(run.stdout.contains(message), "{message}: {}{}", run.stdout, run.stderr);
    }
    let chain = write(&directory, "chain.yaml", "");
    let run = run_command(&chain, &endpoints, &["--allow", "cluster=v1/Node"]).await;
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--allow is only for a plugin"), "{}", run.stderr);
}
