//! Sets up a gateway and connects a cluster to it, as a new user would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use admittance_tests::{Admittance, Client, ClientTrust};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::balancer::ConnectionBalancer;
use crate::{
    cluster::TestCluster,
    kubectl::{Kubectl, KubectlOutput, RunningKubectl},
    process::wait_until,
    rest::UserClient,
    scene::{Scene, chain, core_rules, image_policy_stage, replace, validating_chain},
};

pub(super) struct GatewayScene {
    /// The scene of the cluster behind the gateway. Its kubectl bypasses the gateway, as the administrator.
    pub(super) scene: Scene,
    pub(super) agent: Child,
    has_tunnel: bool,
    /// The URL to which the agent and users connect: the gateway's, or that of a balancer in front of several gateways.
    url: String,
    pub(super) cluster_id: String,
    alice: Kubectl,
    pub(super) rest: UserClient,
    /// The cluster's path at the gateway: `/tunnels/clusters/{identifier}`.
    pub(super) prefix: String,
}

pub(super) struct GatewaySetting<'a> {
    pub(super) has_tunnel: bool,
    pub(super) accounts: Value,
    /// The value of `dialect.gateway.peers` in the gateway's configuration, by which the gateway connects to other
    /// gateways. It is `None` if the scenario has only one gateway.
    pub(super) peers: Option<Value>,
    pub(super) roles: Option<Value>,
    pub(super) extra_config: Value,
    pub(super) chains: Vec<Value>,
    pub(super) balancer: Option<&'a ConnectionBalancer>,
}

impl GatewaySetting<'_> {
    pub(super) fn simple(has_tunnel: bool) -> Self {
        // In a test with a tunnel, the gateway must not bypass the tunnel. So `localServers` does not allow it to
        // connect to a local API server.
        let local_servers = if has_tunnel { json!([]) } else { json!(["127.0.0.0/8"]) };
        Self {
            has_tunnel,
            accounts: json!({"sqlite": "accounts.db", "localServers": local_servers}),
            peers: None,
            roles: None,
            extra_config: json!({}),
            chains: chains(),
            balancer: None,
        }
    }
}

/// Returns chains that require fixed versions of images, and forbid `rm` in containers.
fn chains() -> Vec<Value> {
    let pods = core_rules(&["CREATE", "UPDATE"], &["pods"]);
    let mut guard = chain(
        "guard",
        core_rules(&["CONNECT"], &["pods/exec"]),
        json!([image_policy_stage()]),
    );
    // The webhook of this stage is unreachable. So the stage refuses all requests that its match condition selects.
    guard["spec"]["stages"][0] = json!({
        "name": "no-rm",
        "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/"},
        "matchConditions": [{"name": "rm", "expression": "object.command[0] == 'rm'"}],
        "failurePolicy": "Fail",
    });
    vec![
        validating_chain(chain("images", pods, json!([image_policy_stage()]))),
        validating_chain(guard),
    ]
}

impl GatewayScene {
    pub(super) async fn start(cluster: Arc<TestCluster>, has_tunnel: bool) -> Self {
        Self::start_configured(cluster, GatewaySetting::simple(has_tunnel)).await
    }

    /// Starts a gateway, and connects the cluster to it with the commands in the documentation.
    pub(super) async fn start_configured(cluster: Arc<TestCluster>, setting: GatewaySetting<'_>) -> Self {
        let mut gateway = json!({"accounts": setting.accounts});
        if let Some(peers) = setting.peers {
            gateway["peers"] = peers;
        }
        if let Some(roles) = setting.roles {
            gateway["roles"] = roles;
        }
        let dialect = json!({"gateway": gateway});
        let scene = Scene::start_with_dialect(cluster, dialect, setting.extra_config, &setting.chains).await;
        let url = match setting.balancer {
            Some(front) => {
                front.pass_to(&[scene.url("")]);
                front.url()
            }
            None => scene.url(""),
        };
        wait_until("the database of the gateway", async || {
            run_command(&scene, "users list").await.is_success.then_some(())
        })
        .await;
        run_command(&scene, "users create alice --group developers")
            .await
            .assert_success();
        let cluster_id = format!("plain-{}", scene.namespace);
        let created = format!("clusters create {} --creator alice", scene.namespace);
        run_command(&scene, &created).await.assert_success();
        let register_token = run_command(&scene, &format!("register-tokens create {cluster_id}")).await;
        fs::write(scene.path("register.token"), register_token.assert_success().stdout).unwrap();
        install(&scene, &url, &cluster_id).await;
        let agent = spawn_agent(&scene, &url, &cluster_id, setting.has_tunnel);
        let prefix = format!("/tunnels/clusters/{}", cluster_identifier(&scene, &cluster_id).await);
        let token = create_token(&scene, "alice").await;
        let token_file = scene.path("alice.token");
        fs::write(&token_file, &token).unwrap();
        let gateway = Self {
            alice: create_kubeconfig(&scene, &url, &prefix, &token_file).await,
            rest: rest_client(&scene, &url, &token),
            agent,
            has_tunnel: setting.has_tunnel,
            url,
            cluster_id,
            prefix,
            scene,
        };
        gateway.wait_until_reached().await;
        gateway
    }

    pub(super) fn start_agent(&mut self) {
        self.agent = spawn_agent(&self.scene, &self.url, &self.cluster_id, self.has_tunnel);
    }

    /// Stops the agent, and starts one with the service account in this directory. The new agent reports the API
    /// server's published endpoints.
    pub(super) async fn replace_agent(&mut self, account: &Path) {
        self.agent.kill().await.unwrap();
        let mut command = agent_command(&self.scene, &self.url, &self.cluster_id, self.has_tunnel);
        let address = self.scene.cluster.url();
        let (host, port) = address.trim_start_matches("https://").rsplit_once(':').unwrap();
        self.agent = command
            .arg("--service-account")
            .arg(account)
            .env("KUBERNETES_SERVICE_HOST", host)
            .env("KUBERNETES_SERVICE_PORT", port)
            .spawn()
            .unwrap();
    }

    pub(super) async fn run_as_admin(&self, arguments: &str) {
        self.scene.run(arguments).await.assert_success();
    }

    /// Creates a token for a service account. Returns a directory with the files that a kubelet would mount into Pods.
    pub(super) async fn mount(&self, namespace: &str, name: &str) -> PathBuf {
        mount(&self.scene, namespace, name).await
    }

    pub(super) fn path(&self, collection: &str) -> String {
        let namespace = &self.scene.namespace;
        format!("{}/api/v1/namespaces/{namespace}/{collection}", self.prefix)
    }

    pub(super) async fn wait_until_reached(&self) {
        self.wait_until_reached_by(&self.rest).await;
    }

    pub(super) async fn wait_until_reached_by(&self, rest: &UserClient) {
        let path = format!("{}/version", self.prefix);
        wait_until("an answer of the API server", async || {
            let reply = rest.get(&path).await.ok()?;
            reply.status.is_success().then_some(())
        })
        .await;
    }

    pub(super) async fn run(&self, arguments: &str) -> KubectlOutput {
        self.run_with_input(arguments, "").await
    }

    pub(super) async fn run_with_object(&self, arguments: &str, object: &Value) -> KubectlOutput {
        self.run_with_input(arguments, &object.to_string()).await
    }

    pub(super) async fn run_with_input(&self, arguments: &str, input: &str) -> KubectlOutput {
        let arguments = self.namespaced_arguments(arguments);
        self.alice.run_with_input(&arguments, input).await.unwrap()
    }

    pub(super) fn start_kubectl(&self, arguments: &str) -> RunningKubectl {
        self.alice.start(&self.namespaced_arguments(arguments)).unwrap()
    }

    fn namespaced_arguments<'a>(&'a self, arguments: &'a str) -> Vec<&'a str> {
        let namespace_option = ["--namespace", &self.scene.namespace];
        namespace_option.into_iter().chain(arguments.split(' ')).collect()
    }

    pub(super) async fn revoke(&self) {
        let token_list = run_command(&self.scene, "tokens list alice --output json").await.json();
        let id = &token_list["tokens"][0]["id"];
        run_command(&self.scene, &format!("tokens revoke alice {id}"))
            .await
            .assert_success();
    }
}

pub(super) async fn run_command(scene: &Scene, line: &str) -> KubectlOutput {
    let server = ["--server".to_owned(), scene.admin_url()];
    let arguments = line.split(' ').map(str::to_owned).chain(server);
    run_admittance(arguments.collect()).await
}

async fn run_admittance(arguments: Vec<String>) -> KubectlOutput {
    let finished = Admittance::run(arguments).await.unwrap();
    KubectlOutput {
        is_success: finished.code == Some(0),
        stdout: finished.stdout,
        stderr: finished.stderr,
    }
}

/// Applies the manifests of the agent, and creates the directory with its service account that a kubelet would mount.
async fn install(scene: &Scene, url: &str, cluster_id: &str) {
    let (token, ca) = (scene.path("register.token"), scene.path("certs/ca.pem"));
    let line = format!(
        "kubernetes manifests --agent --gateway {} --cluster-id {cluster_id} --register-token-file {} \
         --gateway-ca {} --group developers --roles",
        url,
        token.display(),
        ca.display()
    );
    let manifests = run_admittance(line.split(' ').map(str::to_owned).collect())
        .await
        .assert_success()
        .stdout;
    let apply = ["apply", "-f", "-"];
    scene
        .kubectl
        .run_with_input(&apply, &manifests)
        .await
        .unwrap()
        .assert_success();
    // In a real cluster, a controller would aggregate these rules into the roles `view` and `edit`. No controllers run
    // here, so the test binds the rules directly.
    let bindings = [("view", "view"), ("edit", "edit"), ("edit", "view")].map(|(group, role)| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{group}-{role}")},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": format!("system:aggregate-to-{role}"),
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Group",
                "name": format!("admittance:{group}"),
            }],
        })
    });
    let bindings = json!({"apiVersion": "v1", "kind": "List", "items": bindings}).to_string();
    scene
        .kubectl
        .run_with_input(&apply, &bindings)
        .await
        .unwrap()
        .assert_success();
    let account = manifests
        .split("\n---\n")
        .find(|document| document.contains("kind: ServiceAccount\n"))
        .unwrap();
    let account_field = |key: &str| {
        let line = account.lines().find(|line| line.trim_start().starts_with(key));
        line.unwrap().trim_start().trim_start_matches(key).trim().to_owned()
    };
    let directory = mount(scene, &account_field("namespace:"), &account_field("name:")).await;
    fs::rename(directory, scene.path("service-account")).unwrap();
}

async fn mount(scene: &Scene, namespace: &str, name: &str) -> PathBuf {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = scene.rest.post(&path, &request).await.unwrap().json().unwrap();
    let directory = scene.path(&format!("service-account-{name}"));
    fs::create_dir(&directory).unwrap();
    let token = issued["status"]["token"].as_str().unwrap();
    fs::write(directory.join("token"), token).unwrap();
    fs::copy(scene.cluster.authority_file(), directory.join("ca.crt")).unwrap();
    directory
}

fn spawn_agent(scene: &Scene, url: &str, cluster_id: &str, has_tunnel: bool) -> Child {
    let mut command = agent_command(scene, url, cluster_id, has_tunnel);
    command
        .args(["--api-server", &scene.cluster.url()])
        .arg("--service-account")
        .arg(scene.path("service-account"));
    command.spawn().unwrap()
}

fn agent_command(scene: &Scene, url: &str, cluster_id: &str, has_tunnel: bool) -> Command {
    let log = fs::File::create(scene.path("agent.log")).unwrap();
    let mut command = Admittance::command().unwrap();
    command
        .args(["agent", "--cluster-id", cluster_id, "--period", "1s"])
        .args(["--gateway", url])
        .arg("--ca")
        .arg(scene.path("certs/ca.pem"))
        .arg("--register-token-file")
        .arg(scene.path("register.token"))
        .args((!has_tunnel).then_some("--no-tunnel"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true);
    command
}

pub(super) async fn create_token(scene: &Scene, user: &str) -> String {
    let created = run_command(scene, &format!("tokens create {user} --expires-in 1h")).await;
    created.assert_success().stdout.trim().to_owned()
}

pub(super) async fn cluster_identifier(scene: &Scene, cluster_id: &str) -> String {
    let cluster_list = run_command(scene, "clusters list --output json").await.json();
    let clusters = cluster_list["clusters"].as_array().unwrap();
    let cluster = clusters.iter().find(|cluster| cluster["id"] == cluster_id).unwrap();
    cluster["identifier"].as_str().unwrap().to_owned()
}

async fn create_kubeconfig(scene: &Scene, url: &str, prefix: &str, token_file: &Path) -> Kubectl {
    let line = format!(
        "kubeconfig {} --gateway {url} --token-file {} --ca {}",
        prefix.rsplit('/').next().unwrap(),
        token_file.display(),
        scene.path("certs/ca.pem").display()
    );
    let output = run_admittance(line.split(' ').map(str::to_owned).collect())
        .await
        .assert_success();
    let kubeconfig = scene.path("alice.kubeconfig");
    replace(&kubeconfig, output.stdout.as_bytes());
    scene.cluster.kubectl_with(&kubeconfig).unwrap()
}

/// Returns an HTTP client that sends this token to the gateway at `url`.
pub(super) fn rest_client(scene: &Scene, url: &str, token: &str) -> UserClient {
    let authority = String::from_utf8(scene.authority("certs")).unwrap();
    let client = Client::with_trust(ClientTrust {
        authorities: &authority,
        identity: None,
    });
    UserClient::new(client.unwrap(), url.to_owned(), token)
}
