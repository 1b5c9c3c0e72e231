use std::time::Duration;

use admittance_admission::{FailurePolicy, UserInfo};
use admittance_fleet::{CertificateConfig, OwnCertificate, WebhookRegistration, WebhooksConfig, audit::AuditConfig};

use super::*;

fn webhooks_config(directory: &TempDir, text: &str) -> Option<WebhooksConfig> {
    let config = read_in(directory, text).unwrap();
    config.front.webhooks().cloned()
}

#[test]
fn the_audit_section_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let audit = |text: &str| read_in(&directory, text).unwrap().front.audit().cloned();
    assert_eq!(audit("dialect: { kubernetes: {} }"), None);
    let minimal = "dialect: { kubernetes: { audit: {} } }\ncluster: {}";
    assert_eq!(audit(minimal), Some(AuditConfig::default()));
    let all_keys = "
dialect:
  kubernetes:
    audit: { every: 2d, rate: 5, page: 100, resources: [deployments.apps], excludeNamespaces: [a], callWebhooks: true, reports: false, user: auditor, groups: [ops, dev] }
cluster: {}
";
    let expected = AuditConfig {
        interval: Duration::from_secs(2 * 24 * 3600),
        requests_per_second: 5,
        page_size: 100,
        resources: vec!["deployments.apps".to_owned()],
        excluded_namespaces: vec!["a".to_owned()],
        user: UserInfo {
            username: "auditor".to_owned(),
            groups: vec!["ops".to_owned(), "dev".to_owned()],
            ..UserInfo::default()
        },
        calls_webhooks: true,
        writes_reports: false,
    };
    assert_eq!(audit(all_keys), Some(expected));
    for (section, more, expected) in [
        ("{}", "", "audit: no Kubernetes cluster is configured"),
        ("{ every: 8d }", "cluster: {}", "audit.every"),
        ("{ rate: 0 }", "cluster: {}", "audit.rate"),
        ("{ resources: pods }", "cluster: {}", "audit.resources"),
        ("{ groups: ops }", "cluster: {}", "audit.groups"),
    ] {
        let text = format!("dialect: {{ kubernetes: {{ audit: {section} }} }}\n{more}");
        let mistakes = read_in(&directory, &text).unwrap_err();
        let is_expected = |mistake: &String| mistake.contains(expected);
        assert!(mistakes.iter().any(is_expected), "{section}: {mistakes:?}");
    }
}

#[test]
fn the_webhook_configurations_section_is_read() {
    let directory = tempfile::tempdir().unwrap();
    assert!(webhooks_config(&directory, "dialect: { kubernetes: {} }").is_none());
    let minimal = "dialect: { kubernetes: { webhookConfigurations: {} } }\ncluster: {}";
    let default_section = webhooks_config(&directory, minimal).unwrap();
    assert_eq!(default_section.registration, WebhookRegistration::default());
    let CertificateConfig::Own(own_certificate) = default_section.certificate else {
        panic!("{default_section:?}");
    };
    assert_eq!(own_certificate, OwnCertificate::default());

    let all_keys = "
dialect:
  kubernetes:
    webhookConfigurations:
      service: hooks.hooks-system
      excludeNamespaces: [a, b]
      includeKubeSystem: true
      perChain: true
      failurePolicy: Ignore
      timeoutSeconds: 7
      certificate: { days: 30, overlap: 5s }
cluster: {}
";
    let full_section = webhooks_config(&directory, all_keys).unwrap();
    let expected = WebhookRegistration {
        name: "hooks".to_owned(),
        namespace: "hooks-system".to_owned(),
        per_chain: true,
        timeout: Some(7),
        failure_policy: Some(FailurePolicy::Ignore),
        excluded_namespaces: vec!["a".to_owned(), "b".to_owned()],
        includes_kube_system: true,
        has_match_conditions: true,
    };
    assert_eq!(full_section.registration, expected);
    let CertificateConfig::Own(own_certificate) = full_section.certificate else {
        panic!("{full_section:?}");
    };
    let overlap = Duration::from_secs(5);
    assert_eq!(own_certificate, OwnCertificate { days: 30, overlap });
}

#[test]
fn invalid_settings_of_webhooks_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.path().join("a.pem"), cert.pem()).unwrap();
    std::fs::write(directory.path().join("a.key"), signing_key.serialize_pem()).unwrap();
    let tls = "listen: { tls: { certificate: a.pem, key: a.key } }\n";
    // (section of the front end, rest of the file, expected mistake)
    for (section, more, expected) in [
        ("{}", "", Some("no Kubernetes cluster is configured")),
        ("{ service: hooks }", "cluster: {}", Some("\"hooks\" is not a Service")),
        ("{ service: a.b.c }", "cluster: {}", Some("\"a.b.c\" is not a Service")),
        (
            "{ excludeNamespaces: [A] }",
            "cluster: {}",
            Some("\"A\" is not a valid namespace"),
        ),
        ("{ timeoutSeconds: 31 }", "cluster: {}", Some("timeoutSeconds")),
        ("{ certificate: { days: 0 } }", "cluster: {}", Some("certificate.days")),
        (
            "{ certificate: { overlap: 2h } }",
            "cluster: {}",
            Some("certificate.overlap"),
        ),
        (
            "{ caBundle: a.pem }",
            "cluster: {}",
            Some("caBundle: without `listen.tls`"),
        ),
        ("{}", &format!("{tls}cluster: {{}}"), Some("caBundle")),
        (
            "{ caBundle: a.pem, certificate: {} }",
            &format!("{tls}cluster: {{}}"),
            Some("certificate: `listen.tls` names a certificate"),
        ),
        (
            "{ caBundle: a.key }",
            &format!("{tls}cluster: {{}}"),
            Some("it holds no certificate"),
        ),
        ("{ caBundle: a.pem }", &format!("{tls}cluster: {{}}"), None),
    ] {
        let text = format!("dialect: {{ kubernetes: {{ webhookConfigurations: {section} }} }}\n{more}");
        match (read_in(&directory, &text), expected) {
            (Ok(_), None) => {}
            (Err(mistakes), Some(expected)) => {
                let is_expected = |mistake: &String| mistake.contains(expected);
                assert!(mistakes.iter().any(is_expected), "{section}: {mistakes:?}");
            }
            (read, expected) => panic!("{section}: {read:?}, not {expected:?}"),
        }
    }
}
