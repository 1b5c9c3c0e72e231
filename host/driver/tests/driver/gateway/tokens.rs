use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance_gateway::{EndpointConfig, TokenTable, TokensConfig};
use admittance_net::tls::{ClientTls, ServerTls};
use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{DriverRequest, GATEWAY_PREFIX, SimulatedDriver, gateway_setup, status_and_json};
use crate::{
    harness::*,
    tls::{FileAuthority, wait_until},
};

const HOOKS: &str = "/namespaces/n/admissionwebhook";
const APPLICATIONS: &str = "/namespaces/n/applications";

fn digest(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}

fn request_with_headers(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::builder().method(method).uri(format!("{GATEWAY_PREFIX}{path}"));
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

fn write_tokens(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("tokens.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn token_check_counters_start_at_zero() {
    let directory = tempfile::tempdir().unwrap();
    let table = TokenTable::read(&write_tokens(directory.path(), "tokens: []\n")).unwrap();
    for (tokens, expected) in [
        (TokensConfig::File(table), &[("file", "refused")][..]),
        (
            TokensConfig::Endpoint(Box::new(endpoint("http://127.0.0.1:1/"))),
            &[
                ("endpoint", "refused"),
                ("endpoint", "unanswered"),
                ("cache", "refused"),
            ],
        ),
    ] {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let _recorder = metrics::set_default_local_recorder(&recorder);
        let gateway = gateway_setup(&[], |config| config.tokens = Some(tokens));
        let _running = gateway.on_this_thread().start().await;
        let rendered = metrics.render();
        for (source, result) in expected {
            let line = format!("admittance_gateway_token_checks_total{{source=\"{source}\",result=\"{result}\"}} 0\n");
            assert!(rendered.contains(&line), "{line}{rendered}");
        }
    }
}

#[tokio::test]
async fn a_token_file_grants_rights_by_cluster() {
    let driver = SimulatedDriver::start().await;
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "tokens:\n- {{ name: board, sha256: {}, clusters: {{ BCS-1: Read }} }}\n\
         - {{ name: ci, sha256: {}, clusters: {{ BCS-1: Write, BCS-2: Hooks }} }}\n",
        digest("reads"),
        digest("writes")
    );
    let table = TokenTable::read(&write_tokens(directory.path(), &text)).unwrap();
    let gateway = gateway_setup(
        &[("BCS-1", &[driver.address]), ("BCS-2", &[driver.address])],
        |config| {
            config.tokens = Some(TokensConfig::File(table));
            config.plain_groups = ["clb.bmsf.tencent.com"]
                .iter()
                .map(|group| group.parse().unwrap())
                .collect();
        },
    )
    .start()
    .await;
    let (first_cluster, second_cluster, third_cluster) = (
        ("bcs-clusterid", "BCS-1"),
        ("bcs-clusterid", "BCS-2"),
        ("bcs-clusterid", "BCS-3"),
    );
    let reader_header = ("authorization", "Bearer reads");
    let writer_header = ("x-bcs-user-token", "writes");
    // (method, path, headers, expected status and code, part of the expected message)
    for (method, path, headers, status, code, part) in [
        (
            "GET",
            APPLICATIONS,
            &[first_cluster, reader_header][..],
            200,
            0,
            "success",
        ),
        (
            "POST",
            APPLICATIONS,
            &[first_cluster, reader_header],
            400,
            1_405_058,
            "board has the permission Read for the cluster BCS-1, and this needs Write",
        ),
        (
            "GET",
            "/webconsole/x",
            &[first_cluster, reader_header],
            400,
            1_405_058,
            "this needs Write",
        ),
        (
            "GET",
            APPLICATIONS,
            &[second_cluster, reader_header],
            400,
            1_405_058,
            "board has no permission for the cluster BCS-2",
        ),
        (
            "GET",
            "/admissionwebhooks",
            &[first_cluster, reader_header],
            200,
            0,
            "success",
        ),
        ("POST", APPLICATIONS, &[first_cluster, writer_header], 200, 0, "success"),
        (
            "DELETE",
            "/namespaces/n/applications/a",
            &[first_cluster, writer_header],
            200,
            0,
            "success",
        ),
        (
            "DELETE",
            "/customresources/apiextensions.k8s.io/v1/customresourcedefinitions",
            &[first_cluster, writer_header],
            400,
            1_405_058,
            "this needs Hooks",
        ),
        (
            "POST",
            "/customresources/clb.bmsf.tencent.com/v1/clbs",
            &[first_cluster, writer_header],
            200,
            0,
            "success",
        ),
        (
            "GET",
            "/unknown",
            &[first_cluster, writer_header],
            400,
            1_405_058,
            "this needs Hooks",
        ),
        (
            "POST",
            HOOKS,
            &[first_cluster, writer_header],
            400,
            1_405_058,
            "this needs Hooks",
        ),
        ("POST", HOOKS, &[second_cluster, writer_header], 200, 0, "success"),
        (
            "GET",
            APPLICATIONS,
            &[first_cluster],
            401,
            1_405_059,
            "anonymous requests is forbidden, please provide a valid token: send `Authorization: Bearer TOKEN`",
        ),
        (
            "GET",
            APPLICATIONS,
            &[first_cluster, ("authorization", "Bearer wrong")],
            401,
            1_405_059,
            "unknown token",
        ),
        (
            "GET",
            APPLICATIONS,
            &[first_cluster, ("authorization", "Basic cmVhZHM=")],
            401,
            1_405_059,
            "is not `Bearer` and a token",
        ),
        (
            "GET",
            APPLICATIONS,
            &[first_cluster, ("authorization", "Bearer wrong"), writer_header],
            401,
            1_405_059,
            "unknown token",
        ),
        // A user without rights to a cluster must not learn whether it exists.
        (
            "GET",
            APPLICATIONS,
            &[third_cluster, reader_header],
            400,
            1_405_058,
            "no permission for the cluster BCS-3",
        ),
        ("GET", APPLICATIONS, &[reader_header], 200, 1_405_007, "can't be empty"),
    ] {
        let response = gateway.send(request_with_headers(method, path, headers)).await;
        let challenge = response.headers().get("www-authenticate").cloned();
        let (reply_status, body) = status_and_json(response).await;
        let case = format!("{method} {path} {headers:?}: {body}");
        assert_eq!((reply_status, &body["code"]), (status, &json!(code)), "{case}");
        assert!(body["message"].as_str().unwrap().contains(part), "{case}");
        assert_eq!(challenge.is_some(), status == 401, "{case}");
        let driver_requests = driver.take_requests();
        assert_eq!(driver_requests.len(), usize::from(code == 0), "{case}");
        for request in driver_requests {
            assert!(
                !request.headers.contains_key("authorization") && !request.headers.contains_key("x-bcs-user-token")
            );
        }
    }
}

#[tokio::test]
async fn tokens_are_forwarded_to_drivers_only_if_configured() {
    let driver = SimulatedDriver::start().await;
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |config| config.forward_token = true)
        .start()
        .await;
    let headers = [
        ("bcs-clusterid", CLUSTER),
        ("authorization", "Bearer a"),
        ("x-bcs-user-token", "b"),
    ];
    gateway.send(request_with_headers("GET", APPLICATIONS, &headers)).await;
    let [driver_request] = driver.take_requests().try_into().unwrap();
    assert_eq!(driver_request.headers["authorization"], "Bearer a");
    assert_eq!(driver_request.headers["x-bcs-user-token"], "b");
}

#[tokio::test]
async fn a_changed_token_file_is_reloaded_unless_it_is_invalid() {
    let driver = SimulatedDriver::start().await;
    let directory = tempfile::tempdir().unwrap();
    let token_list = |token: &str| {
        format!(
            "tokens: [{{ name: a, sha256: {}, clusters: {{ '*': Read }} }}]\n",
            digest(token)
        )
    };
    let path = write_tokens(directory.path(), &token_list("first"));
    let table = TokenTable::read(&path).unwrap();
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |config| {
        config.tokens = Some(TokensConfig::File(table));
    })
    .start()
    .await;
    let status_with_token = async |token: &str| {
        let token = format!("Bearer {token}");
        let headers = [("bcs-clusterid", CLUSTER), ("authorization", &*token)];
        gateway
            .send(request_with_headers("GET", APPLICATIONS, &headers))
            .await
            .status()
            .as_u16()
    };
    let tokens_status = async || gateway.status().await["gateway"]["tokens"].clone();
    assert_eq!(
        (status_with_token("first").await, status_with_token("second").await),
        (200, 401)
    );
    assert_eq!(tokens_status().await, json!({"source": "file", "count": 1}));

    write_tokens(directory.path(), &token_list("second"));
    wait_until("the second token", async || status_with_token("second").await == 200).await;
    assert_eq!(status_with_token("first").await, 401);

    write_tokens(directory.path(), "tokens: [\n");
    wait_until("the problem", async || tokens_status().await["problem"] != Value::Null).await;
    assert_eq!(status_with_token("second").await, 200);
    std::fs::remove_file(&path).unwrap();
    wait_until("the other problem", async || {
        tokens_status().await["problem"].to_string().contains("No such file")
    })
    .await;
    assert_eq!(status_with_token("second").await, 200);

    write_tokens(directory.path(), "tokens: []\n");
    wait_until("nobody", async || status_with_token("second").await == 401).await;
    assert_eq!(tokens_status().await, json!({"source": "file", "count": 0}));
}

/// A server that checks tokens, like bcs-user-manager.
#[derive(Clone, Default)]
struct UserManager {
    requests: Arc<Mutex<Vec<(HeaderMap, String, Value)>>>,
    /// If a status and a text are set here, every request gets them as the reply, and no token is checked.
    fixed_reply: Arc<Mutex<Option<(u16, String)>>>,
}

impl UserManager {
    fn routes(&self) -> Router {
        let manager = self.clone();
        Router::new().fallback(async move |request: Request<Body>| {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let line = format!("{} {}", head.method, head.uri);
            manager
                .requests
                .lock()
                .unwrap()
                .push((head.headers, line, body.clone()));
            if let Some((status, text)) = manager.fixed_reply.lock().unwrap().clone() {
                return (StatusCode::from_u16(status).unwrap(), text);
            }
            let allowed_actions: &[&str] = match body["user_token"].as_str().unwrap() {
                "reads" => &["GET"],
                "writes" => &["GET", "POST", "PUT", "DELETE"],
                "steers" => &["GET", "POST", "hooks"],
                _ => &[],
            };
            let allowed = allowed_actions.contains(&body["action"].as_str().unwrap()) && body["resource"] == CLUSTER;
            let data = json!({"allowed": allowed, "message": format!("usertoken [{}] is x", body["user_token"])});
            let reply = json!({"result": true, "code": 0, "message": "success", "data": data});
            (StatusCode::OK, reply.to_string())
        })
    }

    fn take_requests(&self) -> Vec<(HeaderMap, String, Value)> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn endpoint(url: &str) -> EndpointConfig {
    EndpointConfig {
        url: url.parse().unwrap(),
        tls: client_without_tls(),
        token_file: None,
        timeout: EndpointConfig::DEFAULT_TIMEOUT,
        cache: Duration::from_secs(3600),
        hooks_action: EndpointConfig::DEFAULT_HOOKS_ACTION.to_owned(),
    }
}

async fn gateway_with_endpoint(driver: &SimulatedDriver, endpoint: EndpointConfig) -> RunningDriver {
    gateway_setup(&[(CLUSTER, &[driver.address])], |config| {
        config.tokens = Some(TokensConfig::Endpoint(Box::new(endpoint)));
    })
    .start()
    .await
}

#[tokio::test]
async fn a_token_can_be_limited_to_namespaces() {
    let driver = SimulatedDriver::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.yaml");
    let digest = hex::encode(Sha256::digest("mine"));
    let text =
        format!("tokens: [{{ name: a, sha256: {digest}, clusters: {{ '*': Hooks }}, namespaces: [mine, other] }}]\n");
    std::fs::write(&path, text).unwrap();
    let gateway = gateway_setup(&[(CLUSTER, &[driver.address])], |config| {
        config.tokens = Some(TokensConfig::File(TokenTable::read(&path).unwrap()));
    })
    .start()
    .await;
    let application_json = |key: &str, namespace: &str| {
        format!(r#"{{"kind":"application","{key}":{{"name":"a","namespace":"{namespace}"}}}}"#)
    };
    let (own_body, foreign_body) = (
        application_json("metadata", "mine"),
        application_json("metadata", "theirs"),
    );
    let body_with_two_namespaces = own_body.replace("\"kind\"", "\"metadata\":{\"namespace\":\"theirs\"},\"kind\"");
    for (method, path, body, is_allowed) in [
        ("GET", "/namespaces/mine/applications", "", true),
        ("GET", "/namespaces/theirs/applications", "", false),
        ("GET", "/namespaces/m%69ne/applications", "", true),
        ("DELETE", "/namespaces/mine/deployments/a", "", true),
        ("POST", "/namespaces/mine/applications", &*own_body, true),
        // A driver uses the namespace in the body, and accepts the key `metadata` in any case, such as `Metadata`. So
        // the gateway checks not only the namespace in the path, but also the one in the body.
        ("POST", "/namespaces/mine/applications", &foreign_body, false),
        (
            "POST",
            "/namespaces/mine/applications",
            &application_json("Metadata", "theirs"),
            false,
        ),
        (
            "POST",
            "/namespaces/mine/applications",
            &body_with_two_namespaces,
            false,
        ),
        ("POST", "/namespaces/mine/applications", "{}", false),
        ("POST", "/namespaces/theirs/applications", &own_body, false),
        (
            "PUT",
            "/namespaces/mine/applications/a/taskgroups/0.a.theirs.1/rescheduler",
            "",
            false,
        ),
        ("POST", "/command/application/mine/a", "{}", false),
        ("GET", "/cluster/resources", "", false),
        ("GET", "/webconsole/x?host_ip=10.0.0.1", "", false),
        ("GET", "/namespaces/mine/unheard-of", "", false),
    ] {
        let mut token_request = request(method, &format!("{GATEWAY_PREFIX}{path}"), Body::from(body.to_owned()));
        token_request
            .headers_mut()
            .insert("authorization", "Bearer mine".parse().unwrap());
        let (_, reply) = status_and_json(gateway.send(token_request).await).await;
        assert_eq!(reply["code"] == 0, is_allowed, "{method} {path} {body}: {reply}");
        let driver_requests = driver.take_requests();
        let is_read = |request: &&DriverRequest| request.uri.path().ends_with("/cluster/resources");
        assert_eq!(
            driver_requests.iter().filter(|request| !is_read(request)).count(),
            usize::from(is_allowed),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_token_endpoint_decides_which_requests_are_allowed() {
    let (driver, manager) = (SimulatedDriver::start().await, UserManager::default());
    let address = serve(manager.routes()).await;
    let directory = tempfile::tempdir().unwrap();
    let token_path = directory.path().join("own");
    std::fs::write(&token_path, "gateways-own\n").unwrap();
    let config = EndpointConfig {
        token_file: Some(token_path.clone()),
        ..endpoint(&format!("http://{address}/usermanager/v1/permissions/verify"))
    };
    let gateway = gateway_with_endpoint(&driver, config).await;
    // (method, path, token, action that is sent to the server, whether it is allowed)
    for (method, path, token, action, allowed) in [
        ("GET", APPLICATIONS, "reads", "GET", true),
        ("PUT", APPLICATIONS, "reads", "PUT", false),
        ("GET", "/webconsole/x", "reads", "POST", false),
        ("PUT", APPLICATIONS, "writes", "PUT", true),
        ("POST", HOOKS, "writes", "hooks", false),
        ("POST", HOOKS, "steers", "hooks", true),
        ("GET", APPLICATIONS, "nobody", "GET", false),
    ] {
        let bearer = format!("Bearer {token}");
        let headers = [("bcs-clusterid", CLUSTER), ("authorization", &*bearer)];
        let case = format!("{method} {path} {token}");
        for expects_verification in [true, false] {
            let (status, body) =
                status_and_json(gateway.send(request_with_headers(method, path, &headers)).await).await;
            if allowed {
                assert_eq!((status, &body["code"]), (200, &json!(0)), "{case}");
            } else {
                assert_eq!((status, &body["code"]), (400, &json!(1_405_058)), "{case}");
                assert!(!body.to_string().contains(token) || token == "reads", "{case}: {body}");
            }
            let verifications = manager.take_requests();
            assert_eq!(verifications.len(), usize::from(expects_verification), "{case}");
            for (headers, line, body) in verifications {
                assert_eq!(line, "GET /usermanager/v1/permissions/verify");
                assert_eq!(headers["authorization"], "Bearer gateways-own");
                assert_eq!(headers["content-type"], "application/json");
                assert_eq!(
                    body,
                    json!({
                        "user_token": token, "resource_type": "cluster", "resource": CLUSTER, "action": action,
                        "cluster_type": "mesos", "cluster_id": CLUSTER, "request_url": format!("/mesosdriver/v4{path}"),
                    })
                );
            }
        }
        assert_eq!(driver.take_requests().len(), if allowed { 2 } else { 0 }, "{case}");
    }
    for name in ["a", "b"] {
        let headers = [("bcs-clusterid", CLUSTER), ("authorization", "Bearer writes")];
        let request = request_with_headers("DELETE", &format!("{APPLICATIONS}/{name}"), &headers);
        assert_eq!(gateway.send(request).await.status(), 200);
        let [(_, _, body)] = manager.take_requests().try_into().unwrap();
        assert_eq!(body["request_url"], format!("/mesosdriver/v4{APPLICATIONS}/{name}"));
    }
    driver.take_requests();
    let headers = [("bcs-clusterid", "BCS-OTHER"), ("authorization", "Bearer reads")];
    assert_eq!(
        gateway
            .send(request_with_headers("GET", APPLICATIONS, &headers))
            .await
            .status(),
        400
    );
    assert_eq!(manager.take_requests().len(), 1);
    let headers = [("bcs-clusterid", CLUSTER)];
    assert_eq!(
        gateway
            .send(request_with_headers("GET", APPLICATIONS, &headers))
            .await
            .status(),
        401
    );
    assert!(manager.take_requests().is_empty());
}

#[tokio::test]
async fn no_token_is_accepted_while_the_token_endpoint_does_not_answer() {
    let (driver, manager) = (SimulatedDriver::start().await, UserManager::default());
    let address = serve(manager.routes()).await;
    let url = format!("http://{address}/");
    let headers = [("bcs-clusterid", CLUSTER), ("authorization", "Bearer reads")];
    let assert_refused = async |gateway: &RunningDriver, case: &str| {
        let response = gateway.send(request_with_headers("GET", APPLICATIONS, &headers)).await;
        assert_eq!(response.headers()["retry-after"], "1", "{case}");
        let (status, body) = status_and_json(response).await;
        assert_eq!((status, &body["code"]), (503, &json!(1_405_057)), "{case}: {body}");
        let message = body["message"].as_str().unwrap();
        assert!(
            message.contains("bcs auth check error: the token could not be checked"),
            "{body}"
        );
    };
    let endpoint_gateway = gateway_with_endpoint(&driver, endpoint(&url)).await;
    for (status, text) in [
        (401, ""),
        (500, r#"{"data":{"allowed":true}}"#),
        (302, r#"{"data":{"allowed":true}}"#),
        (200, "no JSON"),
        (200, r#"{"result":false,"data":null}"#),
        (200, r#"{"data":{}}"#),
        (200, r#"{"data":{"allowed":"true"}}"#),
    ] {
        *manager.fixed_reply.lock().unwrap() = Some((status, text.to_owned()));
        assert_refused(&endpoint_gateway, &format!("{status} {text}")).await;
    }
    *manager.fixed_reply.lock().unwrap() = None;
    assert_eq!(
        endpoint_gateway
            .send(request_with_headers("GET", APPLICATIONS, &headers))
            .await
            .status(),
        200
    );
    driver.take_requests();

    let (silent_address, _release, _arrivals) = held_upstream().await;
    let silent_endpoint = EndpointConfig {
        timeout: Duration::from_millis(50),
        ..endpoint(&format!("http://{silent_address}/"))
    };
    assert_refused(&gateway_with_endpoint(&driver, silent_endpoint).await, "it is silent").await;
    let absent_endpoint = endpoint(&format!("http://{}/", refusing_upstream().await));
    assert_refused(&gateway_with_endpoint(&driver, absent_endpoint).await, "it is away").await;
    let tokenless_endpoint = EndpointConfig {
        token_file: Some("/nonexistent/own".into()),
        ..endpoint(&url)
    };
    assert_refused(
        &gateway_with_endpoint(&driver, tokenless_endpoint).await,
        "its own token is gone",
    )
    .await;
    assert!(driver.take_requests().is_empty());
}

#[tokio::test]
async fn requests_to_the_token_endpoint_use_tls() {
    let (driver, manager) = (SimulatedDriver::start().await, UserManager::default());
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let manager = serve(manager.routes()).await;
    let tls = ServerTls::of_files(identity.clone(), Some(authority.file_path("ca.pem"))).unwrap();
    let front = Setup::new(&[manager]).tls(tls).start().await;
    let headers = [("bcs-clusterid", CLUSTER), ("authorization", "Bearer reads")];
    for (client_identity, status) in [(Some(identity), 200), (None, 503)] {
        let config = EndpointConfig {
            tls: ClientTls::of_files(Some(authority.file_path("ca.pem")), client_identity).unwrap(),
            ..endpoint(&format!("https://localhost:{}/", front.address.port()))
        };
        let gateway = gateway_with_endpoint(&driver, config).await;
        assert_eq!(
            gateway
                .send(request_with_headers("GET", APPLICATIONS, &headers))
                .await
                .status(),
            status
        );
    }
}
