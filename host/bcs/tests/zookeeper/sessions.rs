//! Tests of sessions with ZooKeeper that begin, expire and are replaced.

use std::time::Duration;

use admittance_bcs::zookeeper::{SessionState, ZooKeeper, ZooKeeperError};

use crate::{
    ensemble::{Ensemble, TestZooKeeper},
    scene::{config, impatient_config, wait_for_session, wait_until, with_test_timeout},
};

#[tokio::test]
async fn a_session_that_expired_is_followed_by_another() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let first = wait_for_session(&zookeeper, None).await;
    let mut states = zookeeper.states();
    server.expire(first.0);
    let lost_state = wait_until(&mut states, |state| !state.is_connected()).await;
    assert!(matches!(&lost_state, SessionState::Lost { .. }), "{lost_state:?}");
    let second = wait_for_session(&zookeeper, Some(first)).await;
    // The server keeps the connection of the first session open for a while, although that session has expired. The
    // test therefore waits until only the second session is left.
    let only_second = async {
        while server.sessions() != [second.0] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_test_timeout(only_second).await;
    let client = zookeeper.client().await.unwrap();
    assert_eq!(client.session_id(), second);
}

#[tokio::test]
async fn a_session_survives_a_restart_of_its_server() {
    let mut server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let first = wait_for_session(&zookeeper, None).await;
    server.stop();
    let mut states = zookeeper.states();
    let lost_state = wait_until(&mut states, |state| !state.is_connected()).await;
    assert!(
        matches!(&lost_state, SessionState::Lost { reason, .. } if reason == "the connection was lost"),
        "{lost_state:?}"
    );
    server.start_again();
    assert_eq!(wait_for_session(&zookeeper, None).await, first);
}

#[tokio::test]
async fn a_session_waits_for_a_server_that_starts_later() {
    let mut server = TestZooKeeper::start();
    server.stop();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let state = wait_until(&mut zookeeper.states(), |state| state.reason().is_some()).await;
    let SessionState::Connecting {
        reason: Some(reason), ..
    } = state
    else {
        panic!("{state:?}");
    };
    assert!(reason.starts_with(server.address()), "{reason}");
    assert!(reason.contains("refused"), "{reason}");
    let error = zookeeper.client().await.unwrap_err();
    assert!(matches!(error, ZooKeeperError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
    server.start_again();
    wait_for_session(&zookeeper, None).await;
    with_test_timeout(zookeeper.client()).await.unwrap();
}

#[tokio::test]
async fn an_unresponsive_server_is_not_used_until_it_responds_again() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(impatient_config(server.address()));
    wait_for_session(&zookeeper, None).await;
    let mut states = zookeeper.states();
    server.suspend();
    wait_until(&mut states, |state| !state.is_connected()).await;
    let opens_none = |state: &SessionState| state.reason().is_some_and(|reason| reason.contains("opens no session"));
    wait_until(&mut states, opens_none).await;
    server.resume();
    wait_for_session(&zookeeper, None).await;
}

#[tokio::test]
async fn a_session_ends_when_everything_that_uses_it_is_dropped() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    wait_for_session(&zookeeper, None).await;
    let members = zookeeper.members("/empty");
    let mut states = zookeeper.states();
    let list = members.receiver();
    drop(zookeeper);
    assert_eq!(server.sessions().len(), 1);
    drop(members);
    with_test_timeout(async { while states.changed().await.is_ok() {} }).await;
    assert!(list.has_changed().is_err());
    with_test_timeout(async {
        while !server.sessions().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_ensemble_that_loses_its_leader_keeps_the_session() {
    let mut ensemble = Ensemble::start(3);
    let zookeeper = ZooKeeper::open(config(&ensemble.addresses()));
    let first = wait_for_session(&zookeeper, None).await;
    let mut states = zookeeper.states();
    let leader = ensemble.wait_for_leader();
    ensemble.kill(leader);
    wait_until(&mut states, |state| !state.is_connected()).await;
    assert_eq!(wait_for_session(&zookeeper, None).await, first);
    assert_ne!(ensemble.wait_for_leader(), leader);
    ensemble.start_again(leader);
    assert_eq!(wait_for_session(&zookeeper, None).await, first);
}
