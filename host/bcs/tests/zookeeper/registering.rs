//! Tests of registrations in ZooKeeper, which are ephemeral nodes.

use admittance_bcs::zookeeper::{HeldRegistration, NodeRegistration, RegistrationState, ZooKeeper};
use zookeeper_client::Client;

use crate::{
    ensemble::{TestZooKeeper, shared_server_address},
    interruption::{BreakMoment, Interruption},
    scene::{config, other_client, registration, wait_for_session, wait_until, with_test_timeout},
};

async fn registered_path(registered: &HeldRegistration) -> String {
    match wait_until(&mut registered.states(), RegistrationState::is_registered).await {
        RegistrationState::Registered { path } => path,
        state => panic!("{state:?}"),
    }
}

async fn path_other_than(registered: &HeldRegistration, before: &str) -> String {
    let is_expected =
        |state: &RegistrationState| matches!(state, RegistrationState::Registered { path } if path != before);
    wait_until(&mut registered.states(), is_expected).await;
    registered_path(registered).await
}

async fn child_names(client: &Client, parent: &str) -> Vec<String> {
    client.list_children(parent).await.unwrap()
}

#[tokio::test]
async fn a_registered_node_has_the_name_that_bcs_gives_it() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let registered = zookeeper.register(registration("/form/of/nodes", "x"));
    let path = registered_path(&registered).await;
    let name = path.strip_prefix("/form/of/nodes/_c_").unwrap();
    let (identity, rest) = name.split_at(32);
    assert!(identity.bytes().all(|byte| byte.is_ascii_hexdigit()), "{path}");
    assert_eq!(rest, "-10.0.0.5:80900000000000");
    let client = zookeeper.client().await.unwrap();
    let (data, stat) = client.get_data(&path).await.unwrap();
    assert_eq!(data, b"x");
    assert_eq!(stat.ephemeral_owner, client.session_id().0);
    for parent in ["/form", "/form/of", "/form/of/nodes"] {
        let (data, stat) = client.get_data(parent).await.unwrap();
        assert_eq!((data.len(), stat.ephemeral_owner), (0, 0), "{parent}");
    }
}

#[tokio::test]
async fn an_expired_session_loses_its_node_and_the_next_session_creates_another() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let registered = zookeeper.register(registration("/r", "x"));
    let first = registered_path(&registered).await;
    let before = wait_for_session(&zookeeper, None).await;
    server.expire(before.0);
    let second = path_other_than(&registered, &first).await;
    assert_ne!(wait_for_session(&zookeeper, None).await, before);
    let client = zookeeper.client().await.unwrap();
    assert_eq!(child_names(&client, "/r").await, [second.strip_prefix("/r/").unwrap()]);
}

#[tokio::test]
async fn a_registered_node_survives_a_restart_of_the_server() {
    let mut server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let registered = zookeeper.register(registration("/r", "x"));
    let first = registered_path(&registered).await;
    server.stop();
    let missing = wait_until(&mut registered.states(), |state| !state.is_registered()).await;
    assert!(format!("{missing:?}").contains(server.address()), "{missing:?}");
    server.start_again();
    assert_eq!(registered_path(&registered).await, first);
    let client = zookeeper.client().await.unwrap();
    assert_eq!(child_names(&client, "/r").await.len(), 1);
}

#[tokio::test]
async fn a_deleted_node_is_created_again() {
    let parent = "/deleted";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let registered = zookeeper.register(registration(parent, "x"));
    let mut before = registered_path(&registered).await;
    for _ in 0..3 {
        client.delete(&before, None).await.unwrap();
        before = path_other_than(&registered, &before).await;
        assert_eq!(child_names(&client, parent).await.len(), 1);
    }
}

#[tokio::test]
async fn overwritten_data_of_a_registered_node_is_restored() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let registered = zookeeper.register(registration("/overwritten", "x"));
    let path = registered_path(&registered).await;
    client.set_data(&path, b"y", None).await.unwrap();
    with_test_timeout(async {
        loop {
            let (data, _, changed) = client.get_and_watch_data(&path).await.unwrap();
            if data == b"x" {
                break;
            }
            changed.changed().await;
        }
    })
    .await;
    assert_eq!(registered.state(), RegistrationState::Registered { path });
}

#[tokio::test]
async fn a_withdrawn_registration_has_no_node() {
    let parent = "/withdrawn";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let stays = zookeeper.register(registration(parent, "stays"));
    let stays = registered_path(&stays).await;
    assert!(client.check_stat(&stays).await.unwrap().is_some());
    let registered = zookeeper.register(registration(parent, "x"));
    let path = registered_path(&registered).await;
    let mut states = registered.states();
    registered.withdraw().await;
    assert_eq!(client.check_stat(&path).await, Ok(None));
    assert!(!states.borrow_and_update().is_registered());
}

#[tokio::test]
async fn a_registered_node_exists_only_while_it_is_wanted() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let registered = zookeeper.register_later(registration("/present", "x"));
    let absent = async || {
        let is_told = |state: &RegistrationState| matches!(state, RegistrationState::Missing { reason, .. } if reason.contains("the others serve"));
        wait_until(&mut registered.states(), is_told).await;
        match client.list_children("/present").await {
            Ok(names) => assert!(names.is_empty(), "{names:?}"),
            Err(error) => assert_eq!(error, zookeeper_client::Error::NoNode),
        }
    };
    absent().await;
    let mut before = String::new();
    for data in ["x", "y"] {
        registered.update(data.into());
        registered.set_present(true);
        let path = path_other_than(&registered, &before).await;
        assert_eq!(client.get_data(&path).await.unwrap().0, data.as_bytes());
        registered.set_present(false);
        absent().await;
        before = path;
    }
}

#[tokio::test]
async fn a_registration_in_progress_can_be_withdrawn() {
    let parent = "/hardly";
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    wait_for_session(&zookeeper, None).await;
    for turns in 0..40 {
        let registered = zookeeper.register(registration(parent, "x"));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        registered.withdraw().await;
        let client = zookeeper.client().await.unwrap();
        let remaining_nodes = client.list_children(parent).await.unwrap_or_default();
        assert!(remaining_nodes.is_empty(), "after {turns}: {remaining_nodes:?}");
    }
}

#[tokio::test]
async fn a_dropped_registration_has_no_node() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let client = other_client(shared_server_address()).await;
    let registered = zookeeper.register(registration("/dropped", "x"));
    let path = registered_path(&registered).await;
    let (_, node_watcher) = client.check_and_watch_stat(&path).await.unwrap();
    drop(registered);
    with_test_timeout(node_watcher.changed()).await;
    assert_eq!(client.check_stat(&path).await, Ok(None));
}

#[tokio::test]
async fn withdrawing_a_registration_ends_even_without_a_response() {
    let server = TestZooKeeper::start();
    let zookeeper = ZooKeeper::open(config(server.address()));
    let registered = zookeeper.register(registration("/r", "x"));
    registered_path(&registered).await;
    server.suspend();
    with_test_timeout(registered.withdraw()).await;
}

#[tokio::test]
async fn a_node_is_created_once_however_the_connection_breaks() {
    for (moment, parent) in [
        (BreakMoment::RequestSent, "/asked"),
        (BreakMoment::NodeCreated, "/done"),
    ] {
        let client = other_client(shared_server_address()).await;
        let options = crate::scene::PERSISTENT;
        client.mkdir(parent, &options).await.unwrap();
        let interruption = Interruption::start(shared_server_address(), moment).await;
        let zookeeper = ZooKeeper::open(config(interruption.address()));
        let before = wait_for_session(&zookeeper, None).await;
        let registered = zookeeper.register(registration(parent, "x"));
        let path = registered_path(&registered).await;
        assert!(interruption.was_broken(), "{moment:?}");
        assert_eq!(wait_for_session(&zookeeper, None).await, before, "{moment:?}");
        // `cversion` counts how often the children of the node have changed. It is 1, so only one child was ever
        // created.
        let (names, stat) = client.get_children(parent).await.unwrap();
        assert_eq!(names, [path.rsplit_once('/').unwrap().1], "{moment:?}");
        assert_eq!(stat.cversion, 1, "{moment:?}");
    }
}

#[tokio::test]
async fn a_missing_root_node_is_reported() {
    let servers = format!("{}/below/this", shared_server_address());
    let zookeeper = ZooKeeper::open(config(&servers));
    let registered = zookeeper.register(registration("/parent", "x"));
    let missed = wait_until(
        &mut registered.states(),
        |state| matches!(state, RegistrationState::Missing { reason, .. } if reason.contains("create it")),
    )
    .await;
    assert!(format!("{missed:?}").contains(&servers), "{missed:?}");
    let client = other_client(shared_server_address()).await;
    client.mkdir("/below/this", &crate::scene::PERSISTENT).await.unwrap();
    let path = registered_path(&registered).await;
    let full_path = format!("/below/this{path}");
    assert!(client.check_stat(&full_path).await.unwrap().is_some(), "{full_path}");
    let members = zookeeper.members("/parent");
    wait_until(&mut members.receiver(), |list| list.children.len() == 1).await;
}

#[tokio::test]
async fn a_registration_with_an_invalid_node_name_is_reported() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    for (parent, name) in [("r", "x"), ("/r/", "x"), ("/r", ""), ("/r", "a/b"), ("/r", "a\n")] {
        let registered = zookeeper.register(NodeRegistration {
            parent: parent.to_owned(),
            name: name.to_owned(),
            data: Default::default(),
        });
        let is_reported = |state: &RegistrationState| matches!(state, RegistrationState::Missing { reason, .. } if reason.contains("is not a valid node"));
        wait_until(&mut registered.states(), is_reported).await;
    }
}
