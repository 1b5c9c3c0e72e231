//! Three replicas share the chains of the cluster, and all start to use each change at the same time.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance_tests::{Admittance, Client, ClientTrust, ModuleServer, Reply, TimedAnswer, Versions, longest_overlap};
use futures_util::future::BoxFuture;
use http::{Method, Request};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use super::resources::{CHAINS_PATH, denying_chain};
use crate::{
    cluster::TestCluster,
    process::wait_until,
    registration::Registration,
    scene::{Scene, compiled_store, pod},
};

const USERS: usize = 3;

/// The time after a change in which replicas may answer from the old table and from the new one.
const MAX_OVERLAP: Duration = Duration::from_secs(1);

const REQUEST_PAUSE: Duration = Duration::from_millis(5);

const SLOW_MODULE_DELAY: Duration = Duration::from_secs(1);

/// A client that sends one request after another. The chain answers each with its version.
struct RequestingClient {
    stop: watch::Sender<bool>,
    answers: JoinHandle<Vec<TimedAnswer>>,
}

impl RequestingClient {
    fn begin<A>(ask: impl Fn() -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = String> + Send,
    {
        let (stop, stopped) = watch::channel(false);
        let answers = tokio::spawn(async move {
            let mut answers = Vec::new();
            while !*stopped.borrow() {
                let text = ask().await;
                let answer = TimedAnswer::from_message(&text);
                assert!(answer.is_some(), "the chain did not answer: {text}");
                answers.extend(answer);
                sleep(REQUEST_PAUSE).await;
            }
            answers
        });
        Self { stop, answers }
    }

    async fn end(self) -> Vec<TimedAnswer> {
        self.stop.send_replace(true);
        self.answers.await.unwrap()
    }
}

#[derive(Clone)]
struct Reviewer {
    client: Client,
    url: String,
}

impl Reviewer {
    fn new(scene: &Scene, program: &Admittance) -> Self {
        let authorities = String::from_utf8(scene.authority("certs")).unwrap();
        let trust = ClientTrust {
            authorities: &authorities,
            identity: None,
        };
        Self {
            client: Client::with_trust(trust).unwrap(),
            url: program.tls_url("/validate"),
        }
    }

    async fn version(&self) -> Option<u32> {
        Some(TimedAnswer::from_message(&self.clone().ask().await)?.version)
    }

    async fn ask(self) -> String {
        let request = Request::post(&self.url)
            .header("content-type", "application/json")
            .body(review())
            .unwrap();
        self.client.send(request).await.unwrap().text()
    }
}

struct ScenarioReplica {
    program: Admittance,
    address: SocketAddr,
    reviewer: Reviewer,
    requests: RequestingClient,
}

#[derive(Clone, Copy)]
enum ReplicaEnd {
    Terminated,
    Killed,
}

struct ClusterFleet {
    scene: Scene,
    modules: ModuleServer,
    /// The running replicas. The last one has a store of its own at first, as if it ran on another node.
    replicas: Vec<ScenarioReplica>,
    _files: TempDir,
    /// The addresses of the running replicas. Each new connection goes to the next one in turn.
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    users: Vec<RequestingClient>,
    /// The answers that clients have got until they were stopped. Some clients send requests through the API server,
    /// and others ask a single replica.
    answers: Vec<TimedAnswer>,
    through_api_server: usize,
    version: u32,
}

/// Forwards connections as a Service does: each goes to the next replica in turn that accepts it.
async fn forward_connections(listener: TcpListener, addresses: Arc<Mutex<Vec<SocketAddr>>>) {
    for turn in 0_usize.. {
        let (mut caller, _) = listener.accept().await.unwrap();
        let mut addresses = addresses.lock().unwrap().clone();
        let first = turn % addresses.len();
        addresses.rotate_left(first);
        tokio::spawn(async move {
            for address in addresses {
                if let Ok(mut replica) = TcpStream::connect(address).await {
                    // Copying fails when one side closes the connection, which is its normal end.
                    let _ = copy_bidirectional(&mut caller, &mut replica).await;
                    break;
                }
            }
        });
    }
}

/// Returns the names of the replicas in a status, each with whether it is the one that reported the status.
fn replica_names(status: &Value) -> impl Iterator<Item = (&Value, bool)> {
    let replicas = status["replicas"]["replicas"].as_array().into_iter().flatten();
    replicas.map(|replica| (&replica["name"], replica["self"] == true))
}

fn own_name(status: &Value) -> Option<&Value> {
    replica_names(status).find_map(|(name, is_own)| is_own.then_some(name))
}

fn review() -> String {
    let request = json!({
        "uid": "5b1c2a60-7d9e-4f6b-9a3e-0c8d7e6f5a41",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "asked", "namespace": "default", "operation": "CREATE",
        "userInfo": {"username": "client"},
        "object": pod("asked", "bad"),
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    review.to_string()
}

impl ClusterFleet {
    async fn start(cluster: Arc<TestCluster>) -> Self {
        let modules = ModuleServer::start().await.unwrap();
        let files = TempDir::new().unwrap();
        let authority = files.path().join("modules.pem");
        fs::write(&authority, modules.authority()).unwrap();
        let mut scene = Scene::prepare_replicas(cluster, json!({"modules": {"ca": authority}})).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        scene.set_address(listener.local_addr().unwrap());
        scene.apply(&denying_chain(&scene, "version 0")).await.assert_success();

        let addresses = Arc::new(Mutex::new(Vec::new()));
        let stores = [compiled_store(), compiled_store(), files.path().join("store")];
        let mut fleet = Self {
            scene,
            modules,
            replicas: Vec::new(),
            _files: files,
            addresses: addresses.clone(),
            users: Vec::new(),
            answers: Vec::new(),
            through_api_server: 0,
            version: 0,
        };
        for store in stores {
            fleet.add(store).await;
        }
        tokio::spawn(forward_connections(listener, addresses));
        fleet.scene.register(&Registration::validating("/validate")).await;
        fleet.let_users_create();
        fleet
    }

    async fn add(&mut self, store: PathBuf) {
        let program = self.scene.start_replica(store).await;
        let reviewer = Reviewer::new(&self.scene, &program);
        let port = reviewer.url.trim_end_matches("/validate").rsplit(':').next();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap().parse().unwrap()));
        let asking = RequestingClient::begin({
            let reviewer = reviewer.clone();
            move || reviewer.clone().ask()
        });
        self.addresses.lock().unwrap().push(address);
        self.replicas.push(ScenarioReplica {
            program,
            address,
            reviewer,
            requests: asking,
        });
        let new = &self.replicas.last().unwrap().program;
        let own_status = new.wait_for_status("itself", |status| own_name(status).is_some()).await;
        let name = own_name(&own_status.unwrap()).cloned();
        for replica in &self.replicas {
            let is_known =
                |status: &Value| replica_names(status).any(|(replica_name, _)| Some(replica_name) == name.as_ref());
            let introduction = replica.program.wait_for_status("the new replica", is_known);
            introduction.await.unwrap();
        }
    }

    fn let_users_create(&mut self) {
        for user in 0..USERS {
            let create = self.creation(&format!("by-user-{user}"));
            self.users.push(RequestingClient::begin(move || {
                let reply = create();
                async {
                    let reply = reply.await;
                    assert_eq!(reply.status, 403, "{}", reply.text());
                    reply.text()
                }
            }));
        }
    }

    fn creation(&self, name: &str) -> impl Fn() -> BoxFuture<'static, Reply> + Send + Sync + 'static {
        let rest = self.scene.rest.clone();
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.scene.namespace);
        let bad = pod(name, "bad");
        move || {
            let (rest, path, bad) = (rest.clone(), path.clone(), bad.clone());
            Box::pin(async move { rest.send(Method::POST, &path, Some(&bad)).await.unwrap() })
        }
    }

    async fn end_users(&mut self) {
        for user in self.users.drain(..) {
            let answers = user.end().await;
            self.through_api_server += answers.len();
            self.answers.extend(answers);
        }
    }

    fn next_chain(&mut self) -> Value {
        self.version += 1;
        denying_chain(&self.scene, &format!("version {}", self.version))
    }

    async fn write(&self, chain: &Value) {
        let path = format!("{CHAINS_PATH}/{}", self.scene.namespace);
        wait_until("a change of the chain", async || {
            let mut stored: Value = self.scene.rest.get(&path).await.unwrap().json().unwrap();
            stored["spec"] = chain["spec"].clone();
            let reply = self.scene.rest.send(Method::PUT, &path, Some(&stored)).await.unwrap();
            // If the leader has written the chain's status since the test read the chain, the API server refuses the
            // update as outdated (409). Then the test tries again.
            assert!(matches!(reply.status.as_u16(), 200 | 409), "{}", reply.text());
            (reply.status == 200).then_some(())
        })
        .await;
    }

    async fn wait_until_changed(&self) {
        for replica in &self.replicas {
            wait_until(&format!("version {}", self.version), async || {
                (replica.reviewer.version().await == Some(self.version)).then_some(())
            })
            .await;
        }
    }

    async fn change_chain(&mut self) {
        let chain = self.next_chain();
        self.write(&chain).await;
        self.wait_until_changed().await;
    }

    async fn make_changes(&mut self, count: u32) {
        for _ in 0..count {
            self.change_chain().await;
        }
    }

    async fn replace(&mut self, is_leader: bool, end: ReplicaEnd) {
        let position = wait_until("a replica that leads, or not", async || {
            for (index, replica) in self.replicas.iter().enumerate() {
                let status = replica.program.status().await.unwrap();
                if status["leader"]["self"] == is_leader {
                    return Some(index);
                }
            }
            None
        })
        .await;
        let mut replica = self.replicas.remove(position);
        self.addresses
            .lock()
            .unwrap()
            .retain(|address| *address != replica.address);
        self.answers.extend(replica.requests.end().await);
        match end {
            ReplicaEnd::Terminated => {
                // On SIGTERM, the replica closes its connections gracefully, so that users lose no request.
                replica.program.terminate().unwrap();
                let status = replica.program.wait_for_end().await.unwrap();
                assert_eq!(status.code(), Some(0), "{status}");
            }
            ReplicaEnd::Killed => {
                // A kill loses the requests that the replica has accepted, so the test stops the users before that.
                self.end_users().await;
                replica.program.kill().await.unwrap();
                // The API server may still send its next request on the connection to the killed replica. This request
                // is lost, so the creation is repeated.
                let create = self.creation("after-the-kill");
                wait_until("the API server calls another replica", async || {
                    (create().await.status == 403).then_some(())
                })
                .await;
                self.let_users_create();
            }
        }
        self.change_chain().await;
        self.add(compiled_store()).await;
    }

    /// Changes the chain, so that it needs a new module. One replica downloads this module slowly. The replicas that
    /// already have the module must wait for the slow one.
    async fn wait_for_slow_replica(&mut self) {
        let before = self.version;
        let version = Versions::find().unwrap().module(1);
        let (module, definition) = (self.scene.path("new.wasm"), self.scene.path("new.json"));
        fs::write(&module, &version).unwrap();
        self.modules.put("new.wasm", version);
        let inspecting = Admittance::run(["inspect", "-o", "json", module.to_str().unwrap()]);
        let inspection: Value = serde_json::from_str(&inspecting.await.unwrap().stdout).unwrap();
        let mut chain = self.next_chain();
        let stages = chain["spec"]["stages"].as_array_mut().unwrap();
        stages.push(json!({
            "name": "new",
            "matchConditions": [{"name": "never", "expression": "false"}],
            "plugin": {
                "source": self.modules.url("new.wasm"),
                "digest": inspection["digest"],
                "settings": {"name": "new"},
            },
        }));
        fs::write(&definition, chain.to_string()).unwrap();
        let (first, slow) = (self.replicas.first().unwrap(), self.replicas.last().unwrap());
        let server = first.program.admin_url("");
        let definition = definition.to_str().unwrap();
        let dry_run = Admittance::run(["apply", "--dry-run", "-f", definition, "--server", &server])
            .await
            .unwrap();
        assert_eq!(dry_run.code, Some(0), "{}{}", dry_run.stdout, dry_run.stderr);

        self.modules.slow_down(SLOW_MODULE_DELAY);
        self.write(&chain).await;
        let status = slow.program.status().await.unwrap();
        let name = own_name(&status).and_then(Value::as_str).unwrap();
        for replica in &self.replicas {
            let names_it = |status: &Value| {
                let waiting = status["replicas"]["waiting"].as_array();
                waiting.is_some_and(|waiting| match waiting.as_slice() {
                    [one] => one.as_str().is_some_and(|one| one.starts_with(name)),
                    _ => false,
                })
            };
            let waiting_report = replica.program.wait_for_status("the slow replica", names_it);
            waiting_report.await.unwrap();
        }
        for replica in &self.replicas {
            assert_eq!(replica.reviewer.version().await, Some(before));
            assert!(replica.program.is_ready().await);
        }
        self.modules.slow_down(Duration::ZERO);
        self.wait_until_changed().await;
    }

    async fn go_on_without_api_server(&mut self) {
        self.end_users().await;
        let back = Instant::now() + self.scene.cluster.outage;
        self.scene.cluster.kill_api_server().await.unwrap();
        for replica in &self.replicas {
            let is_alone = |status: &Value| status["replicas"]["problem"] != Value::Null;
            let alone = replica.program.wait_for_status("its problem", is_alone);
            alone.await.unwrap();
        }
        sleep_until(back).await;
        for replica in &self.replicas {
            assert_eq!(replica.reviewer.version().await, Some(self.version));
            assert!(replica.program.is_ready().await);
        }
        self.scene.cluster.restart_api_server().await.unwrap();
        self.let_users_create();
        self.change_chain().await;
    }
}

pub(crate) async fn changes_go_live_everywhere_at_once(cluster: Arc<TestCluster>) {
    let share = cluster.change_count / 5;
    let mut fleet = ClusterFleet::start(cluster).await;
    fleet.wait_for_slow_replica().await;
    fleet.make_changes(share).await;
    fleet.replace(true, ReplicaEnd::Terminated).await;
    fleet.make_changes(share).await;
    fleet.replace(false, ReplicaEnd::Killed).await;
    fleet.make_changes(share).await;
    fleet.replace(true, ReplicaEnd::Killed).await;
    fleet.make_changes(share).await;
    fleet.go_on_without_api_server().await;
    fleet.make_changes(share).await;

    fleet.end_users().await;
    let through_api_server = fleet.through_api_server;
    let mut answers = std::mem::take(&mut fleet.answers);
    for replica in fleet.replicas.drain(..) {
        answers.extend(replica.requests.end().await);
    }
    answers.sort();
    let (overlap, version) = longest_overlap(&answers);
    print!(
        "{} changes, {} answers, longest overlap {overlap:.1?} ... ",
        fleet.version,
        answers.len(),
    );
    assert!(through_api_server > fleet.version as usize, "{through_api_server}");
    assert!(overlap < MAX_OVERLAP, "{overlap:?} after version {version}");
    let name = fleet.scene.namespace.clone();
    fleet
        .scene
        .run(&format!("delete admissionchain {name}"))
        .await
        .assert_success();
}
