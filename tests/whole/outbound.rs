//! Tests HTTP requests that plugins send through the program.

use std::fs;

use admittance_tests::{Admittance, ModuleServer};
use serde_json::{Value, json};

use crate::scene::{BCS, ProgramScene, application, bcs_message, source, write};

#[tokio::test]
async fn a_plugin_sends_requests_to_a_granted_server() {
    let server = ModuleServer::start().await.unwrap();
    server.put("rules", "no applications today");
    let origin = server.url("").trim_end_matches('/').to_owned();
    let directory = tempfile::tempdir().unwrap();
    let ca = write(&directory, "ca.pem", server.authority());
    let config = format!("{BCS}pluginHttp: {{ ca: \"{}\" }}\n", ca.display());
    let chain = |name: &str, path: &str, allow: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec:\n  \
             rules: [{{ operations: [CREATE], kinds: [application] }}]\n  stages:\n  - name: asks\n    \
             namespaceSelector: {{ operator: In, values: [{name}] }}\n    timeout: 20s\n    plugin:\n      \
             source: \"{}\"\n      settings: {{ target: http, url: \"{origin}/{path}\" }}\n      \
             allow: {{ http: [{allow}] }}\n",
            source("guest-reaches-out")
        )
    };
    let chains = [
        chain(
            "granted",
            "rules",
            &format!("{{ origin: \"{origin}\", methods: [GET], paths: [/rules] }}"),
        ),
        chain(
            "other-path",
            "secrets",
            &format!("{{ origin: \"{origin}\", paths: [/rules] }}"),
        ),
        chain("other-origin", "rules", "\"https://localhost:1\""),
    ];
    let scene = ProgramScene::start_with_config(&config, &chains.join("---\n")).await;
    for (namespace, expected) in [
        ("granted", "200 no applications today".to_owned()),
        (
            "other-path",
            format!("add the path to `paths` of `{origin}` in `allow.http` of the stage"),
        ),
        ("other-origin", format!("add `{origin}` to `allow.http` of the stage")),
    ] {
        let reply = scene.create(&application(namespace, "web", "nginx:1")).await;
        let message = bcs_message(&reply);
        assert!(message.contains(&expected), "{namespace}: {message}");
    }
    let labels = [("origin", origin.as_str()), ("result", "2xx")];
    let metrics = scene.program.metrics().await.unwrap();
    let request_count = metrics.sum("admittance_plugin_http_requests_total", &labels);
    assert_eq!(request_count, Some(1.0));
    let log_lines = scene.program.log();
    let sent_requests: Vec<_> = log_lines
        .iter()
        .filter(|line| line.message() == "a request was sent")
        .map(|line| line.field("request"))
        .collect();
    assert_eq!(sent_requests, [format!("GET {origin}/rules")]);
    assert_recorded_answers_replayed(&scene, &origin).await;
}

/// Checks that a replay gives plugins the recorded replies to their HTTP requests, and sends nothing to the server.
async fn assert_recorded_answers_replayed(scene: &ProgramScene, origin: &str) {
    let path = scene.directory.path().join("requests.ndjson");
    let file = path.to_str().unwrap();
    let url = scene.program.admin_url("");
    let record = Admittance::run(["record", "--count", "1", "--output", file, "--server", &url]);
    let create = async {
        // The program writes the recording shortly after its reply, so requests are sent until it is there.
        while !fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')) {
            scene.create(&application("granted", "web", "nginx:1")).await;
        }
    };
    let (record, ()) = tokio::join!(record, create);
    let record = record.unwrap();
    assert_eq!(record.code, Some(0), "{}{}", record.stdout, record.stderr);
    let recording: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let answer = &recording["recording"]["http"][0];
    assert_eq!(
        (&answer["url"], &answer["method"], &answer["body"]),
        (
            &json!(format!("{origin}/rules")),
            &json!("GET"),
            &json!("no applications today")
        )
    );
    let chains = scene.directory.path().join("chains.yaml");
    let store = crate::scene::store().to_str().unwrap();
    let replay = async |chains: &str| {
        let run = Admittance::run(["replay", file, chains, "--store", store])
            .await
            .unwrap();
        (run.code, format!("{}{}", run.stdout, run.stderr))
    };
    let (code, output) = replay(chains.to_str().unwrap()).await;
    assert_eq!(code, Some(0), "{output}");
    let text = fs::read_to_string(&chains).unwrap();
    let other = write(
        &scene.directory,
        "other.yaml",
        text.replace("/rules\" }", "/others\" }"),
    );
    let (code, other_output) = replay(other.to_str().unwrap()).await;
    assert_eq!(code, Some(1), "{other_output}");
}
