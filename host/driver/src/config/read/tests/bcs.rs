//! Tests a BCS driver's configuration: its ensembles, discovery and registration.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use admittance_bcs::{BcsConfig, ExternalAddress, RegistrationConfig, UpstreamKind, zookeeper::ZooKeeperDigest};

use super::*;

const CLUSTER_ENSEMBLE: &str = "zookeeper: { cluster: { servers: [\"127.0.0.1:2181\"] } }";
const LISTED_SERVERS: &str = "upstream: { servers: [\"http://127.0.0.1:1\"] }";
const DISCOVERED_SERVERS: &str = "upstream: { discover: {} }";
const REST_DIALECT: &str =
    "dialect: { rest: { routes: [{ method: [PUT], path: /a, operation: create, resource: jobs, kind: Job }] } }";
const BCS_DIALECT: &str = "dialect: { bcs: { cluster: BCS-MESOS-10001 } }";

pub(super) fn bcs_config(config: &Config) -> &BcsConfig {
    config.front.downcast_ref().unwrap()
}

#[test]
fn the_kind_of_upstream_follows_from_its_servers() {
    let listed_servers = "servers: [\"http://127.0.0.1:1\"]";
    for (dialect, upstream, upstream_kind, path) in [
        ("", listed_servers, UpstreamKind::Driver, None),
        (", behind: driver", listed_servers, UpstreamKind::Driver, None),
        (", behind: scheduler", listed_servers, UpstreamKind::Scheduler, None),
        (
            "",
            "discover: {}",
            UpstreamKind::Scheduler,
            Some(SchedulersConfig::DEFAULT_PATH),
        ),
        (
            ", behind: scheduler",
            "discover: { path: /a/b }",
            UpstreamKind::Scheduler,
            Some("/a/b"),
        ),
    ] {
        let text = format!(
            "{CLUSTER_ENSEMBLE}\ndialect: {{ bcs: {{ cluster: BCS-MESOS-10001{dialect} }} }}\nupstream: {{ {upstream} }}"
        );
        let config = read(&text).unwrap();
        assert_eq!(bcs_config(&config).upstream_kind, upstream_kind, "{text}");
        let discovered = match &bcs_config(&config).servers {
            SchedulersConfig::Listed(_) => None,
            SchedulersConfig::Discovered(path) => Some(path.as_str()),
        };
        assert_eq!(discovered, path, "{text}");
    }
}

#[test]
fn every_key_of_a_bcs_driver_configuration_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "p w:x\n").unwrap();
    std::fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let config = read_in(
        &directory,
        r#"
listen: { address: "0.0.0.0:8090" }
zookeeper:
  cluster:
    servers: ["10.0.0.1:2181", "zk.local", "[::1]:2182"]
    chroot: /below
    sessionTimeout: 4s
    digest: { user: u, passwordFile: password }
  service: { servers: ["10.0.0.9:2181"] }
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { discover: {}, connectTimeout: 1s }
registration:
  ip: 10.0.0.5
  port: 80
  hostname: h
  external: { ip: 192.0.2.1, port: 8443 }
cluster: { kubeconfig: kubeconfig }
definitions:
  - chains/
  - zookeeper: {}
  - zookeeper: { path: /other }
  - customResources: {}
  - customResources: { namespace: hooks }
"#,
    )
    .unwrap();
    let cluster = config.zookeeper.cluster.as_ref().unwrap();
    assert_eq!(
        cluster.servers.to_string(),
        "10.0.0.1:2181,zk.local:2181,[::1]:2182/below"
    );
    assert_eq!(cluster.session_timeout, Duration::from_secs(4));
    assert_eq!(cluster.digest, Some(ZooKeeperDigest::new("u", "p w:x")));
    let service = config.zookeeper.service.as_ref().unwrap();
    assert_eq!(service.servers.to_string(), "10.0.0.9:2181");
    assert_eq!(service.session_timeout, Duration::from_secs(10));
    assert_eq!(service.digest, None);
    assert_eq!(
        bcs_config(&config).registration,
        Some(RegistrationConfig {
            ip: Some([10, 0, 0, 5].into()),
            port: Some(80),
            hostname: Some("h".to_owned()),
            external: Some(ExternalAddress {
                ip: [192, 0, 2, 1].into(),
                port: 8443,
            }),
        })
    );
    assert_eq!(bcs_config(&config).upstream.connect_timeout, Duration::from_secs(1));
    let location_names: Vec<_> = config.definitions.iter().map(|location| location.name()).collect();
    let chains = directory.path().join("chains/").display().to_string();
    assert_eq!(
        location_names,
        [
            &*chains,
            "zookeeper:/blueking/admissionwebhook",
            "zookeeper:/other",
            "customresources:bkbcs",
            "customresources:hooks",
        ]
    );
}

#[test]
fn invalid_bcs_configurations_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (file, text, mode) in [("empty", "\n", 0o600), ("two", "a\nb", 0o600), ("open", "a", 0o644)] {
        let path = directory.path().join(file);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    // (sections of the file, expected mistake)
    let table: Vec<(&[&str], &str)> = vec![
        (
            &[BCS_DIALECT, DISCOVERED_SERVERS],
            "upstream.discover: `zookeeper.cluster` is not configured",
        ),
        (
            &[
                BCS_DIALECT,
                DISCOVERED_SERVERS,
                "zookeeper: { service: { servers: [a] } }",
            ],
            "upstream.discover: `zookeeper.cluster` is not configured",
        ),
        (
            &[
                BCS_DIALECT,
                CLUSTER_ENSEMBLE,
                "upstream: { discover: {}, servers: [\"http://a:1\"] }",
            ],
            "upstream.servers: `servers` and `discover` cannot both be set",
        ),
        (
            &[BCS_DIALECT, CLUSTER_ENSEMBLE, "upstream: { discover: { path: a } }"],
            "upstream.discover.path: `a` cannot be used: ",
        ),
        (
            &[BCS_DIALECT, CLUSTER_ENSEMBLE, "upstream: { discover: { path: / } }"],
            "upstream.discover.path: `/` cannot be used: the root ",
        ),
        (
            &[REST_DIALECT, CLUSTER_ENSEMBLE, DISCOVERED_SERVERS],
            "upstream.discover: only schedulers of BCS can be discovered",
        ),
        (
            &[
                "dialect: { bcs: { cluster: A, behind: driver } }",
                CLUSTER_ENSEMBLE,
                DISCOVERED_SERVERS,
            ],
            "upstream.discover: schedulers are discovered, and `dialect.bcs.behind` says ",
        ),
        (
            &["dialect: { bcs: { cluster: A, behind: Scheduler } }", LISTED_SERVERS],
            "dialect.bcs.behind: \"Scheduler\" is not a valid ",
        ),
        (
            &[REST_DIALECT, CLUSTER_ENSEMBLE, LISTED_SERVERS, "registration: {}"],
            "registration: only drivers of the dialect `bcs`",
        ),
        (
            &["dialect: { kubernetes: {} }", CLUSTER_ENSEMBLE, "registration: {}"],
            "registration: only drivers of the dialect `bcs`",
        ),
        (
            &[
                "dialect: { bcs: { cluster: a/b } }",
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "registration: {}",
            ],
            "registration: there can be no node for the cluster: ",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "registration: {}"],
            "registration: `zookeeper` is not configured",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "listen: { address: \"0.0.0.0:1\" }",
                "registration: {}",
            ],
            "registration: other machines cannot reach the driver at its listen address 0.0.0.0",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "registration: { ip: \"0.0.0.0\" }",
            ],
            "registration.ip: no driver can be reached at 0.0.0.0",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "registration: { ip: host }",
            ],
            "registration.ip: \"host\" is not a valid IP address",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "registration: { port: 0 }",
            ],
            "registration.port: 0 is out of range",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "registration: { external: { ip: 192.0.2.1 } }",
            ],
            "registration.external.port: missing",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "zookeeper: { cluster: {} }"],
            "zookeeper.cluster.servers: missing",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "zookeeper: { cluster: { servers: [] } }"],
            "zookeeper.cluster.servers: the list is empty",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [\"zk://a\"] } }",
            ],
            "zookeeper.cluster.servers[0]: ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], chroot: b } }",
            ],
            "zookeeper.cluster.chroot: ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], sessionTimeout: 1ms } }",
            ],
            "zookeeper.cluster.sessionTimeout: ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], digest: { user: u, passwordFile: none } } }",
            ],
            "zookeeper.cluster.digest.passwordFile: ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], digest: { user: u, passwordFile: open } } }",
            ],
            "zookeeper.cluster.digest.passwordFile: the file is world-readable: chmod o-r ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], digest: { user: u, passwordFile: empty } } }",
            ],
            "zookeeper.cluster.digest.passwordFile: ",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "zookeeper: { cluster: { servers: [a], digest: { user: u, passwordFile: two } } }",
            ],
            "zookeeper.cluster.digest.passwordFile: ",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "zookeeper: { other: {} }"],
            "zookeeper.other: unknown field",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "definitions: [ { zookeeper: {} } ]"],
            "definitions[0].zookeeper: `zookeeper.cluster` is not configured",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, "definitions: [ { customResources: {} } ]"],
            "definitions[0].customResources: no Kubernetes cluster is configured",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                "cluster: {}",
                "definitions: [ { customResources: { namespace: A } } ]",
            ],
            "definitions[0].customResources.namespace: \"A\" is not a valid namespace",
        ),
        (
            &[
                BCS_DIALECT,
                LISTED_SERVERS,
                CLUSTER_ENSEMBLE,
                "definitions: [ { zookeeper: {} }, { zookeeper: {} } ]",
            ],
            "definitions[1]: this store is listed twice",
        ),
        (
            &[BCS_DIALECT, LISTED_SERVERS, CLUSTER_ENSEMBLE, "definitions: [ {} ]"],
            "definitions[0]: exactly one store of definitions is expected",
        ),
    ];
    for (parts, expected) in table {
        let text = parts.join("\n");
        let mistakes = read_in(&directory, &text).unwrap_err();
        assert!(
            matches!(mistakes.as_slice(), [mistake] if mistake.starts_with(expected)),
            "{text}\n{mistakes:#?}"
        );
    }
}

#[test]
fn only_an_empty_zookeeper_user_may_lack_a_password() {
    let read_with_digest = |digest: &str| {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("empty", "\n"), ("full", "secret\n")] {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
        let zookeeper = format!("zookeeper: {{ cluster: {{ servers: [a], digest: {digest} }} }}");
        read_in(&directory, &[BCS_DIALECT, LISTED_SERVERS, &zookeeper].join("\n"))
    };
    for (text, user, password) in [
        ("{ user: \"\" }", "", ""),
        ("{ user: \"\", passwordFile: empty }", "", ""),
        ("{ user: \"\", passwordFile: full }", "", "secret"),
        ("{ user: u, passwordFile: full }", "u", "secret"),
    ] {
        let parsed_digest = read_with_digest(text).unwrap().zookeeper.cluster.unwrap().digest;
        assert_eq!(parsed_digest, Some(ZooKeeperDigest::new(user, password)), "{text}");
    }
    for (text, expected) in [
        ("{}", "zookeeper.cluster.digest.user: missing"),
        ("{ user: u }", "zookeeper.cluster.digest.passwordFile: missing"),
        ("{ user: u, passwordFile: empty }", "it on one line"),
        ("{ user: \"a:b\" }", "a name has no colon"),
    ] {
        let mistakes = read_with_digest(text).unwrap_err().join("\n");
        assert!(mistakes.contains(expected), "{text}: {mistakes}");
    }
}

#[test]
fn on_bad_definition_accepts_only_its_documented_values() {
    use admittance::OnBadDefinition::{KeepLast, ServeRest};
    for (text, expected) in [
        ("", Some(KeepLast)),
        ("onBadDefinition: keep-last", Some(KeepLast)),
        ("onBadDefinition: serve-rest", Some(ServeRest)),
        ("onBadDefinition: refuse", None),
    ] {
        let outcome = read(&[BCS_DIALECT, LISTED_SERVERS, text].join("\n"));
        match (outcome, expected) {
            (Ok(config), Some(expected)) => assert_eq!(config.on_bad_definition, expected, "{text}"),
            (Err(mistakes), None) => {
                assert!(
                    mistakes
                        .join("\n")
                        .contains("onBadDefinition: \"refuse\" is not a valid"),
                    "{mistakes:?}"
                );
            }
            (other, _) => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn drivers_with_definitions_in_zookeeper_go_live_together() {
    let (zookeeper, no_definitions) = (
        "zookeeper: { cluster: { servers: [\"127.0.0.1:2181\"] } }",
        "definitions: []",
    );
    let shared_definitions = "definitions: [ { zookeeper: {} } ]";
    for (ensemble, definitions, mode, expected) in [
        (zookeeper, shared_definitions, "", Some(true)),
        (zookeeper, shared_definitions, "replicas: Independently", Some(false)),
        (zookeeper, no_definitions, "", Some(false)),
        (zookeeper, no_definitions, "replicas: Together", Some(true)),
        ("", no_definitions, "", Some(false)),
        ("", no_definitions, "replicas: Together", None),
    ] {
        let outcome = read(&[BCS_DIALECT, LISTED_SERVERS, ensemble, definitions, mode].join("\n"));
        match (outcome, expected) {
            (Ok(config), Some(expected)) => {
                assert_eq!(config.goes_live_together(), expected, "{ensemble} {definitions} {mode}");
            }
            (Err(mistakes), None) => {
                let text = mistakes.join("\n");
                assert!(text.contains("these replicas have no leader"), "{text}");
            }
            (other, _) => panic!("{ensemble} {definitions} {mode}: {other:?}"),
        }
    }
}
