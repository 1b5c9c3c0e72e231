//! Tests `dialect.bcs.console` and `dialect.bcs.customResources`.

use super::*;
use admittance_bcs::{ConsoleConfig, ConsoleScheme};

fn config_text(bcs: &str) -> String {
    format!(
        "dialect: {{ bcs: {{ cluster: BCS-MESOS-10001, {bcs} }} }}\nupstream: {{ servers: [\"http://127.0.0.1:1\"] }}"
    )
}

#[test]
fn the_port_and_scheme_of_consoles_are_read() {
    let networks = |texts: &[&str]| Some(texts.iter().map(|text| text.parse().unwrap()).collect());
    for (bcs, port, scheme, hosts) in [
        ("behind: scheduler", 8083, ConsoleScheme::Http, None),
        ("behind: scheduler, console: {}", 8083, ConsoleScheme::Http, None),
        (
            "behind: scheduler, console: { port: 9, scheme: https, hosts: [10.0.0.0/8, 192.0.2.1, \"fd00::/8\"] }",
            9,
            ConsoleScheme::Https,
            networks(&["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]),
        ),
        (
            "behind: scheduler, console: { hosts: [] }",
            8083,
            ConsoleScheme::Http,
            Some(Vec::new()),
        ),
    ] {
        let config = read(&config_text(bcs)).unwrap();
        let bcs_config = bcs::bcs_config(&config);
        let expected = ConsoleConfig { port, scheme, hosts };
        assert_eq!(bcs_config.console, expected, "{bcs}");
    }
}

#[test]
fn hosts_of_consoles_can_be_limited_to_networks() {
    let console = ConsoleConfig {
        hosts: Some(vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]),
        ..ConsoleConfig::default()
    };
    for (host, expected) in [("10.1.2.3", true), ("11.0.0.1", false), ("::1", true), ("::2", false)] {
        assert_eq!(console.allows(host.parse().unwrap()), expected, "{host}");
        assert!(ConsoleConfig::default().allows(host.parse().unwrap()), "{host}");
    }
}

#[test]
fn mistakes_in_the_console_section_are_reported() {
    for (bcs, expected) in [
        (
            "behind: driver, console: {}",
            "dialect.bcs.console: the driver behind this one calls the consoles",
        ),
        ("behind: scheduler, console: { port: 0 }", "dialect.bcs.console.port: "),
        (
            "behind: scheduler, console: { scheme: ws }",
            "dialect.bcs.console.scheme: ",
        ),
        (
            "behind: scheduler, console: { hosts: [console.example.com] }",
            "dialect.bcs.console.hosts[0]: \"console.example.com\" is not a network; write `10.0.0.0/8`, or one address",
        ),
        (
            "behind: scheduler, console: { host: 10.0.0.1 }",
            "dialect.bcs.console.host: ",
        ),
    ] {
        let mistakes = read(&config_text(bcs)).unwrap_err();
        let [mistake] = &mistakes[..] else {
            panic!("{bcs}: {mistakes:?}")
        };
        assert!(mistake.starts_with(expected), "{bcs}: {mistake}");
    }
}

#[test]
fn custom_resources_need_a_cluster() {
    let with = |bcs: &str, more: &str| read(&format!("{}\n{more}", config_text(bcs)));
    for (bcs, more, expected) in [
        ("behind: scheduler", "cluster: { kubeconfig: here }", false),
        ("behind: scheduler, customResources: false", "", false),
        (
            "behind: scheduler, customResources: true",
            "cluster: { kubeconfig: here }",
            true,
        ),
    ] {
        let config = with(bcs, more).unwrap();
        let bcs_config = bcs::bcs_config(&config);
        assert_eq!(bcs_config.allows_custom_resources, expected, "{bcs} {more}");
    }
    for (bcs, more, expected) in [
        (
            "behind: scheduler, customResources: true",
            "",
            "dialect.bcs.customResources: no Kubernetes cluster is configured",
        ),
        (
            "behind: driver, customResources: true",
            "cluster: { kubeconfig: here }",
            "dialect.bcs.customResources: the driver behind this one calls the kube-apiserver",
        ),
        (
            "behind: scheduler, customResources: {}",
            "",
            "dialect.bcs.customResources: an object where true or false",
        ),
    ] {
        let mistakes = with(bcs, more).unwrap_err().join("\n");
        assert!(mistakes.contains(expected), "{bcs} {more}: {mistakes}");
    }
}
