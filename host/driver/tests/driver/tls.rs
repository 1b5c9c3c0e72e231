use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_net::tls::{self, ClientTls, Identity, ServerTls, Trust};
use axum::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::{TokioExecutor, TokioIo};
use metrics_exporter_prometheus::PrometheusBuilder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::harness::{
    APPLICATIONS, RunningDriver, Setup, TEST_TIMEOUT, application, echo_upstream, post_request, read_rest,
    status_and_text, within_timeout, write,
};
use crate::{client_limits::serve_protocol_switch, log::TestLog};

pub(crate) struct FileAuthority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl FileAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn sign(&self, name: &str) -> Identity {
        self.sign_with(name, CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    pub(crate) fn sign_with(&self, name: &str, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let identity = Identity {
            certificate: self.file_path(&format!("{name}.pem")),
            key: self.file_path(&format!("{name}.key")),
        };
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    pub(crate) fn client_config(&self, identity: Option<&Identity>, protocol: &[u8]) -> ClientConfig {
        let mut config = tls::client_config(Trust::File(&self.file_path("ca.pem")), identity).unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }
}

async fn handshake(driver: &RunningDriver, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    within_timeout(TlsConnector::from(Arc::new(config)).connect(name, driver.connect().await)).await
}

#[tokio::test]
async fn both_versions_of_http_are_served_over_tls() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let driver = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(identity, None).unwrap())
        .start()
        .await;

    let stream = handshake(&driver, authority.client_config(None, b"h2")).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for name in ["good", "plain"] {
        let mut request = post_request(application(name));
        *request.uri_mut() = format!("https://localhost{APPLICATIONS}").parse().unwrap();
        let (status, body) = status_and_text(within_timeout(sender.send_request(request)).await.unwrap()).await;
        assert_eq!(status, 200);
        assert_eq!(body.contains("seen"), name == "plain", "{body}");
    }

    let stream = handshake(&driver, authority.client_config(None, b"http/1.1"))
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = post_request(application("bad"));
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    assert_eq!(
        within_timeout(sender.send_request(request)).await.unwrap().status(),
        400
    );
}

#[tokio::test]
async fn plain_http_at_a_port_with_tls_gets_400_and_the_fix() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let driver = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(identity, None).unwrap())
        .start()
        .await;
    let mut stream = driver.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    within_timeout(stream.read_to_string(&mut reply)).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
    assert!(reply.contains("write https:// in place of http://"), "{reply}");
}

#[tokio::test]
async fn http2_is_served_without_tls() {
    let driver = Setup::new(&[echo_upstream().await]).start().await;
    let stream = TokioIo::new(driver.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = post_request(application("good"));
    *request.uri_mut() = format!("http://localhost{APPLICATIONS}").parse().unwrap();
    let response = within_timeout(sender.send_request(request)).await.unwrap();
    assert_eq!(status_and_text(response).await, (200, application("good")));
}

#[tokio::test]
async fn only_clients_with_a_trusted_certificate_are_accepted() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let trusted_client = authority.sign("client");
    let strangers = FileAuthority::new();
    let stranger = strangers.sign("stranger");
    let driver = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(identity, Some(authority.file_path("ca.pem"))).unwrap())
        .start()
        .await;
    for (client_identity, expected) in [(Some(&trusted_client), true), (None, false), (Some(&stranger), false)] {
        // A refused client completes its handshake in TLS 1.3, and notices the refusal only when it reads. So a request
        // is sent too.
        let config = authority.client_config(client_identity, b"http/1.1");
        let reply = async {
            let stream = handshake(&driver, config).await.ok()?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            let mut request = post_request(application("good"));
            request.headers_mut().insert("host", "localhost".parse().unwrap());
            sender.send_request(request).await.ok()
        };
        assert_eq!(within_timeout(reply).await.is_some(), expected, "{client_identity:?}");
    }
}

#[tokio::test]
async fn a_client_without_a_handshake_delays_no_other_client() {
    let authority = FileAuthority::new();
    let identity = authority.sign("localhost");
    let driver = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(identity, None).unwrap())
        .limits(|limits| limits.header_timeout = Duration::from_millis(100))
        .start()
        .await;
    let mut silent = driver.connect().await;
    let mut confused = driver.connect().await;
    write(&mut confused, "GET / HTTP/1.1\r\n\r\n").await;
    assert!(handshake(&driver, authority.client_config(None, b"h2")).await.is_ok());
    assert_eq!(read_rest(&mut silent).await, "", "it is cut off in time");
}

#[tokio::test]
async fn the_upstream_may_require_tls_and_a_certificate() {
    let authority = FileAuthority::new();
    let server_identity = authority.sign("localhost");
    let client_identity = authority.sign("client");
    let inner = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(server_identity, Some(authority.file_path("ca.pem"))).unwrap())
        .start()
        .await;
    let port = inner.address.port();
    for (identity, expected) in [(Some(&client_identity), true), (None, false)] {
        let outer = Setup::new(&[])
            .servers(&[&format!("https://localhost:{port}")])
            .upstream(|upstream| {
                upstream.tls = ClientTls::of_files(Some(authority.file_path("ca.pem")), identity.cloned()).unwrap();
            })
            .start()
            .await;
        let (status, body) = outer.post(application("good")).await;
        assert_eq!(status, 200);
        assert_eq!(body == application("good"), expected, "{body}");
    }
}

#[tokio::test]
async fn the_name_in_the_certificate_of_the_upstream_can_be_configured() {
    let authority = FileAuthority::new();
    let server_identity = authority.sign("scheduler.example.com");
    let inner = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(server_identity, None).unwrap())
        .start()
        .await;
    let port = inner.address.port();
    for (name, expected) in [
        (None, false),
        (Some("scheduler.example.com"), true),
        (Some("other.example.com"), false),
    ] {
        let outer = Setup::new(&[])
            .servers(&[&format!("https://127.0.0.1:{port}")])
            .upstream(|upstream| {
                let tls = ClientTls::of_files(Some(authority.file_path("ca.pem")), None).unwrap();
                upstream.tls = match name {
                    Some(name) => tls.with_server_name(name).unwrap(),
                    None => tls,
                };
            })
            .start()
            .await;
        let (_, body) = outer.post(application("good")).await;
        assert_eq!(body == application("good"), expected, "{name:?}: {body}");
    }
    let tls = ClientTls::of_files(Some(authority.file_path("ca.pem")), None).unwrap();
    assert!(tls.with_server_name("no name").is_err());
}

const INTERVAL: Duration = Duration::from_millis(10);

pub(crate) async fn wait_until(condition: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(TEST_TIMEOUT, wait).await;
    assert!(waited.is_ok(), "{condition} does not come");
}

async fn presented_certificate(driver: &RunningDriver, authority: &FileAuthority) -> CertificateDer<'static> {
    let stream = handshake(driver, authority.client_config(None, b"http/1.1"))
        .await
        .unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain.first().unwrap().clone().into_owned()
}

fn der(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

struct OpenConnection {
    sender: http1::SendRequest<Body>,
    kind: Option<HandshakeKind>,
}

impl OpenConnection {
    async fn new(driver: &RunningDriver, config: Arc<ClientConfig>) -> Option<Self> {
        let name = ServerName::try_from("localhost").unwrap();
        let connecting = TlsConnector::from(config).connect(name, driver.connect().await);
        let stream = within_timeout(connecting).await.ok()?;
        let kind = stream.get_ref().1.handshake_kind();
        let (sender, connection) = within_timeout(http1::handshake(TokioIo::new(stream))).await.ok()?;
        tokio::spawn(connection);
        let mut open = Self { sender, kind };
        // In TLS 1.3, a client learns that it was refused only when it reads from the connection. The tickets for
        // resumption arrive in the same way. So a request is sent here, and its reply is read.
        open.is_served().await.then_some(open)
    }

    async fn is_served(&mut self) -> bool {
        let mut request = post_request(application("good"));
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        match within_timeout(self.sender.send_request(request)).await {
            Ok(response) => status_and_text(response).await == (200, application("good")),
            Err(_) => false,
        }
    }
}

type Replace = fn(mount: &Path, revision: &str, pair: &Identity);

fn write_in_place(mount: &Path, _: &str, pair: &Identity) {
    std::fs::create_dir_all(mount).unwrap();
    std::fs::copy(&pair.certificate, mount.join("tls.crt")).unwrap();
    std::fs::copy(&pair.key, mount.join("tls.key")).unwrap();
}

fn rename_over(mount: &Path, _: &str, pair: &Identity) {
    std::fs::create_dir_all(mount).unwrap();
    for (from, to) in [(&pair.certificate, "tls.crt"), (&pair.key, "tls.key")] {
        std::fs::copy(from, mount.join(".new")).unwrap();
        std::fs::rename(mount.join(".new"), mount.join(to)).unwrap();
    }
}

/// Replaces the files as the kubelet does in a mounted Secret: the link `..data` is changed to a new directory.
fn swap_links(mount: &Path, revision: &str, pair: &Identity) {
    let directory = format!("..{revision}");
    write_in_place(&mount.join(&directory), revision, pair);
    let old = std::fs::read_link(mount.join("..data"));
    symlink(&directory, mount.join("..data_tmp")).unwrap();
    std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    match old {
        Ok(old) => std::fs::remove_dir_all(mount.join(old)).unwrap(),
        Err(_) => {
            for name in ["tls.crt", "tls.key"] {
                symlink(format!("..data/{name}"), mount.join(name)).unwrap();
            }
        }
    }
}

fn mounted_identity(mount: &Path) -> Identity {
    Identity {
        certificate: mount.join("tls.crt"),
        key: mount.join("tls.key"),
    }
}

#[tokio::test]
async fn a_changed_certificate_is_presented() {
    for (way, replace) in [
        ("written in place", write_in_place as Replace),
        ("renamed over", rename_over),
        ("links are swapped", swap_links),
    ] {
        let authority = FileAuthority::new();
        let mount = authority.file_path("mount");
        let first_identity = authority.sign("localhost");
        replace(&mount, "2026_1", &first_identity);
        let tls = ServerTls::of_files(mounted_identity(&mount), None).unwrap();
        let driver = Setup::new(&[echo_upstream().await]).tls(tls).start().await;
        assert_eq!(
            presented_certificate(&driver, &authority).await,
            der(&first_identity.certificate),
            "{way}"
        );
        let client = Arc::new(authority.client_config(None, b"http/1.1"));
        let mut open_connection = OpenConnection::new(&driver, client.clone()).await.unwrap();
        for revision in ["2026_2", "2026_3", "2026_4"] {
            let next_identity = authority.sign("localhost");
            replace(&mount, revision, &next_identity);
            let expected = der(&next_identity.certificate);
            wait_until(&format!("{way}: {revision}"), async || {
                presented_certificate(&driver, &authority).await == expected
            })
            .await;
            assert!(open_connection.is_served().await, "{way}: what is open goes on");
        }
    }
}

async fn first_certificate_status(driver: &RunningDriver) -> Value {
    driver.status().await["certificates"][0].clone()
}

#[tokio::test]
async fn an_invalid_certificate_or_key_does_not_replace_the_last_valid_one() {
    let authority = FileAuthority::new();
    let mount = authority.file_path("mount");
    let valid_identity = authority.sign("localhost");
    let other_identity = authority.sign("other");
    rename_over(&mount, "", &valid_identity);
    let tls = ServerTls::of_files(mounted_identity(&mount), None).unwrap();
    let driver = Setup::new(&[echo_upstream().await]).tls(tls).start().await;
    let expected = json!({
        "certificate": "listen",
        // The test made the certificate with `rcgen`. By default, such a certificate is valid until the year 4096.
        "notAfter": "4096-01-01T00:00:00.000Z",
    });
    assert_eq!(first_certificate_status(&driver).await, expected);

    type Break = fn(&Path, &Identity);
    let cases: [(&str, Break, &str); 4] = [
        (
            "a key of another certificate",
            |mount, other| {
                std::fs::copy(&other.key, mount.join("tls.key")).unwrap();
            },
            "tls.crt",
        ),
        (
            "no key in the file",
            |mount, _| std::fs::write(mount.join("tls.key"), "no PEM here\n").unwrap(),
            "tls.key: it holds no private key",
        ),
        (
            "half a certificate",
            |mount, _| {
                let text = std::fs::read_to_string(mount.join("tls.crt")).unwrap();
                std::fs::write(mount.join("tls.crt"), &text[..text.len() / 2]).unwrap();
            },
            "tls.crt",
        ),
        (
            "no file",
            |mount, _| std::fs::remove_file(mount.join("tls.crt")).unwrap(),
            "tls.crt",
        ),
    ];
    let mut served_certificate = der(&valid_identity.certificate);
    for (case, break_it, part) in cases {
        break_it(&mount, &other_identity);
        wait_until(case, async || {
            first_certificate_status(&driver).await["problem"] != Value::Null
        })
        .await;
        let problem = first_certificate_status(&driver).await["problem"].to_string();
        assert!(problem.contains(part), "{case}: {problem}");
        assert_eq!(
            presented_certificate(&driver, &authority).await,
            served_certificate,
            "{case}"
        );

        let repaired_identity = authority.sign("localhost");
        rename_over(&mount, "", &repaired_identity);
        served_certificate = der(&repaired_identity.certificate);
        wait_until(case, async || {
            presented_certificate(&driver, &authority).await == served_certificate
        })
        .await;
        wait_until(case, async || first_certificate_status(&driver).await == expected).await;
    }
}

#[tokio::test]
async fn accepted_clients_change_when_the_client_ca_changes() {
    let (old_authority, new_authority) = (FileAuthority::new(), FileAuthority::new());
    let identity = old_authority.sign("localhost");
    let trusted_path = old_authority.file_path("trusted.pem");
    std::fs::copy(old_authority.file_path("ca.pem"), &trusted_path).unwrap();
    let tls = ServerTls::of_files(identity, Some(trusted_path.clone())).unwrap();
    let driver = Setup::new(&[echo_upstream().await]).tls(tls).start().await;
    let client =
        |authority: &FileAuthority| Arc::new(old_authority.client_config(Some(&authority.sign("client")), b"http/1.1"));
    let (old_client, new_client) = (client(&old_authority), client(&new_authority));

    let mut open_connection = OpenConnection::new(&driver, old_client.clone()).await.unwrap();
    let resumed_connection = OpenConnection::new(&driver, old_client.clone()).await.unwrap();
    assert_eq!(resumed_connection.kind, Some(HandshakeKind::Resumed));
    assert!(OpenConnection::new(&driver, new_client.clone()).await.is_none());

    std::fs::copy(new_authority.file_path("ca.pem"), &trusted_path).unwrap();
    wait_until("the new client", async || {
        OpenConnection::new(&driver, new_client.clone()).await.is_some()
    })
    .await;
    assert!(OpenConnection::new(&driver, old_client.clone()).await.is_none());
    wait_until("the end of the open connection", async || {
        !open_connection.is_served().await
    })
    .await;
    let mut staying_connection = OpenConnection::new(&driver, new_client.clone()).await.unwrap();

    let both_authorities = [old_authority.file_path("ca.pem"), new_authority.file_path("ca.pem")]
        .map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(&trusted_path, both_authorities.concat()).unwrap();
    wait_until("both clients", async || {
        OpenConnection::new(&driver, old_client.clone()).await.is_some()
    })
    .await;
    assert!(OpenConnection::new(&driver, new_client).await.is_some());
    assert!(
        staying_connection.is_served().await,
        "the client of an authority that stays goes on"
    );
}

#[tokio::test]
async fn a_tunnel_ends_when_its_clients_authority_is_removed() {
    let (old_authority, new_authority) = (FileAuthority::new(), FileAuthority::new());
    let identity = old_authority.sign("localhost");
    let trusted_path = old_authority.file_path("trusted.pem");
    std::fs::copy(old_authority.file_path("ca.pem"), &trusted_path).unwrap();
    let tls = ServerTls::of_files(identity, Some(trusted_path.clone())).unwrap();
    let driver = Setup::new(&[serve_protocol_switch().await]).tls(tls).start().await;
    let config = old_authority.client_config(Some(&old_authority.sign("client")), b"http/1.1");
    let mut tunnel = handshake(&driver, config).await.unwrap();
    write(
        &mut tunnel,
        "GET /x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
    )
    .await;
    let head = crate::harness::read_until(&mut tunnel, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    std::fs::copy(new_authority.file_path("ca.pem"), &trusted_path).unwrap();
    let tunnel_end = async {
        let mut byte = [0];
        while let Ok(1..) = tunnel.read(&mut byte).await {}
    };
    within_timeout(tunnel_end).await;
}

#[tokio::test]
async fn a_changed_client_certificate_is_used_for_the_upstream() {
    let authority = FileAuthority::new();
    let strangers = FileAuthority::new();
    let server_identity = authority.sign("localhost");
    let inner = Setup::new(&[echo_upstream().await])
        .tls(ServerTls::of_files(server_identity, Some(authority.file_path("ca.pem"))).unwrap())
        .start()
        .await;
    let port = inner.address.port();
    let mount = authority.file_path("mount");
    rename_over(&mount, "", &strangers.sign("client"));
    let outer = Setup::new(&[])
        .servers(&[&format!("https://localhost:{port}")])
        .upstream(|upstream| {
            upstream.tls =
                ClientTls::of_files(Some(authority.file_path("ca.pem")), Some(mounted_identity(&mount))).unwrap();
        })
        .start()
        .await;
    assert_ne!(outer.post(application("good")).await.1, application("good"));
    rename_over(&mount, "", &authority.sign("client"));
    wait_until("the upstream's reply", async || {
        outer.post(application("good")).await.1 == application("good")
    })
    .await;
    assert_eq!(first_certificate_status(&outer).await["certificate"], "upstream");
}

/// The driver runs on this test's only thread, so that log and metrics contain nothing from other tests.
#[tokio::test]
async fn problems_with_certificates_are_logged_and_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let (log, _log_guard) = TestLog::of_this_thread();
    let warning_count = |part: &str| {
        let text = log.text();
        let lines = text.lines();
        lines
            .filter(|line| line.contains(" WARN ") && line.contains(part))
            .count()
    };
    let has_warning = |part: &str| warning_count(part) > 0;
    let has_metric = |name: &str, value: &str| {
        let line = format!("{name}{{certificate=\"listen\"}} {value}\n");
        metrics.render().contains(&line)
    };

    let authority = FileAuthority::new();
    let mount = authority.file_path("mount");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired_identity = authority.sign_with("old", params);
    make_world_readable(&expired_identity.key);
    rename_over(&mount, "", &expired_identity);
    let tls = ServerTls::of_files(mounted_identity(&mount), None).unwrap();
    let driver = Setup::new(&[echo_upstream().await]).tls(tls).start().await;
    let exposed_key_warning = "tls.key: the private key is readable by every user";
    wait_until("the warnings", async || {
        has_warning("has expired") && has_warning("alternative name")
    })
    .await;
    assert_eq!(warning_count(exposed_key_warning), 1);
    // The number is the output of `date -d 2020-01-01T00:00:00Z +%s`.
    assert!(has_metric(
        "admittance_certificate_expiry_timestamp_seconds",
        "1577836800"
    ));
    assert!(has_metric("admittance_certificate_last_reload_successful", "1"));
    assert!(has_metric("admittance_certificate_reload_failures_total", "0"));

    std::fs::write(mount.join("tls.key"), "no PEM here\n").unwrap();
    wait_until("the failure", async || {
        has_metric("admittance_certificate_reload_failures_total", "1")
    })
    .await;
    assert!(has_metric("admittance_certificate_last_reload_successful", "0"));
    assert!(has_warning("tls.key: it holds no private key"));

    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let next_identity = authority.sign_with("next", params);
    make_world_readable(&next_identity.key);
    rename_over(&mount, "", &next_identity);
    wait_until("the next certificate", async || {
        has_metric("admittance_certificate_expiry_timestamp_seconds", "4102444800")
            && has_metric("admittance_certificate_last_reload_successful", "1")
    })
    .await;
    assert_eq!(warning_count(exposed_key_warning), 2);
    assert_eq!(
        presented_certificate(&driver, &authority).await,
        der(&next_identity.certificate)
    );
}

/// Makes a file world-readable. Copies of the file keep this mode.
fn make_world_readable(file: &Path) {
    std::fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
}
