//! Sends JSON lines to a server.

use std::time::Duration;

use admittance::{DecisionDetail, admission::async_trait};
use admittance_net::{
    bearer::read_header,
    causes::root_cause,
    client::{ClientOptions, ClientRequest, HttpClient, ProxyChoice},
    tls::{self, Trust},
};
use http::{
    HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use url::Host;

use super::{DecisionSink, SinkError, json_lines};
use crate::decisions::config::HttpConfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time from the sending of a request until the server has sent the head of its response.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TOKEN_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct HttpSink {
    config: HttpConfig,
    client: HttpClient,
}

impl HttpSink {
    pub(super) fn new(config: HttpConfig) -> Result<Self, SinkError> {
        let tls = tls::client_config(Trust::SystemAnd(config.ca.as_deref()), None)?;
        let options = ClientOptions {
            connect_timeout: CONNECT_TIMEOUT,
            silence_timeout: SILENCE_TIMEOUT,
            proxy: if is_local(&config) {
                ProxyChoice::None
            } else {
                ProxyChoice::Environment
            },
        };
        Ok(Self {
            client: HttpClient::new(tls, options),
            config,
        })
    }

    /// Returns the header with the bearer token, read from the file each time because the token may have been replaced.
    async fn read_token(&self) -> Result<Option<HeaderValue>, SinkError> {
        let Some(path) = self.config.token_file.clone() else {
            return Ok(None);
        };
        let name = path.display().to_string();
        let value = tokio::task::spawn_blocking(move || read_header(&path, MAX_TOKEN_BYTES, "Bearer "))
            .await
            .map_err(|error| SinkError::Token(error.to_string()))?;
        let unusable = |reason| SinkError::Token(format!("{name}: {reason}"));
        value.map_err(unusable).map(Some)
    }
}

#[async_trait]
impl DecisionSink for HttpSink {
    fn name(&self) -> &'static str {
        "http"
    }

    fn gathering_time(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    async fn write(&mut self, batch: &[DecisionDetail]) -> Result<(), SinkError> {
        let HttpConfig { url, .. } = &self.config;
        let mut request = ClientRequest::new(Method::POST, url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))
            .body(json_lines(batch)?);
        if let Some(token) = self.read_token().await? {
            request = request.header(AUTHORIZATION, token);
        }
        // No redirects are followed: neither decisions nor the token may be sent to a server that is not configured.
        let outcome = self.client.send(request).await;
        let response = outcome.map_err(|error| SinkError::Unreachable {
            url: url.to_string(),
            problem: root_cause(&error),
        })?;
        if response.status.is_success() {
            return Ok(());
        }
        Err(SinkError::Status {
            url: url.to_string(),
            status: response.status.as_u16(),
        })
    }
}

fn is_local(config: &HttpConfig) -> bool {
    match config.url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
