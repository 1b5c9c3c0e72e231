//! Sends requests to the admin API.

use std::time::Duration;

use admittance_net::client::{ClientError, ClientOptions, ClientRequest, ClientResponse, HttpClient, ProxyChoice};
use http::{HeaderValue, Method, header};
use serde::de::DeserializeOwned;

use super::{
    connection::{DriverConnection, ServerUrl, TokenHeader},
    error::RemoteError,
};

#[derive(Debug)]
pub(super) struct AdminClient {
    http: HttpClient,
    server: ServerUrl,
    token: Option<TokenHeader>,
}

/// The timeout for connecting to a driver. It is short, because drivers are nearby.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for the reply to a GET. Changes have none, because compiling plugins may take long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub(super) parameters: &'a [(&'a str, String)],
    pub(super) body: Option<(&'static str, String)>,
}

impl AdminClient {
    pub(super) fn new(connection: &DriverConnection) -> Result<Self, RemoteError> {
        let server = connection.server.clone();
        let options = ClientOptions {
            connect_timeout: CONNECT_TIMEOUT,
            // There is no timeout for a silent connection. A driver may take long for a change, and may have nothing to
            // report in a stream of events.
            silence_timeout: Duration::MAX,
            proxy: if server.is_loopback() {
                ProxyChoice::None
            } else {
                ProxyChoice::Environment
            },
        };
        Ok(Self {
            http: HttpClient::new(connection.tls_config()?, options),
            token: connection.read_token()?,
            server,
        })
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        message: Message<'_>,
    ) -> Result<T, RemoteError> {
        let is_get = method == Method::GET;
        let reply = async {
            let response = self.open(method, path, message).await?;
            response.bytes().await.map_err(|error| self.transport_error(&error))
        };
        let body = if is_get {
            let reply = tokio::time::timeout(REPLY_TIMEOUT, reply).await;
            reply.unwrap_or_else(|_| {
                Err(RemoteError::Timeout {
                    server: self.server.to_string(),
                })
            })?
        } else {
            reply.await?
        };
        serde_json::from_slice(&body).map_err(|error| RemoteError::NotAdminPort {
            server: self.server.to_string(),
            problem: format!("its reply has another form ({error})"),
        })
    }

    /// Returns a reply as soon as its head has arrived. A redirect is an error, so that no other server gets the token.
    pub(super) async fn open(
        &self,
        method: Method,
        path: &[&str],
        message: Message<'_>,
    ) -> Result<ClientResponse, RemoteError> {
        let mut url = self.server.url(["v1"].iter().chain(path).copied());
        if !message.parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(message.parameters);
        }
        let mut request = ClientRequest::new(method, url);
        if let Some(TokenHeader(value)) = &self.token {
            request = request.header(header::AUTHORIZATION, value.clone());
        }
        if let Some((content_type, body)) = message.body {
            request = request
                .header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
                .body(body);
        }
        let response = self
            .http
            .send(request)
            .await
            .map_err(|error| self.transport_error(&error))?;
        let status = response.status;
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| self.transport_error(&error))?;
        Err(RemoteError::from_reply(&self.server.to_string(), status, &body))
    }

    pub(super) fn transport_error(&self, error: &ClientError) -> RemoteError {
        RemoteError::from_transport_error(error, &self.server)
    }
}
