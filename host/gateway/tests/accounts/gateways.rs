//! Tests of several gateways that share a database, and of a database that is unavailable for a while.

use std::{sync::Arc, time::Duration};

use admittance_bcs::routes::Permission;
use admittance_gateway::accounts::{Access, AccessTarget, AccountsError, DatabaseConfig, TokenDenied};

use crate::{
    mariadb::{self, MariaDb},
    scene::{AccountsScene, DAY, TEST_TIMEOUT, agent_report},
};

/// A change, such as a revocation, has to take effect within this time.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn revoking_a_token_at_one_gateway_ends_its_requests_at_another() {
    let scene = AccountsScene::mysql().await;
    let another = scene.another_gateway().await;
    let alice = scene.create_user("alice").await;
    let cluster = scene.create_cluster("dev", None).await;
    scene
        .accounts
        .set_access("test", &alice, &cluster, Some(Access::Permission(Permission::Write)))
        .await
        .unwrap();
    let token = scene.create_token(&alice).await;
    another
        .wait_until("the token", |directory| directory.authenticate(&token).is_ok())
        .await;
    let session = another.accounts.directory().unwrap().authenticate(&token).unwrap();
    let target = AccessTarget::Cluster(cluster.id.clone());
    let watch = |permission| another.accounts.wait_until_denied(&session, &target, permission);
    let (reading, writing) = (watch(Permission::Read), watch(Permission::Write));
    tokio::pin!(reading, writing);

    // First, the user bob is created, which must not end a request of alice. Then alice's permission is reduced to
    // `Read`, which ends her requests that need `Write`.
    scene.create_user("bob").await;
    scene
        .accounts
        .set_access("test", &alice, &cluster, Some(Access::Permission(Permission::Read)))
        .await
        .unwrap();
    let denied = tokio::select! {
        denied = tokio::time::timeout(PROMPT_TIMEOUT, &mut writing) => denied.unwrap(),
        denied = &mut reading => panic!("{denied}"),
    };
    let text = "plain:alice does not have the permission Write for the cluster plain-dev";
    assert_eq!(denied.to_string(), text);
    scene
        .accounts
        .revoke_token("test", &alice, session.token)
        .await
        .unwrap();
    assert_eq!(
        tokio::time::timeout(PROMPT_TIMEOUT, reading).await.unwrap(),
        TokenDenied::Unknown
    );
}

#[tokio::test]
async fn a_token_that_expires_ends_its_requests() {
    let scene = AccountsScene::sqlite().await;
    let alice = scene.create_user("alice").await;
    let cluster = scene.create_cluster("dev", Some(&alice)).await;
    let lifetime = Duration::from_secs(2);
    let token = scene.accounts.create_token("test", &alice, lifetime).await.unwrap();
    let session = scene
        .accounts
        .directory()
        .unwrap()
        .authenticate(token.value.0.as_bytes())
        .unwrap();
    let target = AccessTarget::Cluster(cluster.id.clone());
    let denied = scene.accounts.wait_until_denied(&session, &target, Permission::Read);
    let denied = tokio::time::timeout(PROMPT_TIMEOUT, denied).await.unwrap();
    assert_eq!(denied, TokenDenied::Expired("plain:alice".to_owned()));
}

#[tokio::test]
async fn changed_credentials_reach_all_gateways() {
    let scene = AccountsScene::mysql().await;
    let another = scene.another_gateway().await;
    let cluster = scene.create_cluster("dev", None).await;
    let token = scene.create_register_token(&cluster).await;
    another
        .wait_until("the cluster", |directory| directory.cluster(&cluster.id).is_some())
        .await;
    for (gateway, value) in [(&scene, "one"), (&another, "two")] {
        let reported = gateway.accounts.report(&cluster.id, &token, agent_report(value)).await;
        reported.unwrap();
        for other in [&scene, &another] {
            let is_there = |directory: &admittance_gateway::accounts::Directory| {
                let cluster = directory.cluster(&cluster.id);
                let credentials = cluster.and_then(|cluster| cluster.credentials.as_ref());
                credentials.is_some_and(|current| current.user_token.0 == value)
            };
            let wait = other.wait_until("the new token", is_there);
            tokio::time::timeout(PROMPT_TIMEOUT, wait).await.unwrap();
        }
    }
}

#[tokio::test]
async fn tokens_work_but_changes_fail_while_the_database_is_unavailable() {
    let mut server = tokio::task::spawn_blocking(MariaDb::start).await.unwrap();
    let database = DatabaseConfig::MySql(server.create_database().await);
    let scene = AccountsScene::start(Arc::new(tempfile::tempdir().unwrap()), database, DAY).await;
    let alice = scene.create_user("alice").await;
    let token = scene.create_token(&alice).await;
    let mut server = tokio::task::spawn_blocking(move || {
        server.stop();
        server
    })
    .await
    .unwrap();
    assert!(scene.accounts.directory().unwrap().authenticate(&token).is_ok());
    let refused = scene.accounts.create_token("test", &alice, DAY).await;
    assert!(matches!(refused, Err(AccountsError::Unavailable(_))), "{refused:?}");
    let started = std::time::Instant::now();
    while scene.accounts.stale_reason().is_none() {
        assert!(started.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(scene.accounts.directory().unwrap().authenticate(&token).is_ok());

    let server = tokio::task::spawn_blocking(move || {
        server.start_server();
        server
    })
    .await
    .unwrap();
    while scene.accounts.stale_reason().is_some() {
        assert!(started.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let more = scene.create_token(&alice).await;
    assert!(scene.accounts.directory().unwrap().authenticate(&more).is_ok());
    assert!(scene.accounts.directory().unwrap().authenticate(&token).is_ok());
    drop(server);
}

#[tokio::test]
async fn a_restored_backup_of_the_database_is_read() {
    let scene = AccountsScene::mysql().await;
    let DatabaseConfig::MySql(database) = &scene.database else {
        unreachable!("it is MySQL")
    };
    let (alice, _) = (scene.create_user("alice").await, scene.create_user("bob").await);
    let token = scene.create_token(&alice).await;
    let before = [
        "DELETE FROM admittance_users WHERE name = 'plain:bob'",
        "DELETE FROM admittance_user_tokens",
        "UPDATE admittance_state SET revision = 1 WHERE id = 1",
    ];
    mariadb::shared_server()
        .run_statements(&database.database, &before)
        .await;
    let restored = scene
        .wait_until("the backup", |directory| directory.authenticate(&token).is_err())
        .await;
    assert_eq!(restored.users().count(), 1);
    mariadb::shared_server()
        .run_statements(&database.database, &["DELETE FROM admittance_users"])
        .await;
    let refusal = scene.accounts.create_token("test", &alice, DAY).await.unwrap_err();
    assert_eq!(refusal, AccountsError::Unknown("user", "plain:alice".to_owned()));
}

#[tokio::test]
async fn a_change_is_committed_although_the_directory_cannot_be_read_again() {
    let scene = AccountsScene::mysql().await;
    let DatabaseConfig::MySql(database) = &scene.database else {
        unreachable!("it is MySQL")
    };
    let (alice, before) = (scene.create_user("alice").await, scene.accounts.directory().unwrap());
    let unreadable = "INSERT INTO admittance_users (name, is_super_user, user_groups, created_at) \
                      VALUES ('unreadable', 0, '', 0)";
    mariadb::shared_server()
        .run_statements(&database.database, &[unreadable])
        .await;
    let token = scene.create_token(&alice).await;
    let stale_directory = scene.accounts.directory().unwrap();
    assert!(Arc::ptr_eq(&stale_directory, &before) && stale_directory.authenticate(&token).is_err());
    let started = std::time::Instant::now();
    while scene.accounts.stale_reason().is_none() {
        assert!(started.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let problem = scene.accounts.stale_reason().unwrap();
    assert!(problem.contains("invalid value"), "{problem}");

    let repair = "DELETE FROM admittance_users WHERE name = 'unreadable'";
    mariadb::shared_server()
        .run_statements(&database.database, &[repair])
        .await;
    scene
        .wait_until("the token", |directory| directory.authenticate(&token).is_ok())
        .await;
    while scene.accounts.stale_reason().is_some() {
        assert!(started.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
