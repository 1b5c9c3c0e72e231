use admittance_tests::replace;
use serde_json::{Value, json};

use super::scene::{DecisionsScene, chains, until_lines};
use crate::kubernetes::server::POD;

#[tokio::test]
async fn decisions_are_listed_and_explained() {
    let scene = DecisionsScene::start("").await;
    assert!(scene.create("good", "img:1").await.is_allowed());
    assert!(!scene.create("bad", "img:latest").await.is_allowed());
    for (arguments, expected) in [
        (&[][..], vec!["good", "bad"]),
        (&["--verdict", "refused"], vec!["bad"]),
        (&["--verdict", "changed"], vec!["good"]),
        (&["--chain", "pods", "--stage", "mark"], vec!["good", "bad"]),
        (&["--chain", "others"], vec![]),
        (&["--namespace", "test", "--user", "alice"], vec!["good", "bad"]),
        (&["--user", "bob"], vec![]),
        (&["--since", "1h", "--limit", "1"], vec!["bad"]),
        (&["--since", "2100-01-01T00:00:00Z"], vec![]),
    ] {
        assert_eq!(scene.list_uids(arguments).await, expected, "{arguments:?}");
    }
    let text = scene.stdout_of(&["decisions"]).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("changed by pods/mark") && lines[0].ends_with("good"),
        "{text}"
    );
    assert!(
        lines[1].contains("CREATE of v1/Pod test/web  alice  stage images of chain pods denied"),
        "{text}"
    );

    let explained = scene.json_of(&["explain", "good"]).await;
    let decision = &explained["decisions"][0];
    assert_eq!(decision["verdict"], "changed");
    assert_eq!(decision["dialect"], "kubernetes");
    assert!(decision["listener"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(decision["groups"], json!(["dev"]));
    let mark = &decision["stages"][0];
    assert_eq!((&mark["stage"], &mark["result"]), (&json!("mark"), &json!("patch")));
    assert_eq!(
        mark["log"],
        json!([{"level": "info", "context": "well-behaved", "message": "begins"}])
    );
    assert!(mark["microseconds"].as_u64().unwrap() > 0);
    let after = &decision["stages"][1]["startMicroseconds"];
    assert!(after.as_u64() >= mark["startMicroseconds"].as_u64());
    assert_eq!(decision["result"]["metadata"]["annotations"]["well-behaved"], "true");
    assert_eq!(
        decision["review"]["request"]["object"]["metadata"].get("annotations"),
        None
    );

    let text = scene.stdout_of(&["explain", "good"]).await;
    for expected in [
        "CREATE of v1/Pod test/web by alice (dev)",
        "info well-behaved: begins",
        "+ ",
        "\"well-behaved\": \"true\"",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let text = scene.stdout_of(&["explain", "bad"]).await;
    assert!(text.contains("deny (403)") && text.contains("latest"), "{text}");
}

#[tokio::test]
async fn wrong_queries_for_decisions_get_a_clear_error() {
    let scene = DecisionsScene::start("").await;
    let unknown = scene.run_command(&["explain", "none"]).await;
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("there is no decision with the uid \"none\""),
        "{}",
        unknown.stderr
    );
    for (path, status, expected) in [
        ("/v1/decisions?verdict=no", 400, "write allowed, changed"),
        (
            "/v1/decisions?since=yesterday",
            400,
            "write 2026-01-02T03:04:05Z or 10m",
        ),
        ("/v1/decisions?limit=0", 400, "write 1 to 1000"),
        ("/v1/decisions?color=red", 400, "unknown field"),
        ("/v1/decisions?after=1", 400, "only streams"),
        ("/v1/decisions/events?limit=1", 400, "only lists"),
        ("/v1/decisions/rates?seconds=0", 400, "write 1 to 3600"),
        ("/v1/decisions/none", 404, "there is no decision"),
    ] {
        let reply = scene.get(path).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        let message = reply.json().unwrap()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(expected), "{path}: {message}");
    }
}

#[tokio::test]
async fn decision_rates_are_counted_for_each_chain() {
    let scene = DecisionsScene::start("").await;
    scene.create("a", "img:1").await;
    scene.create("b", "img:latest").await;
    let rates = scene.get("/v1/decisions/rates").await.json().unwrap();
    let pods = &rates["chains"][0];
    assert_eq!(
        (&pods["chain"], &pods["requests"], &pods["denied"], &pods["changed"]),
        (&json!("pods"), &json!(2), &json!(1), &json!(1)),
        "the change of a request that is denied later is not counted"
    );
    assert!(pods["p99Microseconds"].as_u64().unwrap() >= pods["p50Microseconds"].as_u64().unwrap());
}

#[tokio::test]
async fn decisions_contain_no_secrets() {
    let scene = DecisionsScene::start("decisions: { objects: true, ndjson: { file: decisions.ndjson } }").await;
    let mut review = POD.review("secret");
    let request = &mut review["request"];
    for kind in ["kind", "requestKind"] {
        request[kind]["kind"] = "Secret".into();
    }
    for resource in ["resource", "requestResource"] {
        request[resource]["resource"] = "secrets".into();
    }
    request["object"] = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "test"},
                               "data": {"password": "aHVudGVyMg=="}});
    scene.review(&review).await;
    let explained = scene.json_of(&["explain", "secret"]).await;
    assert_eq!(explained["decisions"][0]["verdict"], "changed");
    assert!(!explained.to_string().contains("aHVudGVyMg"), "{explained}");
    let replay = scene.run_command(&["explain", "secret", "--replay"]).await;
    assert!(replay.stderr.contains("cannot be replayed"), "{}", replay.stderr);
    let decision_lines = until_lines(&scene.path("decisions.ndjson"), 1).await;
    assert!(!decision_lines.contains("aHVudGVyMg"), "{decision_lines}");
}

#[tokio::test]
async fn a_request_is_replayed_through_the_live_chains() {
    let scene = DecisionsScene::start("").await;
    assert!(!scene.create("bad", "img:latest").await.is_allowed());
    let same = scene.stdout_of(&["explain", "bad", "--replay"]).await;
    assert!(same.contains("the same by revision 1"), "{same}");

    let relaxed_chains = chains().replace("refuseLatest: true", "refuseLatest: false");
    replace(&scene.path("chains.yaml"), relaxed_chains).unwrap();
    let is_live = |status: &Value| status["revision"] == 2;
    scene.0.program.wait_for_status("the change", is_live).await.unwrap();
    let different = scene.run_command(&["explain", "bad", "--replay"]).await;
    assert_eq!(different.code, Some(1), "{}", different.stderr);
    for expected in ["different by revision 2", "- denied (403)", "+ changed"] {
        assert!(different.stdout.contains(expected), "{}", different.stdout);
    }
    assert_eq!(scene.list_uids(&[]).await, ["bad"]);
    let metrics = scene.0.program.metrics().await.unwrap();
    assert_eq!(
        metrics.sum("admittance_requests_total", &[("decision", "changed")]),
        Some(0.0)
    );

    // A replay is refused if it would call the webhook again, unless `--call-webhooks` allows that.
    let webhook = "    - name: remote\n      webhook: { protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" }\n";
    replace(&scene.path("chains.yaml"), chains() + webhook).unwrap();
    let is_live = |status: &Value| status["revision"] == 3;
    scene.0.program.wait_for_status("the change", is_live).await.unwrap();
    let refused = scene.run_command(&["explain", "bad", "--replay"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("stage remote of chain pods calls a webhook"),
        "{}",
        refused.stderr
    );
    let called = scene
        .run_command(&["explain", "bad", "--replay", "--call-webhooks"])
        .await;
    assert!(
        called.stdout.contains("the same by revision 3"),
        "{}{}",
        called.stdout,
        called.stderr
    );
}
