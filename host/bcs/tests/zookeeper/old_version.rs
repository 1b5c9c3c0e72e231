//! Tests with a server that supports only the operations of ZooKeeper 3.4.

use admittance_bcs::zookeeper::{SessionState, ZooKeeper};

use crate::{
    ensemble::shared_server_address,
    old_server::OldServer,
    scene::{PERSISTENT, config, data_of, other_client, registration, wait_until},
};

async fn interrupt(old: &OldServer, zookeeper: &ZooKeeper) {
    let mut accepted = old.accepted_count();
    let before = *accepted.borrow_and_update();
    old.interrupt();
    wait_until(&mut accepted, |count| *count > before).await;
    wait_until(&mut zookeeper.states(), SessionState::is_connected).await;
}

#[tokio::test]
async fn sessions_use_only_operations_of_zookeeper_3_4() {
    let parent = "/old/server";
    let client = other_client(shared_server_address()).await;
    let old = OldServer::in_front_of(shared_server_address()).await;
    let zookeeper = ZooKeeper::open(config(old.address()));
    let members = zookeeper.members(parent);
    let mut list = members.receiver();
    wait_until(&mut list, |list| list.is_read).await;
    let dropped = zookeeper.children(parent);
    wait_until(&mut dropped.receiver(), |list| list.is_read).await;
    drop(dropped);
    interrupt(&old, &zookeeper).await;
    let registered = zookeeper.register(registration(parent, "one"));
    wait_until(&mut list, |list| data_of(list) == ["one"]).await;
    let children = zookeeper.children(parent);
    wait_until(&mut children.receiver(), |list| list.children.len() == 1).await;
    for round in 0..3 {
        interrupt(&old, &zookeeper).await;
        let path = format!("{parent}/x000000001{round}");
        client.create(&path, b"two", &PERSISTENT).await.unwrap();
        wait_until(&mut list, |list| data_of(list) == ["one", "two"]).await;
        wait_until(&mut children.receiver(), |list| list.children.len() == 2).await;
        let other = zookeeper.members(parent);
        wait_until(&mut other.receiver(), |list| data_of(list) == ["one", "two"]).await;
        drop(other);
        client.delete(&path, None).await.unwrap();
        wait_until(&mut list, |list| data_of(list) == ["one"]).await;
    }
    drop(children);
    registered.withdraw().await;
    wait_until(&mut list, |list| list.children.is_empty()).await;
    assert!(zookeeper.state().is_connected());
    assert_eq!(old.unknown_operations(), Vec::<i32>::new());
}
