use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, path::PathBuf};

use admittance_tests::{Admittance, Client, Reply, Serve, TEST_TIMEOUT};
use http::{Method, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    api_server::{ApiServer, ClusterAuthority},
    wire::WireClient,
};
use crate::scene::{source, store, write};

pub(super) const SERVICE_ACCOUNT_TOKEN: &str = "service-account-1";
/// The secret that the gateways of a scene share.
pub(super) const PEER_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A gateway with a user and a registered cluster, and this cluster's API server, which is running.
pub(super) struct ClustersScene {
    pub(super) directory: TempDir,
    pub(super) gateway: Admittance,
    pub(super) authority: ClusterAuthority,
    pub(super) server: ApiServer,
    /// The gateway's token for the user `plain:alice`, who may change objects of the cluster.
    pub(super) alice: String,
    pub(super) register_token: String,
    /// The cluster's path at the gateway: `/tunnels/clusters/{identifier}`.
    pub(super) prefix: String,
    client: Client,
}

pub(super) fn port_of(server: &ApiServer) -> String {
    server.url().rsplit(':').next().unwrap().to_owned()
}

/// Returns chains that require fixed image versions, add a sidecar, rewrite images to a mirror, and forbid `rm`.
fn chains() -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  phase: Validating
  rules:
    - {{ operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: versions
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: sidecars }}
spec:
  rules:
    - {{ operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: sidecar
      plugin:
        source: \"{sidecars}\"
        settings: {{ containers: [ {{ name: agent, image: \"agent:1\" }} ] }}
      objectSelector: {{ matchLabels: {{ sidecar: \"true\" }} }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: mirrors }}
spec:
  rules:
    - {{ operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: mirror
      plugin: {{ source: \"{images}\", settings: {{ rewrites: {{ old.example.com: new.example.com }} }} }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: guard }}
spec:
  phase: Validating
  rules:
    - {{ operations: [CONNECT], apiGroups: [\"\"], apiVersions: [v1], resources: [pods/exec] }}
    - {{ operations: [DELETE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: nothing-that-matches-may-pass
      # Whatever these conditions select fails, and is refused.
      webhook: {{ protocol: AdmissionReview, url: \"https://127.0.0.1:1/\" }}
      matchConditions:
        - name: guarded
          expression: >-
            request.operation == 'CONNECT' ? object.command[0] == 'rm'
            : oldObject.metadata.labels['keep'] == 'true'
      failurePolicy: Fail
",
        images = source("image-policy"),
        sidecars = source("sidecar-injector"),
    )
}

impl ClustersScene {
    pub(super) async fn start(has_chains: bool) -> Self {
        Self::start_configured(has_chains, "[127.0.0.0/8]", None, "", &[]).await
    }

    /// Starts a scene whose gateway cannot connect to the API server directly.
    pub(super) async fn start_behind_tunnel() -> Self {
        Self::start_configured(false, "[]", None, "", &[]).await
    }

    /// Starts a scene whose gateway runs chains and finds other gateways through this ZooKeeper ensemble.
    pub(super) async fn start_with_peers(ensemble: &str) -> Self {
        Self::start_configured(true, "[]", Some(ensemble), "", &[]).await
    }

    /// Starts a scene with `additions` appended to the gateway's configuration, and with these files in its directory.
    pub(super) async fn start_with_additions(additions: &str, files: &[(&str, &str)]) -> Self {
        Self::start_configured(false, "[127.0.0.0/8]", None, additions, files).await
    }

    async fn start_configured(
        has_chains: bool,
        local_servers: &str,
        ensemble: Option<&str>,
        additions: &str,
        files: &[(&str, &str)],
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            write_secret(&directory, name, text);
        }
        let (mut top, mut peers) = (String::new(), "");
        if let Some(ensemble) = ensemble {
            let certificates = directory.path().join("certs");
            let arguments = ["certs", "--host", "localhost", "--out"].map(Into::into);
            let certs_output = Admittance::run(arguments.into_iter().chain([certificates.into_os_string()])).await;
            assert_eq!(certs_output.unwrap().code, Some(0));
            write_secret(&directory, "peers.secret", PEER_SECRET);
            top = format!("zookeeper: {{ service: {ensemble} }}\nregistration: {{}}\n");
            peers = "    peers: { secretFile: peers.secret, tls: { ca: certs/ca.pem, serverName: localhost } }\n";
        }
        let definitions = if has_chains {
            write(&directory, "chains.yaml", chains());
            "definitions: [chains.yaml]\n"
        } else {
            ""
        };
        let config = format!(
            "{top}{definitions}dialect:
  gateway:
    accounts: {{ sqlite: accounts.db, localServers: {local_servers} }}
{peers}{additions}"
        );
        let config = write(&directory, "admittance.yaml", config);
        let gateway = Serve::new(config).unwrap().store(store()).start().await.unwrap();
        let client = Client::new().unwrap();
        let authority = ClusterAuthority::new();
        let mut scene = Self {
            server: ApiServer::start(&authority, SERVICE_ACCOUNT_TOKEN).await,
            authority,
            directory,
            gateway,
            alice: String::new(),
            register_token: String::new(),
            prefix: String::new(),
            client,
        };
        scene.until_accounts_read().await;
        scene.alice = scene.create_user("alice", json!({})).await;
        scene.prefix = scene.create_cluster("dev", "plain:alice").await;
        let issued = scene
            .send_to_admin("POST", "/v1/clusters/plain-dev/register-token", json!({}))
            .await;
        scene.register_token = issued["token"].as_str().unwrap().to_owned();
        scene
    }

    pub(super) async fn until_accounts_read(&self) {
        while !self
            .client
            .get(&self.gateway.admin_url("/v1/users"))
            .await
            .unwrap()
            .status
            .is_success()
        {
            tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
        }
    }

    pub(super) fn gateway_address(&self) -> String {
        self.gateway.url("").replace("http://", "")
    }

    pub(super) async fn restart_gateway(&mut self) {
        let address = self.gateway_address();
        self.gateway.kill().await.unwrap();
        let config = self.directory.path().join("admittance.yaml");
        let serve = Serve::new(config)
            .unwrap()
            .listen(address.parse().unwrap())
            .store(store());
        self.gateway = serve.start().await.unwrap();
        self.until_accounts_read().await;
    }

    pub(super) async fn send_to_admin(&self, method: &str, path: &str, body: Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(self.gateway.admin_url(path))
            .header("content-type", "application/json")
            .body(body_text(&body))
            .unwrap();
        let reply = self.client.send(request).await.unwrap();
        assert!(reply.status.is_success(), "{method} {path}: {}", reply.text());
        reply.json().unwrap()
    }

    pub(super) async fn create_user(&self, name: &str, fields: Value) -> String {
        let mut user = json!({"name": name});
        json_patch::merge(&mut user, &fields);
        self.send_to_admin("POST", "/v1/users", user).await;
        let path = format!("/v1/users/{name}/tokens");
        let token = self.send_to_admin("POST", &path, json!({"expiresIn": 3600})).await;
        token["token"].as_str().unwrap().to_owned()
    }

    /// Registers a cluster, and returns its path at the gateway.
    pub(super) async fn create_cluster(&self, id: &str, creator: &str) -> String {
        let cluster = self
            .send_to_admin("POST", "/v1/clusters", json!({"id": id, "creator": creator}))
            .await;
        format!("/tunnels/clusters/{}", cluster["identifier"].as_str().unwrap())
    }

    /// Reports the addresses of these API servers and this token to the gateway, as the cluster's agent does.
    pub(super) async fn report_servers(&self, servers: &[&ApiServer], token: &str) -> Reply {
        let addresses: Vec<_> = servers.iter().map(|server| server.url()).collect();
        let report = json!({
            "register_token": self.register_token,
            "server_addresses": addresses.join(";"),
            "cacert_data": self.authority.pem(),
            "user_token": token,
        });
        let request = Request::put(self.gateway.url("/rest/clusters/plain-dev/credentials"))
            .header("content-type", "application/json")
            .body(report.to_string())
            .unwrap();
        self.client.send(request).await.unwrap()
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: Value) -> Reply {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send_with(method, path, &[("content-type", content_type)], body)
            .await
    }

    pub(super) async fn send_with(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Value) -> Reply {
        let url = self.gateway.url(&format!("{}{path}", self.prefix));
        let mut request = Request::builder().method(method).uri(url);
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", format!("Bearer {}", self.alice));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.send(request.body(body_text(&body)).unwrap()).await.unwrap()
    }

    pub(super) async fn send_raw(&self, method: &str, path: &str, lines: &str) -> WireClient {
        let address = self.gateway_address();
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n{lines}\r\n",
            self.prefix, self.alice
        );
        WireClient::open(&address, &head).await
    }

    pub(super) async fn start_another_gateway(&self, address: SocketAddr, shared_secret: &str) -> Admittance {
        write_secret(&self.directory, "another.secret", shared_secret);
        let config = fs::read_to_string(self.directory.path().join("admittance.yaml")).unwrap();
        let tls = "listen: { tls: { certificate: certs/localhost.pem, key: certs/localhost.key } }\n";
        let config = tls.to_owned() + &*config.replace("peers.secret", "another.secret");
        let config = write(&self.directory, "another.yaml", config);
        let serve = Serve::new(config).unwrap().listen(address).store(store());
        serve.start().await.unwrap()
    }

    /// Starts the agent of the scene's cluster with the files and variables that it would have in a Pod.
    pub(super) async fn start_agent(&self) -> AgentProgram {
        self.start_agent_for(&self.gateway.url("")).await
    }

    /// Starts the agent of the scene's cluster, which connects to the gateway at this URL.
    pub(super) async fn start_agent_for(&self, gateway: &str) -> AgentProgram {
        AgentProgram(self.agent_command(gateway).spawn().unwrap())
    }

    pub(super) fn agent_command(&self, gateway: &str) -> tokio::process::Command {
        let mut command = self.listing_agent_command(gateway);
        command.args(["--api-server", &self.server.url()]);
        command
    }

    /// Returns a command that runs an agent which asks the API server for the addresses of all API servers.
    pub(super) fn listing_agent_command(&self, gateway: &str) -> tokio::process::Command {
        let account_directory = self.directory.path().join("service-account");
        fs::create_dir_all(&account_directory).unwrap();
        fs::write(account_directory.join("token"), SERVICE_ACCOUNT_TOKEN).unwrap();
        fs::write(account_directory.join("ca.crt"), self.authority.pem()).unwrap();
        let mut command = Admittance::command().unwrap();
        command
            .args(["agent", "--cluster-id", "plain-dev", "--period", "1s"])
            .args(["--gateway", gateway])
            .arg("--service-account")
            .arg(account_directory)
            .env("REGISTER_TOKEN", &self.register_token)
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", port_of(&self.server))
            .kill_on_drop(true);
        let ca = self.directory.path().join("certs/ca.pem");
        if ca.exists() {
            command.arg("--ca").arg(ca);
        }
        command
    }

    pub(super) async fn until_cluster_reached(&self) {
        let wait = async {
            while self
                .send(Method::GET, "/version", Value::Null)
                .await
                .status
                .is_server_error()
            {
                tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
    }
}

fn write_secret(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = write(directory, name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn body_text(body: &Value) -> String {
    match body {
        Value::Null => String::new(),
        body => body.to_string(),
    }
}

pub(super) struct AgentProgram(tokio::process::Child);

impl AgentProgram {
    pub(super) async fn kill(mut self) {
        self.0.kill().await.unwrap();
    }
}

pub(super) fn pod(name: &str, image: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

pub(super) const PODS_PATH: &str = "/api/v1/namespaces/n/pods";
