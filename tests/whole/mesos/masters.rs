//! Tests a change of the master scheduler under load.

use std::time::Instant;

use admittance_tests::{MesosCluster, Scheduler};

use super::{
    nodes::{Nodes, SCHEDULERS, SchedulerCandidate},
    scene::{Front, driver},
    writers::{ConcurrentWriters, WriteAnswer, received, wrong},
    zookeeper::ZooKeeperNode,
};

const CLIENTS: usize = 8;

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
    change(MasterExit::Dies).await;
}

#[tokio::test]
async fn no_write_is_lost_or_duplicated_when_the_master_steps_down() {
    change(MasterExit::StepsDown).await;
}

async fn change(exit: MasterExit) {
    let place = ZooKeeperNode::shared("masters").await;
    let servers = place.connection();
    let cluster = MesosCluster::default();
    let first = Scheduler::start(&cluster).await.unwrap();
    let second = Scheduler::start(&cluster).await.unwrap();
    let first_stands = SchedulerCandidate::stand(&servers, &first).await;
    let _second_stands = SchedulerCandidate::stand(&servers, &second).await;
    let driver = Front::start(&driver(&place, "")).await;
    let nodes = Nodes::connect(&servers).await;

    let writers = ConcurrentWriters::start(&[driver.routes()], CLIENTS);
    writers.until_created(50).await;
    assert!(second.received().is_empty(), "all goes to the master");

    // A crashed master has executed the requests in flight, but their replies are lost.
    let mut in_flight = 0;
    let mut gate = None;
    let changed;
    if exit == MasterExit::Dies {
        gate = Some(first.hold());
        let mut answered = usize::MAX;
        while answered != writers.count() {
            answered = writers.count();
            first.until_received(answered + CLIENTS).await.unwrap();
        }
        first.kill();
        in_flight = CLIENTS;
        writers
            .until("a request in flight fails", answered, |written| {
                let failed = |answer: &WriteAnswer| matches!(answer, WriteAnswer::Refused(1_405_009, _));
                written.iter().any(|written| failed(&written.answer))
            })
            .await;
        changed = Instant::now();
        drop(first_stands);
    } else {
        changed = Instant::now();
        first_stands.resign().await;
    }
    nodes
        .until_children(SCHEDULERS, "the second is the first", |nodes| nodes.len() == 1)
        .await;
    writers.until_created(50).await;
    let written = writers.end().await;
    drop(gate);

    let (received, problems) = received(&[&first, &second]);
    assert_eq!(problems, [""; 0]);
    let wrong = wrong(&written, &cluster, &received);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for written in &written {
        let is_clean = match &written.answer {
            WriteAnswer::Created => true,
            WriteAnswer::Refused(code, message) => {
                *code == 1_405_009 && message.contains("do http request failed!")
            }
            WriteAnswer::Broken(_) => false,
        };
        assert!(is_clean, "{written:?}");
    }
    let writes = cluster.writes();
    let turn = writes
        .iter()
        .position(|write| write.by == second.address())
        .unwrap();
    assert!(writes[turn..].iter().all(|write| write.by == second.address()));
    let failed = written
        .iter()
        .filter(|written| written.answer != WriteAnswer::Created)
        .count();
    assert!(failed >= in_flight, "{failed} of {in_flight} in flight failed");

    let by_second = |name: &str| writes[turn..].iter().any(|write| write.to.2 == name);
    let followed = written
        .iter()
        .filter(|written| written.answer == WriteAnswer::Created && by_second(&written.name))
        .map(|written| written.at)
        .min()
        .unwrap();
    eprintln!(
        "{exit:?}: followed after {:.0?}; {} created, {failed} failed",
        followed.saturating_duration_since(changed),
        written.len() - failed,
    );
}
