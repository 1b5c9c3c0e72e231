//! Tests of the election of a leader by a Lease.

use std::{sync::Arc, time::Duration};

use admittance_cluster::{Election, ElectionTimes};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::setting::{Setting, TEST_TIMEOUT, wait_until};

const NAME: &str = "admittance";

const LONG_TIMES: ElectionTimes = ElectionTimes {
    duration: Duration::from_secs(600),
    pause: Duration::from_millis(20),
};

const SHORT_TIMES: ElectionTimes = ElectionTimes {
    duration: Duration::from_secs(1),
    pause: Duration::from_millis(20),
};

struct LeaseCandidate {
    election: Arc<Election>,
    task: JoinHandle<()>,
}

impl LeaseCandidate {
    async fn start(setting: &Setting, terms: ElectionTimes) -> Self {
        let election = Arc::new(setting.cluster().await.election(NAME, terms));
        let task_election = election.clone();
        Self {
            election,
            task: tokio::spawn(async move { task_election.take_part().await }),
        }
    }

    async fn wait_until_leadership(&self, expected: bool) {
        let mut is_leader = self.election.watch_leadership();
        let wait = is_leader.wait_for(|is_leader| *is_leader == expected);
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap().unwrap();
    }

    fn is_leader(&self) -> bool {
        *self.election.watch_leadership().borrow()
    }

    /// Ends the candidate without resigning from the leadership, as if its program were killed.
    async fn vanish(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
        self.election.resign().await;
    }
}

#[tokio::test]
async fn one_candidate_leads_until_it_resigns() {
    let setting = Setting::new();
    let first = LeaseCandidate::start(&setting, LONG_TIMES).await;
    first.wait_until_leadership(true).await;
    let lease = setting.server.object("leases", "default", NAME).unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 600);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    let identity = lease["spec"]["holderIdentity"].clone();

    let second = LeaseCandidate::start(&setting, LONG_TIMES).await;
    let read_count = setting.server.count_requests("get", "leases");
    wait_until("the second looks at the Lease", async || {
        setting.server.count_requests("get", "leases") > read_count + 2
    })
    .await;
    assert!(first.is_leader() && !second.is_leader());

    let mut annotated_lease = setting.server.object("leases", "default", NAME).unwrap();
    annotated_lease["metadata"]["annotations"] = json!({"checked": "by hand"});
    setting.server.put_before("replace", "leases", annotated_lease);
    let renewals = setting.server.count_requests("replace", "leases");
    wait_until("renewals", async || {
        setting.server.count_requests("replace", "leases") > renewals + 3
    })
    .await;
    assert!(first.is_leader() && !second.is_leader());

    first.stop().await;
    second.wait_until_leadership(true).await;
    let lease = setting.server.object("leases", "default", NAME).unwrap();
    assert_ne!(lease["spec"]["holderIdentity"], identity);
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    assert_eq!(lease["metadata"]["annotations"], json!({"checked": "by hand"}));
}

#[tokio::test]
async fn a_leader_resigns_although_its_last_renewal_was_interrupted() {
    let setting = Setting::new();
    let first = LeaseCandidate::start(&setting, LONG_TIMES).await;
    first.wait_until_leadership(true).await;
    let second = LeaseCandidate::start(&setting, LONG_TIMES).await;
    first.task.abort();

    // The server has stored a renewal by the first candidate, but the candidate never gets the reply.
    let mut renewed_lease = setting.server.object("leases", "default", NAME).unwrap();
    renewed_lease["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
    setting.server.put_before("replace", "leases", renewed_lease);
    first.stop().await;
    second.wait_until_leadership(true).await;
}

#[tokio::test]
async fn a_leader_that_disappears_is_replaced() {
    let setting = Setting::new();
    let first = LeaseCandidate::start(&setting, SHORT_TIMES).await;
    first.wait_until_leadership(true).await;
    let second = LeaseCandidate::start(&setting, SHORT_TIMES).await;
    first.vanish().await;
    second.wait_until_leadership(true).await;

    setting.server.become_unavailable();
    second.wait_until_leadership(false).await;
    setting.server.become_available();
    second.wait_until_leadership(true).await;

    setting.server.delete("leases", "default", NAME);
    wait_until("a new Lease", async || {
        setting.server.object("leases", "default", NAME).is_some()
    })
    .await;
    second.wait_until_leadership(true).await;
}

#[tokio::test]
async fn a_candidate_leads_only_if_it_may_write_the_lease() {
    let setting = Setting::new();
    setting.server.forbid("create", "leases");
    let candidate = LeaseCandidate::start(&setting, SHORT_TIMES).await;
    wait_until("attempts", async || {
        setting.server.count_requests("create", "leases") > 1
    })
    .await;
    assert!(!candidate.is_leader());
    setting.server.allow("create", "leases");
    candidate.wait_until_leadership(true).await;
}
