//! A webhook's answer may spell keys of the object differently than the API does. The upstream server and clients must
//! get the API's spelling, in each dialect.

use admittance_tests::Client;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::{
    kubernetes::server::{POD, Server},
    scene::{BCS, ProgramScene},
    webhooks::{issue_certificate, start_tls_server},
};

/// The configuration of a driver in front of a JSON API that stores jobs.
const REST_CONFIG: &str = "
dialect:
  rest:
    spellings: [/Job/Meta, /Job/TaskGroups/*/Tasks/*/Config]
    routes:
      - method: [PUT]
        path: /v1/jobs
        operation: CREATE
        resource: { version: v1, resource: jobs }
        kind: Job
        name: { pointer: /Job/ID }
        object: /Job
upstream:
  servers: [\"http://127.0.0.1:1\"]
definitions: [chains.yaml]
";

enum ExpectedTreatment {
    /// The upstream server gets exactly this object.
    Stored(&'static str),
    /// The stage fails with a message that contains this text, and the upstream server gets nothing.
    Fails(&'static str),
}

use ExpectedTreatment::{Fails, Stored};

type Row = (&'static str, &'static str, ExpectedTreatment);

/// (name of the application, the webhook's answer, expected result)
const APPLICATIONS: [Row; 6] = [
    (
        "keys",
        r#"{"apiVersion":"v4","KIND":"application","Metadata":{"Name":"keys","namespace":"shop","Labels":{"Tier":"1"}},"Spec":{"Instance":2}}"#,
        Stored(
            r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"keys","namespace":"shop","labels":{"Tier":"1"}},"spec":{"instance":2}}"#,
        ),
    ),
    (
        "order",
        r#"{"spec":{"instance":3,"unknown":{"Name":1.0}},"\u006detadata":{"namespace":"shop","name":"order"},"kind":"application","apiversion":"v4"}"#,
        Stored(
            r#"{"spec":{"instance":3,"unknown":{"Name":1.0}},"metadata":{"namespace":"shop","name":"order"},"kind":"application","apiVersion":"v4"}"#,
        ),
    ),
    (
        "values",
        r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"values","namespace":"shop"},"spec":{"unknown":{"a":1,"a":2}}}"#,
        Fails("invalid-response"),
    ),
    (
        "spellings",
        r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"spellings","namespace":"shop"},"Metadata":{"name":"b"}}"#,
        Fails("invalid-response"),
    ),
    (
        "images",
        r#"{"apiVersion":"v4","kind":"application","metadata":{"name":"images","namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"image":"a","Image":"b"}]}}}}"#,
        Fails("invalid-response"),
    ),
    (
        "identity",
        r#"{"apiVersion":"v4","kind":"application","Metadata":{"Name":"another","namespace":"shop"}}"#,
        Fails("identity-changed"),
    ),
];

/// (ID of the job, the webhook's answer, expected result)
const JOBS: [Row; 4] = [
    (
        "keys",
        r#"{"id":"keys","META":{"Tier":"1"},"taskgroups":[{"tasks":[{"CONFIG":{"Image":"x"}}]}]}"#,
        Stored(
            r#"{"Job":{"ID":"keys","Meta":{"Tier":"1"},"TaskGroups":[{"Tasks":[{"Config":{"Image":"x"}}]}]},"x":1.0}"#,
        ),
    ),
    (
        "values",
        r#"{"ID":"values","Meta":{"a":"b","a":"c"}}"#,
        Fails("invalid-response"),
    ),
    (
        "spellings",
        r#"{"ID":"spellings","Meta":{"a":"b"},"meta":{"a":"c"}}"#,
        Fails("invalid-response"),
    ),
    ("identity", r#"{"id":"another"}"#, Fails("identity-changed")),
];

/// (name of the Pod, the webhook's answer, expected patch)
const PODS: [Row; 4] = [
    (
        "keys",
        r#"{"APIVersion":"v1","Kind":"Pod","Metadata":{"Name":"keys","namespace":"shop","Labels":{"Tier":"1"}}}"#,
        Stored(r#"[{"op":"add","path":"/metadata/labels","value":{"Tier":"1"}}]"#),
    ),
    (
        "values",
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"values","namespace":"shop","annotations":{"a":"b","a":"c"}}}"#,
        Fails("invalid-response"),
    ),
    (
        "spellings",
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"spellings","namespace":"shop"},"Metadata":{"name":"b"}}"#,
        Fails("invalid-response"),
    ),
    (
        "identity",
        r#"{"apiVersion":"v1","kind":"Pod","Metadata":{"name":"another","namespace":"shop"}}"#,
        Fails("identity-changed"),
    ),
];

/// Starts a webhook server that finds the object of each call in `rows` by its name, and answers as the row says.
/// Returns a chain that calls this webhook, and the configuration that resolves the webhook's host name.
async fn start_webhook(directory: &tempfile::TempDir, rows: &'static [Row], rule: &str) -> (String, String) {
    let bundle = issue_certificate(directory.path(), "--host", "hook.example.com").await;
    let answer = move |_, request: Request<hyper::body::Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap();
        let name = object.get("ID").unwrap_or(&object["metadata"]["name"]);
        let (_, answer, _) = rows.iter().find(|(row, ..)| name == row).unwrap();
        Ok(Response::new(Full::new(Bytes::from_static(answer.as_bytes()))))
    };
    let hook = start_tls_server(directory.path(), "hook.example.com", &[], answer).await;
    let chain = format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: respelled }}
spec:
  rules: [{{ operations: [CREATE], {rule} }}]
  stages:
    - name: hook
      webhook: {{ protocol: BcsResource, url: \"https://hook.example.com/\", caBundle: {bundle} }}
      failurePolicy: Fail
"
    );
    let resolve = format!("webhooks: {{ resolve: {{ hook.example.com: \"{hook}\" }} }}\n");
    (chain, resolve)
}

/// Creates an object for each row, and compares what the upstream server receives with the row's expected result.
async fn check_rows(scene: &ProgramScene, rows: &[Row], method: Method, path: &str, body: fn(&str) -> String) {
    for (name, _, expected) in rows {
        let before = scene.upstream.requests().len();
        let url = scene.program.url(path);
        let reply = Client::send_bcs(&scene.client, method.clone(), &url, body(name))
            .await
            .unwrap();
        let requests = scene.upstream.requests().split_off(before);
        let stored: Vec<_> = requests
            .iter()
            .map(|request| std::str::from_utf8(&request.body).unwrap())
            .collect();
        match expected {
            Stored(text) => assert_eq!(stored, [*text], "{name}: {}", reply.text()),
            Fails(failure) => {
                assert!(stored.is_empty(), "{name}: {stored:?}");
                assert!(
                    reply.text().contains(&format!("failed ({failure})")),
                    "{name}: {}",
                    reply.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn the_scheduler_gets_applications_in_the_spelling_of_bcs() {
    let directory = tempfile::tempdir().unwrap();
    let (chain, resolve) = start_webhook(&directory, &APPLICATIONS, "kinds: [application]").await;
    let scene = ProgramScene::start_with_config(&format!("{BCS}{resolve}"), &chain).await;
    let path = "/mesosdriver/v4/namespaces/shop/applications";
    check_rows(&scene, &APPLICATIONS, Method::POST, path, |name| {
        format!(r#"{{"apiVersion":"v4","Kind":"application","METADATA":{{"name":"{name}","namespace":"shop"}}}}"#)
    })
    .await;
}

#[tokio::test]
async fn a_rest_upstream_gets_objects_in_the_spelling_of_its_routes() {
    let directory = tempfile::tempdir().unwrap();
    let rule = "apiGroups: [\"\"], apiVersions: [v1], resources: [jobs]";
    let (chain, resolve) = start_webhook(&directory, &JOBS, rule).await;
    let scene = ProgramScene::start_with_config(&format!("{REST_CONFIG}{resolve}"), &chain).await;
    check_rows(&scene, &JOBS, Method::PUT, "/v1/jobs", |name| {
        format!(r#"{{"job":{{"Id":"{name}"}},"x":1.0}}"#)
    })
    .await;
}

#[tokio::test]
async fn kubernetes_gets_patches_in_the_spelling_of_its_objects() {
    let directory = tempfile::tempdir().unwrap();
    let rule = "apiGroups: [\"\"], apiVersions: [v1], resources: [pods]";
    let (chain, resolve) = start_webhook(&directory, &PODS, rule).await;
    let server = Server::start(&resolve, &chain).await;
    for (name, _, expected) in &PODS {
        let mut review = POD.review(name);
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}});
        review["request"]["name"] = json!(name);
        review["request"]["namespace"] = json!("shop");
        review["request"]["object"] = object;
        let verdict = server.review("/admit", &review).await;
        match expected {
            Stored(patch) => {
                let patch: Value = serde_json::from_str(patch).unwrap();
                assert_eq!(verdict.patch(), Some(patch), "{name}: {verdict:?}");
            }
            Fails(failure) => {
                let failed = format!("failed ({failure})");
                assert!(verdict.message().contains(&failed), "{name}: {verdict:?}");
            }
        }
    }
}
