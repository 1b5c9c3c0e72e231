//! Tests `POST /v1/evaluate` and `POST /v1/applies` of the admin API.

use admittance_tests::{Client, Reply, Versions};
use http::Request;
use serde_json::{Value, json};

use super::setup::{OperatorSetup, chain};
use crate::scene::{BCS, application, source, write};

impl OperatorSetup {
    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_as(path, body, None).await
    }

    async fn post_as(&self, path: &str, body: &Value, token: Option<&str>) -> Reply {
        let mut builder = Request::post(self.program.admin_url(path)).header("content-type", "application/json");
        if let Some(token) = token {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        let request = builder.body(body.to_string()).unwrap();
        Client::new().unwrap().send(request).await.unwrap()
    }

    /// Sends this body to `/v1/evaluate`, checks that the evaluation succeeds, and returns the reply.
    async fn evaluate(&self, body: &Value) -> Value {
        let reply = self.post("/v1/evaluate", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json().unwrap()
    }
}

fn error_text(reply: &Reply) -> String {
    let reply: Value = reply.json().unwrap();
    reply["error"].to_string()
}

#[tokio::test]
async fn an_evaluation_returns_an_outcome_and_changes_nothing() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let object = application("shop", "web", "nginx:1");
    let before = setup.json_of(&["status"]).await;

    // The definitions name a module by a path that is relative to the directory of the live chain's file.
    let body = json!({"definitions": chain("two.wasm", ""), "request": {"object": object, "user": "ann"}});
    let reply = setup.evaluate(&body).await;
    let decision = &reply["decision"];
    assert_eq!(
        (&decision["verdict"], &decision["user"]),
        (&json!("changed"), &json!("ann")),
        "{reply}"
    );
    assert_eq!(decision["dryRun"], true);
    assert!(decision["patch"].to_string().contains(&Versions::name(2)), "{reply}");
    assert_eq!(decision["stages"][0]["stage"], "version");
    let annotations = &reply["object"]["metadata"]["annotations"];
    assert!(annotations.to_string().contains(&Versions::name(2)), "{reply}");

    // The first request evaluates the live chain as it is. The second request evaluates the live chain with other
    // settings of its plugin.
    let live = json!({"chain": "Mutating:versions", "request": {"object": object}});
    let reply = setup.evaluate(&live).await;
    assert_eq!(
        reply["object"]["metadata"]["annotations"]["version.admittance.dev/a"],
        Versions::name(1)
    );
    let mut other = live.clone();
    other["settings"] = json!({"version": "name: b"});
    let reply = setup.evaluate(&other).await;
    assert_eq!(
        reply["object"]["metadata"]["annotations"]["version.admittance.dev/b"],
        Versions::name(1)
    );

    let body = json!({"definitions": chain("two.wasm", ""), "request": {"object": "apiVersion: v4\nkind: process\n"}});
    let reply = setup.evaluate(&body).await;
    assert_eq!(
        (&reply["decision"]["verdict"], &reply["decision"]["stages"]),
        (&json!("allowed"), &json!([]))
    );
    assert!(
        reply["unmatched"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("`kinds` has application"),
        "{reply}"
    );

    assert_eq!(setup.json_of(&["status"]).await, before);
    assert_eq!(setup.read("chains/versions.yaml"), chain("one.wasm", ""));
    let listing: Value = Client::new()
        .unwrap()
        .get(&setup.program.admin_url("/v1/decisions"))
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(listing["decisions"], json!([]));
}

#[tokio::test]
async fn evaluations_that_cannot_run_are_refused_with_a_reason() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let object = application("shop", "web", "nginx:1");
    let request = json!({"object": object});
    let text = chain("one.wasm", "");
    for (body, status, expected) in [
        (
            json!({"definitions": text.replace("rules:", "rulez:"), "request": request}),
            422,
            "definitions:7:3: spec.rulez",
        ),
        (
            json!({"definitions": text.replace("one.wasm", "gone.wasm"), "name": "a.yaml", "request": request}),
            422,
            "a.yaml:11:7",
        ),
        (
            json!({"definitions": text, "settings": {"version": {"name": 5}}, "request": request}),
            422,
            "the plugin rejected its settings: invalid type: integer",
        ),
        (
            json!({"definitions": text, "settings": {"version": "a: b: c"}, "request": request}),
            422,
            "settings of version:1:",
        ),
        (
            json!({"definitions": text, "settings": {"other": {}}, "request": request}),
            422,
            "there are settings for other",
        ),
        (
            json!({"definitions": text, "request": {"object": "kind: [}"}}),
            422,
            "object:1:",
        ),
        (json!({"definitions": text, "request": {}}), 422, "write an object"),
        (
            json!({"definitions": "", "request": request}),
            422,
            "it contains no definition",
        ),
        (
            json!({"chain": "Mutating:gone", "request": request}),
            404,
            "no definition of a live chain Mutating:gone",
        ),
        (
            json!({"chain": "versions", "request": request}),
            400,
            "is not the name of a chain",
        ),
        (json!({"request": request}), 400, "either `definitions` or"),
        (
            json!({"definitions": text, "chain": "Mutating:versions", "request": request}),
            400,
            "either `definitions` or",
        ),
        (
            json!({"definitions": text, "request": request, "live": true}),
            400,
            "live",
        ),
    ] {
        let reply = setup.post("/v1/evaluate", &body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        assert!(error_text(&reply).contains(expected), "{body}: {}", reply.text());
    }
    let large = json!({"definitions": "#".repeat(9 << 20), "request": request});
    assert_eq!(setup.post("/v1/evaluate", &large).await.status, 413);
}

#[tokio::test]
async fn evaluations_have_the_limits_of_live_chains() {
    let setup = OperatorSetup::start_with_chain(&chain("one.wasm", "")).await;
    let object = application("shop", "web", "nginx:1");
    for (behaviour, timeout, failure) in [
        ("loops-forever", "200ms", "timeout"),
        ("grows-memory", "20s", "memory"),
        ("traps", "20s", "trap"),
    ] {
        let text = format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: bad }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages: [{{ name: bad, timeout: {timeout}, plugin: {{ source: \"{}\", settings: {{ behaviour: {behaviour} }} }} }}]
",
            source("guest-misbehaves")
        );
        let reply = setup
            .evaluate(&json!({"definitions": text, "request": {"object": object}}))
            .await;
        let stage = &reply["decision"]["stages"][0];
        assert_eq!(
            (&stage["result"], &stage["failure"]),
            (&json!("failed"), &json!(failure)),
            "{reply}"
        );
        assert_eq!(reply["decision"]["verdict"], "failed");
    }
}

const TOKENS_CONFIG: &str = "admin:
  address: 127.0.0.1:0
  tokens:
    - { name: board, role: Read, file: board.token }
    - { name: ops, role: Admin, file: ops.token }
";

/// An evaluation runs modules that the request names, so it needs the role that may apply definitions.
#[tokio::test]
async fn evaluation_needs_the_role_that_may_change_definitions() {
    let directory = tempfile::tempdir().unwrap();
    for (name, token) in [("board", "the-token-of-who-reads"), ("ops", "the-token-of-who-changes")] {
        let path = write(&directory, &format!("{name}.token"), token);
        let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, only_owner).unwrap();
    }
    let tokens = TOKENS_CONFIG
        .replace("board.token", directory.path().join("board.token").to_str().unwrap())
        .replace("ops.token", directory.path().join("ops.token").to_str().unwrap());
    let mut setup = OperatorSetup::start_with_config(&format!("{BCS}{tokens}"), &chain("one.wasm", "")).await;
    let object = application("shop", "web", "nginx:1");
    let evaluation = json!({"definitions": chain("two.wasm", ""), "request": {"object": object}});
    let question = json!({"object": object});
    let (reader, admin) = (Some("the-token-of-who-reads"), Some("the-token-of-who-changes"));
    for (path, body, token, status) in [
        ("/v1/evaluate", &evaluation, None, 401),
        ("/v1/evaluate", &evaluation, reader, 403),
        ("/v1/evaluate", &evaluation, admin, 200),
        ("/v1/applies", &question, None, 401),
        ("/v1/applies", &question, reader, 200),
    ] {
        let reply = setup.post_as(path, body, token).await;
        assert_eq!(reply.status, status, "{path} {token:?}: {}", reply.text());
    }
    let names_token = |line: &admittance_tests::ProgramLogLine| {
        let text = format!("{line:?}");
        text.contains("token ops: evaluate definitions")
    };
    setup.program.wait_for_log("the evaluation", names_token).await.unwrap();
}

#[tokio::test]
async fn the_admin_api_lists_the_chains_that_apply_to_a_request() {
    let setup = OperatorSetup::start_with_chain(&chain(
        "one.wasm",
        "      namespaceSelector: { operator: NotIn, values: [system] }\n",
    ))
    .await;
    let ask_applies = async |body: Value| -> Value {
        let reply = setup.post("/v1/applies", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json().unwrap()
    };
    let answer = ask_applies(json!({"object": application("shop", "web", "nginx:1")})).await;
    assert_eq!(answer["revision"], 1);
    assert_eq!(answer["chains"][0]["applies"], "yes");
    assert_eq!(
        answer["chains"][0]["stages"],
        json!([{"stage": "version", "mode": "Enforce", "applies": "yes"}])
    );
    let answer = ask_applies(json!({"kind": "v4/application", "namespace": "system"})).await;
    let stage = &answer["chains"][0]["stages"][0];
    assert_eq!(
        (&stage["applies"], &stage["reason"]),
        (
            &json!("no"),
            &json!("namespaceSelector does not match: \"system\" is excluded")
        )
    );
    let answer = ask_applies(json!({"kind": "v4/process"})).await;
    assert_eq!(answer["chains"][0]["applies"], "no");
    assert!(
        answer["chains"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("`kinds` has application"),
        "{answer}"
    );
    let reply = setup.post("/v1/applies", &json!({"kind": "application"})).await;
    assert_eq!(reply.status, 422);
    assert!(error_text(&reply).contains("lacks the version"), "{}", reply.text());
}
