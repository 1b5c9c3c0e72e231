use std::{path::PathBuf, time::Duration};

use admittance_net::tls::{self, Trust};
use bytes::{Bytes, BytesMut};
use reqwest::{NoProxy, Proxy, Response, StatusCode, redirect};
use url::Url;

use super::{authorization::Authorizations, failure, scheme::Schemes};
use crate::{Error, OnProgress};

/// How to connect to servers and registries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkConfig {
    /// A PEM file of CAs that are trusted in addition to the operating system's.
    pub ca: Option<PathBuf>,
    /// The proxy for all requests except those that `NO_PROXY` names; by default `HTTPS_PROXY`, `HTTP_PROXY`,
    /// `ALL_PROXY` and `NO_PROXY` of the environment are used.
    pub proxy: Option<Url>,
    /// Docker's `config.json`, or the directory that it is in; otherwise `$DOCKER_CONFIG`, then `~/.docker`.
    pub docker_config: Option<PathBuf>,
    /// Registries (host, and port if one is written) that may be used without TLS. Loopback addresses always
    /// may.
    pub insecure_registries: Vec<String>,
    /// The timeout for connecting. 10 seconds.
    pub connect_timeout: Duration,
    /// How long a server may be silent. 30 seconds.
    pub read_timeout: Duration,
    /// The number of attempts, at least 1. Attempts of a download that makes progress are not counted. 5.
    pub attempts: usize,
    /// The pause before the second attempt; it doubles with each further one. Half a second.
    pub first_pause: Duration,
    /// The longest pause. If a server asks for a longer one, there is no retry. 30 seconds.
    pub longest_pause: Duration,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            ca: None,
            proxy: None,
            docker_config: None,
            insecure_registries: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            attempts: 5,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// The HTTP client for all fetches. Lives as long as the catalog.
#[derive(Debug)]
pub(crate) struct Network {
    pub(super) client: reqwest::Client,
    pub(super) config: NetworkConfig,
    pub(super) authorizations: Authorizations,
    pub(super) schemes: Schemes,
}

/// No more than browsers and curl follow; a registry needs one.
const REDIRECTS: usize = 10;

impl Network {
    pub(crate) fn new(config: NetworkConfig) -> Result<Self, Error> {
        let unusable = |problem: String| Error::Client { problem };
        // A system without CA certificates is not an error here, because files need none: only connections
        // fail.
        let tls = tls::client(Trust::SystemAnd(config.ca.as_deref()), None).map_err(Error::Ca)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("admittance/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::custom(follow))
            .connect_timeout(config.connect_timeout)
            .read_timeout(config.read_timeout);
        if let Some(proxy) = &config.proxy {
            let proxy = Proxy::all(proxy.clone()).map_err(|error| {
                unusable(format!(
                    "the proxy {proxy} is not usable: {error}; write `http://host:port`"
                ))
            })?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_env()));
        }
        let client = builder.build().map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            client,
            authorizations: Authorizations::default(),
            schemes: Schemes::default(),
            config,
        })
    }

    /// The body of a GET response of at most `limit` bytes; `None` when it is not found.
    pub(crate) async fn get_small(
        &self,
        url: &Url,
        limit: u64,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let place = url.as_str();
        self.retrying(progress, || async {
            let response = self.send(self.client.get(url.clone()), place).await?;
            if is_absent(response.status()) {
                return Ok(None);
            }
            let response = failure::success(response, place).await?;
            self.body(response, place, limit).await.map(Some)
        })
        .await
    }

    /// Sends a request. Any status is returned as a response.
    pub(super) async fn send(
        &self,
        request: reqwest::RequestBuilder,
        place: &str,
    ) -> Result<Response, Error> {
        request
            .send()
            .await
            .map_err(|error| failure::of_transport(&error, place, &self.config))
    }

    /// Reads a body of at most `limit` bytes.
    pub(super) async fn body(&self, mut response: Response, place: &str, limit: u64) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| failure::of_transport(&error, place, &self.config))?
        {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(Error::BadAnswer {
                    place: place.to_owned(),
                    problem: format!("the body is larger than the limit of {limit} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

/// Whether the status means not found.
pub(super) fn is_absent(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Follows redirects, but never from https to http.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let was_secure = attempt
        .previous()
        .last()
        .is_some_and(|previous| previous.scheme() == "https");
    if was_secure && attempt.url().scheme() != "https" {
        attempt.error("the server redirects to an address without TLS")
    } else if attempt.previous().len() > REDIRECTS {
        attempt.error("too many redirects")
    } else {
        attempt.follow()
    }
}
