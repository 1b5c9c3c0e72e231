use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_driver::tls::{self, Identity, TlsError};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::harness::*;

/// A certificate authority, and what it has signed, in files.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        let identity = Identity {
            certificate: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}.key")),
        };
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    fn client(&self, identity: Option<&Identity>, protocol: &[u8]) -> ClientConfig {
        let mut config = tls::client(Some(&self.file("ca.pem")), identity).unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }
}

async fn handshake(driver: &Running, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(name, driver.connect().await)).await
}

#[tokio::test]
async fn both_versions_of_http() {
    let authority = Authority::new();
    let identity = authority.sign("localhost");
    let driver = Setup::new(&[echo().await])
        .tls(tls::server(&identity, None).unwrap())
        .start()
        .await;

    let stream = handshake(&driver, authority.client(None, b"h2")).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for name in ["good", "plain"] {
        let mut request = post(application(name));
        *request.uri_mut() = format!("https://localhost{APPLICATIONS}").parse().unwrap();
        let (status, body) = text(soon(sender.send_request(request)).await.unwrap()).await;
        assert_eq!(status, 200);
        assert_eq!(body.contains("seen"), name == "plain", "{body}");
    }

    let stream = handshake(&driver, authority.client(None, b"http/1.1"))
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = post(application("bad"));
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 400);
}

#[tokio::test]
async fn http2_without_tls() {
    let driver = Setup::new(&[echo().await]).start().await;
    let stream = TokioIo::new(driver.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = post(application("good"));
    *request.uri_mut() = format!("http://localhost{APPLICATIONS}").parse().unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    assert_eq!(text(response).await, (200, application("good")));
}

#[tokio::test]
async fn only_known_clients_are_let_in() {
    let authority = Authority::new();
    let identity = authority.sign("localhost");
    let known = authority.sign("client");
    let strangers = Authority::new();
    let stranger = strangers.sign("stranger");
    let driver = Setup::new(&[echo().await])
        .tls(tls::server(&identity, Some(&authority.file("ca.pem"))).unwrap())
        .start()
        .await;
    for (who, expected) in [(Some(&known), true), (None, false), (Some(&stranger), false)] {
        // With TLS 1.3 a client hears of its refusal when it first reads.
        let config = authority.client(who, b"http/1.1");
        let reply = async {
            let stream = handshake(&driver, config).await.ok()?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .ok()?;
            tokio::spawn(connection);
            let mut request = post(application("good"));
            request.headers_mut().insert("host", "localhost".parse().unwrap());
            sender.send_request(request).await.ok()
        };
        assert_eq!(soon(reply).await.is_some(), expected, "{who:?}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_delays_nobody() {
    let authority = Authority::new();
    let identity = authority.sign("localhost");
    let driver = Setup::new(&[echo().await])
        .tls(tls::server(&identity, None).unwrap())
        .limits(|limits| limits.header_timeout = Duration::from_millis(100))
        .start()
        .await;
    let mut silent = driver.connect().await;
    let mut confused = driver.connect().await;
    write(&mut confused, "GET / HTTP/1.1\r\n\r\n").await;
    assert!(handshake(&driver, authority.client(None, b"h2")).await.is_ok());
    assert_eq!(rest(&mut silent).await, "", "it is cut off in time");
}

#[tokio::test]
async fn the_upstream_may_want_tls_and_a_certificate() {
    let authority = Authority::new();
    let server = authority.sign("localhost");
    let client = authority.sign("client");
    // A driver serves as the upstream of another.
    let inner = Setup::new(&[echo().await])
        .tls(tls::server(&server, Some(&authority.file("ca.pem"))).unwrap())
        .start()
        .await;
    let port = inner.address.port();
    for (identity, expected) in [(Some(&client), true), (None, false)] {
        let outer = Setup::new(&[])
            .upstream(|upstream| {
                upstream.servers = vec![format!("https://localhost:{port}").parse().unwrap()];
                upstream.tls = tls::client(Some(&authority.file("ca.pem")), identity).unwrap();
            })
            .start()
            .await;
        let (status, body) = outer.post(application("good")).await;
        assert_eq!(status, 200);
        assert_eq!(body == application("good"), expected, "{body}");
    }
}

#[test]
fn material_that_is_no_good() {
    let authority = Authority::new();
    let good = authority.sign("a");
    let other = authority.sign("b");
    let missing = authority.file("missing.pem");
    let empty = authority.file("empty.pem");
    std::fs::write(&empty, "no PEM here\n").unwrap();
    let with = |certificate: &PathBuf, key: &PathBuf| Identity {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    let kind = |error: TlsError| match error {
        TlsError::File { .. } => "file",
        TlsError::Missing { .. } => "missing",
        TlsError::Rejected { .. } => "rejected",
        TlsError::System(_) => "system",
    };
    for (case, identity, ca, expected) in [
        ("good", good.clone(), None, None),
        ("no file", with(&missing, &good.key), None, Some("file")),
        (
            "no certificate in it",
            with(&empty, &good.key),
            None,
            Some("missing"),
        ),
        (
            "no key in it",
            with(&good.certificate, &good.certificate),
            None,
            Some("missing"),
        ),
        (
            "another's key",
            with(&good.certificate, &other.key),
            None,
            Some("rejected"),
        ),
        ("no authority", good.clone(), Some(&empty), Some("missing")),
    ] {
        let result = tls::server(&identity, ca.map(PathBuf::as_path)).map(|_| ());
        assert_eq!(result.err().map(kind), expected, "{case}");
    }
}
