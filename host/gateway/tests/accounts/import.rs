use admittance_bcs::routes::Permission;
use admittance_gateway::accounts::{
    Access, AccountsError, ClusterType, DatabaseConfig, ImportedAccounts, RegisteredCluster, TokenDenied, TokenId,
    UserId, UserName,
};

use crate::{
    mariadb,
    scene::{AccountsScene, DAY},
};

/// SQL that creates the tables as gorm does, with rows that bcs-api writes.
const ORIGINAL_STATEMENTS: [&str; 16] = [
    "CREATE TABLE users (id int unsigned AUTO_INCREMENT PRIMARY KEY, name varchar(255) NOT NULL UNIQUE, \
     is_super_user tinyint(1), backend_type varchar(255), backend_credentials text, created_at timestamp NULL)",
    "CREATE TABLE user_tokens (id int unsigned AUTO_INCREMENT PRIMARY KEY, user_id int unsigned NOT NULL, \
     type int unsigned, value varchar(64) UNIQUE, expires_at timestamp NULL, created_at timestamp NULL)",
    "CREATE TABLE clusters (id varchar(255) PRIMARY KEY, provider int unsigned, creator_id int unsigned, \
     identifier varchar(128), created_at timestamp NULL)",
    "CREATE TABLE bcs_cluster_infos (id int unsigned AUTO_INCREMENT PRIMARY KEY, cluster_id varchar(255) NOT NULL, \
     source_project_id varchar(32), source_cluster_id varchar(100), cluster_type int unsigned)",
    "CREATE TABLE cluster_credentials (id int unsigned AUTO_INCREMENT PRIMARY KEY, cluster_id varchar(255) UNIQUE, \
     server_addresses varchar(2048), ca_cert_data varchar(4096), user_token varchar(2048), \
     cluster_domain varchar(2048))",
    "CREATE TABLE register_tokens (id int unsigned AUTO_INCREMENT PRIMARY KEY, cluster_id varchar(255) UNIQUE, \
     token varchar(256), created_at timestamp NULL)",
    "CREATE TABLE user_cluster_permissions (id int unsigned AUTO_INCREMENT PRIMARY KEY, backend int unsigned, \
     user_id int unsigned, cluster_id varchar(255), name varchar(255), is_active tinyint(1))",
    "INSERT INTO users (id, name, is_super_user) VALUES (1, 'plain:root', 1), (5, 'plain:alice', 0), \
     (6, 'plain:b/b', 0), (7, 'admin', 1)",
    "INSERT INTO user_tokens (id, user_id, type, value, expires_at) VALUES \
     (11, 1, 3, 'rootstokenrootstokenrootstoken12', NOW() + INTERVAL 10 YEAR), \
     (12, 5, 3, 'alicestokenalicestokenalicestok1', NOW() + INTERVAL 1 DAY), \
     (13, 5, 1, 'oldtokenoldtokenoldtokenoldtoken', NOW() - INTERVAL 1 DAY), \
     (14, 7, 1, 'bootstrapbootstrapbootstrapboot1', NOW() + INTERVAL 1 DAY)",
    "INSERT INTO clusters (id, provider, creator_id, identifier, created_at) VALUES \
     ('plain-dev', 1, 5, 'plain-dev-AbCdEfGh12345678', NULL), \
     ('bcs-bcs-k8s-1-k3f9x2ab', 2, 1, 'bcs-bcs-k8s-1-k3f9x2ab-0123456789abcdef', FROM_UNIXTIME(1577934245)), \
     ('fixture', 3, 1, 'fixture', NULL)",
    "INSERT INTO bcs_cluster_infos (cluster_id, source_project_id, source_cluster_id, cluster_type) VALUES \
     ('bcs-bcs-k8s-1-k3f9x2ab', 'b37778ec757544868a01e1f01f07037f', 'BCS-K8S-1', 1)",
    "INSERT INTO cluster_credentials (cluster_id, server_addresses, ca_cert_data, user_token, cluster_domain) VALUES \
     ('plain-dev', 'https://10.0.0.1:6443,https://10.0.0.2:6443', '-----BEGIN CERTIFICATE-----', 'serviceaccount', NULL), \
     ('bcs-bcs-k8s-1-k3f9x2ab', 'http://127.0.0.1:9090', 'PEM', 'serviceaccount', NULL)",
    "INSERT INTO register_tokens (cluster_id, token) VALUES ('plain-dev', 'registertoken')",
    "INSERT INTO user_cluster_permissions (backend, user_id, cluster_id, name, is_active) VALUES \
     (1, 5, 'bcs-bcs-k8s-1-k3f9x2ab', 'cluster-view', 1), (1, 5, 'bcs-bcs-k8s-1-k3f9x2ab', 'cluster-edit', 1)",
    "INSERT INTO user_cluster_permissions (backend, user_id, cluster_id, name, is_active) VALUES \
     (1, 5, 'plain-dev', 'cluster-destroy', 1)",
    "INSERT INTO user_cluster_permissions (backend, user_id, cluster_id, name, is_active) VALUES \
     (1, 1, 'plain-dev', 'cluster-view', 0)",
];

/// Returns a gateway whose database contains the tables of bcs-api, changed by these statements.
async fn scene_with_tables(changes: &[&'static str]) -> AccountsScene {
    let scene = AccountsScene::mysql().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
    let authority =
        format!("UPDATE cluster_credentials SET ca_cert_data = '{authority}' WHERE cluster_id = 'plain-dev'");
    let statements = [&ORIGINAL_STATEMENTS[..], &[authority.leak()], changes].concat();
    mariadb::shared_server()
        .run_statements(database_name(&scene), &statements)
        .await;
    scene
}

fn database_name(scene: &AccountsScene) -> &str {
    match &scene.database {
        DatabaseConfig::MySql(config) => &config.database,
        DatabaseConfig::Sqlite(_) => unreachable!("it is MySQL"),
    }
}

#[tokio::test]
async fn users_tokens_and_clusters_of_bcs_api_keep_their_ids() {
    let scene = scene_with_tables(&[]).await;
    let accounts = &scene.accounts;
    let outcome = accounts.import("test", &[]).await.unwrap();
    assert_eq!(
        (
            outcome.users,
            outcome.tokens,
            outcome.clusters,
            outcome.credentials,
            outcome.register_tokens,
            outcome.permissions
        ),
        (3, 3, 2, 1, 1, 1),
        "{outcome:?}"
    );
    assert_eq!(outcome.skipped.len(), 4, "{outcome:?}");

    let directory = accounts.directory().unwrap();
    let session_of = |token: &str| directory.authenticate(token.as_bytes());
    let root_session = session_of("rootstokenrootstokenrootstoken12").unwrap();
    assert!(root_session.user.is_super_user && root_session.user.name.as_str() == "plain:root");
    assert_eq!((root_session.user.id, root_session.token), (UserId(1), TokenId(11)));
    let session = session_of("alicestokenalicestokenalicestok1").unwrap();
    let alice = session.user;
    assert_eq!((alice.id, session.token), (UserId(5), TokenId(12)));
    // In bcs-api, this user is one of `bootstrap_users` and has the name `admin`. The import has added the kind
    // `plain`.
    let bootstrap_session = session_of("bootstrapbootstrapbootstrapboot1").unwrap();
    assert_eq!(
        (bootstrap_session.user.id, bootstrap_session.user.name.as_str()),
        (UserId(7), "plain:admin")
    );
    let expired = session_of("oldtokenoldtokenoldtokenoldtoken");
    assert_eq!(expired.unwrap_err(), TokenDenied::Unknown);
    let plain_cluster = directory.cluster_by_identifier("plain-dev-AbCdEfGh12345678").unwrap();
    assert_eq!(plain_cluster.creator, alice.id);
    let credentials = plain_cluster.credentials.as_ref().unwrap();
    assert_eq!(credentials.user_token.0, "serviceaccount");
    assert_eq!(credentials.server_addresses.len(), 2);
    assert!(directory.authenticate_agent("plain-dev", b"registertoken").is_ok());
    let bcs_cluster = directory.cluster("bcs-bcs-k8s-1-k3f9x2ab").unwrap();
    let info = bcs_cluster.bcs.as_ref().unwrap();
    assert_eq!(
        (info.cluster_id.as_str(), info.kind),
        ("BCS-K8S-1", ClusterType::Kubernetes)
    );
    assert_eq!(bcs_cluster.created_at.to_string(), "2020-01-02T03:04:05.000Z");
    // bcs-api has stored an address on the gateway's own machine for this cluster. The gateway does not accept such
    // addresses from agents, so the import has not copied the credentials.
    assert!(bcs_cluster.credentials.is_none());
    assert_eq!(directory.permission(&alice, bcs_cluster), Some(Permission::Write));

    // bcs-api has several types of tokens. One of the tokens that were imported for alice is a plain token, and a
    // platform that requests a token for alice gets this one.
    let token = accounts.get_or_create_token("test", &alice, DAY).await.unwrap();
    assert_eq!(
        (token.id, token.value.0.as_str()),
        (TokenId(12), "alicestokenalicestokenalicestok1")
    );
    let token = accounts
        .get_or_create_token("test", &bootstrap_session.user, DAY)
        .await
        .unwrap();
    assert_ne!(token.value.0, "bootstrapbootstrapbootstrapboot1");
}

#[tokio::test]
async fn importing_again_copies_only_new_rows_and_restores_no_deleted_ones() {
    let scene = scene_with_tables(&[]).await;
    let accounts = &scene.accounts;
    accounts.import("test", &[]).await.unwrap();
    let revision_before = revision(&scene).await;
    let second_outcome = accounts.import("test", &[]).await.unwrap();
    let empty_outcome = ImportedAccounts {
        skipped: second_outcome.skipped.clone(),
        ..ImportedAccounts::default()
    };
    assert_eq!(second_outcome, empty_outcome);
    assert_eq!(revision(&scene).await, revision_before, "it changed the database");

    let directory = accounts.directory().unwrap();
    let alice = directory.user(UserId(5)).unwrap();
    accounts.revoke_token("test", alice, TokenId(12)).await.unwrap();
    accounts.delete_user("test", "plain:root").await.unwrap();
    accounts.delete_cluster("test", "plain-dev").await.unwrap();
    mariadb::shared_server()
        .run_statements(
            database_name(&scene),
            &[
                "INSERT INTO users (id, name) VALUES (9, 'plain:carol')",
                "INSERT INTO user_tokens (id, user_id, type, value, expires_at) VALUES \
                 (31, 5, 1, 'newtokennewtokennewtokennewtoken', NOW() + INTERVAL 1 DAY)",
            ],
        )
        .await;
    let third_outcome = accounts.import("test", &[]).await.unwrap();
    assert_eq!(
        (third_outcome.users, third_outcome.tokens, third_outcome.clusters),
        (1, 1, 0)
    );
    let directory = accounts.directory().unwrap();
    for removed_token in ["alicestokenalicestokenalicestok1", "rootstokenrootstokenrootstoken12"] {
        assert_eq!(
            directory.authenticate(removed_token.as_bytes()).unwrap_err(),
            TokenDenied::Unknown
        );
    }
    assert!(directory.cluster("plain-dev").is_none());
    let session = directory.authenticate(b"newtokennewtokennewtokennewtoken").unwrap();
    assert_eq!(session.user.id, UserId(5));
}

#[tokio::test]
async fn a_conflicting_import_reports_the_conflicts_and_imports_nothing() {
    let scene = scene_with_tables(&[
        "INSERT INTO users (id, name) VALUES (8, 'plain:admin')",
        "INSERT INTO clusters (id, provider, creator_id, identifier) VALUES ('plain-stage', 1, 5, 'plain-stage-x')",
    ])
    .await;
    let accounts = &scene.accounts;
    let dan = scene.create_user("dan").await;
    let alice = scene.create_user("alice").await;
    let stage = scene.create_cluster("stage", None).await;
    let revision_before = revision(&scene).await;
    let refused = accounts.import("test", &[]).await.unwrap_err();
    let AccountsError::ImportConflicts(conflicts) = &refused else {
        panic!("{refused:?}")
    };
    let expected = [
        format!(
            "cluster plain-stage of bcs-api, with the identifier plain-stage-x, has the ID of the cluster plain-stage \
             here, with the identifier {}",
            stage.identifier
        ),
        "user 1 of bcs-api is plain:root, and user 1 here is plain:dan".to_owned(),
        "user 5 of bcs-api is plain:alice, and user 2 here is plain:alice".to_owned(),
        "users 7 and 8 of bcs-api are both plain:admin here: rename one of them in its table `users`".to_owned(),
    ];
    assert_eq!(conflicts, &expected);
    let text = refused.to_string();
    assert!(text.contains("--replace"), "{text}");
    assert_eq!(revision(&scene).await, revision_before, "it changed the database");
    let directory = accounts.directory().unwrap();
    assert_eq!(directory.users().collect::<Vec<_>>(), [&dan, &alice]);
}

#[tokio::test]
async fn conflicting_users_are_replaced_only_on_request() {
    let scene = scene_with_tables(&[]).await;
    let accounts = &scene.accounts;
    let dan = scene.create_user("dan").await;
    let alice = scene.create_user("alice").await;
    let bystander = scene.create_user("carol").await;
    let (dans_token, alices_token) = (scene.create_token(&dan).await, scene.create_token(&alice).await);
    let (dans_cluster, alices_cluster) = (
        scene.create_cluster("first", Some(&dan)).await,
        scene.create_cluster("second", Some(&alice)).await,
    );
    accounts
        .set_access(
            "test",
            &alice,
            &dans_cluster,
            Some(Access::Permission(Permission::Hooks)),
        )
        .await
        .unwrap();
    let replaced_names = ["dan", "alice", "carol", "nobody"].map(|name| UserName::plain(name).unwrap());
    let outcome = accounts.import("test", &replaced_names).await.unwrap();
    assert_eq!(outcome.replaced, ["plain:dan", "plain:alice"]);
    let directory = accounts.directory().unwrap();
    for replaced_token in [&dans_token, &alices_token] {
        assert_eq!(
            directory.authenticate(replaced_token).unwrap_err(),
            TokenDenied::Unknown
        );
    }
    assert_eq!(directory.user(UserId(1)).unwrap().name.as_str(), "plain:root");
    assert_eq!(directory.user(bystander.id), Some(&bystander));
    let alice = directory.user(UserId(5)).unwrap();
    assert_eq!(alice.name.as_str(), "plain:alice");
    let current_cluster = |cluster: &RegisteredCluster| directory.cluster(&cluster.id).unwrap().clone();
    assert_eq!(current_cluster(&dans_cluster).creator, UserId::UNASSIGNED);
    assert_eq!(current_cluster(&alices_cluster).creator, alice.id);
    assert_eq!(
        directory.permission(alice, &current_cluster(&dans_cluster)),
        Some(Permission::Hooks)
    );
    let second_outcome = accounts.import("test", &replaced_names).await.unwrap();
    assert!(
        second_outcome.replaced.is_empty() && second_outcome.users == 0,
        "{second_outcome:?}"
    );
}

#[tokio::test]
async fn credentials_with_an_unusable_ca_are_not_imported() {
    let scene = scene_with_tables(&[
        "UPDATE cluster_credentials SET ca_cert_data = '-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----' \
         WHERE cluster_id = 'plain-dev'",
    ])
    .await;
    let outcome = scene.accounts.import("test", &[]).await.unwrap();
    let skipped = outcome.skipped.join("\n");
    assert!(
        outcome.credentials == 0 && skipped.contains("credentials of plain-dev: cacert_data: "),
        "{skipped}"
    );
}

#[tokio::test]
async fn importing_again_copies_new_tokens_and_credentials_of_clusters() {
    let scene = scene_with_tables(&[
        "CREATE TABLE kept AS SELECT * FROM cluster_credentials",
        "DELETE FROM cluster_credentials",
    ])
    .await;
    let accounts = &scene.accounts;
    assert_eq!(accounts.import("test", &[]).await.unwrap().credentials, 0);
    let later_statements = [
        "INSERT INTO cluster_credentials SELECT * FROM kept",
        "INSERT INTO register_tokens (cluster_id, token) VALUES ('bcs-bcs-k8s-1-k3f9x2ab', 'latertoken')",
    ];
    mariadb::shared_server()
        .run_statements(database_name(&scene), &later_statements)
        .await;
    let second_outcome = accounts.import("test", &[]).await.unwrap();
    assert_eq!(
        (
            second_outcome.clusters,
            second_outcome.credentials,
            second_outcome.register_tokens
        ),
        (0, 1, 1),
        "{second_outcome:?}"
    );
    let is_valid = |token: &[u8]| {
        let directory = accounts.directory().unwrap();
        directory.authenticate_agent("bcs-bcs-k8s-1-k3f9x2ab", token).is_ok()
    };
    assert!(is_valid(b"latertoken"));
    let directory = accounts.directory().unwrap();
    let cluster = directory.cluster("bcs-bcs-k8s-1-k3f9x2ab").unwrap();
    accounts.revoke_register_token("test", cluster).await.unwrap();
    let last_outcome = accounts.import("test", &[]).await.unwrap();
    assert_eq!(
        (last_outcome.credentials, last_outcome.register_tokens),
        (0, 0),
        "{last_outcome:?}"
    );
    assert!(!is_valid(b"latertoken"));
}

async fn revision(scene: &AccountsScene) -> i64 {
    let mut connection = mariadb::shared_server().connect(database_name(scene)).await;
    let revision = sqlx::query_scalar("SELECT revision FROM admittance_state");
    revision.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn an_import_without_the_tables_of_bcs_api_is_refused() {
    let scene = AccountsScene::sqlite().await;
    let refused = scene.accounts.import("test", &[]).await.unwrap_err();
    assert!(refused.to_string().contains("accounts.mysql"), "{refused}");
    let scene = AccountsScene::mysql().await;
    let refused = scene.accounts.import("test", &[]).await;
    assert!(matches!(refused, Err(AccountsError::Unavailable(_))), "{refused:?}");
}
