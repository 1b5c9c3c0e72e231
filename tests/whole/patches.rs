//! Tests patches, updates and deletions of objects in a JSON API. Before the driver runs chains for such a request, it
//! reads the stored object from the API.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use admittance_tests::{Admittance, Client, Reply, Serve};
use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    import::run_admittance,
    scene::{store, write},
};

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// The configuration of a driver in front of a JSON API that stores teams. The API wraps its objects in an envelope.
const CONFIG: &str = "
dialect:
  rest:
    routes:
      - method: [PATCH, PUT]
        path: /v1/teams/{id}
        operation: UPDATE
        resource: teams
        kind: Team
        name: { path: id }
        get: { pointer: /data }
      - method: [DELETE]
        path: /v1/teams/{id}
        operation: DELETE
        resource: teams
        kind: Team
        name: { path: id }
        get: { path: '/v1/teams/{name}', pointer: /data }
upstream:
  servers: [\"http://127.0.0.1:1\"]
limits: { body: 64KiB, bodyTimeout: 2s }
definitions: [chains.yaml]
";

/// These chains have three rules: The owner of a team must not change. A new team gets a size. A protected team must
/// not be deleted.
const CHAINS: &str = "
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: defaults }
spec:
  rules: [ { operations: [UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: [teams] } ]
  stages:
    - name: size
      cel:
        mutations:
          - patchType: JSONPatch
            jsonPatch:
              expression: >-
                has(object.size) ? [] : [JSONPatch{op: 'add', path: '/size', value: 3}]
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: owners }
spec:
  phase: Validating
  rules: [ { operations: [UPDATE, DELETE], apiGroups: ['*'], apiVersions: ['*'], resources: [teams] } ]
  stages:
    - name: owner
      cel:
        validations:
          - expression: request.operation == 'DELETE' || has(object.owner)
            message: who owns it?
          - expression: request.operation == 'DELETE' || oldObject == null || object.owner == oldObject.owner
            message: the owner stays
          - expression: request.operation != 'DELETE' || oldObject == null || !has(oldObject.locked)
            message: it is protected
";

/// A fake JSON API that stores teams, each with a resource version.
#[derive(Clone, Default)]
struct TeamApi {
    teams: Arc<Mutex<BTreeMap<String, (u64, Value)>>>,
    writes: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    /// Whether the API's replies contain the resource version of a team.
    has_versions: bool,
    /// Whether each team is changed right after the driver has read it, as if another client had written the team.
    is_contended: bool,
}

impl TeamApi {
    async fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn lock_teams(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Value)>> {
        self.teams.lock().unwrap()
    }

    fn put(&self, name: &str, team: Value) {
        self.lock_teams().insert(format!("/v1/teams/{name}"), (1, team));
    }

    fn get(&self, name: &str) -> Option<Value> {
        let teams = self.lock_teams();
        teams.get(&format!("/v1/teams/{name}")).map(|(_, team)| team.clone())
    }

    fn take_writes(&self) -> Vec<(HeaderMap, String)> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }
}

async fn answer(State(server): State<TeamApi>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if head
        .headers
        .get(header::AUTHORIZATION)
        .is_none_or(|value| value != "Bearer secret")
    {
        return (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
            "who are you?",
        )
            .into_response();
    }
    match head.uri.path() {
        "/v1/teams/broken" => return (StatusCode::INTERNAL_SERVER_ERROR, "{}").into_response(),
        "/v1/teams/page" => return "<html>".into_response(),
        "/v1/teams/huge" => {
            return format!(r#"{{"data":{{"x":"{}"}}}}"#, "x".repeat(65 << 10)).into_response();
        }
        "/v1/teams/slow" if head.method == Method::GET => std::future::pending::<()>().await,
        "/v1/teams/moved" => {
            return (StatusCode::FOUND, [(header::LOCATION, "/v1/teams/web")]).into_response();
        }
        _ => {}
    }
    let path = head.uri.path().to_owned();
    if head.method != Method::GET {
        let body = String::from_utf8(body.to_vec()).unwrap();
        server.writes.lock().unwrap().push((head.headers.clone(), body));
    }
    let mut teams = server.lock_teams();
    let Some((version, team)) = teams.get_mut(&path) else {
        return match head.method {
            Method::PUT => {
                teams.insert(path, (1, serde_json::from_slice(&body).unwrap()));
                StatusCode::CREATED.into_response()
            }
            _ => (StatusCode::NOT_FOUND, "no such team").into_response(),
        };
    };
    if let Some(expected_version) = head.headers.get(header::IF_MATCH)
        && server.has_versions
        && *expected_version != etag(*version)
    {
        return (StatusCode::PRECONDITION_FAILED, "another version").into_response();
    }
    match head.method {
        Method::GET => {
            let mut reply = axum::Json(json!({"data": team})).into_response();
            if server.has_versions {
                reply.headers_mut().insert(header::ETAG, etag(*version));
            }
            if server.is_contended {
                *version += 1;
            }
            return reply;
        }
        Method::DELETE => {
            teams.remove(&path);
            return StatusCode::NO_CONTENT.into_response();
        }
        Method::PATCH => apply_patch(team, &head.headers, &body),
        _ => *team = serde_json::from_slice(&body).unwrap(),
    }
    *version += 1;
    StatusCode::OK.into_response()
}

fn etag(version: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap()
}

fn apply_patch(team: &mut Value, headers: &HeaderMap, body: &Bytes) {
    match headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) {
        Some(b"application/json-patch+json") => {
            let patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
            json_patch::patch(team, &patch).unwrap();
        }
        _ => json_patch::merge(team, &serde_json::from_slice(body).unwrap()),
    }
}

struct PatchScene {
    _directory: TempDir,
    server: TeamApi,
    program: Admittance,
    client: Client,
}

impl PatchScene {
    async fn start(server: TeamApi) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = write(&directory, "admittance.yaml", CONFIG);
        write(&directory, "chains.yaml", CHAINS);
        let url = server.clone().start().await;
        let program_builder = Serve::new(config).unwrap().upstream(&url).store(store());
        Self {
            _directory: directory,
            server,
            program: program_builder.start().await.unwrap(),
            client: Client::new().unwrap(),
        }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(header::HeaderName, &str)], body: &str) -> Reply {
        let request = http::Request::builder().method(method).uri(self.program.url(path));
        let authorized = request.header(header::AUTHORIZATION, "Bearer secret");
        let request = headers
            .iter()
            .fold(authorized, |request, (name, value)| request.header(name, *value));
        self.client.send(request.body(body.to_owned()).unwrap()).await.unwrap()
    }

    async fn patch(&self, name: &str, content_type: &str, body: &str) -> Reply {
        let headers = [(header::CONTENT_TYPE, content_type)];
        let path = format!("/v1/teams/{name}");
        self.send(Method::PATCH, &path, &headers, body).await
    }
}

#[tokio::test]
async fn a_patch_is_judged_by_its_result() {
    let scene = PatchScene::start(TeamApi {
        has_versions: true,
        ..TeamApi::default()
    })
    .await;
    // (case, stored object, content type of the patch, patch, expected status, expected text, stored object afterwards)
    // The expected text is the patch that the API gets, or the message of a refusal.
    for (case, stored_object, content_type, patch, status, expected, object_after) in [
        (
            "a field",
            json!({"owner": "ann", "size": 5}),
            MERGE_PATCH,
            r#"{"note":"x"}"#,
            200,
            r#"{"note":"x"}"#,
            json!({"owner": "ann", "size": 5, "note": "x"}),
        ),
        (
            "a default",
            json!({"owner": "ann"}),
            MERGE_PATCH,
            r#"{"note":"x"}"#,
            200,
            r#"{"note":"x","size":3}"#,
            json!({"owner": "ann", "note": "x", "size": 3}),
        ),
        (
            "a default for a removed field",
            json!({"owner": "ann", "size": 5}),
            MERGE_PATCH,
            r#"{"size":null}"#,
            200,
            r#"{"size":3}"#,
            json!({"owner": "ann", "size": 3}),
        ),
        (
            "a removed owner",
            json!({"owner": "ann", "size": 5}),
            MERGE_PATCH,
            r#"{"owner":null}"#,
            422,
            "who owns it?",
            json!({"owner": "ann", "size": 5}),
        ),
        (
            "another owner",
            json!({"owner": "ann", "size": 5}),
            MERGE_PATCH,
            r#"{"owner":"bob"}"#,
            422,
            "the owner stays",
            json!({"owner": "ann", "size": 5}),
        ),
        (
            "without a type",
            json!({"owner": "ann", "size": 5}),
            "application/json",
            r#"{"size":6}"#,
            200,
            r#"{"size":6}"#,
            json!({"owner": "ann", "size": 6}),
        ),
        (
            "operations",
            json!({"owner": "ann"}),
            JSON_PATCH,
            r#"[{"op":"add","path":"/note","value":"x"}]"#,
            200,
            r#"[{"op":"add","path":"/note","value":"x"},{"op":"add","path":"/size","value":3}]"#,
            json!({"owner": "ann", "note": "x", "size": 3}),
        ),
        (
            "operations on the owner",
            json!({"owner": "ann", "size": 5}),
            JSON_PATCH,
            r#"[{"op":"remove","path":"/owner"}]"#,
            422,
            "who owns it?",
            json!({"owner": "ann", "size": 5}),
        ),
        (
            "a test",
            json!({"owner": "ann", "size": 5}),
            JSON_PATCH,
            r#"[{"op":"test","path":"/size","value":6}]"#,
            422,
            "PatchFailed",
            json!({"owner": "ann", "size": 5}),
        ),
        (
            "another type",
            json!({"owner": "ann", "size": 5}),
            "text/plain",
            "{}",
            415,
            "MediaType",
            json!({"owner": "ann", "size": 5}),
        ),
    ] {
        scene.server.put("web", stored_object);
        let reply = scene.patch("web", content_type, patch).await;
        assert_eq!(reply.status, status, "{case}: {}", reply.text());
        let writes = scene.server.take_writes();
        if status == 200 {
            let [(headers, body)] = writes.as_slice() else {
                panic!("{case}: {writes:?}")
            };
            assert_eq!(body, expected, "{case}");
            assert_eq!(headers[header::CONTENT_TYPE], content_type, "{case}");
            assert_eq!(headers[header::IF_MATCH], "\"1\"", "{case}");
        } else {
            assert!(writes.is_empty(), "{case}: {writes:?}");
            assert!(reply.text().contains(expected), "{case}: {}", reply.text());
        }
        assert_eq!(scene.server.get("web"), Some(object_after), "{case}");
    }
}

#[tokio::test]
async fn chains_see_the_stored_object_of_updates_and_deletions() {
    let scene = PatchScene::start(TeamApi::default()).await;
    scene
        .server
        .put("web", json!({"owner": "ann", "size": 5, "locked": true}));
    for (case, method, path, body, status, expected) in [
        (
            "another owner",
            Method::PUT,
            "/v1/teams/web",
            r#"{"owner":"bob"}"#,
            422,
            "the owner stays",
        ),
        (
            "the same owner",
            Method::PUT,
            "/v1/teams/web",
            r#"{"owner":"ann","locked":true}"#,
            200,
            "",
        ),
        (
            "a new team",
            Method::PUT,
            "/v1/teams/new",
            r#"{"owner":"bob"}"#,
            201,
            "",
        ),
        (
            "a protected team",
            Method::DELETE,
            "/v1/teams/web",
            "",
            422,
            "it is protected",
        ),
        ("a team", Method::DELETE, "/v1/teams/new", "", 204, ""),
        ("no team", Method::DELETE, "/v1/teams/new", "", 404, "no such team"),
    ] {
        let reply = scene.send(method, path, &[], body).await;
        assert_eq!(reply.status, status, "{case}: {}", reply.text());
        assert!(reply.text().contains(expected), "{case}: {}", reply.text());
    }
    // The objects of this API have no resource versions, so the driver sends patches without a precondition.
    let writes = scene.server.take_writes();
    assert!(
        writes
            .iter()
            .all(|(headers, _)| !headers.contains_key(header::IF_MATCH))
    );
    assert!(scene.server.get("web").is_some() && scene.server.get("new").is_none());
}

#[tokio::test]
async fn a_request_whose_stored_object_cannot_be_read_is_refused() {
    let scene = PatchScene::start(TeamApi::default()).await;
    for (name, method, status, expected) in [
        ("absent", Method::PATCH, 404, "no such team"),
        ("broken", Method::PATCH, 502, "has the status 500"),
        ("broken", Method::PUT, 502, "has the status 500"),
        ("broken", Method::DELETE, 502, "has the status 500"),
        ("moved", Method::PATCH, 502, "has the status 302"),
        ("page", Method::PATCH, 502, "there is nothing at `/data`"),
        ("huge", Method::PATCH, 502, "has more than 65536 bytes"),
        ("slow", Method::PATCH, 502, "did not arrive within 2s"),
    ] {
        let body = if method == Method::DELETE {
            ""
        } else {
            r#"{"owner":"ann"}"#
        };
        let reply = scene.send(method, &format!("/v1/teams/{name}"), &[], body).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        assert!(reply.text().contains(expected), "{name}: {}", reply.text());
        assert!(
            status == 404 || reply.text().contains("StoredUnknown"),
            "{}",
            reply.text()
        );
    }
    // The API authenticates clients. A client without credentials gets the API's 401.
    let unauthorized_request = http::Request::builder()
        .method(Method::PATCH)
        .uri(scene.program.url("/v1/teams/web"))
        .body("{}".to_owned())
        .unwrap();
    let reply = scene.client.send(unauthorized_request).await.unwrap();
    assert_eq!(reply.status, 401);
    assert_eq!(reply.headers[header::WWW_AUTHENTICATE], "Bearer");
    assert!(scene.server.take_writes().is_empty());
}

#[tokio::test]
async fn a_write_is_refused_if_the_object_changed_after_it_was_read() {
    let scene = PatchScene::start(TeamApi {
        has_versions: true,
        is_contended: true,
        ..TeamApi::default()
    })
    .await;
    for method in [Method::PATCH, Method::PUT, Method::DELETE] {
        for if_match in [None, Some("*"), Some("\"1\""), Some("\"1\", \"2\""), Some("\"2\"")] {
            let stored = json!({"owner": "ann", "size": 5});
            scene.server.put("web", stored.clone());
            let headers: Vec<_> = if_match.iter().map(|value| (header::IF_MATCH, *value)).collect();
            let body = if method == Method::DELETE {
                ""
            } else {
                r#"{"owner":"ann"}"#
            };
            let reply = scene.send(method.clone(), "/v1/teams/web", &headers, body).await;
            assert_eq!(reply.status, 412, "{method} {if_match:?}: {}", reply.text());
            assert_eq!(scene.server.get("web"), Some(stored), "{method} {if_match:?}");
        }
    }
}

#[tokio::test]
async fn check_rejects_patch_on_a_route_without_the_keys_get_and_partial() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", CHAINS);
    for (get, code, expected) in [
        ("get: { pointer: /data }", 0, ""),
        ("partial: true", 0, ""),
        ("", 1, "method: the body of a PATCH is only a part of the object"),
    ] {
        let config = CONFIG.replace("get: { pointer: /data }", get);
        write(&directory, "admittance.yaml", config);
        let check_output = run_admittance(&directory, &["check", "--config", "admittance.yaml"]).await;
        assert_eq!(
            check_output.code,
            Some(code),
            "{get}: {}{}",
            check_output.stdout,
            check_output.stderr
        );
        let text = format!("{}{}", check_output.stdout, check_output.stderr);
        assert!(text.contains(expected), "{get}: {text}");
    }
}
