//! Several replicas that go live together, behind a load balancer that asks them whether they are ready.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use admittance_tests::{Client, Trust};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    resources::{PLURAL, chain, start, start_as},
    server::{POD, Server, Verdict, request},
};
use crate::setting::{Setting, eventually};

/// How many changes are made under load; the soak makes 500.
const CHANGES: &str = "ADMITTANCE_TEST_CHANGES";

/// The annotations of the Lease of a replica, or of the leader.
fn annotation<'a>(lease: &'a Value, name: &str) -> Option<&'a str> {
    lease["metadata"]["annotations"][format!("admittance.dev/{name}")].as_str()
}

/// Checks every version of every Lease in the order in which they were written: a table became the target only when all
/// replicas that served the one before had prepared it, and no replica served it before it was the target. Returns how
/// many targets there were.
fn check_order(setting: &Setting) -> usize {
    let mut target: Option<String> = None;
    let mut replicas: BTreeMap<String, Value> = BTreeMap::new();
    let mut targets = 0;
    for (kind, lease) in setting.server.history("leases") {
        let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
        if name == "admittance" {
            let now = annotation(&lease, "target").map(str::to_owned);
            if now != target {
                let (before, new) = (target.as_deref(), now.as_deref());
                let served = replicas
                    .values()
                    .filter(|lease| before.is_some() && annotation(lease, "live") == before);
                // The leader knows what it has itself before its own Lease says so.
                let leader = &lease["spec"]["holderIdentity"];
                let served = served.filter(|replica| replica["spec"]["holderIdentity"] != *leader);
                for replica in served {
                    let has = ["live", "prepared", "earlier"];
                    let has = has.into_iter().any(|name| annotation(replica, name) == new);
                    assert!(has, "{new:?} is the target, and {replica} has not prepared it");
                }
                target = now;
                targets += 1;
            }
            continue;
        }
        if kind == "DELETED" {
            replicas.remove(&name);
            continue;
        }
        // A Lease is created before it says anything.
        let before = replicas.get(&name).and_then(|before| annotation(before, "live"));
        let live = annotation(&lease, "live");
        let is_same = before.is_none() || before == live;
        assert!(
            is_same || live == target.as_deref(),
            "{name} serves {live:?}, and not {target:?}"
        );
        replicas.insert(name, lease);
    }
    targets
}

async fn is_ready(client: &Client, server: &Server) -> bool {
    let answer = client.get(&server.program.admin_url("/readyz")).await;
    answer.is_ok_and(|answer| answer.status == 200)
}

pub(super) async fn until_ready(server: &Server) {
    eventually("the replica is ready", async || {
        is_ready(&server.client, server).await
    })
    .await;
}

/// The message of the chain `pods` in a replica.
async fn message(server: &Server) -> String {
    let verdict = server.review("/validate/pods", &POD.review("p1")).await;
    verdict.message().to_owned()
}

async fn until_message(server: &Server, text: &str) {
    eventually(text, async || message(server).await.contains(text)).await;
}

async fn replicas(server: &Server) -> Value {
    server.program.status().await.unwrap()["replicas"].clone()
}

/// The replicas that a server waits for, as sentences.
async fn until_waiting(server: &Server, part: &str) -> String {
    let mut waiting = String::new();
    eventually(part, async || {
        waiting = replicas(server).await["waiting"].to_string();
        waiting.contains(part)
    })
    .await;
    waiting
}

/// The name of a replica, once it knows the Leases of itself and the others.
pub(super) async fn own_name(server: &Server) -> String {
    let mut name = None;
    eventually("the replica knows itself", async || {
        let replicas = replicas(server).await;
        let own = replicas["replicas"].as_array().into_iter().flatten();
        let mut own = own.filter(|replica| replica["self"] == true);
        name = own.next().and_then(|own| own["name"].as_str().map(str::to_owned));
        name.is_some()
    })
    .await;
    name.unwrap()
}

/// Waits until a replica knows so many.
pub(super) async fn until_known(server: &Server, count: usize) {
    eventually("the replicas know one another", async || {
        let known = replicas(server).await["replicas"].as_array().map(Vec::len);
        known == Some(count)
    })
    .await;
}

async fn three(setting: &Setting) -> [Server; 3] {
    let servers = [start(setting).await, start(setting).await, start(setting).await];
    for server in &servers {
        until_ready(server).await;
    }
    until_known(&servers[0], 3).await;
    servers
}

/// Clients that send requests to the replicas in turn, each only if it says that it is ready.
struct Balanced {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<(Instant, String)>>>,
}

/// A replica, as the load balancer knows it.
#[derive(Clone)]
struct Backend {
    ready: String,
    review: String,
    authorities: String,
}

impl Balanced {
    fn start(servers: &[Server], clients: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let backend = |server: &Server| Backend {
            ready: server.program.admin_url("/readyz"),
            review: server.program.tls_url("/validate/pods"),
            authorities: std::fs::read_to_string(server.directory.path().join("ca.pem")).unwrap(),
        };
        let backends: Vec<Backend> = servers.iter().map(backend).collect();
        let client = |_| tokio::spawn(send(backends.clone(), is_over.clone()));
        Self {
            clients: (0..clients).map(client).collect(),
            is_over,
        }
    }

    /// All answers, each with its time.
    async fn stop(self) -> Vec<(Instant, String)> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut answers = Vec::new();
        for client in self.clients {
            answers.extend(client.await.unwrap());
        }
        answers.sort();
        answers
    }
}

async fn send(backends: Vec<Backend>, is_over: Arc<AtomicBool>) -> Vec<(Instant, String)> {
    let client = |backend: &Backend| {
        Client::trusting(Trust {
            authorities: &backend.authorities,
            identity: None,
        })
    };
    let clients: Vec<Client> = backends.iter().map(|backend| client(backend).unwrap()).collect();
    let probe = Client::new().unwrap();
    let mut answers = Vec::new();
    let mut turns = tokio::time::interval(Duration::from_millis(5));
    for (backend, client) in backends.iter().zip(&clients).cycle() {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        turns.tick().await;
        let ready = probe.get(&backend.ready).await;
        if !ready.is_ok_and(|ready| ready.status == 200) {
            continue;
        }
        let review = POD.review("load");
        let reply = client.send(request(&backend.review, &review)).await.unwrap();
        answers.push((Instant::now(), Verdict::of(&review, &reply).message().to_owned()));
    }
    answers
}

/// The longest time that an answer of a table came after the first one of the next.
fn longest_overlap(answers: &[(Instant, String)]) -> Duration {
    let mut first: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for (at, message) in answers {
        let (_, number) = message.split_once("version ").unwrap();
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        let number: u32 = digits.parse().unwrap();
        first.entry(number).or_insert(*at);
        if let Some(next) = first.get(&(number + 1)) {
            longest = longest.max(at.duration_since(*next));
        }
    }
    longest
}

#[tokio::test]
async fn changes_under_load_go_live_everywhere_at_once() {
    let changes: u32 = std::env::var(CHANGES).map_or(20, |number| number.parse().unwrap());
    let setting = Setting::new();
    setting.server.put(PLURAL, chain("pods", "version 0"));
    let servers = three(&setting).await;
    let load = Balanced::start(&servers, 4);
    for number in 1..=changes {
        let version = format!("version {number}");
        setting.server.put(PLURAL, chain("pods", &version));
        for server in &servers {
            until_message(server, &version).await;
        }
    }
    let answers = load.stop().await;
    assert!(answers.len() > changes as usize, "{}", answers.len());
    assert_eq!(check_order(&setting), changes as usize + 1);
    let overlap = longest_overlap(&answers);
    println!(
        "{} answers, {changes} changes, longest overlap {overlap:?}",
        answers.len()
    );
    if std::env::var_os(CHANGES).is_some() {
        assert!(overlap < Duration::from_secs(1), "{overlap:?}");
    }
    // Everybody says the same, and says it in the same way.
    let hash = servers[0].program.status().await.unwrap()["hash"].clone();
    for server in &servers {
        let status = server.program.status().await.unwrap();
        assert_eq!((&status["hash"], &status["replicas"]["target"]), (&hash, &hash));
        let metrics = server.program.metrics().await.unwrap();
        assert_eq!(metrics.sum("admittance_replicas", &[]), Some(3.0));
        assert_eq!(metrics.sum("admittance_replicas_waiting", &[]), Some(0.0));
        assert_eq!(metrics.sum("admittance_replica_ready", &[]), Some(1.0));
    }
}

#[tokio::test]
async fn a_replica_that_hangs_holds_the_others_back_and_is_named() {
    let setting = Setting::new();
    setting.server.put(PLURAL, chain("pods", "first"));
    let first = start(&setting).await;
    until_ready(&first).await;
    let mut slow = start(&setting).await;
    until_ready(&slow).await;
    let name = own_name(&slow).await;
    until_known(&first, 2).await;

    // It hangs, so it prepares nothing.
    slow.program.suspend().unwrap();
    setting.server.put(PLURAL, chain("pods", "second"));
    let waiting = until_waiting(&first, &name).await;
    assert!(waiting.contains("has not prepared"), "{waiting}");
    assert!(message(&first).await.contains("first"));
    let shown = first.tell(&["status", "--fleet"]).await;
    assert!(
        shown.stdout.contains("a change waits:") && shown.stdout.contains(&name),
        "{}",
        shown.stdout
    );
    let metrics = first.program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_replicas_waiting", &[]), Some(1.0));
    slow.program.resume().unwrap();
    for server in [&first, &slow] {
        until_message(server, "second").await;
    }

    // Whoever stops is not waited for.
    slow.program.terminate().unwrap();
    slow.program.ended().await.unwrap();
    setting.server.put(PLURAL, chain("pods", "third"));
    until_message(&first, "third").await;
    check_order(&setting);
}

#[tokio::test]
async fn replicas_go_on_without_one_that_was_killed_and_without_the_api_server() {
    let setting = Setting::new();
    setting.server.put(PLURAL, chain("pods", "first"));
    let [mut leader, mut second, third] = three(&setting).await;

    // The leader is killed while a change is being prepared. Another one leads when its Lease has expired.
    second.program.suspend().unwrap();
    setting.server.put(PLURAL, chain("pods", "second"));
    until_waiting(&leader, "has not prepared").await;
    // Its Lease says so later than the leader itself.
    eventually("the Lease of the leader says what is prepared", async || {
        let replicas = replicas(&third).await;
        let mut known = replicas["replicas"].as_array().into_iter().flatten();
        known.any(|replica| replica["leader"] == true && replica["prepared"] != replica["live"])
    })
    .await;
    leader.program.kill().await.unwrap();
    second.program.resume().unwrap();
    for server in [&second, &third] {
        until_message(server, "second").await;
    }

    // Nobody goes live with anything without the API server, and everybody answers.
    setting.server.leave();
    setting.server.put(PLURAL, chain("pods", "third"));
    for server in [&second, &third] {
        assert!(message(server).await.contains("second"));
        assert!(is_ready(&server.client, server).await);
    }
    setting.server.come_back();
    for server in [&second, &third] {
        until_message(server, "third").await;
    }

    // A replica that is new serves what the others serve as soon as it is ready.
    let new = start(&setting).await;
    until_ready(&new).await;
    assert!(message(&new).await.contains("third"));
    second.program.kill().await.unwrap();
    check_order(&setting);
}

#[tokio::test]
async fn a_rollback_is_one_of_all_replicas() {
    let setting = Setting::new();
    setting.server.put(PLURAL, chain("pods", "first"));
    let servers = [start(&setting).await, start(&setting).await];
    for server in &servers {
        until_ready(server).await;
    }
    for server in &servers {
        until_known(server, 2).await;
    }
    setting.server.put(PLURAL, chain("pods", "second"));
    for server in &servers {
        until_message(server, "second").await;
    }
    let told = servers[0].tell(&["rollback", "1"]).await;
    assert_ne!(told.code, Some(0), "{}{}", told.stdout, told.stderr);
    assert!(told.stderr.contains("roll back each of them"), "{}", told.stderr);
    assert!(message(&servers[0]).await.contains("second"));
    let told = servers[1].tell(&["rollback", "1"]).await;
    assert_eq!(told.code, Some(0), "{}{}", told.stdout, told.stderr);
    for server in &servers {
        until_message(server, "first").await;
        assert!(is_ready(&server.client, server).await);
    }
    check_order(&setting);
}

#[tokio::test]
async fn a_replica_with_another_table_is_not_ready_and_is_named() {
    let setting = Setting::new();
    setting.server.put(PLURAL, chain("pods", "first"));
    let namespaced = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "NamespacedAdmissionChain",
        "metadata": {"name": "own", "namespace": "test"},
        "spec": {
            "phase": "Validating",
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": "deny", "webhook": {"protocol": "AdmissionReview", "url": "https://127.0.0.1:1/"}}],
        },
    });
    let allowing = [
        start_as(&setting, "namespaced: { webhooks: Any }", "").await,
        start_as(&setting, "namespaced: { webhooks: Any }", "").await,
    ];
    for server in &allowing {
        until_ready(server).await;
    }
    // This one may not use the chain, and all others wait for it.
    let mut strict = start(&setting).await;
    until_ready(&strict).await;
    let name = own_name(&strict).await;
    until_known(&allowing[0], 3).await;
    setting.server.put("namespacedadmissionchains", namespaced);
    let waiting = until_waiting(&allowing[0], "webhooks").await;
    assert!(waiting.contains(&format!("{name} has not prepared")), "{waiting}");
    let logged = |line: &admittance_tests::LogLine| {
        line.message().contains("a change waits") && line.message().contains(&name)
    };
    let mark = admittance_tests::Mark::START;
    let chains = async |server: &Server| {
        let status = server.program.status().await.unwrap();
        status["chains"].as_array().unwrap().len()
    };
    for server in &allowing {
        server
            .program
            .until_logged_after(mark, "who is waited for", logged)
            .await
            .unwrap();
        assert_eq!(chains(server).await, 1);
    }
    strict.program.terminate().unwrap();
    strict.program.ended().await.unwrap();
    for server in &allowing {
        eventually("the chain of the namespace is live", async || {
            chains(server).await == 2
        })
        .await;
    }
    // A new one that cannot use it holds nobody back, and gets no requests.
    let late = start(&setting).await;
    let known = async || replicas(&late).await["target"] != Value::Null;
    eventually("it knows what the others serve", known).await;
    let answer = late.client.get(&late.program.admin_url("/readyz")).await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.json().unwrap()["reason"],
        "the replicas serve another table"
    );
    setting.server.put(PLURAL, chain("pods", "second"));
    for server in &allowing {
        until_message(server, "second").await;
    }
    check_order(&setting);
}
