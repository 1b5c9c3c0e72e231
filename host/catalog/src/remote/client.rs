use std::{collections::HashMap, time::Duration};

use admittance_net::{
    apart,
    tls::{self, Trust},
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use reqwest::{NoProxy, Proxy, RequestBuilder, Response, StatusCode, header::HeaderValue, redirect::Policy};
use url::Url;

use super::{failure, redirect::Redirects, registry::Access};
use crate::{Error, NetworkConfig, OnProgress};

/// The HTTP client for all fetches, with the same CAs, proxy, timeouts and retries. Lives as long as the
/// catalog.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) client: reqwest::Client,
    pub(super) config: NetworkConfig,
    /// `Authorization` headers, by registry, repository and access. Requested again when a registry no longer
    /// accepts one.
    pub(super) authorizations: Mutex<HashMap<(String, String, Access), HeaderValue>>,
    /// The detected schemes of registries that may be used without TLS.
    pub(super) schemes: Mutex<HashMap<String, &'static str>>,
}

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Network {
    pub(super) fn new(config: NetworkConfig) -> Result<Self, Error> {
        let unusable = |problem: String| Error::Client { problem };
        // A system without CA certificates is not an error here, because files need none: only connections
        // fail.
        let tls = tls::client(Trust::SystemAnd(config.ca.as_deref()), None).map_err(Error::Ca)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("admittance/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(config.read_timeout);
        if let Some(proxy) = &config.proxy {
            let proxy = Proxy::all(proxy.clone()).map_err(|error| {
                unusable(format!(
                    "the proxy {proxy} is not usable: {error}; write `http://host:port`"
                ))
            })?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_env()));
        }
        Ok(Self {
            client: builder.build().map_err(|error| unusable(error.to_string()))?,
            config,
            authorizations: Mutex::default(),
            schemes: Mutex::default(),
        })
    }

    /// The body of a GET response of at most `limit` bytes; `None` when it is not found.
    pub(super) async fn get_small(
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

    /// Sends a request, and follows redirects. Any other status is returned as a response.
    pub(super) async fn send(&self, request: RequestBuilder, place: &str) -> Result<Response, Error> {
        let failed = |error| failure::of_transport(&error, place, &self.config);
        let mut request = request.build().map_err(failed)?;
        let mut redirects = Redirects::default();
        loop {
            let repeated = request.try_clone();
            let response = apart::run(self.client.execute(request)).await.map_err(failed)?;
            let next = redirects.follow(repeated, &response);
            match next.map_err(|problem| Error::bad_answer(place, problem))? {
                Some(next) => request = next,
                None => return Ok(response),
            }
        }
    }

    /// Reads a body of at most `limit` bytes.
    pub(super) async fn body(&self, mut response: Response, place: &str, limit: u64) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk(&mut response, place).await? {
            if (body.len() + chunk.len()) as u64 > limit {
                let problem = format!("the body is larger than the limit of {limit} bytes");
                return Err(Error::bad_answer(place, problem));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Reads the next part of a body.
    pub(super) async fn chunk(&self, response: &mut Response, place: &str) -> Result<Option<Bytes>, Error> {
        let chunk = response.chunk().await;
        chunk.map_err(|error| failure::of_transport(&error, place, &self.config))
    }
}

/// Whether the status means not found.
pub(super) fn is_absent(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}
