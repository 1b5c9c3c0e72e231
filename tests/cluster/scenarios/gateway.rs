//! A gateway in front of the API server, with an agent: users work in the cluster with kubectl and the gateway's tokens.

use std::{fs, path::Path, process::Stdio, sync::Arc, time::Duration};

use admittance_tests::{Admittance, Client, Trust};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
    task::JoinSet,
};

use crate::{
    cluster::Cluster,
    kubectl::{Kubectl, Running, Said},
    kubelet::Kubelet,
    process::until,
    rest::Rest,
    scene::{GOOD_IMAGE, Scene, chain, core, images, pod, replace, validating},
};

const BAD_IMAGE: &str = "registry.example.com/web:latest";
/// How long a revocation may take to have an effect, and a reconnection to succeed.
const SOON: Duration = Duration::from_secs(5);
const WATCHES: usize = 100;

/// A gateway, a cluster with an agent, and its user alice.
struct Gate {
    /// Its kubectl is the administrator's, and goes to the API server itself.
    scene: Scene,
    agent: Child,
    has_tunnel: bool,
    /// At the gateway.
    cluster_id: String,
    /// Hers, by way of the gateway.
    alice: Kubectl,
    rest: Rest,
}

impl Gate {
    /// The cluster is connected as the documentation says.
    async fn start(cluster: Arc<Cluster>, has_tunnel: bool) -> Self {
        // Through a tunnel, the gateway may not connect to the address that is reported.
        let local_servers = if has_tunnel {
            json!([])
        } else {
            json!(["127.0.0.0/8"])
        };
        let dialect =
            json!({"gateway": {"accounts": {"sqlite": "accounts.db", "localServers": local_servers}}});
        let pods = core(&["CREATE", "UPDATE"], &["pods"]);
        let mut guard = chain("guard", core(&["CONNECT"], &["pods/exec"]), json!([images()]));
        // Whatever this selects fails, and is refused.
        guard["spec"]["stages"][0] = json!({
            "name": "no-rm",
            "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/"},
            "matchConditions": [{"name": "rm", "expression": "object.command[0] == 'rm'"}],
            "failurePolicy": "Fail",
        });
        let chains = [
            validating(chain("images", pods, json!([images()]))),
            validating(guard),
        ];
        let scene = Scene::with_dialect(cluster.clone(), dialect, json!({}), &chains).await;
        until("the database of the gateway", async || {
            tell(&scene, "users list").await.succeeded.then_some(())
        })
        .await;
        tell(&scene, "users create alice --group developers")
            .await
            .succeeds();
        let cluster_id = format!("plain-{}", scene.namespace);
        let created = format!("clusters create {} --creator alice", scene.namespace);
        tell(&scene, &created).await.succeeds();
        let register_token = tell(&scene, &format!("register-tokens create {cluster_id}")).await;
        fs::write(scene.path("register.token"), register_token.succeeds().stdout).unwrap();
        install(&scene, &cluster_id).await;
        let agent = agent(&scene, &cluster_id, has_tunnel);
        let token_file = scene.path("alice.token");
        let alice = user(&scene, &cluster_id, &token_file).await;
        let authority = String::from_utf8(scene.authority("certs")).unwrap();
        let client = Client::trusting(Trust {
            authorities: &authority,
            identity: None,
        });
        let token = fs::read_to_string(&token_file).unwrap();
        let gate = Self {
            rest: Rest::new(client.unwrap(), scene.url(""), token.trim()),
            scene,
            agent,
            has_tunnel,
            cluster_id,
            alice,
        };
        gate.until_reached().await;
        gate
    }

    async fn until_reached(&self) {
        until("an answer of the API server", async || {
            let said = self.alice.run(&["version"]).await.unwrap();
            said.succeeded.then_some(())
        })
        .await;
    }

    /// Runs alice's kubectl in the namespace of the scene.
    async fn run(&self, arguments: &str) -> Said {
        self.with_input(arguments, "").await
    }

    /// The same with an object on its standard input.
    async fn with(&self, arguments: &str, object: &Value) -> Said {
        self.with_input(arguments, &object.to_string()).await
    }

    async fn with_input(&self, arguments: &str, input: &str) -> Said {
        let arguments = self.here(arguments);
        self.alice.run_with(&arguments, input).await.unwrap()
    }

    /// Starts alice's kubectl in the namespace of the scene, for what does not end by itself.
    fn start_kubectl(&self, arguments: &str) -> Running {
        self.alice.start(&self.here(arguments)).unwrap()
    }

    /// Arguments of kubectl, with the namespace of the scene.
    fn here<'a>(&'a self, arguments: &'a str) -> Vec<&'a str> {
        let here = ["--namespace", &self.scene.namespace];
        here.into_iter().chain(arguments.split(' ')).collect()
    }

    /// Revokes alice's token.
    async fn revoke(&self) {
        let listed = tell(&self.scene, "tokens list alice --output json").await.json();
        let id = &listed["tokens"][0]["id"];
        tell(&self.scene, &format!("tokens revoke alice {id}"))
            .await
            .succeeds();
    }
}

/// A command for the gateway.
async fn tell(scene: &Scene, line: &str) -> Said {
    let server = ["--server".to_owned(), scene.admin_url()];
    let arguments = line.split(' ').map(str::to_owned).chain(server);
    said(arguments.collect()).await
}

async fn said(arguments: Vec<String>) -> Said {
    let finished = Admittance::run(arguments).await.unwrap();
    Said {
        succeeded: finished.code == Some(0),
        stdout: finished.stdout,
        stderr: finished.stderr,
    }
}

/// Applies the manifests of the agent, and creates what a node would mount into its Pod.
async fn install(scene: &Scene, cluster_id: &str) {
    let (token, ca) = (scene.path("register.token"), scene.path("certs/ca.pem"));
    let line = format!(
        "kubernetes manifests --agent --gateway {} --cluster-id {cluster_id} --register-token-file {} \
         --gateway-ca {} --group developers",
        scene.url(""),
        token.display(),
        ca.display()
    );
    let manifests = said(line.split(' ').map(str::to_owned).collect())
        .await
        .succeeds()
        .stdout;
    let apply = ["apply", "-f", "-"];
    scene
        .kubectl
        .run_with(&apply, &manifests)
        .await
        .unwrap()
        .succeeds();
    // A controller, which does not run here, would fill the roles `view` and `edit` with these.
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
        .run_with(&apply, &bindings)
        .await
        .unwrap()
        .succeeds();
    let account = manifests
        .split("\n---\n")
        .find(|document| document.contains("kind: ServiceAccount\n"))
        .unwrap();
    let named = |key: &str| {
        let line = account.lines().find(|line| line.trim_start().starts_with(key));
        line.unwrap()
            .trim_start()
            .trim_start_matches(key)
            .trim()
            .to_owned()
    };
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}/token",
        named("namespace:"),
        named("name:")
    );
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = scene.rest.post(&path, &request).await.unwrap().json().unwrap();
    let directory = scene.path("service-account");
    fs::create_dir(&directory).unwrap();
    let token = issued["status"]["token"].as_str().unwrap();
    fs::write(directory.join("token"), token).unwrap();
    fs::copy(scene.cluster.authority_file(), directory.join("ca.crt")).unwrap();
}

/// Starts the agent as the Deployment does.
fn agent(scene: &Scene, cluster_id: &str, has_tunnel: bool) -> Child {
    let log = fs::File::create(scene.path("agent.log")).unwrap();
    let mut command = Admittance::command().unwrap();
    command
        .args(["agent", "--cluster-id", cluster_id, "--period", "1s"])
        .args(["--gateway", &scene.url(""), "--api-server", &scene.cluster.url()])
        .arg("--ca")
        .arg(scene.path("certs/ca.pem"))
        .arg("--register-token-file")
        .arg(scene.path("register.token"))
        .arg("--service-account")
        .arg(scene.path("service-account"))
        .args((!has_tunnel).then_some("--no-tunnel"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true);
    command.spawn().unwrap()
}

/// Creates a token of alice. Returns kubectl with the kubeconfig that is printed for it.
async fn user(scene: &Scene, cluster_id: &str, token_file: &Path) -> Kubectl {
    let token = tell(scene, "tokens create alice --expires-in 1h")
        .await
        .succeeds()
        .stdout;
    fs::write(token_file, token).unwrap();
    let listed = tell(scene, "clusters list --output json").await.json();
    let clusters = listed["clusters"].as_array().unwrap();
    let cluster = clusters
        .iter()
        .find(|cluster| cluster["id"] == cluster_id)
        .unwrap();
    let line = format!(
        "kubeconfig {} --gateway {} --token-file {} --ca {}",
        cluster["identifier"].as_str().unwrap(),
        scene.url(""),
        token_file.display(),
        scene.path("certs/ca.pem").display()
    );
    let printed = said(line.split(' ').map(str::to_owned).collect())
        .await
        .succeeds();
    let kubeconfig = scene.path("alice.kubeconfig");
    replace(&kubeconfig, printed.stdout.as_bytes());
    scene.cluster.kubectl_with(&kubeconfig).unwrap()
}

pub(crate) async fn a_cluster_is_used_directly(cluster: Arc<Cluster>) {
    let gate = Gate::start(cluster, false).await;
    objects(&gate).await;
    lists(&gate).await;
    containers(&gate).await;
    streams(&gate).await;
}

pub(crate) async fn a_cluster_is_used_through_a_tunnel(cluster: Arc<Cluster>) {
    let mut gate = Gate::start(cluster, true).await;
    objects(&gate).await;
    lists(&gate).await;
    containers(&gate).await;

    // The agent is killed, and comes back.
    gate.agent.kill().await.unwrap();
    gate.run("get pods").await.fails_with(&["Error from server"]);
    gate.agent = agent(&gate.scene, &gate.cluster_id, gate.has_tunnel);
    tokio::time::timeout(SOON, gate.until_reached()).await.unwrap();
    streams(&gate).await;
}

/// get, apply, server-side apply and delete, with the rights of alice, and through the chains.
async fn objects(gate: &Gate) {
    let labelled = |image: &str, version: &str| {
        let mut object = pod("web", image);
        object["metadata"]["labels"] = json!({"version": version});
        object
    };
    let refused = ["images", "latest"];
    gate.with("apply -f -", &labelled(BAD_IMAGE, "1"))
        .await
        .fails_with(&refused);
    gate.with("apply -f -", &labelled(GOOD_IMAGE, "1"))
        .await
        .succeeds();
    // A patch now.
    gate.with("apply -f -", &labelled(GOOD_IMAGE, "2"))
        .await
        .succeeds();
    gate.with("apply -f -", &labelled(BAD_IMAGE, "3"))
        .await
        .fails_with(&refused);
    let stored = gate.scene.get("pod web").await;
    assert_eq!(stored["metadata"]["labels"]["version"], "2", "{stored}");
    assert_eq!(gate.run("get pod web --output=json").await.json(), stored);

    let mut other = pod("other", GOOD_IMAGE);
    gate.with("apply --server-side -f -", &other).await.succeeds();
    other["metadata"]["labels"] = json!({"a": "b"});
    gate.with("apply --server-side -f -", &other).await.succeeds();
    other["spec"]["containers"][0]["image"] = BAD_IMAGE.into();
    gate.with("apply --server-side -f -", &other)
        .await
        .fails_with(&refused);
    gate.run("label pod other a=c --overwrite").await.succeeds();
    gate.run("delete pod other --wait=false").await.succeeds();

    // In the name of alice, even if she asks to act as another user.
    gate.run("get nodes")
        .await
        .fails_with(&["plain.alice", "forbidden"]);
    for arguments in [
        "get nodes --as=admin --as-group=system:masters",
        "get nodes --as=system:admin",
    ] {
        gate.run(arguments)
            .await
            .fails_with(&["plain.alice", "forbidden"]);
    }
    let path = format!("/api/v1/namespaces/{}/pods/web", gate.scene.namespace);
    let audit = gate.scene.cluster.audit_log().unwrap();
    let lines = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changed: Vec<_> = lines
        .filter(|event| event["verb"] == "patch" && event["requestURI"].as_str().unwrap().starts_with(&path))
        .filter(|event| event["responseStatus"]["code"] == 200)
        .collect();
    assert!(!changed.is_empty());
    for event in changed {
        assert_eq!(event["impersonatedUser"]["username"], "plain.alice", "{event}");
        let groups = event["impersonatedUser"]["groups"].to_string();
        assert!(
            groups.contains("developers") && groups.contains("admittance:edit"),
            "{event}"
        );
    }
}

/// Ten megabytes in one reply, and in pieces.
async fn lists(gate: &Gate) {
    const COUNT: usize = 100;
    let namespace = &gate.scene.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for number in 0..COUNT {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("large-{number}")},
            "data": {"text": "x".repeat(100 << 10)},
        });
        let reply = gate.scene.rest.post(&path, &object).await.unwrap();
        assert!(reply.status.is_success(), "{}", reply.text());
    }
    for pieces in ["--chunk-size=0", "--chunk-size=7"] {
        let listed = gate
            .run(&format!("get configmaps --output=json {pieces}"))
            .await
            .json();
        let items = listed["items"].as_array().unwrap();
        let large = items
            .iter()
            .filter(|item| item["metadata"]["name"].as_str().unwrap().starts_with("large-"));
        let length: usize = large
            .map(|item| item["data"]["text"].as_str().unwrap().len())
            .sum();
        assert_eq!(length, COUNT * (100 << 10), "{pieces}");
    }
}

/// exec, logs and port-forward, by way of a kubelet.
async fn containers(gate: &Gate) {
    let kubelet = Kubelet::start().await;
    let node = format!("node-{}", gate.scene.namespace);
    let rest = &gate.scene.rest;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    let mut object = rest.post("/api/v1/nodes", &object).await.unwrap().json().unwrap();
    object["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}},
    });
    let path = format!("/api/v1/nodes/{node}/status");
    let reply = rest.send(Method::PUT, &path, Some(&object)).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.text());
    let mut object = pod("served", GOOD_IMAGE);
    object["spec"]["nodeName"] = node.into();
    gate.scene.apply(&object).await.succeeds();
    let mut object = gate.scene.get("pod served").await;
    object["status"] = json!({"phase": "Running", "podIP": "127.0.0.1"});
    let path = format!("/api/v1/namespaces/{}/pods/served/status", gate.scene.namespace);
    let reply = rest.send(Method::PUT, &path, Some(&object)).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.text());

    let ran = gate.run("exec served -- echo").await.succeeds();
    assert_eq!(ran.stdout, "hello\n", "{}", ran.stderr);
    let text = "what is typed\n".repeat(10_000);
    let ran = gate.with_input("exec -i served -- cat", &text).await.succeeds();
    assert_eq!(ran.stdout, format!("hello\n{text}"));
    gate.run("exec served -- rm -r /").await.fails_with(&["no-rm"]);

    let logged = gate.run("logs served").await.succeeds();
    assert_eq!(logged.stdout, "line 0\nline 1\nline 2\n");
    let mut following = gate.start_kubectl("logs -f served");
    following.until("line 5").await;

    let mut forwarding = gate.start_kubectl("port-forward pod/served :80");
    let line = forwarding.until("127.0.0.1:").await;
    let address = line
        .split(' ')
        .find(|word| word.starts_with("127.0.0.1:"))
        .unwrap();
    for turn in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("{turn}").repeat(50_000);
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).await.unwrap();
        assert!(back == text, "{} bytes came back", back.len());
    }
}

/// A watch lasts until the token is revoked.
async fn streams(gate: &Gate) {
    let mut watch = gate.start_kubectl("get configmaps --watch-only --output=name");
    for turn in 0..5 {
        let name = format!("seen-{turn}");
        // The first object is changed until the watch has begun and reports it.
        gate.scene
            .run(&format!("create configmap {name}"))
            .await
            .succeeds();
        if turn == 0 {
            tokio::time::timeout(Duration::from_secs(60), async {
                loop {
                    gate.scene
                        .run(&format!(
                            "annotate configmap {name} a={} --overwrite",
                            fastrand::u32(..)
                        ))
                        .await;
                    if tokio::time::timeout(Duration::from_millis(500), watch.until(&name))
                        .await
                        .is_ok()
                    {
                        break;
                    }
                }
            })
            .await
            .unwrap();
        } else {
            watch.until(&name).await;
        }
    }
    gate.revoke().await;
    watch.ended(SOON).await;
    gate.run("get pods").await.fails_with(&["logged in"]);
}

pub(crate) async fn a_hundred_watches_end_with_their_token(cluster: Arc<Cluster>) {
    let gate = Gate::start(cluster, true).await;
    let path = format!(
        "/tunnels/clusters/{}/api/v1/namespaces/{}/configmaps?watch=true&timeoutSeconds=600",
        identifier(&gate).await,
        gate.scene.namespace
    );
    let mut watches = JoinSet::new();
    for _ in 0..WATCHES {
        let (rest, path) = (gate.rest.clone(), path.clone());
        watches.spawn(async move { rest.get(&path).await });
    }
    until("a hundred watches", async || {
        let metrics = gate.scene.metrics().await;
        (metrics.sum("admittance_http_streams_open", &[]) >= Some(WATCHES as f64)).then_some(())
    })
    .await;
    // Short requests go on beside them.
    for _ in 0..20 {
        gate.run("get configmaps").await.succeeds();
    }
    gate.revoke().await;
    // Each ends with an error instead of a complete reply.
    let ended = async {
        let mut count = 0;
        while let Some(ended) = watches.join_next().await {
            assert!(ended.unwrap().is_err());
            count += 1;
        }
        count
    };
    assert_eq!(tokio::time::timeout(SOON, ended).await.unwrap(), WATCHES);
}

async fn identifier(gate: &Gate) -> String {
    let kubeconfig = fs::read_to_string(gate.scene.path("alice.kubeconfig")).unwrap();
    let (_, rest) = kubeconfig.split_once("/tunnels/clusters/").unwrap();
    rest.split('/').next().unwrap().to_owned()
}
