//! Tests of the replicas of a program, each of which has a Lease.

use std::{sync::Arc, time::Duration};

use admittance_cluster::{Annotations, ElectionTimes, LeaseMember, ReplicaMembers};
use tokio::task::JoinHandle;

use crate::setting::{Setting, wait_until};

const LONG_TIMES: ElectionTimes = ElectionTimes {
    duration: Duration::from_secs(600),
    pause: Duration::from_millis(20),
};

const SHORT_TIMES: ElectionTimes = ElectionTimes {
    duration: Duration::from_secs(2),
    pause: Duration::from_millis(20),
};

struct SimulatedReplica {
    members: Arc<ReplicaMembers>,
    task: JoinHandle<()>,
}

impl SimulatedReplica {
    async fn start(setting: &Setting, terms: ElectionTimes, report: &str) -> Self {
        let election = setting.cluster().await.election("admittance", LONG_TIMES);
        let members = Arc::new(election.members(terms));
        members.annotate(Annotations::from([("says".to_owned(), report.to_owned())]));
        let task_members = members.clone();
        let task = tokio::spawn(async move {
            tokio::join!(task_members.take_part(), election.take_part());
        });
        Self { members, task }
    }

    /// Returns what the living replicas say, as this replica has received it: the annotation `says` of each Lease.
    fn received_reports(&self) -> Vec<String> {
        let alive = |member: LeaseMember| member.is_alive.then(|| member.annotations["says"].clone());
        let mut reports: Vec<_> = self
            .members
            .membership()
            .members
            .into_iter()
            .filter_map(alive)
            .collect();
        reports.sort();
        reports
    }

    async fn wait_until_received(&self, expected: &[&str]) {
        wait_until("what the replicas say", async || self.received_reports() == expected).await;
    }

    async fn vanish(&self) {
        self.task.abort();
        wait_until("the end", async || self.task.is_finished()).await;
    }
}

#[tokio::test]
async fn a_replica_receives_the_reports_of_the_others() {
    let setting = Setting::new();
    let first = SimulatedReplica::start(&setting, LONG_TIMES, "a").await;
    let second = SimulatedReplica::start(&setting, LONG_TIMES, "b").await;
    for replica in [&first, &second] {
        replica.wait_until_received(&["a", "b"]).await;
    }
    wait_until("one leader", async || {
        let members = second.members.membership().members;
        members.iter().filter(|member| member.is_leader).count() == 1
    })
    .await;
    second
        .members
        .annotate(Annotations::from([("says".to_owned(), "c".to_owned())]));
    first.wait_until_received(&["a", "c"]).await;
    assert_eq!(first.members.membership().problem, None);

    second.vanish().await;
    second.members.leave().await;
    first.wait_until_received(&["a"]).await;

    setting.server.become_unavailable();
    wait_until("the problem", async || first.members.membership().problem.is_some()).await;
    setting.server.become_available();
    wait_until("no problem", async || first.members.membership().problem.is_none()).await;
}

#[tokio::test]
async fn the_lease_of_a_replica_that_disappears_expires() {
    let setting = Setting::new();
    let first = SimulatedReplica::start(&setting, SHORT_TIMES, "a").await;
    let second = SimulatedReplica::start(&setting, SHORT_TIMES, "b").await;
    first.wait_until_received(&["a", "b"]).await;
    second.vanish().await;
    first.wait_until_received(&["a"]).await;
    assert_eq!(first.members.membership().members.len(), 2);
    for member in first
        .members
        .membership()
        .members
        .iter()
        .filter(|member| !member.is_alive)
    {
        first.members.remove(&member.name).await;
    }
    wait_until("its Lease is gone", async || {
        first.members.membership().members.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_refused_watch_is_reported_differently_from_an_outage() {
    let setting = Setting::new();
    setting.server.forbid("list", "leases");
    let replica = SimulatedReplica::start(&setting, LONG_TIMES, "a").await;
    wait_until("the refusal", async || replica.members.membership().is_refused).await;
    assert!(replica.members.membership().problem.is_some());
}
