//! Sends lines of JSON to a server.

use std::time::Duration;

use admittance_net::{
    apart,
    causes::root_cause,
    tls::{self, Trust},
};
use admittance_watch::file;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, redirect::Policy};
use url::Host;

use super::SinkError;
use crate::decisions::config::HttpConfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a whole request with its response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest file with a token, in bytes.
const TOKEN: u64 = 16 << 10;

/// A server that takes lines of JSON.
#[derive(Debug)]
pub(super) struct HttpSink {
    config: HttpConfig,
    client: Client,
}

impl HttpSink {
    pub(super) fn new(config: HttpConfig) -> Result<Self, SinkError> {
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls::client(Trust::SystemAnd(config.ca.as_deref()), None)?)
            .user_agent(concat!("admittance/", env!("CARGO_PKG_VERSION")))
            // Neither decisions nor the token must go to another server.
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT);
        if is_local(&config) {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| SinkError::Client(root_cause(&error)))?;
        Ok(Self { config, client })
    }

    pub(super) async fn write(&self, lines: Vec<u8>) -> Result<(), SinkError> {
        let HttpConfig { url, .. } = &self.config;
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/x-ndjson")
            .body(lines);
        if let Some(token) = self.token().await? {
            request = request.header(AUTHORIZATION, token);
        }
        let response = apart::run(request.send())
            .await
            .map_err(|error| SinkError::Unreachable {
                url: url.to_string(),
                problem: root_cause(&error),
            })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(SinkError::Status {
            url: url.to_string(),
            status: status.as_u16(),
        })
    }

    /// Reads the token, which may have been replaced.
    async fn token(&self) -> Result<Option<HeaderValue>, SinkError> {
        let Some(path) = self.config.token_file.clone() else {
            return Ok(None);
        };
        let name = path.display().to_string();
        let reading = tokio::task::spawn_blocking(move || {
            let text = file::read_secret_to_string(&path, TOKEN);
            text.map_err(|error| error.describe(&path, "the token file"))
        });
        let text = reading
            .await
            .map_err(|error| SinkError::Token(error.to_string()))?;
        let text = text.map_err(SinkError::Token)?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
            .map_err(|_| SinkError::Token(format!("{name}: it does not contain a token")))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Whether the server is on this machine.
fn is_local(config: &HttpConfig) -> bool {
    match config.url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
