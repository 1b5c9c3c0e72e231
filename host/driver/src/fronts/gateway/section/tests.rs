use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use admittance_gateway::Statuses;
use tempfile::TempDir;

use super::*;
use crate::Config;

const ZOOKEEPER: &str = "zookeeper: { service: { servers: [\"127.0.0.1:2181\"] } }";

/// Reads a configuration file, next to which there are files that it can name. For example, `own` contains a token, and
/// `tokens.yaml` is a token file without tokens.
fn read_config(text: &str) -> Result<GatewayConfig, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokens.yaml"), "tokens: []\n").unwrap();
    write_file(&directory, "own", "gateways-own\n", 0o600);
    write_file(&directory, "peers", "0123456789abcdef0123456789abcdef\n", 0o600);
    write_file(&directory, "open", "gateways-own\n", 0o644);
    write_file(&directory, "spaced", "gateways own\n", 0o600);
    let path = directory.path().join("admittance.yaml");
    std::fs::write(&path, text).unwrap();
    let config = Config::read(&path).map_err(|mistakes| {
        let messages = mistakes
            .iter()
            .map(|mistake| format!("{}: {}", mistake.path, mistake.message));
        messages.collect::<Vec<_>>()
    })?;
    Ok(config.front.downcast_ref::<GatewayConfig>().unwrap().clone())
}

fn write_file(directory: &TempDir, name: &str, text: &str, mode: u32) {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_minimal_gateway_has_the_documented_defaults() {
    let config = read_config(&format!("{ZOOKEEPER}\ndialect: {{ gateway: {{ discover: {{}} }} }}")).unwrap();
    assert!(config.clusters.is_empty());
    assert_eq!(
        config.discovery.unwrap().as_str(),
        "/bcs/services/endpoints/mesosdriver"
    );
    assert!(config.tokens.is_none());
    assert_eq!(config.plain_groups, PlainGroups::default());
    assert!(!config.forward_token);
    assert_eq!(config.statuses, Statuses::Ok);
    assert_eq!(config.drivers.connect_timeout, Duration::from_secs(2));
    assert_eq!(config.drivers.response_timeout, Duration::from_secs(60));
    assert_eq!(config.drivers.health, None);

    let listed_config = read_config("dialect: { gateway: { clusters: { BCS-1: [\"http://127.0.0.1:1\"] } } }").unwrap();
    assert!(listed_config.discovery.is_none());
}

#[test]
fn the_peers_of_a_gateway_are_read() {
    const ACCOUNTS: &str = "accounts: { sqlite: accounts.db }";
    let gateway = |peers: &str| format!("dialect: {{ gateway: {{ {ACCOUNTS}, peers: {peers} }} }}");
    let registered = format!("{ZOOKEEPER}\nregistration: {{ ip: 10.0.0.5 }}\n");
    let peers = "{ secretFile: peers }";
    let config = read_config(&format!("{registered}{}", gateway(peers))).unwrap();
    assert!(config.peers.is_some() && config.registration.is_some());
    for (text, expected) in [
        (
            format!("{ZOOKEEPER}\n{}", gateway(peers)),
            "other gateways find this one by its registration",
        ),
        (
            format!("registration: {{}}\n{}", gateway(peers)),
            "registration: `zookeeper` is not configured",
        ),
        (
            format!("{registered}{}", gateway("{}")),
            "dialect.gateway.peers.secretFile: missing",
        ),
        (
            format!("{registered}{}", gateway("{ secretFile: own }")),
            "at least 32 characters",
        ),
        (
            format!("{registered}{}", gateway("{ secretFile: open }")),
            "world-readable",
        ),
        (
            format!(
                "{registered}listen: {{ address: \"10.0.0.5:8080\" }}\n{}",
                gateway(peers)
            ),
            "dialect.gateway.peers: other machines' gateways connect only with TLS",
        ),
        (
            format!("{registered}{}", gateway(peers).replace(ACCOUNTS, "discover: {}")),
            "there are none without `accounts`",
        ),
    ] {
        let messages = read_config(&text).unwrap_err();
        assert!(
            messages.iter().any(|message| message.contains(expected)),
            "{text}: {messages:?}"
        );
    }
}

#[test]
fn every_key_of_a_gateway_configuration_is_read() {
    let config = read_config(&format!(
        "{ZOOKEEPER}
dialect:
  gateway:
    clusters: {{ BCS-1: [\"http://10.0.0.5:8090\", \"http://10.0.0.6:8090\"], BCS-2: [\"http://10.0.1.5:8090\"] }}
    discover: {{ path: /a/b }}
    connectTimeout: 1s
    responseTimeout: 5s
    health: {{ path: /healthz }}
    tokens:
      endpoint:
        url: http://usermanager:8080
        tokenFile: own
        timeout: 2s
        cache: 0s
        hooksAction: POST
    customResourceGroups: [clb.bmsf.tencent.com]
    forwardToken: true
    statuses: driver
"
    ))
    .unwrap();
    let clusters: Vec<(&str, usize)> = config
        .clusters
        .iter()
        .map(|(id, servers)| (id.as_str(), servers.len()))
        .collect();
    assert_eq!(clusters, [("BCS-1", 2), ("BCS-2", 1)]);
    assert_eq!(config.discovery.unwrap().as_str(), "/a/b");
    assert_eq!(config.drivers.connect_timeout, Duration::from_secs(1));
    assert_eq!(config.drivers.response_timeout, Duration::from_secs(5));
    assert_eq!(config.drivers.health.unwrap().path, "/healthz");
    let groups = ["clb.bmsf.tencent.com".parse::<ApiGroup>().unwrap()];
    assert_eq!(config.plain_groups, groups.into_iter().collect());
    assert!(config.forward_token);
    assert_eq!(config.statuses, Statuses::Driver);
    let Some(TokensConfig::Endpoint(endpoint)) = config.tokens else {
        panic!("no endpoint: {:?}", config.tokens);
    };
    assert_eq!(
        endpoint.url,
        "http://usermanager:8080/usermanager/v1/permissions/verify"
    );
    assert!(endpoint.token_file.unwrap().ends_with("own"));
    assert_eq!(
        (endpoint.timeout, endpoint.cache),
        (Duration::from_secs(2), Duration::ZERO)
    );
    assert_eq!(endpoint.hooks_action, "POST");
}

#[test]
fn a_gateway_checks_tokens_with_a_file_or_an_endpoint() {
    let with = |tokens: &str| {
        read_config(&format!(
            "dialect: {{ gateway: {{ clusters: {{ B: [\"http://a\"] }}, tokens: {tokens} }} }}"
        ))
    };
    let tokens = with("{ file: tokens.yaml }").unwrap().tokens;
    assert!(matches!(tokens, Some(TokensConfig::File(_))), "{tokens:?}");
    let tokens = with("{ endpoint: { url: \"http://a/v2/verify?x\" } }").unwrap().tokens;
    let Some(TokensConfig::Endpoint(endpoint)) = tokens else {
        panic!("no endpoint: {tokens:?}");
    };
    assert_eq!(endpoint.url, "http://a/v2/verify?x");
    assert_eq!(endpoint.token_file, None);
    assert_eq!(
        (endpoint.timeout, endpoint.cache),
        (Duration::from_secs(5), Duration::from_secs(10))
    );
    assert_eq!(endpoint.hooks_action, "hooks");
}

#[test]
fn invalid_gateway_configurations_are_reported() {
    let listed_clusters = "clusters: { BCS-1: [\"http://127.0.0.1:1\"] }";
    for (gateway, more, expected) in [
        ("", "", "dialect.gateway: no drivers are configured"),
        (
            "discover: {}",
            "",
            "dialect.gateway.discover: `zookeeper` is not configured",
        ),
        (
            "clusters: { BCS-1: [] }",
            "",
            "dialect.gateway.clusters.BCS-1: the list is empty",
        ),
        (
            "clusters: { BCS-1: [\"127.0.0.1:1\"] }",
            "",
            "dialect.gateway.clusters.BCS-1[0]: `127.0.0.1:1` is not a valid server",
        ),
        (
            "clusters: { _c_1: [\"http://a\"] }",
            "",
            "dialect.gateway.clusters._c_1: `_c_1` is not a valid cluster ID",
        ),
        (
            &format!("{listed_clusters}, statuses: bcs"),
            "",
            "dialect.gateway.statuses: \"bcs\" is not a valid value of `statuses`",
        ),
        (
            &format!("{listed_clusters}, forwardToken: x"),
            "",
            "dialect.gateway.forwardToken: a string where true or false",
        ),
        (
            &format!("{listed_clusters}, customResourceGroups: [apps]"),
            "",
            "dialect.gateway.customResourceGroups[0]: \"apps\" is not an API group",
        ),
        (
            &format!("{listed_clusters}, customResourceGroups: [rbac.authorization.k8s.io]"),
            "",
            "always requires the permission Hooks",
        ),
        (
            &format!("{listed_clusters}, tokens: {{}}"),
            "",
            "dialect.gateway.tokens: exactly one source of tokens is required",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ file: tokens.yaml, endpoint: {{ url: \"http://a\" }} }}"),
            "",
            "dialect.gateway.tokens: exactly one source of tokens is required",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ file: none.yaml }}"),
            "",
            ": the file cannot be read",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{}} }}"),
            "",
            "dialect.gateway.tokens.endpoint.url: missing",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: usermanager }} }}"),
            "",
            "dialect.gateway.tokens.endpoint.url: \"usermanager\" is not a valid URL",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: \"ftp://a\" }} }}"),
            "",
            "\"ftp://a\" is not a valid URL",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: \"http://u:p@a\" }} }}"),
            "",
            "is not a valid URL",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: \"http://a\", tokenFile: open }} }}"),
            "",
            "the token file is world-readable",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: \"http://a\", tokenFile: spaced }} }}"),
            "",
            "it contains no token",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ endpoint: {{ url: \"http://a\", timeout: 0s }} }}"),
            "",
            "0s is out of range",
        ),
        (
            listed_clusters,
            "upstream: { servers: [\"http://a\"] }",
            "upstream: a gateway finds drivers by their clusters",
        ),
        (
            listed_clusters,
            "definitions: [ chains/ ]",
            "definitions: a gateway without `dialect.gateway.accounts` runs no chains",
        ),
        (
            listed_clusters,
            "registration: {}",
            "registration: `zookeeper` is not configured",
        ),
        (
            &format!("{listed_clusters}, tokens: {{ accounts: {{}} }}"),
            "",
            "dialect.gateway.tokens.accounts: there are no users without `dialect.gateway.accounts`",
        ),
    ] {
        let text = format!("dialect: {{ gateway: {{ {gateway} }} }}\n{more}\n");
        let mistakes = read_config(&text).unwrap_err();
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(expected)),
            "{text}: {mistakes:?}"
        );
    }
}
