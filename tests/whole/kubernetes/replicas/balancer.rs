//! A load balancer in front of replicas, with clients that constantly send reviews through it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use admittance_tests::{Client, ClientTrust, Error, TimedAnswer, longest_overlap};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    kubernetes::server::{POD, ReviewVerdict, Server, review_request},
    setting::TEST_TIMEOUT,
};

/// The interval at which the balancer probes whether replicas are ready, and the timeout of a probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Distributes requests of clients over the ready replicas. If a connection breaks before the head of the reply, the
/// balancer repeats the request at another replica.
pub(super) struct Balancer {
    shared: Arc<SharedBalancer>,
    clients: Vec<JoinHandle<Vec<TimedAnswer>>>,
    probes: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct SharedBalancer {
    backends: Mutex<Vec<Arc<Backend>>>,
    turn: AtomicUsize,
    is_over: AtomicBool,
    repeated: AtomicUsize,
}

/// A replica to which the balancer sends requests.
struct Backend {
    ready: String,
    review: String,
    client: Client,
    is_ready: AtomicBool,
    /// The number of requests of the clients that this replica has answered.
    answered: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct ReplicaAnswers {
    /// All answers in the order in which clients received them.
    all: Vec<TimedAnswer>,
    /// The number of requests that the balancer has repeated at a second replica, because the first was unreachable.
    pub(super) repeated: usize,
}

impl Balancer {
    /// Starts a balancer in front of these replicas, and this number of clients that send reviews through it.
    pub(super) fn start(servers: &[Server], clients: usize) -> Self {
        let mut balancer = Self {
            shared: Arc::default(),
            clients: Vec::new(),
            probes: Vec::new(),
        };
        for server in servers {
            balancer.add(server);
        }
        for _ in 0..clients {
            balancer
                .clients
                .push(tokio::spawn(send_reviews(balancer.shared.clone())));
        }
        balancer
    }

    pub(super) fn add(&mut self, server: &Server) {
        let authorities = std::fs::read_to_string(server.directory.path().join("ca.pem")).unwrap();
        let trust = ClientTrust {
            authorities: &authorities,
            identity: None,
        };
        let backend = Arc::new(Backend {
            ready: server.program.admin_url("/readyz"),
            review: server.program.tls_url("/validate/pods"),
            client: Client::with_trust(trust).unwrap(),
            is_ready: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
        });
        self.shared.backends().push(backend.clone());
        self.probes
            .push(tokio::spawn(probe_backend(self.shared.clone(), backend)));
    }

    /// Returns how many requests of the clients this replica has answered.
    pub(super) fn answer_count(&self, server: &Server) -> usize {
        let ready = server.program.admin_url("/readyz");
        let backends = self.shared.backends();
        let backend = backends.iter().find(|backend| backend.ready == ready).unwrap();
        backend.answered.load(Ordering::SeqCst)
    }

    pub(super) async fn stop(self) -> ReplicaAnswers {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await.unwrap());
        }
        for probe in self.probes {
            probe.await.unwrap();
        }
        all.sort();
        ReplicaAnswers {
            all,
            repeated: self.shared.repeated.load(Ordering::SeqCst),
        }
    }
}

impl SharedBalancer {
    fn backends(&self) -> MutexGuard<'_, Vec<Arc<Backend>>> {
        self.backends.lock().unwrap()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Returns the next replica in turn that is ready.
    fn next_backend(&self) -> Option<Arc<Backend>> {
        let backends = self.backends();
        let ready: Vec<_> = backends
            .iter()
            .filter(|backend| backend.is_ready.load(Ordering::SeqCst))
            .collect();
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        let next = turn.checked_rem(ready.len())?;
        Some(ready[next].clone())
    }

    /// Sends a review to a replica, as a load balancer would do. Returns this replica, and its answer.
    async fn send_review(&self) -> (Arc<Backend>, TimedAnswer) {
        let review = POD.review("load");
        loop {
            let Some(backend) = self.next_backend() else {
                sleep(PROBE_INTERVAL).await;
                continue;
            };
            match backend.client.send(review_request(&backend.review, &review)).await {
                Ok(reply) => {
                    backend.answered.fetch_add(1, Ordering::SeqCst);
                    let answer = TimedAnswer::from_message(ReviewVerdict::parse(&review, &reply).message());
                    return (backend, answer.unwrap());
                }
                Err(Error::NoReply { .. }) => {
                    backend.is_ready.store(false, Ordering::SeqCst);
                    self.repeated.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => panic!("a request is lost: {error}"),
            }
        }
    }
}

/// Sends one review after another, at most one every 5 ms, and checks that no replica returns to an earlier table.
async fn send_reviews(shared: Arc<SharedBalancer>) -> Vec<TimedAnswer> {
    let mut answers = Vec::new();
    let mut newest: BTreeMap<String, u32> = BTreeMap::new();
    let mut turns = interval(Duration::from_millis(5));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !shared.is_over() {
        turns.tick().await;
        let answer = timeout(TEST_TIMEOUT, shared.send_review()).await;
        let (backend, answer) = answer.unwrap_or_else(|error| panic!("a request is lost: {error}"));
        let newest = newest.entry(backend.review.clone()).or_default();
        assert!(answer.version >= *newest, "version {} after {newest}", answer.version);
        *newest = answer.version;
        answers.push(answer);
    }
    answers
}

async fn probe_backend(shared: Arc<SharedBalancer>, backend: Arc<Backend>) {
    let client = Client::new().unwrap();
    let mut turns = interval(PROBE_INTERVAL);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !shared.is_over() {
        turns.tick().await;
        let answer = timeout(PROBE_TIMEOUT, client.get(&backend.ready)).await;
        let is_ready = matches!(answer, Ok(Ok(reply)) if reply.status == 200);
        backend.is_ready.store(is_ready, Ordering::SeqCst);
    }
}

impl ReplicaAnswers {
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn longest_overlap(&self) -> (Duration, u32) {
        longest_overlap(&self.all)
    }
}
