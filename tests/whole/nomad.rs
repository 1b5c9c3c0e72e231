//! Tests the driver in front of Nomad, with the configuration in the examples.

use std::fs;

use admittance_tests::{Admittance, Client, FakeUpstream, Serve, repository};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::{
    scene::write,
    webhooks::{issue_certificate, start_webhook_server},
};

/// Starts the driver with the example configuration, in which only the webhook's address and CA are changed.
async fn start_example() -> (tempfile::TempDir, FakeUpstream, Admittance) {
    let directory = tempfile::tempdir().unwrap();
    let bundle = issue_certificate(directory.path(), "--host", "rules.example.com").await;
    let rules = start_webhook_server(directory.path(), "rules.example.com").await;
    let example = repository().join("docs/examples/nomad");
    let config = fs::read_to_string(example.join("admittance.yaml")).unwrap();
    let config = format!("{config}\nwebhooks: {{ resolve: {{ rules.example.com: \"{rules}\" }} }}\n");
    fs::create_dir(directory.path().join("chains")).unwrap();
    let chain = fs::read_to_string(example.join("chains/jobs.yaml")).unwrap();
    let url = "url: https://rules.example.com/jobs";
    assert!(chain.contains(url));
    write(
        &directory,
        "chains/jobs.yaml",
        chain.replace(url, &format!("{url}\n        caBundle: {bundle}")),
    );
    let config = write(&directory, "admittance.yaml", config);
    let upstream = FakeUpstream::start().await.unwrap();
    let program = Serve::new(config)
        .unwrap()
        .upstream(&upstream.url())
        .start()
        .await
        .unwrap();
    (directory, upstream, program)
}

fn job(id: &str, priority: u32) -> Value {
    json!({
        "ID": id,
        "Name": id,
        "Type": "service",
        "Priority": priority,
        "Datacenters": ["dc1"],
        "TaskGroups": [{"Name": "web", "Count": 1, "Tasks": [{"Name": "web", "Driver": "docker", "Config": {"image": "nginx"}}]}],
    })
}

#[tokio::test]
async fn the_rules_in_the_nomad_example_apply_to_jobs() {
    let (_directory, upstream, program) = start_example().await;
    let client = Client::new().unwrap();
    let with_owner = |mut job: Value| {
        job["Meta"] = json!({"owner": "house-rules"});
        job
    };
    let misspelt = json!({"job": {"id": "typed-by-hand", "taskgroups": []}});
    // (case, method, path, body, expected status, job that Nomad must receive)
    for (name, method, path, body, status, expected) in [
        (
            "register",
            Method::PUT,
            "/v1/jobs",
            json!({"Job": job("web", 50)}),
            200,
            Some(with_owner(job("web", 50))),
        ),
        (
            "register too high",
            Method::PUT,
            "/v1/jobs",
            json!({"Job": job("web", 99)}),
            403,
            None,
        ),
        (
            "plan",
            Method::POST,
            "/v1/job/web/plan",
            json!({"Job": job("web", 50), "Diff": true}),
            200,
            Some(with_owner(job("web", 50))),
        ),
        (
            "update",
            Method::POST,
            "/v1/job/a/b",
            json!({"Job": job("a/b", 99)}),
            403,
            None,
        ),
        (
            "scale",
            Method::POST,
            "/v1/job/web/scale",
            json!({"Count": 3}),
            200,
            Some(Value::Null),
        ),
        (
            "an excluded namespace",
            Method::PUT,
            "/v1/jobs?namespace=sandbox",
            json!({"Job": job("web", 99)}),
            200,
            Some(job("web", 99)),
        ),
        (
            "another spelling",
            Method::PUT,
            "/v1/jobs",
            misspelt,
            200,
            Some(with_owner(json!({"ID": "typed-by-hand", "TaskGroups": []}))),
        ),
    ] {
        let before = upstream.requests().len();
        let request = Request::builder()
            .method(method)
            .uri(program.url(path))
            .body(body.to_string())
            .unwrap();
        let reply = client.send(request).await.unwrap();
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        if status == 403 {
            assert!(
                reply
                    .text()
                    .contains("stage house-rules of chain jobs denied the request"),
                "{}",
                reply.text()
            );
            assert!(reply.text().contains("Priority"), "{name}: {}", reply.text());
        }
        let writes: Vec<_> = upstream
            .requests()
            .split_off(before)
            .into_iter()
            .filter(|request| request.method != Method::GET)
            .collect();
        let jobs: Vec<_> = writes
            .iter()
            .map(|request| request.json().unwrap()["Job"].clone())
            .collect();
        assert_eq!(jobs, expected.into_iter().collect::<Vec<_>>(), "{name}");
        if let (Some(first_write), Some(diff)) = (writes.first(), body.get("Diff")) {
            assert_eq!(
                &first_write.json().unwrap()["Diff"],
                diff,
                "{name}: what is beside the job stays"
            );
        }
    }
}
