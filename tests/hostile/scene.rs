//! The attacked program, its upstream and the attackers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use admittance_tests::{
    ATTACKING_SEND_BUFFER, Admittance, Artifacts, Client, EndlessReply, Error, FakeUpstream, Serve, TunnelFlood,
};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

use crate::{
    attack::{Attack, AttackCall, AttackServer, Means, Settings, UnfinishedRequest},
    client::{Latency, Requests},
    informational,
};

const CONFIG: &str = "
dialect:
  bcs: { cluster: BCS-MESOS-10001 }
upstream:
  servers: [\"http://127.0.0.1:1\"]
definitions: [chains]
";

/// The maximum size of a request body in bytes, which is the default of `limits.body`.
const BODY_SIZE_LIMIT: usize = 7 << 20;

/// A client opens this many watches of objects in the agent's cluster, and reads none of them.
const WATCH_COUNT: usize = 256;

const API_PATH: &str = "/mesosdriver/v4";

fn applications_path(namespace: &str) -> String {
    format!("/namespaces/{namespace}/applications")
}

fn application_json(namespace: &str, filler: usize) -> String {
    json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": "web", "namespace": namespace, "annotations": {"a": "b"}},
        "spec": {"instance": 1, "filler": "x".repeat(filler)},
    })
    .to_string()
}

/// The attacked program. It has one chain for well-behaved clients, and one for attackers.
pub(crate) struct HostileScene {
    directory: TempDir,
    program: Admittance,
    attacker_runtime: Handle,
    admin_url: String,
    api_path: &'static str,
    is_admin_attack: bool,
    _upstream: Option<FakeUpstream>,
    /// The webhook that never answers: a server that accepts connections and does nothing else.
    _silent: TcpListener,
    _informational_server: JoinSet<()>,
}

impl HostileScene {
    pub(crate) async fn start(attack: &Attack, store: &Path, attacker_runtime: &Handle) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("a directory"))?;
        let chains = directory.path().join("chains");
        std::fs::create_dir(&chains).map_err(Error::io("a directory for definitions"))?;
        let silent_listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::io("listening"))?;
        let silent_address = silent_listener.local_addr().map_err(Error::io("an address"))?;
        let (informational_url, informational_server) = informational::start_endless_server(attacker_runtime).await?;
        let guest = Artifacts::find()?.component("guest-misbehaves")?;
        let plugin = |settings: serde_json::Value| {
            format!(
                "plugin: {{ source: \"file:{}\", settings: {settings} }}",
                guest.display()
            )
        };
        let mut text = chain("good", &plugin(json!({"behaviour": "well-behaved"})), "");
        match &attack.means {
            Means::Guest { settings, .. } => {
                let settings = match settings {
                    Settings::Behaviour(behaviour) => json!({"behaviour": behaviour}),
                    Settings::Patch(patch) => json!({"behaviour": "answers-patch", "patch": patch()}),
                };
                text += &chain("attacked", &plugin(settings), "timeout: 250ms");
            }
            Means::Policy(bytes) => {
                let policy = directory.path().join("policy.wasm");
                write(&policy, bytes()?)?;
                let hook = format!("plugin: {{ source: \"file:{}\" }}", policy.display());
                text += &chain("attacked", &hook, "timeout: 250ms");
            }
            Means::Expressions(hook) => text += &chain("attacked", hook, "timeout: 250ms"),
            Means::SilentWebhook => {
                let webhook = format!("webhook: {{ protocol: AdmissionReview, url: \"https://{silent_address}/\" }}");
                text += &chain("attacked", &webhook, "mode: Audit");
            }
            Means::Informational(AttackServer::Webhook) => {
                // The program calls this webhook without TLS. Only a definition of BCS may name a webhook without TLS,
                // so the chain is written as a definition of BCS.
                let definition = json!({
                    "apiVersion": "v4",
                    "kind": "admissionwebhook",
                    "metadata": {"name": "attacked", "namespace": "attacked"},
                    "resourcesRef": {"operation": "Create", "kind": "application"},
                    "admissionWebhooks": [{
                        "name": "attacked",
                        "failurePolicy": "Fail",
                        "clientConfig": {"url": format!("{informational_url}/attacked/")},
                        "namespaceSelector": {"operator": "In", "values": ["attacked"]},
                    }],
                });
                write(&chains.join("webhook.json"), definition.to_string())?;
            }
            Means::Informational(AttackServer::OfPlugin) => {
                let guest = Artifacts::find()?.component("guest-reaches-out")?;
                let settings = json!({"target": "http", "url": format!("{informational_url}/attacked/")});
                let plugin = format!(
                    "plugin: {{ source: \"file:{}\", settings: {settings}, allow: {{ http: [\"{informational_url}\"] }} }}",
                    guest.display()
                );
                text += &chain("attacked", &plugin, "timeout: 2s");
            }
            _ => {}
        }
        write(&chains.join("chains.yaml"), &text)?;
        let config = directory.path().join("admittance.yaml");
        let (upstream, url) = if matches!(attack.means, Means::Informational(AttackServer::Upstream)) {
            (None, informational_url)
        } else {
            let upstream = FakeUpstream::start_discarding().await?;
            let url = upstream.url();
            (Some(upstream), url)
        };
        let serve = Serve::new(&config)?.store(store);
        let (serve, api) = if let Means::Tunnel(_) = attack.means {
            write(&config, gateway_config(&url))?;
            (serve, "/bcsapi/v4/scheduler/mesos")
        } else {
            write(&config, CONFIG)?;
            (serve.upstream(&url), API_PATH)
        };
        let program = serve.start().await?;
        Ok(Self {
            admin_url: program.admin_url(""),
            api_path: api,
            is_admin_attack: attack.means.is_admin_attack(),
            directory,
            program,
            attacker_runtime: attacker_runtime.clone(),
            _upstream: upstream,
            _silent: silent_listener,
            _informational_server: informational_server,
        })
    }

    fn address(&self) -> String {
        self.program.url("").trim_start_matches("http://").to_owned()
    }

    pub(crate) async fn warm_up(&self) -> Result<(), Error> {
        self.measure(Duration::from_secs(1)).await?;
        Ok(())
    }

    pub(crate) async fn measure(&self, duration: Duration) -> Result<Latency, Error> {
        let requests = Requests {
            front: self.program.url(""),
            path: format!("{}{}", self.api_path, applications_path("good")),
            object: application_json("good", 800),
            probed: self.is_admin_attack.then(|| self.admin_url.clone()),
        };
        requests.send(duration).await
    }

    pub(crate) fn memory_bytes(&self) -> Result<u64, Error> {
        let processes = self.program.children()?;
        let children = processes.iter().filter_map(|child| resident_bytes(child));
        Ok(self.program.resident_memory()? + children.sum::<u64>())
    }

    /// Measures a well-behaved client during an attack. Returns its latency (`None` if the program had to be killed),
    /// the program's maximum memory in bytes, and how the attackers' requests ended.
    pub(crate) async fn measure_during(
        &mut self,
        attack: &Attack,
        clients: usize,
        duration: Duration,
        memory_limit: u64,
    ) -> Result<(Option<Latency>, u64, String), Error> {
        let outcomes = Outcomes::default();
        let mut attackers = JoinSet::new();
        self.start_attack(attack, clients, &outcomes, &mut attackers)?;
        let (mut peak, started) = (0, Instant::now());
        let latency = {
            let measuring = self.measure(duration);
            tokio::pin!(measuring);
            let mut checks = tokio::time::interval(Duration::from_millis(50));
            loop {
                tokio::select! {
                    measured = &mut measuring => break Some(measured?),
                    _ = checks.tick() => {
                        peak = peak.max(self.memory_bytes()?);
                        // The program is stopped before the machine begins to swap.
                        if peak > 2 * memory_limit {
                            break None;
                        }
                    }
                }
            }
        };
        attackers.shutdown().await;
        let mut outcome_text = outcomes.text();
        if latency.is_none() {
            self.program.kill().await?;
        } else if outcome_text.is_empty() {
            outcome_text = format!("no answer in {:.0?}", started.elapsed());
        }
        Ok((latency, peak, outcome_text))
    }

    fn start_attack(
        &self,
        attack: &Attack,
        clients: usize,
        outcomes: &Outcomes,
        attackers: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        let dry_run = format!("{}/v1/definitions?dryRun=true", self.admin_url);
        let module = || self.directory.path().join("module.wasm");
        let text = match &attack.means {
            Means::Guest { object, .. } => {
                self.spawn_creating_clients(*object, clients, outcomes, attackers)?;
                return Ok(());
            }
            Means::Policy(_) | Means::Expressions(_) | Means::SilentWebhook | Means::Informational(_) => {
                self.spawn_creating_clients(0, clients, outcomes, attackers)?;
                return Ok(());
            }
            Means::UnfinishedBodies { connections, request } => {
                let unfinished_requests =
                    hold_unfinished_requests(self.address(), *connections, *request, outcomes.clone());
                attackers.spawn_on(unfinished_requests, &self.attacker_runtime);
                return Ok(());
            }
            Means::Tunnel(reply) => {
                let attacking = run_flood(
                    self.admin_url.clone(),
                    self.address(),
                    *reply,
                    clients,
                    outcomes.clone(),
                );
                attackers.spawn_on(attacking, &self.attacker_runtime);
                return Ok(());
            }
            Means::Configuring(behaviour) => {
                let guest = Artifacts::find()?.component("guest-misbehaves")?;
                let plugin = format!(
                    "plugin: {{ source: \"file:{}\", memory: 1GiB, settings: {{ behaviour: {behaviour} }} }}",
                    guest.display()
                );
                chain("new", &plugin, "")
            }
            Means::Module(bytes) => {
                write(&module(), bytes()?)?;
                chain_with_module(&module())
            }
            Means::Fifo => {
                let mkfifo_status = std::process::Command::new("mkfifo").arg(module()).status();
                mkfifo_status.map_err(Error::io("mkfifo"))?;
                chain_with_module(&module())
            }
            Means::Documents(text) => text(),
            Means::Admin(call) => {
                self.spawn_calling_clients(&call(), clients, outcomes, attackers);
                return Ok(());
            }
            Means::Decisions(_) => {
                let call = AttackCall {
                    method: Method::GET,
                    path: "/decisions/chosen".to_owned(),
                    headers: &[],
                    body: Bytes::new(),
                };
                self.spawn_calling_clients(&call, clients, outcomes, attackers);
                return Ok(());
            }
        };
        attackers.spawn_on(repeat_dry_run(dry_run, text, outcomes.clone()), &self.attacker_runtime);
        Ok(())
    }

    pub(crate) async fn prepare(&self, attack: &Attack) -> Result<(), Error> {
        let Means::Decisions(count) = attack.means else {
            return Ok(());
        };
        let client = Client::new()?;
        let url = self
            .program
            .url(&format!("{}{}", self.api_path, applications_path("attacked")));
        for _ in 0..count {
            let request = Request::post(&url)
                .header(CONTENT_TYPE, "application/json")
                .header("BCS-ClusterID", "BCS-MESOS-10001")
                .header("X-Request-Id", "chosen")
                .body(application_json("attacked", 9 << 10))
                .map_err(|error| Error::Invalid(error.to_string()))?;
            client.send(request).await?;
        }
        Ok(())
    }

    fn spawn_calling_clients(
        &self,
        call: &AttackCall,
        clients: usize,
        outcomes: &Outcomes,
        attackers: &mut JoinSet<()>,
    ) {
        for _ in 0..clients {
            let (url, call, outcomes) = (
                format!("{}{}", self.admin_url, call.path),
                call.clone(),
                outcomes.clone(),
            );
            let calling = async move {
                let Ok(client) = Client::for_attacks() else { return };
                loop {
                    let mut request = Request::builder().method(call.method.clone()).uri(&url);
                    for (name, value) in call.headers {
                        request = request.header(*name, *value);
                    }
                    let Ok(request) = request.body(call.body.clone()) else {
                        return;
                    };
                    outcomes.add(match client.send(request).await {
                        Ok(reply) => reply.status.to_string(),
                        Err(_) => "closed before all was sent".to_owned(),
                    });
                }
            };
            attackers.spawn_on(calling, &self.attacker_runtime);
        }
    }

    fn spawn_creating_clients(
        &self,
        filler: usize,
        clients: usize,
        outcomes: &Outcomes,
        attackers: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        for _ in 0..clients {
            let (client, outcomes) = (Client::for_attacks()?, outcomes.clone());
            let url = self
                .program
                .url(&format!("{}{}", self.api_path, applications_path("attacked")));
            let body = application_json("attacked", filler);
            let creating = async move {
                loop {
                    let answer = client.send_bcs(Method::POST, &url, body.clone()).await;
                    outcomes.add(match answer {
                        Ok(reply) => describe_outcome(reply.status.as_u16(), &reply.text()),
                        Err(error) => error.to_string(),
                    });
                }
            };
            attackers.spawn_on(creating, &self.attacker_runtime);
        }
        Ok(())
    }
}

fn chain(name: &str, hook: &str, more_fields: &str) -> String {
    format!(
        "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: {name}
      {hook}
      namespaceSelector: {{ operator: In, values: [{name}] }}
      {more_fields}
"
    )
}

fn chain_with_module(module: &Path) -> String {
    chain(
        "new",
        &format!("plugin: {{ source: \"file:{}\" }}", module.display()),
        "",
    )
}

async fn repeat_dry_run(url: String, text: String, outcomes: Outcomes) {
    let Ok(client) = Client::for_attacks() else { return };
    loop {
        let request = Request::post(&url).header(CONTENT_TYPE, "application/yaml");
        let Ok(request) = request.body(text.clone()) else {
            return;
        };
        outcomes.add(match client.send(request).await {
            Ok(reply) => describe_outcome(reply.status.as_u16(), &reply.text()),
            Err(error) => error.to_string(),
        });
    }
}

fn gateway_config(driver: &str) -> String {
    format!(
        "dialect:
  gateway:
    clusters: {{ BCS-MESOS-10001: [\"{driver}\"] }}
    accounts: {{ sqlite: accounts.db }}
"
    )
}

async fn run_flood(admin: String, gateway: String, reply: EndlessReply, clients: usize, outcomes: Outcomes) {
    if let Err(error) = try_flood(admin, gateway, reply, clients, &outcomes).await {
        outcomes.add(error.to_string());
    }
    std::future::pending::<()>().await;
}

async fn try_flood(
    admin: String,
    gateway: String,
    reply: EndlessReply,
    clients: usize,
    outcomes: &Outcomes,
) -> Result<(), Error> {
    let client = Client::for_attacks()?;
    let post_admin = async |path: &str, body: serde_json::Value| {
        let request = Request::post(format!("{admin}/v1/{path}"))
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string())
            .map_err(|error| Error::Invalid(error.to_string()))?;
        client.send(request).await?.json()
    };
    let text = |reply: &serde_json::Value, field: &str| reply[field].as_str().unwrap_or_default().to_owned();
    post_admin("users", json!({"name": "mallory"})).await?;
    let token = post_admin("users/mallory/tokens", json!({"expiresIn": 3600})).await?;
    let cluster = post_admin("clusters", json!({"id": "dev", "creator": "mallory"})).await?;
    let register_token = post_admin("clusters/plain-dev/register-token", json!({})).await?;
    let agent = TunnelFlood {
        gateway: gateway.clone(),
        cluster: "plain-dev".to_owned(),
        register_token: text(&register_token, "token"),
        empty_frames: 16,
        reply,
        sent_byte_count: Arc::default(),
    };
    let path = format!("/tunnels/clusters/{}/api/v1/pods", text(&cluster, "identifier"));
    let token = text(&token, "token");
    let hold_watches = async {
        loop {
            let mut streams = Vec::new();
            for _ in 0..WATCH_COUNT {
                match agent.watch(&path, &token).await {
                    Ok(stream) => streams.push(stream),
                    Err(error) => outcomes.add(error.to_string()),
                }
            }
            // The gateway closes watches whose client does not read. So all watches are opened again every five
            // seconds.
            tokio::time::sleep(Duration::from_secs(5)).await;
            outcomes.add(format!("{} watches that nobody reads", streams.len()));
            let sent_mebibytes = agent.sent_byte_count.swap(0, Ordering::Relaxed) >> 20;
            outcomes.add(format!("{sent_mebibytes} MiB"));
        }
    };
    let requests = (0..clients).map(async |_| {
        let url = format!("http://{gateway}{path}");
        loop {
            let request = Request::get(&url).header(AUTHORIZATION, format!("Bearer {token}"));
            let Ok(request) = request.body(Bytes::new()) else {
                return;
            };
            outcomes.add(match client.send(request).await {
                Ok(reply) => describe_outcome(reply.status.as_u16(), &reply.text()),
                Err(error) => error.to_string(),
            });
        }
    });
    let attack = async {
        match reply {
            EndlessReply::Body => hold_watches.await,
            EndlessReply::Informational => drop(join_all(requests).await),
        }
    };
    tokio::select! {
        ended = agent.run() => ended?,
        () = attack => {}
    }
    outcomes.add("the tunnel was ended".to_owned());
    Ok(())
}

/// Opens connections from another IP address. Sends an incomplete request on each, and keeps it open.
async fn hold_unfinished_requests(address: String, count: usize, request: UnfinishedRequest, outcomes: Outcomes) {
    let (path, length, sent_length) = match request {
        UnfinishedRequest::Streamed => ("/not/hooked".to_owned(), 1000, 1),
        UnfinishedRequest::Held => (
            format!("{API_PATH}{}", applications_path("attacked")),
            BODY_SIZE_LIMIT,
            BODY_SIZE_LIMIT - 1,
        ),
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: BCS-MESOS-10001\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut connections = Vec::new();
    for _ in 0..count {
        match begin_request(&address, &head, sent_length).await {
            Ok(stream) => connections.push(stream),
            Err(error) => outcomes.add(error.kind().to_string()),
        }
    }
    outcomes.add(format!("{} connections held", connections.len()));
    std::future::pending::<()>().await;
}

async fn begin_request(address: &str, head: &str, body_length: usize) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_send_buffer_size(ATTACKING_SEND_BUFFER)?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    let address = address.parse().map_err(std::io::Error::other)?;
    let mut stream = socket.connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b' '; body_length]).await?;
    Ok(stream)
}

#[derive(Clone, Default)]
struct Outcomes(Arc<Mutex<BTreeMap<String, u64>>>);

impl Outcomes {
    fn add(&self, outcome: String) {
        let mut outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry(outcome).or_default() += 1;
    }

    fn text(&self) -> String {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<_> = outcomes
            .iter()
            .map(|(outcome, count)| format!("{count} x {outcome}"))
            .collect();
        parts.join("; ")
    }
}

fn describe_outcome(status: u16, text: &str) -> String {
    let failure = text.split_once("failed (").and_then(|(_, rest)| rest.split_once(')'));
    match failure {
        Some((failure, _)) => failure.to_owned(),
        None if status == 200 => "allowed".to_owned(),
        None => format!("{status} {}", text.chars().take(160).collect::<String>()),
    }
}

fn resident_bytes(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes * 1024)
}

fn write(path: &PathBuf, content: impl AsRef<[u8]>) -> Result<(), Error> {
    std::fs::write(path, content).map_err(Error::io(path.display().to_string()))
}
