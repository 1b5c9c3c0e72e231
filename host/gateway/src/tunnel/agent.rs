//! The agent in a cluster, which reports the cluster's credentials to a gateway, and keeps a tunnel to it open.

mod cluster;

use std::{path::PathBuf, time::Duration};

use admittance_net::{
    causes,
    tls::ClientTls,
    upstream::{UpstreamConnector, new_connector},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use metrics::gauge;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use self::cluster::Credentials;
pub use self::cluster::{AgentCredentials, ApiServers};
use super::{
    LARGEST_GATEWAY_MESSAGE,
    connect::{ConnectError, MAX_PAUSE, TIMEOUT, excerpt, open_websocket, reconnect_backoff, uri_at_path},
    serve_agent,
};
use crate::{
    accounts::Secret,
    kubernetes::headers::{AGENT_MODULES, CLUSTER_ID_HEADER, MODULE_HEADER, PARAMS_HEADER, TOKEN_HEADER, TUNNEL_PATH},
    metric_names,
};

/// The number of bytes of a gateway's reply that are read for the log.
const LONGEST_REPLY: usize = 64 << 10;
/// An agent opens a new tunnel when it has new credentials. The previous tunnel stays open for this time, so that the
/// requests in it can end.
const PREVIOUS_TUNNEL_TIMEOUT: Duration = Duration::from_secs(600);

/// The settings of an agent: the gateway to which it reports, and the sources of what it reports.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The URL of the gateway: `https://{host}:{port}`.
    pub gateway: Uri,
    pub tls: ClientTls,
    /// The ID of the cluster at the gateway.
    pub cluster: String,
    pub register_token: Secret,
    pub servers: ApiServers,
    pub credentials: AgentCredentials,
    /// The interval at which the agent reads the cluster's credentials and addresses and reports them.
    pub report_period: Duration,
    /// Whether the agent keeps a tunnel to the gateway open. If not, the gateway connects to the reported addresses.
    pub has_tunnel: bool,
}

#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("ReportedCredentials")]
struct ReportedCredentials {
    credentials: Credentials,
    servers: Vec<Uri>,
}

/// The state of an agent: whether it reaches its gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Whether the gateway accepted the last report.
    pub is_reported: bool,
    pub has_tunnel: bool,
}

#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error("{file}: {reason}", file = file.display())]
    File { file: PathBuf, reason: String },
    #[error("the API servers are not known: {0}")]
    Endpoints(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl AgentConfig {
    /// Reads the credentials of the cluster and the addresses of its API servers. If only the addresses cannot be read,
    /// the addresses in `previous`, which were read before, are used again.
    async fn read_credentials(
        &self,
        previous: Option<&ReportedCredentials>,
    ) -> Result<ReportedCredentials, AgentError> {
        let credentials = self.credentials.read().await?;
        let servers = self.servers.list(&credentials).await.unwrap_or_else(|error| {
            let previous = previous.map(|previous| previous.servers.clone());
            let servers = previous.unwrap_or_else(|| self.servers.fallback_servers(&credentials));
            tracing::warn!(%error, ?servers, "the addresses of API servers stay as they were");
            servers
        });
        Ok(ReportedCredentials { credentials, servers })
    }
}

/// Runs an agent, and puts its state into `status`. Never returns, because failures are retried.
pub async fn run(config: AgentConfig, status: watch::Sender<AgentStatus>) {
    let (sender, current) = watch::channel(None);
    let agent = Agent {
        connector: new_connector(config.tls.clone(), TIMEOUT),
        config,
        status,
    };
    agent.set_status(|_| {});
    tokio::join!(
        agent.keep_reporting(sender),
        agent.keep_tunnel_open(current),
        agent.config.tls.keep_fresh()
    );
}

struct Agent {
    config: AgentConfig,
    connector: UpstreamConnector,
    status: watch::Sender<AgentStatus>,
}

impl Agent {
    fn set_status(&self, change: impl FnOnce(&mut AgentStatus)) {
        self.status.send_modify(change);
        let status = *self.status.borrow();
        gauge!(metric_names::AGENT_REPORTED).set(f64::from(u8::from(status.is_reported)));
        gauge!(metric_names::AGENT_TUNNEL).set(f64::from(u8::from(status.has_tunnel)));
    }

    async fn keep_reporting(&self, current: watch::Sender<Option<ReportedCredentials>>) {
        let client = Client::builder(TokioExecutor::new()).build(self.connector.clone());
        let mut pauses = reconnect_backoff();
        let mut last = None;
        loop {
            let previous = current.borrow().clone();
            let result = match self.config.read_credentials(previous.as_ref()).await {
                Ok(credentials) => {
                    current.send_if_modified(|current| {
                        let is_new = current.as_ref() != Some(&credentials);
                        *current = Some(credentials.clone());
                        is_new
                    });
                    self.put_credentials(&client, &credentials).await
                }
                Err(error) => Err(error),
            };
            let reported = result.map_err(|error| error.to_string());
            self.set_status(|status| status.is_reported = reported.is_ok());
            let pause = if reported.is_ok() {
                pauses.reset();
                self.config.report_period
            } else {
                pauses.pause_after_failure()
            };
            match &reported {
                reported if last.as_ref() == Some(reported) => {}
                Ok(()) => tracing::info!(
                    cluster = self.config.cluster,
                    "the gateway has the cluster's credentials"
                ),
                Err(error) => {
                    tracing::warn!(error, "the cluster's credentials were not reported; trying again")
                }
            }
            last = Some(reported);
            tokio::time::sleep(pause).await;
        }
    }

    async fn put_credentials(
        &self,
        client: &Client<UpstreamConnector, Full<Bytes>>,
        credentials: &ReportedCredentials,
    ) -> Result<(), AgentError> {
        let body = json!({
            "register_token": self.config.register_token.0,
            "server_addresses": credentials.addresses(),
            "cacert_data": credentials.credentials.ca,
            "user_token": credentials.credentials.token,
        });
        let path = format!("/rest/clusters/{}/credentials", self.config.cluster);
        let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = uri_at_path(&self.config.gateway, &path)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let replied = tokio::time::timeout(TIMEOUT, client.request(request)).await;
        let reply = replied
            .map_err(|_| ConnectError::Timeout)?
            .map_err(|error| ConnectError::Unreachable(causes::chain(&error)))?;
        let status = reply.status();
        let collecting = Limited::new(reply.into_body(), LONGEST_REPLY).collect();
        let reply_body = tokio::time::timeout(TIMEOUT, collecting)
            .await
            .map_err(|_| ConnectError::Timeout)?;
        let text = reply_body.map(|text| text.to_bytes()).unwrap_or_default();
        if status.is_success() && !is_refusal(&text) {
            Ok(())
        } else {
            Err(ConnectError::Refused(status, excerpt(&text)).into())
        }
    }

    async fn keep_tunnel_open(&self, mut current: watch::Receiver<Option<ReportedCredentials>>) {
        if !self.config.has_tunnel {
            return std::future::pending().await;
        }
        let mut pauses = reconnect_backoff();
        loop {
            // `wait_for` fails only after its sender was dropped. That does not happen here, because the task that owns
            // the sender runs as long as this future.
            let Ok(credentials) = current.wait_for(Option::is_some).await.map(|current| current.clone()) else {
                return std::future::pending().await;
            };
            current.mark_unchanged();
            let Some(credentials) = credentials else { continue };
            let opened = Instant::now();
            match self.open_tunnel(&credentials).await {
                Ok(tunnel) => {
                    tracing::info!(cluster = self.config.cluster, "the tunnel to the gateway is open");
                    self.set_status(|status| status.has_tunnel = true);
                    let mut tunnel = Box::pin(tunnel);
                    tokio::select! {
                        why = &mut tunnel => {
                            self.set_status(|status| status.has_tunnel = false);
                            tracing::warn!(why, "the tunnel to the gateway has ended; opening another");
                        }
                        _ = current.changed() => {
                            tokio::spawn(tokio::time::timeout(PREVIOUS_TUNNEL_TIMEOUT, tunnel));
                            pauses.reset();
                            continue;
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the tunnel to the gateway was not opened; trying again")
                }
            }
            if opened.elapsed() > MAX_PAUSE {
                pauses.reset();
            }
            tokio::time::sleep(pauses.pause_after_failure()).await;
        }
    }

    async fn open_tunnel(
        &self,
        credentials: &ReportedCredentials,
    ) -> Result<impl Future<Output = String> + Send + use<>, AgentError> {
        let params = json!({
            "address": credentials.addresses(),
            "userToken": credentials.credentials.token,
            "caCert": BASE64_STANDARD.encode(&credentials.credentials.ca),
        });
        let uri = uri_at_path(&self.config.gateway, TUNNEL_PATH)?;
        let headers = vec![
            (MODULE_HEADER, AGENT_MODULES[0].to_owned()),
            (CLUSTER_ID_HEADER, self.config.cluster.clone()),
            (TOKEN_HEADER, self.config.register_token.0.clone()),
            (PARAMS_HEADER, BASE64_STANDARD.encode(params.to_string())),
        ];
        let (socket, _) =
            open_websocket(&self.connector, uri, &generate_key(), headers, LARGEST_GATEWAY_MESSAGE).await?;
        let allowed = credentials.servers.iter().map(|server| {
            let port = server.port_u16().unwrap_or(443);
            format!("{}:{port}", server.host().unwrap_or_default())
        });
        Ok(serve_agent(socket, allowed.collect()))
    }
}

impl ReportedCredentials {
    fn addresses(&self) -> String {
        let servers = self.servers.iter().map(|server| server.to_string());
        let addresses: Vec<_> = servers.map(|text| text.trim_end_matches('/').to_owned()).collect();
        addresses.join(";")
    }
}

/// Returns whether the body of a reply contains an error. The HTTP status is not enough, because bcs-api replies 200
/// even if a value in the request is invalid.
fn is_refusal(text: &[u8]) -> bool {
    let reply: Result<serde_json::Value, _> = serde_json::from_slice(text);
    reply.is_ok_and(|reply| reply.get("code_name").is_some())
}
