//! Runs a driver between a client and an upstream on loopback.

use std::{future::Future, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use admittance::{
    Host,
    admission::{
        Chain, Deadline, Denial, Failure, Hook, Operation, Patch, Request as Admission, Response as Answer, Rule,
        Stage, Verdict, async_trait,
    },
};
use admittance_admin::AdminConfig;
use admittance_bcs::{BcsConfig, SchedulersConfig, UpstreamKind, zookeeper::Ensembles};
use admittance_driver::{
    AdminPort, Config, Connections, DefinitionFiles, Driver, Limits, ListenConfig, LogConfig, Shutdown, ShutdownResult,
};
use admittance_net::{
    tls::{self, ClientTls, ServerTls, Trust},
    upstream::{UpstreamConfig, UpstreamServer},
    workers::Workers,
};
use axum::{Router, body::Body};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinHandle,
};

pub(crate) const CLUSTER: &str = "BCS-MESOS-10001";
pub(crate) const APPLICATIONS: &str = "/mesosdriver/v4/namespaces/n/applications";

/// The time after which a single wait in a test counts as hanging, even on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("it hangs")
}

/// A hook that denies objects named `bad`, warns about objects named `odd`, and adds a label to objects named `plain`.
pub(crate) struct HarnessHook;

#[async_trait]
impl Hook for HarnessHook {
    async fn admit(&self, request: &Arc<Admission>, _: Deadline) -> Result<Answer, Failure> {
        Ok(match request.name.as_str() {
            "bad" => Answer::deny(Denial::forbidden("it is bad")),
            "plain" => {
                let patch = json!([{"op": "add", "path": "/seen", "value": true}]);
                Answer::new(Verdict::Patch(Patch::parse(patch.to_string()).unwrap()))
            }
            "odd" => {
                let mut answer = Answer::allow();
                answer.warnings = vec!["it is odd".to_owned()];
                answer
            }
            _ => Answer::allow(),
        })
    }
}

/// Returns an application with this name, by which [`HarnessHook`] decides.
pub(crate) fn application(name: &str) -> String {
    json!({"apiVersion": "v4", "kind": "application", "metadata": {"name": name, "namespace": "n"}}).to_string()
}

pub(crate) struct Setup {
    pub(crate) config: Config,
    /// Whether the driver serves on the test's thread, so that its metrics and log contain nothing of other tests.
    is_on_this_thread: bool,
}

pub(crate) struct RunningDriver {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) shutdown: Shutdown,
    run_task: JoinHandle<ShutdownResult>,
}

impl Setup {
    pub(crate) fn new(servers: &[SocketAddr]) -> Self {
        let servers = servers
            .iter()
            .map(|address| format!("http://{address}").parse().unwrap())
            .collect::<Vec<UpstreamServer>>();
        Self {
            config: Config {
                listen: ListenConfig {
                    address: loopback(),
                    tls: None,
                },
                admin: Some(AdminConfig::new(loopback())),
                replicas: None,
                front: Box::new(BcsConfig {
                    cluster: CLUSTER.parse().unwrap(),
                    upstream_kind: UpstreamKind::Driver,
                    servers: SchedulersConfig::Listed(servers),
                    upstream: UpstreamConfig {
                        tls: client_without_tls(),
                        connect_timeout: UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
                        response_timeout: UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
                        health: None,
                    },
                    console: Default::default(),
                    allows_custom_resources: false,
                    registration: None,
                }),
                lists: Vec::new(),
                limits: Limits::default(),
                definitions: Vec::new(),
                lease: None,
                on_bad_definition: Default::default(),
                zookeeper: Default::default(),
                store: Default::default(),
                history: Default::default(),
                catalog: Default::default(),
                sandbox: Default::default(),
                plugin_http: Default::default(),
                namespaces: Default::default(),
                cluster: None,
                webhook_addresses: Vec::new(),
                accepts_short_keys: false,
                decisions: Default::default(),
                decision_sinks: Default::default(),
                log: LogConfig::default(),
                tracing: None,
                ambiguities: Vec::new(),
            },
            is_on_this_thread: false,
        }
    }

    pub(crate) fn on_this_thread(mut self) -> Self {
        self.is_on_this_thread = true;
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    pub(crate) fn upstream(self, change: impl FnOnce(&mut UpstreamConfig)) -> Self {
        self.bcs(|bcs| change(&mut bcs.upstream))
    }

    pub(crate) fn servers(self, servers: &[&str]) -> Self {
        let servers = servers.iter().map(|server| server.parse().unwrap()).collect();
        self.bcs(|bcs| bcs.servers = SchedulersConfig::Listed(servers))
    }

    pub(crate) fn bcs(mut self, change: impl FnOnce(&mut BcsConfig)) -> Self {
        change(self.config.front.downcast_mut().unwrap());
        self
    }

    pub(crate) fn admin(mut self, admin: AdminConfig) -> Self {
        self.config.admin = Some(admin);
        self
    }

    pub(crate) fn with_definition_files(mut self, directory: &Path) -> Self {
        std::fs::create_dir_all(directory.join("chains")).unwrap();
        self.config.definitions = vec![Arc::new(DefinitionFiles(directory.join("chains")))];
        self.config.history.directory = Some(directory.join("history"));
        self
    }

    pub(crate) fn tls(mut self, tls: ServerTls) -> Self {
        self.config.listen.tls = Some(tls);
        self
    }

    /// Starts a driver with a chain for all creations. Its only stage is [`HarnessHook`].
    pub(crate) async fn start(self) -> RunningDriver {
        let chain = Chain::new(
            "c",
            vec![Rule::for_operations([Operation::Create])],
            vec![Stage::new("judge", HarnessHook)],
        );
        let mut builder = Host::builder().chain(chain);
        for path in self.config.definition_files() {
            builder = builder.definitions(path);
        }
        if let Some(directory) = &self.config.history.directory {
            builder = builder.history(directory);
        }
        let host = builder.build().await.unwrap();
        self.start_with(host).await
    }

    pub(crate) async fn start_with(self, host: Host) -> RunningDriver {
        let metrics = Arc::new(|| "a_metric 1\n".to_owned());
        let ensembles = Ensembles::open(&self.config.zookeeper);
        let cluster = match &self.config.cluster {
            Some(config) => Some(admittance_cluster::Cluster::connect(config).await.unwrap()),
            None => None,
        };
        let connections = Connections {
            ensembles,
            cluster,
            chain_store: None,
            webhooks: None,
            goes_live_together: false,
        };
        let admin = AdminPort::open(&self.config, metrics).await.unwrap();
        let mut driver = Driver::bind(self.config, connections, host, admin).await.unwrap();
        if !self.is_on_this_thread {
            driver = driver.with_workers(Workers::start().unwrap());
        }
        let shutdown = Shutdown::default();
        RunningDriver {
            address: driver.address(),
            // Tests connect to loopback, because the driver may listen on all addresses.
            admin: ([127, 0, 0, 1], driver.admin_address().unwrap().port()).into(),
            run_task: tokio::spawn(driver.run(shutdown.clone())),
            shutdown,
        }
    }
}

impl RunningDriver {
    pub(crate) async fn wait_until_stopped(self) -> ShutdownResult {
        within_timeout(self.run_task).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        within_timeout(TcpStream::connect(self.address)).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<hyper::body::Incoming> {
        send(self.address, request).await
    }

    pub(crate) async fn post(&self, body: impl Into<Body>) -> (u16, String) {
        status_and_text(self.send(post_request(body)).await).await
    }

    pub(crate) async fn send_to_admin(&self, request: Request<Body>) -> Response<hyper::body::Incoming> {
        send(self.admin, request).await
    }

    pub(crate) async fn get_from_admin(&self, path: &str) -> (u16, String) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        status_and_text(send(self.admin, request).await).await
    }

    pub(crate) async fn status(&self) -> Value {
        let (status, body) = self.get_from_admin("/v1/status").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn client_without_tls() -> ClientTls {
    tls::client_config(Trust::SystemAnd(None), None).unwrap().into()
}

pub(crate) fn post_request(body: impl Into<Body>) -> Request<Body> {
    request("POST", APPLICATIONS, body)
}

pub(crate) fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("BCS-ClusterID", CLUSTER)
        .body(body.into())
        .unwrap()
}

pub(crate) fn http_client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn send(address: SocketAddr, mut request: Request<Body>) -> Response<hyper::body::Incoming> {
    let path = request.uri().path_and_query().unwrap().to_string();
    *request.uri_mut() = format!("http://{address}{path}").parse().unwrap();
    within_timeout(http_client().request(request)).await.unwrap()
}

pub(crate) async fn status_and_text(response: Response<hyper::body::Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = within_timeout(response.into_body().collect()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn echo_upstream() -> SocketAddr {
    serve(Router::new().fallback(async |request: Request<Body>| request.into_body())).await
}

/// Starts an upstream that reports to the test that a request has arrived, and replies to it when the test allows it.
pub(crate) async fn held_upstream() -> (SocketAddr, Arc<Notify>, mpsc::UnboundedReceiver<()>) {
    let release = Arc::new(Notify::new());
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let routes = {
        let release = release.clone();
        Router::new().fallback(async move |_: Request<Body>| {
            arrived.send(()).unwrap();
            release.notified().await;
            "done"
        })
    };
    (serve(routes).await, release, arrivals)
}

pub(crate) async fn serve(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

pub(crate) async fn refusing_upstream() -> SocketAddr {
    TcpListener::bind(loopback()).await.unwrap().local_addr().unwrap()
}

pub(crate) async fn read_rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    within_timeout(stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

pub(crate) async fn read_until(stream: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        text.push(within_timeout(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

pub(crate) async fn write(stream: &mut (impl tokio::io::AsyncWrite + Unpin), text: &str) {
    within_timeout(stream.write_all(text.as_bytes())).await.unwrap();
}

/// Asserts that bodies are streamed both ways: each chunk is sent only after the previous one has come back.
pub(crate) async fn assert_streams(driver: &RunningDriver, path: &str) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(receiver, async |mut receiver| {
        let chunk = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(chunk), receiver))
    });
    let put_request = request("PUT", path, Body::from_stream(body));
    let mut response = driver.send(put_request).await.into_body();
    for round in 0..8_u8 {
        let chunk = Bytes::from(vec![round; 64 * 1024]);
        within_timeout(sender.send(chunk.clone())).await.unwrap();
        let mut echoed_bytes = Vec::new();
        while echoed_bytes.len() < chunk.len() {
            let frame = within_timeout(response.frame()).await.unwrap().unwrap();
            echoed_bytes.extend(frame.into_data().unwrap());
        }
        assert_eq!(echoed_bytes, chunk);
    }
    drop(sender);
    assert!(within_timeout(response.frame()).await.is_none());
}
