//! Tests the management API of bcs-api, and the routes of the admin API for the same users and clusters.

use admittance_gateway::{
    Statuses,
    accounts::{AccountsConfig, DatabaseConfig},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::gateway_setup;
use crate::{harness::*, tls::wait_until};

/// A gateway that stores its users and clusters in a file.
struct AccountsFileScene {
    gateway: RunningDriver,
    root_token: String,
    _directory: TempDir,
}

impl AccountsFileScene {
    async fn start(statuses: Statuses) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gateway = gateway_setup(&[], |config| {
            config.statuses = statuses;
            config.accounts = Some(Box::new(AccountsConfig {
                database: DatabaseConfig::Sqlite(directory.path().join("accounts.db")),
                key_file: directory.path().join("key"),
                creates_key: true,
                register_token_lifetime: AccountsConfig::DEFAULT_REGISTER_TOKEN_LIFETIME,
                clusters_per_user: 3,
                local_servers: Vec::new(),
            }));
        })
        .start()
        .await;
        wait_until("the database", async || {
            gateway.get_from_admin("/v1/users").await.0 == 200
        })
        .await;
        let mut scene = Self {
            gateway,
            root_token: String::new(),
            _directory: directory,
        };
        scene.root_token = scene.create_user_with_token("root", true).await;
        scene
    }

    async fn call_admin(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let response = self.gateway.send_to_admin(request(method, path, body)).await;
        let (status, text) = status_and_text(response).await;
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn create_user_with_token(&self, name: &str, super_user: bool) -> String {
        let (status, user) = self
            .call_admin("POST", "/v1/users", json!({"name": name, "superUser": super_user}))
            .await;
        assert_eq!(status, 200, "{user}");
        let path = format!("/v1/users/{name}/tokens");
        let (status, token) = self.call_admin("POST", &path, json!({"expiresIn": 3600})).await;
        assert_eq!(status, 200, "{token}");
        token["token"].as_str().unwrap().to_owned()
    }

    /// If `authorization` is empty, the header is omitted.
    async fn call_rest(&self, authorization: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut request = request(method, &format!("/rest/{path}"), body.to_string());
        if !authorization.is_empty() {
            let value = authorization.parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let (status, text) = status_and_text(self.gateway.send(request).await).await;
        let reply = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (status, reply)
    }

    async fn call_rest_as_root(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_rest(&format!("Bearer {}", self.root_token), method, path, body)
            .await
    }
}

fn cluster_credentials(token: &Value) -> Value {
    json!({
        "register_token": token,
        "server_addresses": "https://10.0.0.1:6443",
        "cacert_data": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "user_token": "service-account",
    })
}

#[tokio::test]
async fn the_management_api_creates_users_tokens_and_clusters() {
    let scene = AccountsFileScene::start(Statuses::Driver).await;
    let (status, user) = scene
        .call_rest_as_root("POST", "users/", json!({"user_name": "alice"}))
        .await;
    assert_eq!(
        (status, &user["Name"], &user["IsSuperUser"]),
        (200, &json!("plain:alice"), &json!(false))
    );
    let (status, fetched_user) = scene.call_rest_as_root("GET", "users/alice", Value::Null).await;
    assert_eq!((status, &fetched_user), (200, &user));
    let (status, token) = scene
        .call_rest_as_root("POST", &format!("users/{}/tokens", user["ID"]), Value::Null)
        .await;
    assert_eq!(
        (status, &token["UserId"], &token["Type"]),
        (200, &user["ID"], &json!(3))
    );
    let alice = format!("Bearer {}", token["Value"].as_str().unwrap());

    let (status, cluster) = scene.call_rest(&alice, "POST", "clusters/", json!({"id": "Dev"})).await;
    assert_eq!(
        (status, &cluster["id"], &cluster["provider"]),
        (200, &json!("plain-dev"), &json!(1))
    );
    assert_eq!(cluster["creator_id"], user["ID"]);
    let path = |rest: &str| format!("clusters/plain-dev/{rest}");
    let (status, tokens) = scene
        .call_rest(&alice, "POST", &path("register_tokens"), Value::Null)
        .await;
    let register_token = tokens[0]["token"].clone();
    assert_eq!((status, register_token.as_str().unwrap().len()), (200, 128));
    let (status, second_reply) = scene
        .call_rest(&alice, "POST", &path("register_tokens"), Value::Null)
        .await;
    assert_eq!(
        (status, &second_reply["code_name"]),
        (500, &json!("CANNOT_CREATE_RTOKEN"))
    );
    let (status, listed_tokens) = scene
        .call_rest(&alice, "GET", &path("register_tokens"), Value::Null)
        .await;
    assert_eq!((status, &listed_tokens[0]["token"]), (200, &json!("")));

    let (status, error) = scene
        .call_rest(&alice, "GET", &path("client_credentials"), Value::Null)
        .await;
    assert_eq!((status, &error["code_name"]), (400, &json!("CREDENTIALS_NOT_FOUND")));
    let (status, put_reply) = scene
        .call_rest("", "PUT", &path("credentials"), cluster_credentials(&register_token))
        .await;
    assert_eq!((status, put_reply), (200, json!({})));
    let (status, client_credentials) = scene
        .call_rest(&alice, "GET", &path("client_credentials"), Value::Null)
        .await;
    let identifier = cluster["identifier"].as_str().unwrap();
    assert_eq!(status, 200, "{client_credentials}");
    assert_eq!(
        client_credentials["server_address_path"],
        format!("/tunnels/clusters/{identifier}/")
    );
    assert_eq!(
        format!("Bearer {}", client_credentials["user_token"].as_str().unwrap()),
        alice
    );
    let (status, stored_credentials) = scene.call_rest_as_root("GET", &path("credentials"), Value::Null).await;
    assert_eq!((status, &stored_credentials["UserToken"]), (200, &json!("")));
    assert_eq!(stored_credentials["ServerAddresses"], "https://10.0.0.1:6443");
    let (_, clusters) = scene.call_admin("GET", "/v1/clusters", Value::Null).await;
    assert_eq!(clusters["clusters"][0]["servers"], json!(["https://10.0.0.1:6443"]));
    assert!(!clusters.to_string().contains("service-account"));
}

#[tokio::test]
async fn only_permitted_users_manage_users_and_clusters() {
    let scene = AccountsFileScene::start(Statuses::Driver).await;
    let alice = format!("Bearer {}", scene.create_user_with_token("alice", false).await);
    let bob = format!("Bearer {}", scene.create_user_with_token("bob", false).await);
    let root = format!("Bearer {}", scene.root_token);
    let basic_header = BASE64_STANDARD.encode(format!("anybody:{}", scene.root_token));
    let password = format!("Basic {basic_header}");
    let cluster_request = json!({"id": "BCS-K8S-1", "project_id": "p1", "cluster_type": "k8s"});
    let (status, cluster) = scene
        .call_rest(&alice, "POST", "clusters/bcs", cluster_request.clone())
        .await;
    assert_eq!((status, &cluster["provider"]), (200, &json!(2)), "{cluster}");
    let id = cluster["id"].as_str().unwrap();
    let (status, refusal) = scene.call_rest(&bob, "POST", "clusters/bcs", cluster_request).await;
    assert_eq!((status, &refusal["code_name"]), (400, &json!("CLUSTER_ALREADY_EXISTS")));
    let tokens_path = format!("clusters/{id}/register_tokens");
    let client_path = format!("clusters/{id}/client_credentials");
    let credentials_path = format!("clusters/{id}/credentials");
    let query = "clusters/bcs/query_by_id/?project_id=p1&cluster_id=BCS-K8S-1";
    let query_by_cluster = "clusters/bcs/query_by_cluster_id/?cluster_id=BCS-K8S-1";
    let url_token = format!("{query}&access_token={}", scene.root_token);
    let (unknown_token, no_token) = ("Bearer unknown", "");
    for (authorization, method, path, status, name) in [
        (no_token, "POST", "users/", 401, "UNAUTHORIZED"),
        (unknown_token, "POST", "users/", 401, "UNAUTHORIZED"),
        (no_token, "GET", &url_token, 401, "UNAUTHORIZED"),
        (&alice, "POST", "users/", 401, "UNAUTHORIZED"),
        (&alice, "GET", "users/root", 401, "UNAUTHORIZED"),
        (&root, "GET", "users/nobody", 404, "USER_NOT_FOUND"),
        (&password, "GET", "users/nobody", 404, "USER_NOT_FOUND"),
        (&root, "POST", "users/99/tokens", 400, "USER_ID_INVALID"),
        (&root, "POST", "users/x/tokens", 400, "USER_ID_INVALID"),
        (&alice, "GET", query, 200, ""),
        (&root, "GET", query_by_cluster, 200, ""),
        // A user without permissions on the cluster gets a reply that does not reveal whether it exists.
        (&bob, "GET", query, 404, "CLUSTER_NOT_FOUND"),
        (&bob, "GET", query_by_cluster, 404, "CLUSTER_NOT_FOUND"),
        (no_token, "GET", query_by_cluster, 401, "UNAUTHORIZED"),
        (&bob, "POST", &tokens_path, 404, "CLUSTER_NOT_FOUND"),
        (&bob, "GET", &client_path, 404, "CLUSTER_NOT_FOUND"),
        (&alice, "GET", &tokens_path, 400, "RTOKEN_NOT_FOUND"),
        (&alice, "GET", &credentials_path, 401, "UNAUTHORIZED"),
        (&alice, "DELETE", &tokens_path, 405, "METHOD_NOT_ALLOWED"),
        (&alice, "GET", "tke/cidr", 404, "NOT_FOUND"),
    ] {
        let (reply_status, reply) = scene
            .call_rest(authorization, method, path, json!({"user_name": "x"}))
            .await;
        let code_name = reply["code_name"].as_str().unwrap_or_default();
        assert_eq!(
            (reply_status, code_name),
            (status, name),
            "{authorization} {method} {path}: {reply}"
        );
        let message = reply["message"].as_str().unwrap_or_default();
        let beginning = if status == 401 {
            "errcode\u{ff1a}1"
        } else {
            "errcode: 1"
        };
        assert!(status == 200 || message.starts_with(beginning), "{message}");
    }
    let grant = json!({"user": "bob", "permission": "Read"});
    let (status, _) = scene
        .call_admin("POST", &format!("/v1/clusters/{id}/permissions"), grant)
        .await;
    assert_eq!(status, 200);
    let (status, _) = scene.call_rest(&bob, "GET", query, Value::Null).await;
    assert_eq!(status, 200);
    let (status, reply) = scene.call_rest(&bob, "POST", &tokens_path, Value::Null).await;
    assert_eq!((status, &reply["code_name"]), (403, &json!("FORBIDDEN")));
}

#[tokio::test]
async fn the_id_of_a_cluster_cannot_be_registered_for_another_project() {
    let scene = AccountsFileScene::start(Statuses::Driver).await;
    let alice = format!("Bearer {}", scene.create_user_with_token("alice", false).await);
    let bob = format!("Bearer {}", scene.create_user_with_token("bob", false).await);
    let cluster_request = |project: &str| json!({"id": "BCS-K8S-1", "project_id": project});
    let (status, cluster) = scene
        .call_rest(&alice, "POST", "clusters/bcs", cluster_request("p1"))
        .await;
    assert_eq!(status, 200, "{cluster}");
    let (status, refusal) = scene
        .call_rest(&bob, "POST", "clusters/bcs", cluster_request("p2"))
        .await;
    assert_eq!((status, &refusal["code_name"]), (400, &json!("CLUSTER_ALREADY_EXISTS")));
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.contains("belongs to the project that registered it first"),
        "{message}"
    );
    let query = "clusters/bcs/query_by_cluster_id/?cluster_id=BCS-K8S-1";
    let (status, _) = scene.call_rest(&bob, "GET", query, Value::Null).await;
    assert_eq!(status, 404);
    assert_eq!(scene.call_rest(&alice, "GET", query, Value::Null).await, (200, cluster));
}

#[tokio::test]
async fn repeated_requests_for_a_user_return_the_same_token() {
    let scene = AccountsFileScene::start(Statuses::Driver).await;
    let (_, user) = scene
        .call_rest_as_root("POST", "users/", json!({"user_name": "alice"}))
        .await;
    let path = format!("users/{}/tokens", user["ID"]);
    let first_reply = scene.call_rest_as_root("POST", &path, Value::Null).await;
    assert_eq!(first_reply.0, 200);
    for _ in 0..33 {
        assert_eq!(scene.call_rest_as_root("POST", &path, Value::Null).await, first_reply);
    }
}

#[tokio::test]
async fn invalid_input_for_accounts_is_refused_with_the_configured_status() {
    for (statuses, expected) in [(Statuses::Ok, 200), (Statuses::Driver, 400)] {
        let scene = AccountsFileScene::start(statuses).await;
        for (method, path, body, part) in [
            ("POST", "users/", json!({}), "field 'user_name' is required"),
            ("POST", "users/", json!("text"), "field 'user_name' is required"),
            ("POST", "users/", json!({"user_name": "a/b"}), "is not a name of a user"),
            ("POST", "clusters/", json!({"id": "../x"}), "is not a valid ID"),
            (
                "POST",
                "clusters/bcs",
                json!({"id": "x"}),
                "field 'project_id' is required",
            ),
            (
                "PUT",
                "clusters/plain-x/credentials",
                json!({}),
                "field 'register_token' is required",
            ),
        ] {
            let (status, reply) = scene.call_rest_as_root(method, path, body).await;
            assert_eq!(
                (status, &reply["code_name"]),
                (expected, &json!("VALIDATION_ERROR")),
                "{reply}"
            );
            assert!(reply["message"].as_str().unwrap().contains(part), "{reply}");
        }
        // An invalid type of cluster always gets the status 400. The configured statuses apply only to replies with the
        // code `VALIDATION_ERROR`.
        let cluster_request = json!({"id": "x", "project_id": "p", "cluster_type": "nomad"});
        let (status, reply) = scene.call_rest_as_root("POST", "clusters/bcs", cluster_request).await;
        assert_eq!((status, &reply["code_name"]), (400, &json!("CLUSTER_TYPE_INVALID")));
        let put_reply = scene
            .call_rest(
                "",
                "PUT",
                "clusters/plain-x/credentials",
                cluster_credentials(&json!("guess")),
            )
            .await;
        assert_eq!(
            (put_reply.0, &put_reply.1["code_name"]),
            (400, &json!("RTOKEN_NOT_FOUND"))
        );
    }
}

#[tokio::test]
async fn the_admin_api_manages_the_same_users_and_clusters() {
    let scene = AccountsFileScene::start(Statuses::Driver).await;
    let user = json!({"name": "alice", "groups": ["dev"]});
    for (method, path, body, status, part) in [
        ("POST", "/v1/users", user.clone(), 200, "plain:alice"),
        ("POST", "/v1/users", user, 409, "already exists"),
        (
            "POST",
            "/v1/users",
            json!({"name": "a b"}),
            400,
            "is not a name of a user",
        ),
        (
            "POST",
            "/v1/users",
            json!({"name": "x", "groups": ["system:masters"]}),
            400,
            "system:",
        ),
        ("GET", "/v1/users/plain:alice", Value::Null, 200, "\"groups\":[\"dev\"]"),
        ("GET", "/v1/users/bob", Value::Null, 404, "there is no user"),
        (
            "POST",
            "/v1/users/alice/tokens",
            json!({"expiresIn": 1}),
            400,
            "from 60",
        ),
        (
            "DELETE",
            "/v1/users/alice/tokens/99",
            Value::Null,
            404,
            "there is no token",
        ),
        (
            "POST",
            "/v1/clusters",
            json!({"id": "dev", "creator": "alice"}),
            200,
            "plain-dev-",
        ),
        ("POST", "/v1/clusters", json!({"id": "dev"}), 409, "already exists"),
        (
            "POST",
            "/v1/clusters",
            json!({"id": "x", "projectId": "p", "type": "nomad"}),
            400,
            "type: ",
        ),
        (
            "POST",
            "/v1/clusters/plain-dev/register-token",
            Value::Null,
            200,
            "token",
        ),
        (
            "POST",
            "/v1/clusters/plain-dev/register-token",
            Value::Null,
            200,
            "token",
        ),
        (
            "DELETE",
            "/v1/clusters/plain-dev/register-token",
            Value::Null,
            200,
            "plain-dev",
        ),
        (
            "DELETE",
            "/v1/clusters/plain-dev/register-token",
            Value::Null,
            404,
            "there is no",
        ),
        (
            "POST",
            "/v1/clusters/plain-dev/permissions",
            json!({"user": "alice", "permission": "Hooks"}),
            200,
            "Hooks",
        ),
        (
            "POST",
            "/v1/clusters/plain-dev/permissions",
            json!({"user": "alice", "permission": "All"}),
            400,
            "permission: ",
        ),
        (
            "DELETE",
            "/v1/clusters/plain-dev/permissions/alice",
            Value::Null,
            200,
            "plain:alice",
        ),
        ("POST", "/v1/accounts/reencrypt", Value::Null, 200, "\"tokens\":0"),
        ("POST", "/v1/accounts/import", Value::Null, 400, "accounts.mysql"),
        (
            "DELETE",
            "/v1/clusters/plain-dev",
            Value::Null,
            200,
            "cluster plain-dev",
        ),
        ("DELETE", "/v1/users/alice", Value::Null, 200, "user plain:alice"),
    ] {
        let (reply_status, reply) = scene.call_admin(method, path, body).await;
        assert_eq!(reply_status, status, "{method} {path}: {reply}");
        assert!(reply.to_string().contains(part), "{method} {path}: {reply}");
    }
    let (_, users) = scene.call_admin("GET", "/v1/users/root", Value::Null).await;
    let path = format!("/v1/users/root/tokens/{}", users["tokens"][0]["id"]);
    assert_eq!(scene.call_admin("DELETE", &path, Value::Null).await.0, 200);
    assert_eq!(scene.call_rest_as_root("GET", "users/root", Value::Null).await.0, 401);
}

#[tokio::test]
async fn a_user_can_create_only_a_limited_number_of_clusters() {
    let scene = AccountsFileScene::start(Statuses::Ok).await;
    let alice = format!("Bearer {}", scene.create_user_with_token("alice", false).await);
    let create = async |number: usize| {
        let body = json!({"id": format!("dev-{number}")});
        scene.call_rest(&alice, "POST", "clusters/", body).await
    };
    for number in 0..3 {
        assert_eq!(create(number).await.0, 200);
    }
    let (status, refusal) = create(3).await;
    assert_eq!(
        (status, &refusal["code_name"]),
        (403, &json!("QUOTA_EXCEEDED")),
        "{refusal}"
    );
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("accounts.clustersPerUser"), "{message}");
    let (status, refused) = scene
        .call_admin("POST", "/v1/clusters", json!({"id": "x", "creator": "alice"}))
        .await;
    assert_eq!(status, 409, "{refused}");
}

#[tokio::test]
async fn a_gateway_without_accounts_has_no_management_api() {
    let gateway = gateway_setup(&[], |_| {}).start().await;
    let (status, _) = status_and_text(gateway.send(request("GET", "/rest/users/root", "")).await).await;
    assert_eq!(status, 404);
    let (status, reply) = gateway.get_from_admin("/v1/users").await;
    assert_eq!(status, 404);
    assert!(reply.contains("dialect.gateway.accounts"), "{reply}");
}
