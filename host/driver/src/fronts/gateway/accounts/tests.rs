use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use admittance_gateway::{
    GatewayConfig,
    accounts::{AccountsConfig, DatabaseConfig},
};

use crate::Config;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

fn read_accounts_config(text: &str) -> Result<AccountsConfig, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text, mode) in [
        ("key", KEY, 0o600),
        ("open", KEY, 0o644),
        ("short", "AAEC\n", 0o600),
        ("password", "secret\n", 0o600),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = directory.path().join("admittance.yaml");
    fs::write(&path, format!("dialect: {{ gateway: {{ accounts: {text} }} }}")).unwrap();
    let config = Config::read(&path).map_err(|mistakes| {
        let messages = mistakes
            .iter()
            .map(|mistake| format!("{}: {} {}", mistake.path, mistake.message, mistake.fix));
        messages.collect::<Vec<_>>()
    })?;
    let gateway = config.front.downcast_ref::<GatewayConfig>().unwrap();
    Ok(*gateway.accounts.clone().unwrap())
}

#[test]
fn an_sqlite_database_for_accounts_needs_only_a_file() {
    let accounts = read_accounts_config("{ sqlite: accounts.db }").unwrap();
    let DatabaseConfig::Sqlite(path) = &accounts.database else {
        panic!("{accounts:?}")
    };
    assert!(path.ends_with("accounts.db"));
    assert!(accounts.key_file.ends_with("accounts.db.key") && accounts.creates_key);
    assert_eq!(accounts.register_token_lifetime, Duration::from_secs(86_400));
    assert!(accounts.local_servers.is_empty());
    assert_eq!(accounts.clusters_per_user, 50);
}

#[test]
fn every_key_of_the_accounts_section_is_read() {
    let accounts = read_accounts_config(
        "{ mysql: { server: db, database: bcs, user: gateway, passwordFile: password }, keyFile: key, \
         registerTokenLifetime: 1h, clustersPerUser: 7, localServers: [127.0.0.0/8] }",
    )
    .unwrap();
    let DatabaseConfig::MySql(mysql) = &accounts.database else {
        panic!("{accounts:?}")
    };
    assert_eq!((mysql.host.as_str(), mysql.port), ("db", 3306));
    assert_eq!(mysql.password.as_ref().unwrap().0, "secret");
    assert!(!accounts.creates_key);
    assert_eq!(accounts.register_token_lifetime, Duration::from_secs(3600));
    assert_eq!(accounts.local_servers.len(), 1);
}

#[test]
fn messages_about_the_accounts_section_give_the_key_and_the_fix() {
    for (text, expected) in [
        ("{}", "dialect.gateway.accounts: exactly one database"),
        (
            "{ sqlite: a, mysql: {} }",
            "dialect.gateway.accounts: exactly one database",
        ),
        ("{ sqlite: none/a.db }", "accounts.sqlite: the directory"),
        ("{ sqlite: a.db, keyFile: none }", "accounts.keyFile: "),
        ("{ sqlite: a.db, keyFile: open }", "chmod o-r"),
        ("{ sqlite: a.db, keyFile: short }", "openssl rand -base64 32"),
        (
            "{ mysql: { server: db, database: b, user: u } }",
            "`keyFile` is required",
        ),
        (
            "{ mysql: { server: \"a@b\", database: b, user: u }, keyFile: key }",
            "accounts.mysql.server: ",
        ),
        (
            "{ mysql: { server: \"db:99999\", database: b, user: u }, keyFile: key }",
            "10.0.0.5:3306",
        ),
        (
            "{ mysql: { server: db, user: u }, keyFile: key }",
            "accounts.mysql.database: missing",
        ),
        (
            "{ mysql: { server: db, database: b, user: u, ca: key }, keyFile: key }",
            "accounts.mysql.ca: ",
        ),
        (
            "{ sqlite: a.db, registerTokenLifetime: 1s }",
            "accounts.registerTokenLifetime: ",
        ),
        (
            "{ sqlite: a.db, localServers: [\"10.0.0.1/99\"] }",
            "accounts.localServers[0]: ",
        ),
        ("{ sqlite: a.db, keyfile: key }", "keyFile"),
    ] {
        let messages = read_accounts_config(text).unwrap_err();
        assert!(
            messages.iter().any(|message| message.contains(expected)),
            "{text}: {messages:?}"
        );
    }
}
