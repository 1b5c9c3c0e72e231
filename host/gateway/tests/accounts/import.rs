use admittance_bcs::routes::Permission;
use admittance_gateway::accounts::{AccountsError, ClusterKind, DatabaseConfig, Denied};

use crate::{mariadb, scene::Scene};

/// The tables as gorm makes them, and what bcs-api writes.
const ORIGINAL: [&str; 16] = [
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
     (6, 'plain:b/b', 0)",
    "INSERT INTO user_tokens (user_id, type, value, expires_at) VALUES \
     (1, 3, 'rootstokenrootstokenrootstoken12', NOW() + INTERVAL 10 YEAR), \
     (5, 3, 'alicestokenalicestokenalicestok1', NOW() + INTERVAL 1 DAY), \
     (5, 1, 'oldtokenoldtokenoldtokenoldtoken', NOW() - INTERVAL 1 DAY)",
    "INSERT INTO clusters (id, provider, creator_id, identifier) VALUES \
     ('plain-dev', 1, 5, 'plain-dev-AbCdEfGh12345678'), \
     ('bcs-bcs-k8s-1-k3f9x2ab', 2, 1, 'bcs-bcs-k8s-1-k3f9x2ab-0123456789abcdef'), \
     ('fixture', 3, 1, 'fixture')",
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

#[tokio::test]
async fn what_bcs_api_has_is_copied_once() {
    let scene = Scene::mysql().await;
    let DatabaseConfig::MySql(database) = &scene.database else {
        unreachable!("it is MySQL")
    };
    let accounts = &scene.accounts;
    // Numbers of users are others here.
    scene.user("somebody").await;
    mariadb::shared().run(&database.database, &ORIGINAL).await;
    let done = accounts.import("test").await.unwrap();
    assert_eq!(
        (
            done.users,
            done.tokens,
            done.clusters,
            done.credentials,
            done.register_tokens,
            done.permissions
        ),
        (2, 2, 2, 1, 1, 1),
        "{done:?}"
    );
    assert_eq!(done.skipped.len(), 4, "{done:?}");

    let directory = accounts.now().unwrap();
    let root = directory
        .authenticate(b"rootstokenrootstokenrootstoken12")
        .unwrap()
        .user;
    assert!(root.is_super_user && root.name.as_str() == "plain:root");
    let alice = directory
        .authenticate(b"alicestokenalicestokenalicestok1")
        .unwrap()
        .user;
    let old = directory.authenticate(b"oldtokenoldtokenoldtokenoldtoken");
    assert_eq!(old.unwrap_err(), Denied::Unknown);
    let plain = directory.by_identifier("plain-dev-AbCdEfGh12345678").unwrap();
    assert_eq!(plain.creator, alice.id);
    let credentials = plain.credentials.as_ref().unwrap();
    assert_eq!(credentials.user_token.0, "serviceaccount");
    assert_eq!(credentials.server_addresses.len(), 2);
    assert!(directory.agent("plain-dev", b"registertoken").is_ok());
    let bcs = directory.cluster("bcs-bcs-k8s-1-k3f9x2ab").unwrap();
    let info = bcs.bcs.as_ref().unwrap();
    assert_eq!(
        (info.cluster_id.as_str(), info.kind),
        ("BCS-K8S-1", ClusterKind::Kubernetes)
    );
    // The address would be the gateway's own machine.
    assert!(bcs.credentials.is_none());
    assert_eq!(directory.permission(&alice, bcs), Some(Permission::Write));

    let again = accounts.import("test").await.unwrap();
    assert_eq!(
        (again.users, again.tokens, again.clusters, again.credentials),
        (0, 0, 0, 0)
    );
}

#[tokio::test]
async fn there_is_nothing_to_import_without_the_tables() {
    let scene = Scene::sqlite().await;
    let refused = scene.accounts.import("test").await.unwrap_err();
    assert!(refused.to_string().contains("accounts.mysql"), "{refused}");
    let scene = Scene::mysql().await;
    let refused = scene.accounts.import("test").await;
    assert!(
        matches!(refused, Err(AccountsError::Unavailable(_))),
        "{refused:?}"
    );
}
