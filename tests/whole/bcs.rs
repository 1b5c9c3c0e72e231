//! Tests the BCS driver between a client and the scheduler.

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::scene::{ProgramScene, application, bcs_message, source};

/// Starts a BCS driver whose chain calls two stock plugins in all namespaces except `excluded`.
async fn start_scene() -> ProgramScene {
    let (sidecar, images) = (source("sidecar-injector"), source("image-policy"));
    ProgramScene::start_bcs(&format!(
        "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: workloads }}
spec:
  rules: [{{ operations: [CREATE, UPDATE], kinds: [application, deployment] }}]
  stages:
    - name: sidecar
      plugin:
        source: \"{sidecar}\"
        settings:
          containers: [{{ name: log-agent, type: MESOS, image: \"docker.io/ops/log-agent:2.4\" }}]
      namespaceSelector: {{ operator: NotIn, values: [excluded] }}
      failurePolicy: Fail
    - name: images
      plugin:
        source: \"{images}\"
        settings: {{ rewrites: {{ docker.io: mirror.example.com }}, refuseLatest: true }}
      namespaceSelector: {{ operator: NotIn, values: [excluded] }}
      failurePolicy: Fail
"
    ))
    .await
}

fn deployment(namespace: &str, name: &str, image: &str) -> Value {
    let mut object = application(namespace, name, image);
    object["kind"] = "deployment".into();
    object["spec"]["selector"] = json!({"podname": name});
    object["spec"]["strategy"] = json!({"type": "RollingUpdate"});
    object
}

fn image_names(object: &Value) -> Vec<&str> {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers
        .iter()
        .map(|container| container["image"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn creations_and_updates_of_applications_go_through_the_chain() {
    let scene = start_scene().await;
    let image = "docker.io/library/nginx:1.29";
    for (name, method, path, object) in [
        (
            "create",
            Method::POST,
            "/mesosdriver/v4/namespaces/shop/applications",
            application("shop", "create", image),
        ),
        (
            "update",
            Method::PUT,
            "/mesosdriver/v4/namespaces/shop/applications?instances=2",
            application("shop", "update", image),
        ),
        (
            "rollback",
            Method::PUT,
            "/mesosdriver/v4/namespaces/shop/applications/rollback",
            application("shop", "rollback", image),
        ),
        (
            "deploy",
            Method::POST,
            "/mesosdriver/v4/namespaces/shop/deployments",
            deployment("shop", "deploy", image),
        ),
        (
            "redeploy",
            Method::PUT,
            "/mesosdriver/v4/namespaces/shop/deployments",
            deployment("shop", "redeploy", image),
        ),
        (
            "elsewhere",
            Method::POST,
            "/mesosdriver/v4/namespaces/excluded/applications",
            application("shop", "elsewhere", image),
        ),
    ] {
        let reply = scene.send(method.clone(), path, &object).await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        let requests = scene.upstream.requests_for("shop", name);
        let [request] = requests.as_slice() else {
            panic!("{name} came {} times", requests.len())
        };
        assert_eq!(
            (&request.method, request.uri.to_string().as_str()),
            (&method, path),
            "{name}"
        );
        assert_eq!(request.headers["bcs-clusterid"], "BCS-MESOS-10001", "{name}");
        let length = request.headers["content-length"].to_str().unwrap();
        assert_eq!(length, request.body.len().to_string(), "{name}");
        let stored = request.json().unwrap();
        assert_eq!(
            image_names(&stored),
            [
                "mirror.example.com/library/nginx:1.29",
                "mirror.example.com/ops/log-agent:2.4"
            ]
        );
        for path in [
            "/restartPolicy",
            "/killPolicy",
            "/constraint",
            "/spec/instance",
            "/metadata/labels",
        ] {
            assert_eq!(stored.pointer(path), object.pointer(path), "{name}: {path}");
        }
        assert_eq!(
            reply.json().unwrap(),
            json!({"result": true, "code": 0, "message": "success", "data": stored})
        );
    }
}

#[tokio::test]
async fn a_refusal_names_the_stage_and_the_reason_and_nothing_is_stored() {
    let scene = start_scene().await;
    let reply = scene
        .create(&application("shop", "refused", "docker.io/library/nginx:latest"))
        .await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.headers["content-type"], "application/json");
    let body = reply.json().unwrap();
    assert_eq!(
        (&body["result"], &body["code"], &body["data"]),
        (&json!(false), &json!(1_405_234), &Value::Null)
    );
    let message = bcs_message(&reply);
    assert!(
        message.starts_with("stage images of chain workloads denied the request: "),
        "{message}"
    );
    assert!(message.contains("nginx:latest"), "{message}");
    assert_eq!(scene.stored_object("shop", "refused"), None);
}

#[tokio::test]
async fn requests_that_match_no_stage_are_forwarded_byte_for_byte() {
    let scene = start_scene().await;
    let excluded = application("excluded", "odd", "docker.io/library/nginx:latest");
    // If the driver parsed and serialized this body, its spaces, escapes and numbers would change.
    let odd = excluded
        .to_string()
        .replace("\"instance\":2", "\"instance\" :  2.0e0, \"note\": \"\\u0041\\/\"");
    let mut process = application("shop", "process", "docker.io/library/nginx:latest");
    process["kind"] = "process".into();
    for (name, path, body) in [
        (
            "an excluded namespace",
            "/mesosdriver/v4/namespaces/excluded/applications",
            odd,
        ),
        (
            "another kind",
            "/mesosdriver/v4/namespaces/shop/processes",
            format!("{process:#}\n"),
        ),
        (
            "a list",
            "/mesosdriver/v4/agentsettings",
            "[ {\"innerIP\": \"127.0.0.1\"} ]".to_owned(),
        ),
        (
            "no body",
            "/mesosdriver/v4/agentsettings/enable?ips=127.0.0.1",
            String::new(),
        ),
    ] {
        let earlier_count = scene.upstream.requests().len();
        let reply = scene
            .client
            .send_bcs(Method::POST, &scene.program.url(path), body.clone())
            .await
            .unwrap();
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        let requests = scene.upstream.requests().split_off(earlier_count);
        let [request] = requests.as_slice() else {
            panic!("{name} came {} times", requests.len())
        };
        assert_eq!(request.body, body, "{name}");
        assert_eq!(request.uri.to_string(), path, "{name}");
    }
}

#[tokio::test]
async fn requests_that_match_no_chain_are_streamed() {
    let scene = start_scene().await;
    // The body exceeds the size limit for bodies that chains read. As no chain reads it, it is forwarded nevertheless.
    let large = "x".repeat(20 << 20);
    for (method, path, body) in [
        (Method::GET, "/mesosdriver/v4/namespaces/shop/applications?a=b%20c", ""),
        (
            Method::DELETE,
            "/mesosdriver/v4/namespaces/shop/applications/web?enforce=1",
            "",
        ),
        (Method::PATCH, "/elsewhere", "{}"),
        (Method::POST, "/elsewhere", &large),
    ] {
        let earlier_count = scene.upstream.requests().len();
        let url = scene.program.url(path);
        let reply = scene
            .client
            .send_bcs(method.clone(), &url, body.to_owned())
            .await
            .unwrap();
        assert_eq!(reply.status, 200, "{method} {path}");
        let requests = scene.upstream.requests().split_off(earlier_count);
        let [request] = requests.as_slice() else {
            panic!("{path} came {} times", requests.len())
        };
        assert_eq!((&request.method, request.uri.to_string().as_str()), (&method, path));
        assert_eq!(request.body.len(), body.len(), "{method} {path}");
        assert!(request.body == body, "{method} {path}: another body");
    }
}

#[tokio::test]
async fn requests_for_another_cluster_are_refused_before_any_hook_is_called() {
    let scene = start_scene().await;
    let body = application("shop", "web", "docker.io/library/nginx:1.29").to_string();
    for clusters in [
        &[][..],
        &["BCS-MESOS-10002"],
        &["bcs-mesos-10001"],
        &["BCS-MESOS-10001", "BCS-MESOS-10002"],
    ] {
        for method in [Method::POST, Method::GET] {
            let url = scene.program.url("/mesosdriver/v4/namespaces/shop/applications");
            let mut request = Request::builder().method(method).uri(url);
            for cluster in clusters {
                request = request.header("BCS-ClusterID", *cluster);
            }
            let reply = scene.client.send(request.body(body.clone()).unwrap()).await.unwrap();
            assert_eq!(reply.status, 400, "{clusters:?}");
            assert_eq!(reply.json().unwrap()["code"], 1_405_234, "{clusters:?}");
            assert!(
                bcs_message(&reply).starts_with("http header BCS-ClusterID "),
                "{clusters:?}"
            );
        }
    }
    assert!(scene.upstream.requests().is_empty());
    let metrics = scene.program.metrics().await.unwrap();
    assert_eq!(
        metrics.sum("admittance_stage_duration_seconds_count", &[]),
        None,
        "no stage was called"
    );
}

#[tokio::test]
async fn unreadable_bodies_are_refused() {
    let scene = start_scene().await;
    let twice = r#"{"kind":"application","kind":"process","metadata":{"namespace":"shop","name":"a"}}"#;
    for (name, body, status, code) in [
        ("half an object", r#"{"kind":"application","#, 400, 1_405_010),
        ("a key twice", twice, 400, 1_405_010),
    ] {
        let url = scene.program.url("/mesosdriver/v4/namespaces/shop/applications");
        let reply = scene
            .client
            .send_bcs(Method::POST, &url, body.to_owned())
            .await
            .unwrap();
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        assert_eq!(reply.json().unwrap()["code"], code, "{name}: {}", reply.text());
    }
    assert!(scene.upstream.requests().is_empty());
}

/// A client that sends `Expect: 100-continue`, as curl does for large bodies, is refused before it sends the body.
#[tokio::test]
async fn a_body_with_too_large_a_content_length_is_refused_before_it_is_sent() {
    let scene = start_scene().await;
    let url: http::Uri = scene.program.url("/").parse().unwrap();
    let mut stream = TcpStream::connect(url.authority().unwrap().as_str()).await.unwrap();
    let head = "POST /mesosdriver/v4/namespaces/shop/applications HTTP/1.1\r\nHost: driver\r\n\
                BCS-ClusterID: BCS-MESOS-10001\r\nContent-Length: 8000000\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
    assert!(reply.contains("1405012"), "{reply}");
    assert!(reply.contains("7340032 bytes"), "{reply}");
    assert!(scene.upstream.requests().is_empty());
}

/// If a body is too large, the connection stays open until the client has sent it and read the reply.
#[tokio::test]
async fn a_client_that_sends_too_large_a_body_can_read_the_refusal() {
    let scene = start_scene().await;
    let url = scene.program.url("/mesosdriver/v4/namespaces/shop/applications");
    let reply = scene
        .client
        .send_bcs(Method::POST, &url, vec![b' '; 8_000_000])
        .await
        .unwrap();
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert_eq!(reply.json().unwrap()["code"], 1_405_012);
    assert!(scene.upstream.requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_scheduler_is_reported_in_the_bcs_envelope() {
    let ProgramScene {
        directory: _directory,
        upstream,
        program,
        client,
    } = start_scene().await;
    drop(upstream);
    let body = application("shop", "web", "docker.io/library/nginx:1.29").to_string();
    let url = program.url("/mesosdriver/v4/namespaces/shop/applications");
    let reply = client.send_bcs(Method::POST, &url, body).await.unwrap();
    assert_eq!(reply.status, 200);
    let body = reply.json().unwrap();
    assert_eq!(
        (&body["result"], &body["code"]),
        (&json!(false), &json!(1_405_009)),
        "{body}"
    );
    assert!(bcs_message(&reply).starts_with("do http request failed!"), "{body}");
}
