//! Clients that create uniquely named applications one after another and record the replies.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use admittance_tests::{Client, MesosCluster, Scheduler, SchedulerRequest, SchedulerVerb, TEST_TIMEOUT};
use http::Method;
use tokio::{sync::watch, task::JoinSet};

use super::scene::code_and_message;
use crate::scene::application;

pub(super) const NAMESPACE: &str = "load";

pub(super) struct ConcurrentWriters {
    is_over: Arc<AtomicBool>,
    applications: watch::Sender<Vec<WrittenApplication>>,
    tasks: JoinSet<()>,
}

/// An attempt of a client to create an application, with the reply that it got.
#[derive(Clone, Debug)]
pub(super) struct WrittenApplication {
    pub(super) name: String,
    pub(super) answer: WriteAnswer,
    pub(super) at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteAnswer {
    Created,
    /// The driver refused the request with this code and this message. The HTTP status is 200.
    Refused(u64, String),
    /// The client got no reply, or an invalid one.
    Broken(String),
}

impl ConcurrentWriters {
    /// Starts clients that create applications through these base URLs in turn.
    pub(super) fn start(front_doors: &[String], clients: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let applications = watch::Sender::new(Vec::new());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let front_doors = front_doors.to_vec();
            tasks.spawn(write_until_over(
                number,
                front_doors,
                is_over.clone(),
                applications.clone(),
            ));
        }
        Self {
            is_over,
            applications,
            tasks,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.applications.borrow().len()
    }

    /// Waits until the clients' replies meet a condition. The first `first_index` replies do not count.
    pub(super) async fn until_written(
        &self,
        event: &str,
        from: usize,
        is_expected: impl Fn(&[WrittenApplication]) -> bool,
    ) {
        let mut receiver = self.applications.subscribe();
        let waiting = receiver.wait_for(|applications| is_expected(applications.get(from..).unwrap_or_default()));
        let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await.is_ok();
        assert!(
            waited,
            "{event}: never; the last answer is {:?}",
            self.applications.borrow().last()
        );
    }

    pub(super) async fn until_created(&self, count: usize) {
        let has_enough = |applications: &[WrittenApplication]| {
            let is_created = |application: &&WrittenApplication| application.answer == WriteAnswer::Created;
            applications.iter().filter(is_created).count() >= count
        };
        self.until_written(&format!("{count} more applications"), self.count(), has_enough)
            .await;
    }

    pub(super) async fn end(mut self) -> Vec<WrittenApplication> {
        self.is_over.store(true, Ordering::SeqCst);
        while let Some(task_result) = self.tasks.join_next().await {
            task_result.unwrap();
        }
        self.applications.borrow().clone()
    }
}

async fn write_until_over(
    number: usize,
    front_doors: Vec<String>,
    is_over: Arc<AtomicBool>,
    applications: watch::Sender<Vec<WrittenApplication>>,
) {
    let client = Client::new().unwrap();
    for turn in 0_usize.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("web-{number}-{turn}");
        let object = application(NAMESPACE, &name, "docker.io/library/nginx:1.29").to_string();
        let front_door = &front_doors[(number + turn) % front_doors.len()];
        let url = format!("{front_door}/namespaces/{NAMESPACE}/applications");
        let answer = match client.send_bcs(Method::POST, &url, object).await {
            Err(error) => WriteAnswer::Broken(error.to_string()),
            Ok(reply) if reply.status != 200 => WriteAnswer::Broken(format!("{}: {}", reply.status, reply.text())),
            Ok(reply) => match code_and_message(&reply) {
                (0, _) => WriteAnswer::Created,
                (code, message) => WriteAnswer::Refused(code, message),
            },
        };
        let at = Instant::now();
        applications.send_modify(|all| all.push(WrittenApplication { name, answer, at }));
    }
}

/// Returns violations of these rules: An application is sent to a master at most once. If a client was told that an
/// application was created, it was created exactly once. A scheduler that is not the master changes nothing.
pub(super) fn write_violations(
    applications: &[WrittenApplication],
    cluster: &MesosCluster,
    requests: &[SchedulerRequest],
) -> Vec<String> {
    let mut arrival_counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.by_master) {
        let name = request.json()["ID"].as_str().unwrap_or_default().to_owned();
        *arrival_counts.entry(name).or_default() += 1;
    }
    let mut creation_counts: BTreeMap<String, usize> = BTreeMap::new();
    for write in cluster.writes() {
        if write.verb == SchedulerVerb::Create {
            *creation_counts.entry(write.key.2).or_default() += 1;
        }
    }
    let mut violations = Vec::new();
    for WrittenApplication { name, answer, .. } in applications {
        let times = (
            arrival_counts.get(name).copied().unwrap_or_default(),
            creation_counts.get(name).copied().unwrap_or_default(),
        );
        let is_right = match answer {
            WriteAnswer::Created => times == (1, 1),
            WriteAnswer::Refused(..) | WriteAnswer::Broken(_) => times.0 <= 1 && times.1 <= times.0,
        };
        if !is_right {
            let (arrivals, creations) = times;
            violations.push(format!(
                "{name} came {arrivals} times and was created {creations} times: {answer:?}"
            ));
        }
    }
    let unknown = arrival_counts
        .keys()
        .filter(|name| !applications.iter().any(|application| application.name == **name));
    violations.extend(unknown.map(|name| format!("nobody waits for an answer about {name}")));
    violations
}

/// Returns all requests that these schedulers have received, and the problems that the schedulers have found in these
/// requests.
pub(super) fn scheduler_requests(schedulers: &[&Scheduler]) -> (Vec<SchedulerRequest>, Vec<String>) {
    let requests = schedulers.iter().flat_map(|scheduler| scheduler.requests());
    let problems = schedulers.iter().flat_map(|scheduler| scheduler.problems());
    (requests.collect(), problems.collect())
}

/// Checks that [`write_violations`] finds violations, because tests in other files rely on it.
#[tokio::test]
async fn lost_and_duplicate_writes_are_detected() {
    let cluster = MesosCluster::default();
    let scheduler = Scheduler::start(&cluster).await.unwrap();
    let client = Client::new().unwrap();
    let url = format!("{}/v1/apps", scheduler.url());
    for name in ["once", "twice", "twice", "silent", "nobody"] {
        let body = format!(r#"{{"ID":"{name}","RunAs":"{NAMESPACE}","Instances":1}}"#);
        client.send_bcs(Method::POST, &url, body).await.unwrap();
    }
    scheduler.set_master(false);
    let body = format!(r#"{{"ID":"once","RunAs":"{NAMESPACE}","Instances":1}}"#);
    client.send_bcs(Method::POST, &url, body).await.unwrap();
    let refused = WriteAnswer::Refused(1_405_009, "do http request failed!".to_owned());
    let written_application = |name: &str, answer: &WriteAnswer| WrittenApplication {
        name: name.to_owned(),
        answer: answer.clone(),
        at: Instant::now(),
    };
    let (requests, problems) = scheduler_requests(&[&scheduler]);
    assert!(
        problems.iter().any(|problem| problem.contains("bcs-clusterid")),
        "a client's own request"
    );
    for (name, answer, expected) in [
        ("once", &WriteAnswer::Created, ""),
        ("silent", &refused, ""),
        ("never", &refused, ""),
        (
            "never",
            &WriteAnswer::Created,
            "never came 0 times and was created 0 times: Created",
        ),
        (
            "twice",
            &WriteAnswer::Created,
            "twice came 2 times and was created 1 times: Created",
        ),
        ("twice", &refused, "twice came 2 times and was created 1 times"),
    ] {
        let violations = write_violations(&[written_application(name, answer)], &cluster, &requests);
        let violation = violations
            .iter()
            .find(|text| text.starts_with(name))
            .cloned()
            .unwrap_or_default();
        assert!(
            violation.starts_with(expected) && violation.is_empty() == expected.is_empty(),
            "{name}: {violation}"
        );
        assert!(
            violations.iter().any(|text| text.ends_with("about nobody")),
            "{violations:?}"
        );
    }
}
