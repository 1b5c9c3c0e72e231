//! Tests stages that call remote webhooks over TLS, with certificates from `admittance certs`.

use std::{fs, io, net::SocketAddr, path::Path, sync::Arc};

use admittance_tests::{Admittance, Client, FakeUpstream, Serve};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::scene::{ProgramScene, application, bcs_message, store, write};

/// Creates a CA, and a server certificate for this service or host. Returns the `caBundle` for the CA.
pub(crate) async fn issue_certificate(directory: &Path, flag: &str, name: &str) -> String {
    let out = directory.to_str().unwrap();
    let arguments = ["certs", "--out", out, flag, name, "--output", "json"];
    let certs_output = Admittance::run(arguments).await.unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    let certs_json: Value = serde_json::from_str(&certs_output.stdout).unwrap();
    certs_json["caBundle"].as_str().unwrap().to_owned()
}

/// Starts a webhook server, in which the path of a request selects the answer. The server stops when the test ends.
pub(crate) async fn start_webhook_server(directory: &Path, service: &str) -> SocketAddr {
    start_tls_server(directory, service, &[], |_, request| answer_request(request)).await
}

/// Starts a TLS server with the certificate of this service or host. `answer` gets each request, and the index of its
/// connection. If `protocols`, for ALPN, is empty, the server speaks HTTP/1.1.
pub(crate) async fn start_tls_server<F, A>(directory: &Path, service: &str, protocols: &[&str], answer: F) -> SocketAddr
where
    F: Fn(usize, Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let certificates = CertificateDer::pem_file_iter(directory.join(format!("{service}.pem")));
    let certificates = certificates.unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(directory.join(format!("{service}.key"))).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0_usize.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                // If the client does not trust the CA, it aborts the handshake, and there is no request.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let connection = auto::Builder::new(TokioExecutor::new());
                let service = service_fn(move |request| answer(number, request));
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn answer_request(request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let (status, reply) = match (path.as_str(), path.strip_prefix("/review/")) {
        (_, Some(hook)) => answer_review(hook, &body),
        ("/jobs", _) => answer_review("jobs", &body),
        _ => answer_resource(&path, body),
    };
    if path.ends_with("hangs") {
        std::future::pending::<()>().await;
    }
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(reply))).unwrap())
}

/// Answers a call of a webhook whose protocol sends the object alone, without an AdmissionReview around it. The path of
/// the call selects the answer.
fn answer_resource(path: &str, mut object: Value) -> (u16, String) {
    assert_eq!(object["kind"], "application", "the object comes bare");
    match path {
        "/annotates" | "/created" => {
            object["metadata"]["annotations"]["hook"] = "seen".into();
            (if path == "/created" { 201 } else { 200 }, object.to_string())
        }
        "/renames" => {
            object["metadata"]["name"] = "another".into();
            (200, object.to_string())
        }
        "/hangs" | "/empty" => (200, String::new()),
        "/empty-object" => (200, "{}".into()),
        "/null" => (200, "null".into()),
        "/text" => (200, "all is well".into()),
        "/broken" => (500, "100% out of order".into()),
        path => (404, format!("no hook at {path}")),
    }
}

fn answer_review(hook: &str, review: &Value) -> (u16, String) {
    assert_eq!(review["kind"], "AdmissionReview");
    let patch = |patch: &str| json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
    let mut response = match hook {
        "allows" => json!({"allowed": true, "warnings": ["mind the gap"]}),
        "beta" if review["apiVersion"] != "admission.k8s.io/v1beta1" => return (400, "not v1beta1".into()),
        "patches" | "beta" => patch(
            // Base64 of `[{"op":"add","path":"/metadata/annotations","value":{"hook":"seen"}}]`.
            "W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2Fubm90YXRpb25zIiwidmFsdWUiOnsiaG9vayI6InNlZW4ifX1d",
        ),
        "jobs" if review["request"]["object"]["Priority"].as_u64() < Some(90) => {
            // Base64 of `[{"op":"add","path":"/Meta","value":{"owner":"house-rules"}}]`.
            patch("W3sib3AiOiJhZGQiLCJwYXRoIjoiL01ldGEiLCJ2YWx1ZSI6eyJvd25lciI6ImhvdXNlLXJ1bGVzIn19XQ==")
        }
        "jobs" => {
            json!({"allowed": false, "status": {"code": 403, "message": "Priority: 90 and above is for the house"}})
        }
        "notes" => {
            let notes: serde_json::Map<_, _> = (0..INVALID_KEY_COUNT)
                .map(|number| (format!("invalid*{number:04}"), "x".into()))
                .collect();
            json!({"allowed": true, "auditAnnotations": notes})
        }
        "denies" => {
            json!({"allowed": false, "status": {"code": 422, "reason": "Invalid", "message": "no tea today"}})
        }
        "wrong-uid" => json!({"allowed": true, "uid": "another"}),
        "bad-patch" => patch("%%%"),
        "no-patch-type" => json!({"allowed": true, "patch": "W10="}),
        other => return (404, format!("no hook at {other}")),
    };
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    let reply = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
    (200, reply.to_string())
}

/// The number of annotations with invalid keys that the webhook `notes` returns.
const INVALID_KEY_COUNT: usize = 3000;

#[derive(Clone, Copy)]
enum ExpectedEffect {
    Changes,
    Passes,
    Denies,
    Fails(&'static str, &'static str),
}

use ExpectedEffect::{Changes, Denies, Fails, Passes};

/// (name of the webhook, protocol, service, path, CA bundle that the driver trusts, expected result)
const HOOKS: [(&str, &str, &str, &str, TrustedBundle, ExpectedEffect); 22] = [
    (
        "annotates",
        "BcsResource",
        "hook",
        "/annotates",
        TrustedBundle::Right,
        Changes,
    ),
    (
        "created",
        "BcsResource",
        "hook",
        "/created",
        TrustedBundle::Right,
        Fails("bad-status", "201"),
    ),
    (
        "renames",
        "BcsResource",
        "hook",
        "/renames",
        TrustedBundle::Right,
        Fails("identity-changed", "/metadata/name"),
    ),
    (
        "empty",
        "BcsResource",
        "hook",
        "/empty",
        TrustedBundle::Right,
        Fails("invalid-response", "empty"),
    ),
    (
        "empty-object",
        "BcsResource",
        "hook",
        "/empty-object",
        TrustedBundle::Right,
        Fails("identity-changed", "apiVersion"),
    ),
    (
        "null",
        "BcsResource",
        "hook",
        "/null",
        TrustedBundle::Right,
        Fails("invalid-response", "object"),
    ),
    (
        "text",
        "BcsResource",
        "hook",
        "/text",
        TrustedBundle::Right,
        Fails("invalid-response", "JSON"),
    ),
    (
        "broken",
        "BcsResource",
        "hook",
        "/broken",
        TrustedBundle::Right,
        Fails("bad-status", "100% out of order"),
    ),
    (
        "absent",
        "BcsResource",
        "hook",
        "/absent",
        TrustedBundle::Right,
        Fails("bad-status", "404"),
    ),
    (
        "hangs",
        "BcsResource",
        "hook",
        "/hangs",
        TrustedBundle::Right,
        Fails("timeout", ""),
    ),
    (
        "wrong-ca",
        "BcsResource",
        "hook",
        "/annotates",
        TrustedBundle::Wrong,
        Fails("tls", "certificate"),
    ),
    (
        "wrong-name",
        "BcsResource",
        "other",
        "/annotates",
        TrustedBundle::Right,
        Fails("tls", "other.hooks"),
    ),
    (
        "away",
        "BcsResource",
        "away",
        "/annotates",
        TrustedBundle::Right,
        Fails("unreachable", "away.hooks"),
    ),
    (
        "allows",
        "AdmissionReview",
        "hook",
        "/review/allows",
        TrustedBundle::Right,
        Passes,
    ),
    (
        "patches",
        "AdmissionReview",
        "hook",
        "/review/patches",
        TrustedBundle::Right,
        Changes,
    ),
    (
        "v1beta1",
        "AdmissionReview\n        versions: [v1beta1]",
        "hook",
        "/review/beta",
        TrustedBundle::Right,
        Changes,
    ),
    (
        "notes",
        "AdmissionReview",
        "hook",
        "/review/notes",
        TrustedBundle::Right,
        Passes,
    ),
    (
        "denies",
        "AdmissionReview",
        "hook",
        "/review/denies",
        TrustedBundle::Right,
        Denies,
    ),
    (
        "wrong-uid",
        "AdmissionReview",
        "hook",
        "/review/wrong-uid",
        TrustedBundle::Right,
        Fails("invalid-response", "uid"),
    ),
    (
        "bad-patch",
        "AdmissionReview",
        "hook",
        "/review/bad-patch",
        TrustedBundle::Right,
        Fails("invalid-response", "patch"),
    ),
    (
        "no-patch-type",
        "AdmissionReview",
        "hook",
        "/review/no-patch-type",
        TrustedBundle::Right,
        Fails("invalid-response", "patchType"),
    ),
    (
        "review-ca",
        "AdmissionReview",
        "hook",
        "/review/allows",
        TrustedBundle::Wrong,
        Fails("tls", "certificate"),
    ),
];

#[derive(Clone, Copy)]
enum TrustedBundle {
    Right,
    Wrong,
}

/// Returns the configuration that resolves the host names of the webhook servers to these addresses.
fn resolve_config(hook_address: SocketAddr, away_address: SocketAddr) -> String {
    let rows = [("hook", hook_address), ("other", hook_address), ("away", away_address)];
    let lines_of_host = |(name, address): &(&str, SocketAddr)| {
        format!("    {name}.hooks: \"{address}\"\n    {name}.hooks.svc: \"{address}\"\n")
    };
    format!(
        "webhooks:\n  resolve:\n{}",
        rows.iter().map(lines_of_host).collect::<String>()
    )
}

async fn closed_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn webhook_answers_have_the_expected_effects_under_each_failure_policy() {
    let directory = tempfile::tempdir().unwrap();
    let (right_directory, wrong_directory) = (directory.path().join("right"), directory.path().join("wrong"));
    let bundle = issue_certificate(&right_directory, "--service", "hook.hooks").await;
    let wrong_bundle = issue_certificate(&wrong_directory, "--service", "hook.hooks").await;
    let hook = start_webhook_server(&right_directory, "hook.hooks").await;

    let mut chains = String::new();
    for (name, protocol, service, path, trusted_bundle, _) in HOOKS {
        let bundle = match trusted_bundle {
            TrustedBundle::Right => &bundle,
            TrustedBundle::Wrong => &wrong_bundle,
        };
        let timeout = if name == "hangs" { "200ms" } else { "8s" };
        for policy in ["Fail", "Ignore"] {
            let namespace = format!("{name}-{}", policy.to_lowercase());
            chains += &format!(
                "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {namespace} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: hook
      webhook:
        protocol: {protocol}
        service: {{ namespace: hooks, name: {service}, path: {path} }}
        caBundle: {bundle}
      namespaceSelector: {{ operator: In, values: [{namespace}] }}
      failurePolicy: {policy}
      timeout: {timeout}
"
            );
        }
    }
    let config = format!("{}{}", crate::scene::BCS, resolve_config(hook, closed_address().await));
    let scene = ProgramScene::start_with_config(&config, &chains).await;
    let scene = Arc::new(scene);
    let mut checks = JoinSet::new();
    for (name, .., expected) in HOOKS {
        for policy in ["Fail", "Ignore"] {
            let scene = scene.clone();
            checks.spawn(async move { check_effect(&scene, name, policy, expected).await });
        }
    }
    let mut problems = Vec::new();
    while let Some(check_result) = checks.join_next().await {
        problems.extend(check_result.err().map(|error| error.to_string()));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // The webhook `notes` was called twice. Each of its answers has thousands of invalid annotations, but the log has
    // only one line for each answer.
    let log = scene.program.log();
    let drop_lines: Vec<_> = log
        .iter()
        .filter(|line| line.message().contains("audit annotations of a webhook are dropped"))
        .map(|line| (&line.fields()["dropped"], line.field("key")))
        .collect();
    let invalid_key_count = json!(INVALID_KEY_COUNT);
    assert_eq!(drop_lines, [(&invalid_key_count, "invalid*0000"); 2]);
}

async fn check_effect(scene: &ProgramScene, name: &str, policy: &str, expected: ExpectedEffect) {
    let namespace = format!("{name}-{}", policy.to_lowercase());
    let object = application(&namespace, "app", "nginx:1.29");
    let reply = scene.create(&object).await;
    let stored = scene.stored_object(&namespace, "app");
    let message = || bcs_message(&reply);
    match (expected, policy) {
        (Changes, _) => {
            assert_eq!(reply.status, 200, "{namespace}: {}", reply.text());
            let mut changed_object = object;
            changed_object["metadata"]["annotations"] = json!({"hook": "seen"});
            assert_eq!(stored, Some(changed_object), "{namespace}");
        }
        (Passes, _) | (Fails(..), "Ignore") => {
            assert_eq!(reply.status, 200, "{namespace}: {}", reply.text());
            assert_eq!(stored, Some(object), "{namespace}: the last good object");
        }
        (Denies, _) => {
            assert_eq!(
                (reply.status.as_u16(), stored),
                (400, None),
                "{namespace}: {}",
                reply.text()
            );
            assert!(
                message().contains("denied the request: no tea today"),
                "{namespace}: {}",
                message()
            );
        }
        (Fails(failure, words), _) => {
            assert_eq!(
                (reply.status.as_u16(), stored),
                (400, None),
                "{namespace}: {}",
                reply.text()
            );
            let beginning = format!("request webhoook hook error stage hook of chain {namespace} failed ({failure}): ");
            assert!(message().starts_with(&beginning), "{namespace}: {}", message());
            assert!(message().contains(words), "{namespace}: {}", message());
        }
    }
    if name == "allows" {
        let warning = reply.headers["warning"].to_str().unwrap();
        assert!(warning.contains("mind the gap"), "{namespace}: {warning}");
    }
    if let Fails(failure, _) = expected {
        let labels = [("chain", namespace.as_str()), ("failure", failure), ("policy", policy)];
        let metrics = scene.program.metrics().await.unwrap();
        assert_eq!(
            metrics.sum("admittance_stage_failures_total", &labels),
            Some(1.0),
            "{namespace}"
        );
    }
}

#[tokio::test]
async fn an_admissionwebhook_document_of_bcs_works_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = issue_certificate(directory.path(), "--service", "hook.hooks").await;
    let hook = start_webhook_server(directory.path(), "hook.hooks").await;
    let webhook = |name: &str, path: &str, policy: &str| {
        let client_config = json!({"caBundle": bundle, "namespace": "hooks", "name": "hook", "path": path});
        json!({"name": name, "failurePolicy": policy, "clientConfig": client_config})
    };
    let mut excluded_webhook = webhook("refuses-elsewhere", "/broken", "Fail");
    excluded_webhook["namespaceSelector"] = json!({"operator": "NotIn", "values": ["shop"]});
    let document = json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": "webhook-test", "namespace": "defaultGroup"},
        "resourcesRef": {"operation": "Create", "kind": "Application"},
        "admissionWebhooks": [
            webhook("container-broken", "/broken", "Ignore"),
            webhook("container-sidecar", "/annotates", "Fail"),
            excluded_webhook,
        ],
    });
    write(&directory, "webhooks.json", document.to_string());
    let config = crate::scene::BCS.replace("chains.yaml", "webhooks.json");
    let config = write(
        &directory,
        "admittance.yaml",
        format!("{config}{}", resolve_config(hook, closed_address().await)),
    );
    let upstream = FakeUpstream::start().await.unwrap();
    let program = Serve::new(config)
        .unwrap()
        .upstream(&upstream.url())
        .store(store())
        .start()
        .await
        .unwrap();
    let scene = ProgramScene {
        directory,
        upstream,
        program,
        client: Client::new().unwrap(),
    };

    let object = application("shop", "web", "nginx:1.29");
    let reply = scene.create(&object).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(
        scene.stored_object("shop", "web").unwrap()["metadata"]["annotations"]["hook"],
        "seen"
    );

    let reply = scene.create(&application("other", "web", "nginx:1.29")).await;
    assert_eq!(
        (reply.status.as_u16(), scene.stored_object("other", "web")),
        (400, None)
    );
    assert!(
        bcs_message(&reply).contains("stage refuses-elsewhere"),
        "{}",
        reply.text()
    );

    let path = "/mesosdriver/v4/namespaces/shop/applications";
    let update = application("shop", "update", "nginx:1.29");
    assert_eq!(scene.send(http::Method::PUT, path, &update).await.status, 200);
    assert_eq!(scene.stored_object("shop", "update"), Some(update));
}

#[tokio::test]
async fn the_listener_serves_tls_and_checks_client_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let (our_directory, their_directory) = (directory.path().join("ours"), directory.path().join("theirs"));
    for (out, host) in [(&our_directory, "localhost"), (&their_directory, "localhost")] {
        let out = out.to_str().unwrap();
        let arguments = [
            "certs",
            "--out",
            out,
            "--host",
            host,
            "--host",
            "127.0.0.1",
            "--client",
            "operator",
        ];
        assert_eq!(Admittance::run(arguments).await.unwrap().code, Some(0));
    }
    let pem = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let client = |folder: &Path, identity: Option<&Path>| {
        let identity = identity.map(|folder| (pem(folder, "operator.pem"), pem(folder, "operator.key")));
        let identity = identity
            .as_ref()
            .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        Client::with_trust(admittance_tests::ClientTrust {
            authorities: &pem(folder, "ca.pem"),
            identity,
        })
        .unwrap()
    };
    // Each row is (`clientCa` in the configuration, clients). Each client is (name, client, whether the server accepts
    // it).
    for (client_ca, clients) in [
        (
            "",
            vec![
                ("trusts", client(&our_directory, None), true),
                ("trusts another", client(&their_directory, None), false),
            ],
        ),
        (
            ", clientCa: ours/ca.pem",
            vec![
                (
                    "shows its certificate",
                    client(&our_directory, Some(&our_directory)),
                    true,
                ),
                ("shows none", client(&our_directory, None), false),
                (
                    "shows one of another CA",
                    client(&our_directory, Some(&their_directory)),
                    false,
                ),
            ],
        ),
    ] {
        let tls = format!("tls: {{ certificate: ours/localhost.pem, key: ours/localhost.key{client_ca} }}");
        let config = format!("listen: {{ {tls} }}\n{}", crate::scene::BCS);
        write(&directory, "chains.yaml", "");
        let config = write(&directory, "admittance.yaml", config.replace("[chains.yaml]", "[]"));
        let upstream = FakeUpstream::start().await.unwrap();
        let program = Serve::new(config)
            .unwrap()
            .upstream(&upstream.url())
            .start()
            .await
            .unwrap();
        for (name, client, is_served) in clients {
            let url = program.tls_url("/mesosdriver/v4/namespaces/shop/applications");
            let reply = client.send_bcs(http::Method::GET, &url, "").await;
            assert_eq!(
                reply.is_ok_and(|reply| reply.status == 200),
                is_served,
                "{client_ca} {name}"
            );
        }
        assert_eq!(upstream.requests().len(), 1, "{client_ca}");
    }
}
