//! Tests a change of the master scheduler under load.

use std::time::Instant;

use admittance_tests::{MesosCluster, Scheduler};

use super::{
    nodes::{Nodes, SCHEDULERS, SchedulerCandidate},
    scene::{Front, driver_config},
    writers::{ConcurrentWriters, WriteAnswer, scheduler_requests, write_violations},
    zookeeper::ZooKeeperNode,
};

const CLIENT_COUNT: usize = 8;

/// The way in which a scheduler stops being the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MasterExit {
    /// The master crashes while it handles requests. Its node in ZooKeeper still exists at first, and disappears some
    /// time after the crash.
    Dies,
    /// The master deletes its node in ZooKeeper, and then refuses requests like a scheduler that is not the master.
    StepsDown,
}

#[tokio::test]
async fn no_write_is_lost_or_duplicated_when_the_master_dies() {
    check_master_change(MasterExit::Dies).await;
}

#[tokio::test]
async fn no_write_is_lost_or_duplicated_when_the_master_steps_down() {
    check_master_change(MasterExit::StepsDown).await;
}

async fn check_master_change(exit: MasterExit) {
    let zookeeper = ZooKeeperNode::create_shared("masters").await;
    let servers = zookeeper.connection();
    let cluster = MesosCluster::default();
    let first = Scheduler::start(&cluster).await.unwrap();
    let second = Scheduler::start(&cluster).await.unwrap();
    let first_stands = SchedulerCandidate::join_election(&servers, &first).await;
    let _second_stands = SchedulerCandidate::join_election(&servers, &second).await;
    let driver = Front::start(&driver_config(&zookeeper, "")).await;
    let nodes = Nodes::connect(&servers).await;

    let writers = ConcurrentWriters::start(&[driver.routes_url()], CLIENT_COUNT);
    writers.until_created(50).await;
    assert!(second.requests().is_empty(), "all goes to the master");

    // A crashed master has executed the requests in flight, but their replies are lost.
    let mut in_flight = 0;
    let mut gate = None;
    let change_time;
    if exit == MasterExit::Dies {
        gate = Some(first.hold_replies());
        let mut answered_count = usize::MAX;
        while answered_count != writers.count() {
            answered_count = writers.count();
            first.wait_until_received(answered_count + CLIENT_COUNT).await.unwrap();
        }
        first.kill();
        in_flight = CLIENT_COUNT;
        writers
            .until_written("a request in flight fails", answered_count, |answered_applications| {
                let failed = |answer: &WriteAnswer| matches!(answer, WriteAnswer::Refused(1_405_009, _));
                answered_applications
                    .iter()
                    .any(|application| failed(&application.answer))
            })
            .await;
        change_time = Instant::now();
        drop(first_stands);
    } else {
        change_time = Instant::now();
        first_stands.resign().await;
    }
    nodes
        .until_children(SCHEDULERS, "the second is the first", |nodes| nodes.len() == 1)
        .await;
    writers.until_created(50).await;
    let applications = writers.end().await;
    drop(gate);

    let (requests, problems) = scheduler_requests(&[&first, &second]);
    assert_eq!(problems, [""; 0]);
    let violations = write_violations(&applications, &cluster, &requests);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    for written_application in &applications {
        let is_clean = match &written_application.answer {
            WriteAnswer::Created => true,
            WriteAnswer::Refused(code, message) => *code == 1_405_009 && message.contains("do http request failed!"),
            WriteAnswer::Broken(_) => false,
        };
        assert!(is_clean, "{written_application:?}");
    }
    let writes = cluster.writes();
    let takeover = writes
        .iter()
        .position(|write| write.scheduler_address == second.address())
        .unwrap();
    assert!(
        writes[takeover..]
            .iter()
            .all(|write| write.scheduler_address == second.address())
    );
    let failed = applications
        .iter()
        .filter(|attempt| attempt.answer != WriteAnswer::Created)
        .count();
    assert!(failed >= in_flight, "{failed} of {in_flight} in flight failed");

    let by_second = |name: &str| writes[takeover..].iter().any(|write| write.key.2 == name);
    let followed = applications
        .iter()
        .filter(|success| success.answer == WriteAnswer::Created && by_second(&success.name))
        .map(|created| created.at)
        .min()
        .unwrap();
    eprintln!(
        "{exit:?}: followed after {:.0?}; {} created, {failed} failed",
        followed.saturating_duration_since(change_time),
        applications.len() - failed,
    );
}
