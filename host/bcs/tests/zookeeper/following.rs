//! Tests that lists of members and children follow their nodes.

use std::sync::Arc;

use admittance_bcs::zookeeper::{ChildList, RegisteredMember, ZooKeeper};
use tokio::sync::watch;
use zookeeper_client::{Acls, CreateMode};

use crate::{
    ensemble::{Ensemble, TestZooKeeper, shared_server_address},
    scene::{PERSISTENT, config, data_of, impatient_config, other_client, registration, wait_for_session, wait_until},
};

async fn wait_until_data(
    list: &mut watch::Receiver<Arc<ChildList<RegisteredMember>>>,
    expected: &[&str],
) -> Arc<ChildList<RegisteredMember>> {
    wait_until(list, |list| {
        list.stale_reason.is_none() && list.is_read && data_of(list) == expected
    })
    .await
}

#[tokio::test]
async fn members_are_in_the_order_of_their_sequence_numbers() {
    let parent = "/members-in-order";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let members = zookeeper.members(parent);
    let mut list = members.receiver();
    wait_until_data(&mut list, &[]).await;
    let client = other_client(shared_server_address()).await;
    client.mkdir(parent, &PERSISTENT).await.unwrap();
    for (name, data) in [
        ("a-0000000010", "third"),
        ("_c_0123456789abcdef0123456789abcdef-10.0.0.1:80800000000002", "first"),
        ("m-0000000009", "second"),
        // The next two nodes are not members. The name of a member is some text, followed by a sequence number of 10
        // digits.
        ("BCS-MESOS-10001", "a cluster"),
        ("0000000001", "only a number"),
    ] {
        let path = format!("{parent}/{name}");
        client.create(&path, data.as_bytes(), &PERSISTENT).await.unwrap();
    }
    let three = wait_until_data(&mut list, &["first", "second", "third"]).await;
    let sequences: Vec<_> = three.children.iter().map(|member| member.sequence).collect();
    assert_eq!(sequences, [2, 9, 10]);
    assert_eq!(three.children[2].name, "a-0000000010");
    let path = format!("{parent}/{}", three.children[0].name);
    client.delete(&path, None).await.unwrap();
    wait_until_data(&mut list, &["second", "third"]).await;
    assert_eq!(data_of(&members.borrow()), ["second", "third"]);
}

#[tokio::test]
async fn a_deleted_node_has_no_members_and_can_be_created_again() {
    let parent = "/members-of-nothing";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let mut list = zookeeper.members(parent);
    let mut receiver = list.receiver();
    let member = format!("{parent}/x0000000001");
    for _ in 0..3 {
        client.mkdir(parent, &PERSISTENT).await.unwrap();
        client.create(&member, b"x", &PERSISTENT).await.unwrap();
        wait_until_data(&mut receiver, &["x"]).await;
        client.delete(&member, None).await.unwrap();
        client.delete(parent, None).await.unwrap();
        wait_until_data(&mut receiver, &[]).await;
    }
    client.mkdir(parent, &PERSISTENT).await.unwrap();
    client.create(&member, b"x", &PERSISTENT).await.unwrap();
    while list.borrow().children.is_empty() {
        list.changed().await;
    }
}

#[tokio::test]
async fn changes_of_child_names_are_followed() {
    let parent = "/children";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let children = zookeeper.children(parent);
    let mut list = children.receiver();
    for name in ["BCS-MESOS-10002", "BCS-MESOS-10001", "_c_x0000000001"] {
        let path = format!("{parent}/{name}");
        client.mkdir(&path, &PERSISTENT).await.unwrap();
    }
    let all = wait_until(&mut list, |list| list.children.len() == 3).await;
    assert_eq!(all.children, ["BCS-MESOS-10001", "BCS-MESOS-10002", "_c_x0000000001"]);
    assert!(all.is_read && all.stale_reason.is_none(), "{all:?}");
}

#[tokio::test]
async fn a_list_of_members_at_an_invalid_path_reports_the_reason() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    for path in ["bcs", "", "/bcs/", "/bcs//x"] {
        let members = zookeeper.members(path);
        let state = wait_until(&mut members.receiver(), |list| list.stale_reason.is_some()).await;
        assert!(!state.is_read, "{path}");
        let reason = state.stale_reason.clone().unwrap();
        assert!(reason.contains("is not a valid node"), "{path}: {reason}");
    }
}

#[tokio::test]
async fn members_stay_listed_while_the_server_is_unavailable() {
    let mut server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let registered = other_client(server.address()).await;
    registered.mkdir("/m", &PERSISTENT).await.unwrap();
    registered.create("/m/x0000000001", b"one", &PERSISTENT).await.unwrap();
    let members = zookeeper.members("/m");
    let mut list = members.receiver();
    wait_until_data(&mut list, &["one"]).await;
    drop(registered);
    server.stop();
    let old = wait_until(&mut list, |list| list.stale_reason.is_some()).await;
    assert_eq!(data_of(&old), ["one"]);
    assert!(old.is_read, "{old:?}");
    let reason = old.stale_reason.clone().unwrap();
    assert!(reason.contains(server.address()), "{reason}");
    let unknown = zookeeper.members("/m");
    let first = wait_until(&mut unknown.receiver(), |list| list.stale_reason.is_some()).await;
    assert!(!first.is_read && first.children.is_empty(), "{first:?}");
    server.start_again();
    wait_until_data(&mut list, &["one"]).await;
    wait_until_data(&mut unknown.receiver(), &["one"]).await;
    let other = other_client(server.address()).await;
    other.create("/m/x0000000002", b"two", &PERSISTENT).await.unwrap();
    wait_until_data(&mut list, &["one", "two"]).await;
}

#[tokio::test]
async fn changes_while_there_is_no_session_are_noticed() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(impatient_config(server.address()));
    let mut list = zookeeper.members("/m");
    let client = other_client(server.address()).await;
    client.mkdir("/m", &PERSISTENT).await.unwrap();
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    client.create("/m/x0000000001", b"one", &ephemeral).await.unwrap();
    let mut receiver = list.receiver();
    wait_until_data(&mut receiver, &["one"]).await;
    let first = wait_for_session(&zookeeper, None).await;
    // Two sessions expire: the session of the client that created the node, and the session of the list. ZooKeeper then
    // removes the node, but cannot notify the list, which has no session. The list must notice the removal in its next
    // session.
    let other = client.session_id();
    server.expire(first.0);
    server.expire(other.0);
    wait_until_data(&mut receiver, &[]).await;
    wait_for_session(&zookeeper, Some(first)).await;
    let again = ZooKeeper::open(config(server.address()));
    let _registered = again.register(registration("/m", "two"));
    wait_until_data(&mut receiver, &["two"]).await;
    while data_of(&list.borrow()) != ["two"] {
        list.changed().await;
    }
}

#[tokio::test]
async fn members_stay_listed_when_the_ensemble_loses_its_leader() {
    let mut ensemble = Ensemble::start(3);
    let zookeeper = ZooKeeper::open(config(&ensemble.addresses()));
    let members = zookeeper.members("/m");
    let mut list = members.receiver();
    let registered = zookeeper.register(registration("/m", "one"));
    wait_until_data(&mut list, &["one"]).await;
    let before = registered.state();
    let leader = ensemble.wait_for_leader();
    ensemble.kill(leader);
    let old = wait_until(&mut list, |list| list.stale_reason.is_some()).await;
    assert_eq!(data_of(&old), ["one"]);
    wait_until_data(&mut list, &["one"]).await;
    let after = wait_until(&mut registered.states(), |state| state.is_registered()).await;
    assert_eq!(after, before);
    let second = zookeeper.register(registration("/m", "two"));
    wait_until_data(&mut list, &["one", "two"]).await;
    second.withdraw().await;
    wait_until_data(&mut list, &["one"]).await;
}
