//! The accounts of a gateway: the commands and the API for its users and clusters.

use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt as _};

use admittance_tests::{Admittance, Client, FakeUpstream, FinishedProgram, POLL_INTERVAL, Serve, TEST_TIMEOUT};
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{store, write};

struct AccountsCliScene {
    program: Admittance,
    client: Client,
    directory: TempDir,
}

impl AccountsCliScene {
    async fn start() -> Self {
        Self::start_configured("").await
    }

    async fn start_configured(additions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!("dialect: {{ gateway: {{ accounts: {{ sqlite: accounts.db }}{additions} }} }}\n");
        write(&directory, "admittance.yaml", config);
        Self {
            program: start_gateway(&directory).await,
            client: Client::new().unwrap(),
            directory,
        }
    }

    async fn run_command(&self, arguments: &[&str]) -> FinishedProgram {
        let connection = ["--server".into(), OsString::from(self.program.admin_url(""))];
        let arguments = arguments.iter().map(OsString::from);
        Admittance::run(arguments.chain(connection)).await.unwrap()
    }

    async fn stdout_of(&self, arguments: &[&str]) -> String {
        let finished = self.run_command(arguments).await;
        assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    async fn send_rest(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(self.program.url(&format!("/rest/{path}")))
            .header("authorization", format!("Bearer {token}"))
            .body(body.to_string())
            .unwrap();
        let reply = self.client.send(request).await.unwrap();
        (reply.status.as_u16(), reply.json().unwrap())
    }
}

async fn start_gateway(directory: &TempDir) -> Admittance {
    let config = directory.path().join("admittance.yaml");
    let program = Serve::new(config).unwrap().store(store()).start().await.unwrap();
    program
        .wait_for_status("the database was read", |status| {
            status["gateway"]["accounts"]["problem"].is_null() && status["gateway"]["accounts"]["read"] == true
        })
        .await
        .unwrap();
    program
}

#[tokio::test]
async fn the_commands_on_the_accounts_page_succeed_in_order() {
    let mut scene = AccountsCliScene::start().await;
    let created = scene
        .stdout_of(&["users", "create", "alice", "--group", "developers"])
        .await;
    assert!(
        created.contains("plain:alice") && created.contains("developers"),
        "{created}"
    );
    let token = scene
        .stdout_of(&["tokens", "create", "alice", "--expires-in", "90d"])
        .await
        .trim_end()
        .to_owned();
    assert_eq!(token.len(), 32, "{token}");
    let created = scene
        .stdout_of(&["clusters", "create", "dev", "--creator", "alice"])
        .await;
    assert!(created.contains("plain-dev"), "{created}");
    let register_token = scene.stdout_of(&["register-tokens", "create", "plain-dev"]).await;

    let report = json!({
        "register_token": register_token.trim_end(),
        "server_addresses": "https://10.0.0.1:6443",
        "cacert_data": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "user_token": "service-account",
    });
    let (status, reply) = scene
        .send_rest("", "PUT", "clusters/plain-dev/credentials", report)
        .await;
    assert_eq!(status, 200, "{reply}");
    let cluster_listing = scene.stdout_of(&["clusters", "list"]).await;
    assert!(cluster_listing.contains("https://10.0.0.1:6443"), "{cluster_listing}");
    let path = "clusters/plain-dev/client_credentials";
    let (status, reply) = scene.send_rest(&token, "GET", path, Value::Null).await;
    assert_eq!((status, &reply["user_token"]), (200, &json!(token)), "{reply}");

    let log = format!("{:?}", scene.program.log());
    for change in [
        "create user plain:alice",
        "create token plain:alice 1",
        "report credentials plain-dev",
    ] {
        assert!(log.contains(change), "{change}: {log}");
    }
    for secret in [token.as_str(), register_token.trim_end(), "service-account"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    scene.program.kill().await.unwrap();
    scene.program = start_gateway(&scene.directory).await;
    let (status, _) = scene.send_rest(&token, "GET", path, Value::Null).await;
    assert_eq!(status, 200);

    scene
        .stdout_of(&["permissions", "grant", "alice", "plain-dev", "Hooks"])
        .await;
    let permission_listing = scene.stdout_of(&["permissions", "list"]).await;
    assert!(permission_listing.contains("Hooks"), "{permission_listing}");
    scene.stdout_of(&["permissions", "revoke", "alice", "plain-dev"]).await;
    let tokens = scene.stdout_of(&["tokens", "list", "alice", "--output", "json"]).await;
    let tokens: Value = serde_json::from_str(&tokens).unwrap();
    let id = tokens["tokens"][0]["id"].to_string();
    scene.stdout_of(&["tokens", "revoke", "alice", &id]).await;
    let (status, reply) = scene.send_rest(&token, "GET", path, Value::Null).await;
    assert_eq!((status, &reply["code_name"]), (401, &json!("UNAUTHORIZED")));
    assert!(scene.stdout_of(&["clusters", "reencrypt"]).await.contains("1 cluster"));
    scene.stdout_of(&["register-tokens", "revoke", "plain-dev"]).await;
    scene.stdout_of(&["clusters", "delete", "plain-dev"]).await;
    scene.stdout_of(&["users", "delete", "alice"]).await;
    let users = scene.stdout_of(&["users", "list", "--output", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&users).unwrap(), json!({"users": []}));
}

#[tokio::test]
async fn the_accounts_api_replies_with_the_errors_of_bcs_api() {
    let scene = AccountsCliScene::start().await;
    scene.stdout_of(&["users", "create", "root", "--super-user"]).await;
    scene.stdout_of(&["users", "create", "alice"]).await;
    let root = scene.stdout_of(&["tokens", "create", "root"]).await;
    let alice = scene.stdout_of(&["tokens", "create", "alice"]).await;
    let (root, alice) = (root.trim_end(), alice.trim_end());
    let created = json!({"ID": "BCS-K8S-1", "Project_id": "p", "cluster_type": null});
    let (status, cluster) = scene.send_rest(root, "POST", "clusters/bcs", created).await;
    assert_eq!(status, 200, "{cluster}");
    let id = cluster["id"].as_str().unwrap().to_ascii_uppercase();
    let report = json!({
        "register_token": "x", "server_addresses": "https://10.0.0.1:6443", "cacert_data": "x", "user_token": "x",
    });
    let (tokens, credentials) = (
        format!("clusters/{id}/register_tokens"),
        format!("clusters/{id}/credentials"),
    );
    let of_no_one = "errcode\u{ff1a}1405059,  anonymous requests is forbidden, please provide a valid token";
    for (token, method, path, body, status, name, message) in [
        (
            root,
            "GET",
            "users/nobody",
            Value::Null,
            404,
            "USER_NOT_FOUND",
            "errcode: 1405061, ",
        ),
        (
            root,
            "POST",
            "users/",
            json!({}),
            200,
            "VALIDATION_ERROR",
            "errcode: 1405061, field 'user_name' is required",
        ),
        (
            root,
            "POST",
            "users/",
            json!({"user_name": "bcs:a"}),
            200,
            "VALIDATION_ERROR",
            "errcode: 1405061, `plain:bcs:a`",
        ),
        (
            root,
            "POST",
            "users/",
            json!({"USER_NAME": "alice"}),
            400,
            "USER_ALREADY_EXISTS",
            "errcode: 1405061, ",
        ),
        (alice, "GET", "users/alice", Value::Null, 401, "UNAUTHORIZED", of_no_one),
        (
            "wrong",
            "GET",
            "users/alice",
            Value::Null,
            401,
            "UNAUTHORIZED",
            of_no_one,
        ),
        (
            root,
            "GET",
            "clusters/none/register_tokens",
            Value::Null,
            404,
            "CLUSTER_NOT_FOUND",
            "errcode: 1405060, ",
        ),
        (
            root,
            "GET",
            &tokens,
            Value::Null,
            400,
            "RTOKEN_NOT_FOUND",
            "errcode: 1405061, ",
        ),
        (
            "",
            "PUT",
            &credentials,
            report.clone(),
            400,
            "RTOKEN_NOT_FOUND",
            "errcode: 1405061, ",
        ),
        (root, "POST", &tokens, Value::Null, 200, "", ""),
        (
            root,
            "POST",
            &tokens,
            Value::Null,
            500,
            "CANNOT_CREATE_RTOKEN",
            "errcode: 1405061, ",
        ),
        (
            "",
            "PUT",
            &credentials,
            report,
            400,
            "INVALID_RTOKEN",
            "errcode: 1405061, ",
        ),
        (
            root,
            "GET",
            "clusters/bcs/query_by_id/?project_id=P&cluster_id=bcs-k8s-1",
            Value::Null,
            200,
            "",
            "",
        ),
    ] {
        let (actual_status, reply) = scene.send_rest(token, method, path, body).await;
        let text = |key: &str| reply[key].as_str().unwrap_or_default();
        assert_eq!(
            (actual_status, text("code_name")),
            (status, name),
            "{method} {path}: {reply}"
        );
        assert!(text("message").starts_with(message), "{method} {path}: {reply}");
    }
}

#[tokio::test]
async fn account_commands_report_why_they_are_refused() {
    let scene = AccountsCliScene::start().await;
    for (arguments, expected) in [
        (&["users", "create", "a b"][..], "is not a name of a user"),
        (
            &["users", "create", "a", "--group", "system:masters"],
            "cannot be a group of users",
        ),
        (&["users", "delete", "nobody"], "there is no user `plain:nobody`"),
        (&["tokens", "create", "nobody"], "there is no user `plain:nobody`"),
        (&["tokens", "create", "nobody", "--expires-in", "soon"], "--expires-in"),
        (&["clusters", "create", "../x"], "is not a valid ID of a cluster"),
        (
            &["clusters", "create", "x", "--project", "p", "--type", "nomad"],
            "type: ",
        ),
        (
            &["register-tokens", "revoke", "plain-x"],
            "there is no cluster `plain-x`",
        ),
        (
            &["permissions", "grant", "a", "plain-x", "Read"],
            "there is no cluster `plain-x`",
        ),
        (&["users", "import"], "dialect.gateway.accounts.mysql"),
    ] {
        let finished = scene.run_command(arguments).await;
        assert_eq!(finished.code, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}

#[tokio::test]
async fn the_token_of_an_account_is_accepted_for_mesos_clusters() {
    let driver = FakeUpstream::start().await.unwrap();
    let additions = format!(
        ", clusters: {{ BCS-MESOS-1: [\"{}\"] }}, tokens: {{ accounts: {{}} }}, statuses: driver",
        driver.url()
    );
    let scene = AccountsCliScene::start_configured(&additions).await;
    scene.stdout_of(&["users", "create", "alice"]).await;
    let token = scene
        .stdout_of(&["tokens", "create", "alice"])
        .await
        .trim_end()
        .to_owned();
    let create = ["clusters", "create", "BCS-MESOS-1", "--project", "p", "--type", "mesos"];
    let created = scene
        .stdout_of(&[&create[..], &["--creator", "alice", "--output", "json"]].concat())
        .await;
    let created: Value = serde_json::from_str(&created).unwrap();
    let cluster = created["id"].as_str().unwrap().to_owned();
    let ask = async |method: &str, token: &str| {
        let path = "/bcsapi/v4/scheduler/mesos/namespaces/n/applications";
        let request = Request::builder()
            .method(method)
            .uri(scene.program.url(path))
            .header("bcs-clusterid", "BCS-MESOS-1")
            .header("authorization", format!("Bearer {token}"));
        let reply = scene.client.send(request.body("{}").unwrap()).await.unwrap();
        reply.status.as_u16()
    };
    assert_eq!(ask("GET", "unknown").await, 401);
    // The drivers of the cluster `BCS-MESOS-1` are in the gateway's configuration. Alice has registered a cluster with
    // the same ID, but that gives her no right to use these drivers.
    assert_eq!(ask("GET", &token).await, 400);
    assert!(driver.requests().is_empty());
    scene
        .stdout_of(&["permissions", "grant", "alice", &cluster, "Read"])
        .await;
    assert_eq!((ask("GET", &token).await, ask("POST", &token).await), (200, 400));
    scene
        .stdout_of(&["permissions", "grant", "alice", &cluster, "Write"])
        .await;
    assert_eq!(ask("POST", &token).await, 200);
    assert!(
        driver
            .requests()
            .iter()
            .all(|driver_request| !driver_request.headers.contains_key("authorization"))
    );
    scene.stdout_of(&["permissions", "revoke", "alice", &cluster]).await;
    assert_eq!(ask("GET", &token).await, 400);
}

fn write_key(directory: &TempDir, byte: char) {
    let path = write(
        directory,
        "accounts.db.key",
        format!("{}=\n", byte.to_string().repeat(43)),
    );
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_lost_encryption_key_is_reported_and_never_replaced() {
    let mut scene = AccountsCliScene::start().await;
    scene.stdout_of(&["clusters", "create", "dev"]).await;
    let token = scene.stdout_of(&["register-tokens", "create", "plain-dev"]).await;
    let report = json!({
        "register_token": token.trim_end(),
        "server_addresses": "https://10.0.0.1:6443",
        "cacert_data": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "user_token": "service-account",
    });
    let (status, reply) = scene
        .send_rest("", "PUT", "clusters/plain-dev/credentials", report)
        .await;
    assert_eq!(status, 200, "{reply}");
    scene.program.kill().await.unwrap();

    let key = scene.directory.path().join("accounts.db.key");
    fs::remove_file(&key).unwrap();
    let config = scene.directory.path().join("admittance.yaml");
    let arguments = ["serve".into(), "--config".into(), config.into_os_string()];
    let output = Admittance::run(arguments).await.unwrap();
    let text = format!("{}{}", output.stdout, output.stderr);
    for part in ["accounts.db.key does not exist", "restore the file", "openssl rand"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!key.exists() && output.code != Some(0));

    // The user restores the file with the key, as the error message advises.
    write_key(&scene.directory, 'A');
    scene.program = start_gateway(&scene.directory).await;
    let finished = scene.run_command(&["clusters", "reencrypt"]).await;
    assert_eq!(finished.code, Some(2), "{finished:?}");
    for part in [
        "credentials of 0 clusters",
        "the token of the cluster plain-dev",
        "report again",
    ] {
        assert!(finished.stdout.contains(part), "{part}: {}", finished.stdout);
    }
    assert!(
        finished.stderr.contains("1 token could not be decrypted"),
        "{}",
        finished.stderr
    );
}

#[tokio::test]
async fn a_gateway_is_ready_once_it_has_read_its_database() {
    let directory = tempfile::tempdir().unwrap();
    let database = write(&directory, "accounts.db", "x".repeat(4096));
    write_key(&directory, 'A');
    let config = "dialect: { gateway: { accounts: { sqlite: accounts.db } } }\n";
    let config = write(&directory, "admittance.yaml", config);
    let program = Serve::new(config).unwrap().store(store()).start().await.unwrap();
    let reply = Client::new().unwrap().get(&program.admin_url("/readyz")).await.unwrap();
    let readiness = reply.json().unwrap();
    assert_eq!((reply.status.as_u16(), &readiness["ready"]), (503, &json!(false)));
    let reason = readiness["reason"].as_str().unwrap();
    assert!(reason.contains("the database of users and clusters"), "{reason}");
    fs::write(database, "").unwrap();
    let ready = async {
        while !program.is_ready().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, ready).await.unwrap();
}
