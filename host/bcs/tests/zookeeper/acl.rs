//! Tests of the access lists of the nodes that this program creates.

use admittance_bcs::zookeeper::{EnsembleConfig, RegistrationState, ZooKeeper, ZooKeeperDigest};
use zookeeper_client::{Error, Permission};

use crate::{
    ensemble::shared_server_address,
    scene::{config, data_of, other_client, registration, wait_until},
};

fn config_of_user(password: &str) -> EnsembleConfig {
    EnsembleConfig {
        digest: Some(ZooKeeperDigest::new("bcs", password)),
        ..config(shared_server_address())
    }
}

async fn registered_path(zookeeper: &ZooKeeper, parent: &str) -> (admittance_bcs::zookeeper::HeldRegistration, String) {
    let registered = zookeeper.register(registration(parent, "x"));
    let state = wait_until(&mut registered.states(), RegistrationState::is_registered).await;
    let RegistrationState::Registered { path } = state else {
        panic!("{state:?}");
    };
    (registered, path)
}

#[tokio::test]
async fn only_the_user_that_created_a_node_may_use_it() {
    let zookeeper = ZooKeeper::open(config_of_user("secret"));
    let (registered, path) = registered_path(&zookeeper, "/acl/of/user").await;
    let client = zookeeper.client().await.unwrap();
    for path in [path.as_str(), "/acl/of/user", "/acl/of"] {
        let (acl, _) = client.get_acl(path).await.unwrap();
        let [entry] = acl.as_slice() else {
            panic!("{path}: {acl:?}");
        };
        assert_eq!(entry.permission(), Permission::ALL, "{path}");
        assert_eq!(entry.scheme(), "digest", "{path}");
        // This text is the output of `echo -n bcs:secret | openssl dgst -sha1 -binary | base64`.
        assert_eq!(entry.id(), "bcs:igeWmHgCsZ6YHXQ9z1LrTZyu4yc=", "{path}");
    }
    let anonymous = other_client(shared_server_address()).await;
    assert_eq!(anonymous.get_data(&path).await.unwrap_err(), Error::NoAuth);
    let same_user = ZooKeeper::open(config_of_user("secret"));
    let members = same_user.members("/acl/of/user");
    let list = wait_until(&mut members.receiver(), |list| list.is_read).await;
    assert_eq!(data_of(&list), ["x"]);
    registered.withdraw().await;
    assert_eq!(client.check_stat(&path).await, Ok(None));
}

#[tokio::test]
async fn other_users_are_refused_with_a_reason() {
    let owner = ZooKeeper::open(config_of_user("secret"));
    let _registered = registered_path(&owner, "/acl/of/ours").await;
    for config in [config_of_user("another"), config(shared_server_address())] {
        let other_user = ZooKeeper::open(config);
        let members = other_user.members("/acl/of/ours");
        let list = wait_until(&mut members.receiver(), |list| {
            list.stale_reason
                .as_ref()
                .is_some_and(|reason| reason.contains("not allowed"))
        })
        .await;
        assert!(list.stale_reason.as_ref().unwrap().contains("/acl/of/ours"), "{list:?}");
        assert!(!list.is_read, "{list:?}");
        let refused = other_user.register(registration("/acl/of/ours", "y"));
        wait_until(
            &mut refused.states(),
            |state| matches!(state, RegistrationState::Missing { reason, .. } if reason.contains("not allowed")),
        )
        .await;
    }
}

#[tokio::test]
async fn nodes_that_are_created_without_a_user_are_open_to_everyone() {
    let zookeeper = ZooKeeper::open(config(shared_server_address()));
    let (_registered, path) = registered_path(&zookeeper, "/open/to/anyone").await;
    let anonymous = other_client(shared_server_address()).await;
    for path in [path.as_str(), "/open/to/anyone", "/open"] {
        let (acl, _) = anonymous.get_acl(path).await.unwrap();
        let [entry] = acl.as_slice() else {
            panic!("{path}: {acl:?}");
        };
        assert_eq!((entry.scheme(), entry.id()), ("world", "anyone"), "{path}");
        assert_eq!(entry.permission(), Permission::ALL, "{path}");
    }
}

#[test]
fn debug_output_of_a_zookeeper_user_does_not_contain_the_password() {
    let debug_text = format!("{:?}", ZooKeeperDigest::new("bcs", "secret"));
    assert!(
        debug_text.contains("bcs") && !debug_text.contains("secret"),
        "{debug_text}"
    );
}
