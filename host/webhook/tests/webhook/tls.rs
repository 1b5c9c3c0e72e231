use admittance_admission::{FailureKind, Protocol, ReviewVersion, ServiceNaming, WebhookTarget};
use admittance_webhook::{AddressOverrides, Error, Webhook, WebhookClients, WebhookConfig};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};
use rustls::ServerConfig;

use crate::{
    BCS_HOST, KUBERNETES_HOST, application, call,
    certificates::{WebhookAuthority, server_params},
    clients_of, config, is_replacement, review,
    server::{TestWebhook, always, answer, echo},
    service_target,
};

fn common_name_only(name: &str) -> CertificateParams {
    let mut params = server_params(&[]);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn changed_params(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = server_params(names);
    change(&mut params);
    params
}

/// The certificate of a BCS service must contain the host name `{name}.{namespace}`. As in Go since 1.15, its common
/// name is ignored. A wildcard is accepted only if at least two labels follow it.
#[tokio::test]
async fn a_wrong_certificate_is_reported_with_its_problem() {
    type Make = fn(&WebhookAuthority) -> ServerConfig;
    let cases: [(&str, Make, Result<(), &[&str]>); 10] = [
        ("the right name", |ca| ca.server(&[BCS_HOST]), Ok(())),
        (
            "a wildcard over a whole top-level name",
            |ca| ca.server(&["*.ns"]),
            Err(&["is for *.ns;"]),
        ),
        (
            "another CA of the same name",
            |_| WebhookAuthority::new().server(&[BCS_HOST]),
            Err(&["caBundle"]),
        ),
        (
            "another name",
            |ca| ca.server(&["hook.other", "hook.ns.svc"]),
            Err(&["is for hook.other, hook.ns.svc;", "must hold hook.ns"]),
        ),
        (
            "a common name only",
            |ca| ca.server_with(common_name_only(BCS_HOST)),
            Err(&["no subjectAltName", "DNS:hook.ns", "admittance certs"]),
        ),
        (
            "expired",
            |ca| {
                ca.server_with(changed_params(&[BCS_HOST], |params| {
                    params.not_after = date_time_ymd(2020, 2, 3)
                }))
            },
            Err(&["expired at 2020-02-03T00:00:00Z"]),
        ),
        (
            "not valid yet",
            |ca| {
                ca.server_with(changed_params(&[BCS_HOST], |params| {
                    params.not_before = date_time_ymd(4000, 1, 1)
                }))
            },
            Err(&["not valid before 4000-01-01T00:00:00Z"]),
        ),
        (
            "for clients",
            |ca| {
                ca.server_with(changed_params(&[BCS_HOST], |params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                }))
            },
            Err(&["serverAuth"]),
        ),
        (
            "the CA itself",
            WebhookAuthority::as_server,
            Err(&["CA certificate", "admittance certs"]),
        ),
        (
            "a client certificate wanted",
            |ca| ca.server_for_clients(&[BCS_HOST]),
            Err(&["client certificate"]),
        ),
    ];
    for (case, make, expected) in cases {
        let authority = WebhookAuthority::new();
        let server = TestWebhook::start(make(&authority), echo());
        let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&server)).unwrap();
        let answer = call(&webhook, &application()).await;
        match expected {
            Ok(()) => assert!(is_replacement(&answer), "{case}: {answer:?}"),
            Err(parts) => {
                let failure = answer.unwrap_err();
                assert_eq!(failure.kind, FailureKind::Tls, "{case}: {failure}");
                for part in [&["hook.ns"], parts].concat() {
                    assert!(failure.message.contains(part), "{case}: {failure}");
                }
            }
        }
    }
}

/// A CA with an RSA key of only 1024 bits results from the commands in the BCS documentation (`openssl genrsa 1024`).
#[tokio::test]
async fn a_ca_with_a_short_rsa_key_is_reported_with_the_key_size() {
    let (authority, server) = WebhookAuthority::short();
    let server = TestWebhook::start(server, echo());
    let config = WebhookConfig {
        ca_bundle: Some(vec![authority]),
        ..WebhookConfig::new(Protocol::BcsResource, service_target(ServiceNaming::Bcs, "/"))
    };
    let webhook = Webhook::new(config, &clients_of(&server)).unwrap();
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    for part in ["CA", "has 1024 bits", "requires 2048", "admittance certs"] {
        assert!(failure.message.contains(part), "{part}: {failure}");
    }
}

#[tokio::test]
async fn short_rsa_keys_are_accepted_if_configured() {
    let (authority, server) = WebhookAuthority::short();
    let server = TestWebhook::start(server, echo());
    let address = server.address.to_string();
    let lenient = WebhookClients::with_short_keys(AddressOverrides::parse([(BCS_HOST, address)]).unwrap());
    let trusting = |authority| WebhookConfig {
        ca_bundle: Some(vec![authority]),
        ..WebhookConfig::new(Protocol::BcsResource, service_target(ServiceNaming::Bcs, "/"))
    };
    let webhook = Webhook::new(trusting(authority), &lenient).unwrap();
    call(&webhook, &application()).await.unwrap();
    // The certificate `other` belongs to a CA that has not signed the server's certificate. A webhook that trusts only
    // this CA must refuse the server, even if it accepts short keys.
    let other = WebhookAuthority::new().certificate();
    let webhook = Webhook::new(trusting(other), &lenient).unwrap();
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
}

/// The IP address must be in the subjectAltName of the certificate. In the common name, it is ignored.
#[tokio::test]
async fn a_url_with_an_ip_address_needs_a_certificate_for_it() {
    let authority = WebhookAuthority::new();
    for (params, expected) in [
        (server_params(&["127.0.0.1"]), Ok(())),
        (
            common_name_only("127.0.0.1"),
            Err(["no subjectAltName", "IP:127.0.0.1"]),
        ),
        (
            server_params(&["10.0.0.5", BCS_HOST]),
            Err(["is for 10.0.0.5, hook.ns;", "must hold 127.0.0.1"]),
        ),
    ] {
        let server = TestWebhook::start(authority.server_with(params), echo());
        let url = format!("https://{}/admit", server.address).parse().unwrap();
        let config = WebhookConfig {
            target: WebhookTarget::Url(url),
            ..config(Protocol::BcsResource, &authority)
        };
        let webhook = Webhook::new(config, &WebhookClients::default()).unwrap();
        let answer = call(&webhook, &application()).await;
        match expected {
            Ok(()) => assert!(is_replacement(&answer), "{answer:?}"),
            Err(parts) => {
                let failure = answer.unwrap_err();
                assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
                for part in parts {
                    assert!(failure.message.contains(part), "{failure}");
                }
            }
        }
    }
}

/// The server requires a client certificate, but the client has none. In TLS 1.3, the client learns this from the
/// server only after its own handshake is finished.
#[tokio::test]
async fn a_missing_client_certificate_is_reported_over_http1() {
    let authority = WebhookAuthority::new();
    let server = TestWebhook::start_http1(authority.server_for_clients(&[BCS_HOST]), echo());
    let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&server)).unwrap();
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    assert!(failure.message.contains("client certificate"), "{failure}");
}

#[tokio::test]
async fn the_expected_certificate_name_depends_on_the_service_naming() {
    for (naming, right, wrong) in [
        (ServiceNaming::Bcs, BCS_HOST, KUBERNETES_HOST),
        (ServiceNaming::Kubernetes, KUBERNETES_HOST, BCS_HOST),
    ] {
        for (host, ok) in [(right, true), (wrong, false)] {
            let authority = WebhookAuthority::new();
            let mut server = TestWebhook::start(authority.server(&[host]), echo());
            let config = WebhookConfig {
                target: service_target(naming, ""),
                ..config(Protocol::BcsResource, &authority)
            };
            let webhook = Webhook::new(config, &clients_of(&server)).unwrap();
            let answer = call(&webhook, &application()).await;
            assert_eq!(is_replacement(&answer), ok, "{naming:?} {host}: {answer:?}");
            if ok {
                assert_eq!(server.received_requests.recv().await.unwrap().authority, right);
            }
        }
    }
}

/// A `caBundle` may contain the server's own self-signed certificate, although that is not a CA's.
#[tokio::test]
async fn a_self_signed_certificate_can_be_its_own_bundle() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = changed_params(&[BCS_HOST], |params| params.is_ca = IsCa::NoCa);
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let tls = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let server = TestWebhook::start(tls, echo());
    let config = WebhookConfig {
        ca_bundle: Some(vec![certificate]),
        ..WebhookConfig::new(Protocol::BcsResource, service_target(ServiceNaming::Bcs, "/"))
    };
    let webhook = Webhook::new(config, &clients_of(&server)).unwrap();
    assert!(is_replacement(&call(&webhook, &application()).await));
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let authority = WebhookAuthority::new();
    let plain = TestWebhook::start_plain(always(|| answer(200, "{}")));
    let webhook = Webhook::new(config(Protocol::BcsResource, &authority), &clients_of(&plain)).unwrap();
    let failure = call(&webhook, &application()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    assert!(failure.message.contains("does not speak TLS"), "{failure}");
}

#[tokio::test]
async fn only_bcs_urls_may_use_plain_http() {
    let server = TestWebhook::start_plain(echo());
    let target = WebhookTarget::Url(format!("http://{}/admit", server.address).parse().unwrap());
    let clients = WebhookClients::default();
    let config = WebhookConfig::new(Protocol::BcsResource, target.clone());
    let webhook = Webhook::new(config, &clients).unwrap();
    assert!(is_replacement(&call(&webhook, &application()).await));

    let config = WebhookConfig::new(review(ReviewVersion::V1), target);
    assert!(matches!(Webhook::new(config, &clients), Err(Error::Url { .. })));
}

/// Without a `caBundle`, the client trusts only the CAs of the operating system. The server's certificate is signed by
/// none of them, so the call fails.
#[tokio::test]
async fn a_url_without_a_bundle_trusts_only_the_system_cas() {
    let authority = WebhookAuthority::new();
    let server = TestWebhook::start(authority.server(&["localhost"]), echo());
    let url = format!("https://localhost:{}/", server.address.port()).parse().unwrap();
    let mut config = WebhookConfig::new(Protocol::BcsResource, WebhookTarget::Url(url));
    match Webhook::new(config.clone(), &WebhookClients::default()) {
        Ok(webhook) => {
            let failure = call(&webhook, &application()).await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
            assert!(failure.message.contains("not signed by a trusted CA"), "{failure}");
        }
        // The operating system may have no CAs, for instance in a minimal container.
        Err(error) => assert!(matches!(error, Error::SystemRoots { .. }), "{error}"),
    }
    config.ca_bundle = Some(vec![authority.certificate()]);
    let webhook = Webhook::new(config, &WebhookClients::default()).unwrap();
    assert!(is_replacement(&call(&webhook, &application()).await));
}

#[test]
fn a_bcs_service_needs_a_ca_bundle() {
    let config = WebhookConfig::new(Protocol::BcsResource, service_target(ServiceNaming::Bcs, "/"));
    let error = Webhook::new(config, &WebhookClients::default()).unwrap_err();
    assert!(error.to_string().contains("`hook.ns` has no caBundle"), "{error}");
}
