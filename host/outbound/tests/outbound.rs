//! Requests of plugins over real sockets and real TLS.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only the functions marked #[test] for tests, not what helps them"
)]

use std::{
    convert::Infallible,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance_admission::{Deadline, HttpError, HttpGrant, HttpOrigin, HttpRequest, HttpResponse, HttpSender as _};
use admittance_outbound::{Credential, Outbound, OutboundConfig};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// The host name in the test server's certificate.
const HOST: &str = "policy.example.com";

/// A host name that is configured to resolve to a loopback address.
const ALIAS: &str = "other.example.com";

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The method, path and relevant headers of each request that the test server received.
type RequestLog = Arc<Mutex<Vec<String>>>;

struct OutboundScene {
    directory: TempDir,
    address: SocketAddr,
    request_log: RequestLog,
    config: OutboundConfig,
}

impl OutboundScene {
    async fn new() -> Self {
        Self::with_tls(true).await
    }

    async fn with_tls(has_tls: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let ca = directory.path().join("ca.pem");
        fs::write(&ca, authority.pem()).unwrap();
        let acceptor = has_tls.then(|| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![HOST.to_owned(), "localhost".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            let mut config = ServerConfig::builder_with_provider(admittance_net::tls::provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .unwrap();
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let request_log = RequestLog::default();
        tokio::spawn(accept(listener, acceptor, request_log.clone()));
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let config = OutboundConfig {
            ca: Some(ca),
            resolve: [(HOST.to_owned(), loopback), (ALIAS.to_owned(), loopback)].into(),
            ..OutboundConfig::default()
        };
        Self {
            directory,
            address,
            request_log,
            config,
        }
    }

    fn sender(&self) -> Outbound {
        Outbound::new(self.config.clone()).unwrap()
    }

    fn origin(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}", self.address.port())
    }

    /// Returns a grant for the test server's host name, which allows the server's loopback address.
    fn grant(&self) -> HttpGrant {
        HttpGrant {
            networks: vec!["127.0.0.0/8".parse().unwrap()],
            ..HttpGrant::from(
                self.origin("https", HOST)
                    .parse::<admittance_admission::HttpOrigin>()
                    .unwrap(),
            )
        }
    }

    fn get(&self, path: &str) -> HttpRequest {
        HttpRequest::new("GET", format!("{}{path}", self.origin("https", HOST)).parse().unwrap())
    }

    fn take_request_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.request_log.lock().unwrap())
    }

    fn credential(&self, text: &str) -> (Credential, PathBuf) {
        let file = self.directory.path().join("token");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let credential = Credential {
            file: file.clone(),
            origins: [self.grant().origin].into(),
            header: None,
        };
        (credential, file)
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, request_log: RequestLog) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, received_paths) = (acceptor.clone(), request_log.clone());
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, received_paths).await;
                    }
                }
                None => serve(stream, received_paths).await,
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, request_log: RequestLog) {
    let service = service_fn(move |request| answer(request, request_log.clone()));
    // An error is ignored here: it only means that the client has closed the connection in an unusual way.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, request_log: RequestLog) -> Result<Answer, Infallible> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok().map(str::to_owned))
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (authorization, condition) = (header("authorization"), header("if-none-match"));
    let mut request_line = format!("{method} {path}");
    for part in [&authorization, &condition].into_iter().flatten() {
        request_line.push_str(&format!(" {part}"));
    }
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    request_log.lock().unwrap().push(request_line);
    let response_with_body = |status: u16, body: Bytes| {
        let mut answer = Response::new(Full::new(body).boxed());
        *answer.status_mut() = status.try_into().unwrap();
        answer
    };
    let with_header = |mut answer: Answer, name: &'static str, value: &str| {
        answer.headers_mut().insert(name, value.parse().unwrap());
        answer
    };
    Ok(match path.as_str() {
        "/silent" => std::future::pending().await,
        "/large" => response_with_body(200, vec![b' '; 2 << 20].into()),
        "/redirect" => with_header(response_with_body(302, Bytes::new()), "location", "/elsewhere"),
        "/minute" => with_header(response_with_body(200, "kept".into()), "cache-control", "max-age=60"),
        "/private" => with_header(response_with_body(200, "not kept".into()), "cache-control", "no-store"),
        "/forever" => {
            let answer = with_header(response_with_body(200, "old".into()), "cache-control", "max-age=60");
            with_header(answer, "age", &u64::MAX.to_string())
        }
        "/checked" if condition.as_deref() == Some("\"1\"") => {
            with_header(response_with_body(304, Bytes::new()), "etag", "\"1\"")
        }
        "/checked" => {
            let answer = with_header(response_with_body(200, "checked".into()), "etag", "\"1\"");
            with_header(answer, "cache-control", "no-cache")
        }
        _ => response_with_body(200, body.unwrap()),
    })
}

async fn send(sender: &Outbound, grant: &HttpGrant, request: HttpRequest) -> Result<HttpResponse, HttpError> {
    sender
        .send(grant, request, Deadline::after(Duration::from_secs(30)))
        .await
}

fn denial_reason(answer: Result<HttpResponse, HttpError>) -> String {
    match answer {
        Err(HttpError::Denied(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plugin_request_is_sent_over_tls() {
    let scene = OutboundScene::new().await;
    let mut request = scene.get("/v1/rules?x=y");
    request.method = "POST".to_owned();
    request.body = b"what is allowed?".to_vec();
    let response = send(&scene.sender(), &scene.grant(), request).await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.body, b"what is allowed?");
    assert_eq!(scene.take_request_lines(), ["POST /v1/rules"]);
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let mut scene = OutboundScene::new().await;
    let alias_request = HttpRequest::new("GET", scene.origin("https", ALIAS).parse().unwrap());
    let grant = HttpGrant {
        origin: scene.origin("https", ALIAS).parse().unwrap(),
        ..scene.grant()
    };
    let wrong_name = send(&scene.sender(), &grant, alias_request).await.unwrap_err();
    scene.config.ca = None;
    let unknown_authority = send(&scene.sender(), &scene.grant(), scene.get("/")).await.unwrap_err();
    for (error, part) in [
        (wrong_name, "its certificate is for policy.example.com"),
        (unknown_authority, "`pluginHttp.ca`"),
    ] {
        assert!(
            matches!(&error, HttpError::Unreachable(reason) if reason.contains(part)),
            "{error:?}"
        );
    }
    assert!(scene.take_request_lines().is_empty());
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused() {
    let scene = OutboundScene::new().await;
    let sender = scene.sender();
    let other_network_grant = HttpGrant {
        networks: vec!["10.0.0.0/8".parse().unwrap()],
        ..scene.grant()
    };
    let grant_without_networks = HttpGrant {
        networks: Vec::new(),
        ..scene.grant()
    };
    // This request leaves an open connection to 127.0.0.1 in the pool. The grants
    // `other_network_grant` and `grant_without_networks` do not allow this address, so their requests must not use the
    // open connection.
    send(&sender, &scene.grant(), scene.get("/")).await.unwrap();
    for grant in [&other_network_grant, &grant_without_networks] {
        let message = denial_reason(send(&sender, grant, scene.get("/")).await);
        assert!(
            message.contains("`policy.example.com` resolves to 127.0.0.1, which is not a public address"),
            "{message}"
        );
        assert!(
            message.contains("add `127.0.0.1` or its network to `networks`"),
            "{message}"
        );
    }
    assert_eq!(scene.take_request_lines(), ["GET /"]);
}

#[tokio::test]
async fn a_response_is_not_cached_for_other_grants() {
    let scene = OutboundScene::new().await;
    let sender = scene.sender();
    send(&sender, &scene.grant(), scene.get("/minute")).await.unwrap();
    let grant_without_networks = HttpGrant {
        networks: Vec::new(),
        ..scene.grant()
    };
    denial_reason(send(&sender, &grant_without_networks, scene.get("/minute")).await);
}

#[tokio::test]
async fn a_post_discards_the_cached_responses_of_its_uri() {
    let scene = OutboundScene::new().await;
    let sender = scene.sender();
    let get = async |path: &str| send(&sender, &scene.grant(), scene.get(path)).await.unwrap();
    let post = async |path: &str| {
        let mut request = scene.get(path);
        request.method = "POST".to_owned();
        send(&sender, &scene.grant(), request).await.unwrap()
    };
    get("/minute").await;
    get("/minute?other").await;
    get("/minute").await;
    post("/minute").await;
    get("/minute").await;
    get("/minute?other").await;
    assert_eq!(
        scene.take_request_lines(),
        ["GET /minute", "GET /minute", "POST /minute", "GET /minute"]
    );
}

#[tokio::test]
async fn a_loopback_address_is_allowed_if_the_grant_names_it() {
    let scene = OutboundScene::with_tls(false).await;
    for host in ["127.0.0.1", "localhost"] {
        let origin = scene.origin("http", host);
        let grant = HttpGrant::from(origin.parse::<admittance_admission::HttpOrigin>().unwrap());
        let request = HttpRequest::new("GET", format!("{origin}/here").parse().unwrap());
        assert_eq!(
            send(&scene.sender(), &grant, request).await.unwrap().status,
            200,
            "{host}"
        );
    }
    assert_eq!(scene.take_request_lines(), ["GET /here", "GET /here"]);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let scene = OutboundScene::new().await;
    let response = send(&scene.sender(), &scene.grant(), scene.get("/redirect"))
        .await
        .unwrap();
    assert_eq!(response.status, 302);
    assert!(
        response
            .headers
            .contains(&("location".to_owned(), "/elsewhere".to_owned()))
    );
    assert_eq!(scene.take_request_lines(), ["GET /redirect"]);
}

#[tokio::test]
async fn a_response_that_is_slow_or_too_large_is_abandoned() {
    let scene = OutboundScene::new().await;
    let sender = scene.sender();
    let short_deadline = Deadline::after(Duration::from_millis(200));
    let slow = sender.send(&scene.grant(), scene.get("/silent"), short_deadline).await;
    assert_eq!(slow, Err(HttpError::Timeout));
    assert!(short_deadline.has_passed());
    let large = send(&sender, &scene.grant(), scene.get("/large")).await;
    assert_eq!(large, Err(HttpError::TooLarge(1 << 20)));
    assert_eq!(send(&sender, &scene.grant(), scene.get("/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_request_with_endless_informational_responses_fails() {
    let scene = OutboundScene::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {}
    });
    let grant = HttpGrant::from(origin.parse::<HttpOrigin>().unwrap());
    let request = HttpRequest::new("GET", origin.parse().unwrap());
    let error = send(&scene.sender(), &grant, request).await.unwrap_err();
    assert!(
        matches!(&error, HttpError::Unreachable(reason) if reason.contains("informational responses")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_request_to_an_unreachable_server_fails() {
    let scene = OutboundScene::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let origin = format!("https://{HOST}:{}", listener.local_addr().unwrap().port());
    drop(listener);
    let grant = HttpGrant {
        origin: origin.parse().unwrap(),
        ..scene.grant()
    };
    let request = HttpRequest::new("GET", origin.parse().unwrap());
    let error = send(&scene.sender(), &grant, request).await.unwrap_err();
    assert!(
        matches!(&error, HttpError::Unreachable(reason) if reason.contains(&origin) && reason.contains("refused")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_credential_is_sent_only_to_its_origins() {
    let mut scene = OutboundScene::new().await;
    let (credential, file) = scene.credential("secret-1\n");
    scene.config.credentials.insert("policy".to_owned(), credential);
    let sender = scene.sender();
    let grant = |name: &str| HttpGrant {
        credential: Some(name.to_owned()),
        ..scene.grant()
    };
    send(&sender, &grant("policy"), scene.get("/")).await.unwrap();
    fs::write(&file, "secret-2").unwrap();
    send(&sender, &grant("policy"), scene.get("/")).await.unwrap();
    assert_eq!(
        scene.take_request_lines(),
        ["GET / Bearer secret-1", "GET / Bearer secret-2"]
    );

    let unknown = denial_reason(send(&sender, &grant("other"), scene.get("/")).await);
    assert!(unknown.contains("add `pluginHttp.credentials.other`"), "{unknown}");
    let other_origin_grant = HttpGrant {
        origin: scene.origin("https", ALIAS).parse().unwrap(),
        ..grant("policy")
    };
    let request = HttpRequest::new("GET", scene.origin("https", ALIAS).parse().unwrap());
    let other_origin_reason = denial_reason(send(&sender, &other_origin_grant, request).await);
    assert!(
        other_origin_reason.contains("`pluginHttp.credentials.policy.origins`"),
        "{other_origin_reason}"
    );

    let mut authorized_request = scene.get("/");
    authorized_request
        .headers
        .push(("Authorization".to_owned(), "Bearer own".to_owned()));
    let refusal = send(&sender, &grant("policy"), authorized_request).await.unwrap_err();
    assert!(matches!(refusal, HttpError::Invalid(_)), "{refusal:?}");

    let large_secret = "s".repeat(9 << 10);
    for (mode, text) in [
        (0o644, "readable"),
        (0o600, ""),
        (0o600, "two\nlines"),
        (0o600, large_secret.as_str()),
    ] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let error = send(&sender, &grant("policy"), scene.get("/")).await.unwrap_err();
        assert!(
            matches!(&error, HttpError::Unavailable(reason) if !reason.contains("token")),
            "{text}: {error:?}"
        );
    }
    assert!(scene.take_request_lines().is_empty());
}

#[tokio::test]
async fn responses_are_cached_as_their_headers_allow() {
    let mut scene = OutboundScene::new().await;
    let (credential, _) = scene.credential("secret");
    scene.config.credentials.insert("policy".to_owned(), credential);
    let sender = scene.sender();
    for (path, expected_requests) in [
        ("/minute", &["GET /minute"][..]),
        ("/private", &["GET /private", "GET /private"]),
        ("/checked", &["GET /checked", "GET /checked \"1\""]),
        ("/forever", &["GET /forever", "GET /forever"]),
    ] {
        let first = send(&sender, &scene.grant(), scene.get(path)).await.unwrap();
        let second = send(&sender, &scene.grant(), scene.get(path)).await.unwrap();
        assert_eq!((second.status, second.body), (200, first.body), "{path}");
        assert_eq!(scene.take_request_lines(), expected_requests, "{path}");
    }
    // A request with one of these headers is never answered from the cache, because the answer may be meant only for
    // this request. For example, a plugin may send an API key of its own in `x-api-key`.
    for (name, value) in [
        ("authorization", "Bearer own"),
        ("range", "bytes=0-1"),
        ("x-api-key", "own"),
    ] {
        let mut request = scene.get("/minute");
        request.headers.push((name.to_owned(), value.to_owned()));
        send(&sender, &scene.grant(), request).await.unwrap();
        assert_eq!(scene.take_request_lines().len(), 1, "{name}");
    }
    let with_credential = HttpGrant {
        credential: Some("policy".to_owned()),
        ..scene.grant()
    };
    send(&sender, &with_credential, scene.get("/minute")).await.unwrap();
    assert_eq!(scene.take_request_lines(), ["GET /minute Bearer secret"]);
    scene.config.cache_size = 0;
    let without_cache = scene.sender();
    for _ in 0..2 {
        send(&without_cache, &scene.grant(), scene.get("/minute"))
            .await
            .unwrap();
    }
    assert_eq!(scene.take_request_lines().len(), 2);
}
