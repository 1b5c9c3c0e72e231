use std::{collections::HashMap, time::Duration};

use admittance_net::{
    client::{ClientOptions, ClientRequest, ClientResponse, HttpClient, ProxyChoice},
    tls::{self, Trust},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use url::Url;

use super::{failure, redirect::Redirects, registry::RegistryAccess};
use crate::{Error, NetworkConfig, OnProgress};

/// The HTTP client for all fetches, which share its CAs, proxy, timeouts and retries.
#[derive(Debug)]
pub(super) struct FetchClient {
    pub(super) client: HttpClient,
    pub(super) config: NetworkConfig,
    /// The `Authorization` headers of earlier requests, for each registry, repository and access. Later requests use
    /// them again, until the registry rejects them.
    pub(super) authorizations: Mutex<HashMap<(String, String, RegistryAccess), HeaderValue>>,
    /// The scheme, `http` or `https`, that was found to work for each registry that may be used without TLS.
    pub(super) schemes: Mutex<HashMap<String, &'static str>>,
}

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl FetchClient {
    pub(super) fn new(config: NetworkConfig) -> Result<Self, Error> {
        // A system may have no CA certificates. This is not an error here: only TLS connections fail then, and modules
        // can still be read from files.
        let tls = tls::client_config(Trust::SystemAnd(config.ca.as_deref()), None).map_err(Error::Ca)?;
        let options = ClientOptions {
            connect_timeout: CONNECT_TIMEOUT,
            silence_timeout: config.read_timeout,
            proxy: config.proxy.clone().map_or(ProxyChoice::Environment, ProxyChoice::All),
        };
        Ok(Self {
            client: HttpClient::new(tls, options),
            config,
            authorizations: Mutex::default(),
            schemes: Mutex::default(),
        })
    }

    /// Gets a response's body of at most `limit` bytes; `None` if the server does not have the resource.
    pub(super) async fn fetch_small(
        &self,
        url: &Url,
        limit: u64,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let location = url.as_str();
        self.with_retries(progress, || async {
            let request = ClientRequest::new(Method::GET, url.clone());
            let response = self.send(request, location).await?;
            if is_absent(response.status) {
                return Ok(None);
            }
            let response = failure::check_success(response, location).await?;
            self.read_body(response, location, limit).await.map(Some)
        })
        .await
    }

    /// Sends a request, and follows redirects. All other responses are returned, even with an error status.
    pub(super) async fn send(&self, mut request: ClientRequest, location: &str) -> Result<ClientResponse, Error> {
        let mut redirects = Redirects::default();
        loop {
            let response =
                self.client.send(request.clone()).await.map_err(|error| {
                    failure::transport_error(&error, request.url.host_str(), location, &self.config)
                })?;
            let next = redirects.follow(request, &response);
            match next.map_err(|problem| Error::bad_answer(location, problem))? {
                Some(next) => request = next,
                None => return Ok(response),
            }
        }
    }

    pub(super) async fn read_body(
        &self,
        mut response: ClientResponse,
        location: &str,
        limit: u64,
    ) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.read_chunk(&mut response, location).await? {
            if (body.len() + chunk.len()) as u64 > limit {
                let problem = format!("the body is larger than the limit of {limit} bytes");
                return Err(Error::bad_answer(location, problem));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    pub(super) async fn read_chunk(
        &self,
        response: &mut ClientResponse,
        location: &str,
    ) -> Result<Option<Bytes>, Error> {
        let chunk = response.chunk().await;
        chunk.map_err(|error| failure::transport_error(&error, response.url.host_str(), location, &self.config))
    }
}

pub(super) fn is_absent(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}
