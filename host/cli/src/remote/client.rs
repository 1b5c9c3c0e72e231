//! Questions over HTTP.

use std::time::Duration;

use reqwest::{Method, Response, header};
use serde::de::DeserializeOwned;

use super::{
    connection::{Connection, Server, Token},
    error::RemoteError,
};

/// Talks to one driver. Lives as long as the command.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    server: Server,
    token: Option<Token>,
}

/// For a connection. The driver is near, or not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// For an answer to a question. A change may take as long as its plugins take to be fetched and compiled.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What is sent beside the path.
#[derive(Debug, Default)]
pub(super) struct Sent<'a> {
    pub(super) query: &'a [(&'a str, String)],
    pub(super) body: Option<(&'static str, String)>,
}

impl Client {
    pub(super) fn new(connection: &Connection) -> Result<Self, RemoteError> {
        let server = connection.server().clone();
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(connection.tls()?)
            .user_agent(concat!("admittance/", env!("CARGO_PKG_VERSION")))
            // The API does not redirect, and a token must not be sent to another server.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT);
        if server.is_loopback() {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder
                .build()
                .map_err(|error| RemoteError::Client(error.to_string()))?,
            token: connection.token()?,
            server,
        })
    }

    /// Ask a question.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, RemoteError> {
        let sent = Sent { query, body: None };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.ask(Method::GET, path, sent)).await;
        answer.unwrap_or_else(|_| {
            Err(RemoteError::Slow {
                server: self.server.to_string(),
            })
        })
    }

    /// Ask for a change, and wait for as long as it takes.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        sent: Sent<'_>,
    ) -> Result<T, RemoteError> {
        let response = self.open(method, path, sent).await?;
        let body = response.bytes().await.map_err(|error| self.transport(&error))?;
        serde_json::from_slice(&body).map_err(|error| RemoteError::Stranger {
            server: self.server.to_string(),
            problem: format!("its answer cannot be read: {error}"),
        })
    }

    /// The head of a good answer, whose body follows.
    pub(super) async fn open(
        &self,
        method: Method,
        path: &[&str],
        sent: Sent<'_>,
    ) -> Result<Response, RemoteError> {
        let mut url = self.server.url(["v1"].iter().chain(path).copied());
        if !sent.query.is_empty() {
            url.query_pairs_mut().extend_pairs(sent.query);
        }
        let mut request = self.http.request(method, url);
        if let Some(Token(value)) = &self.token {
            request = request.header(header::AUTHORIZATION, value.clone());
        }
        if let Some((content_type, body)) = sent.body {
            request = request.header(header::CONTENT_TYPE, content_type).body(body);
        }
        let response = request.send().await.map_err(|error| self.transport(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| self.transport(&error))?;
        Err(RemoteError::of_answer(&self.server.to_string(), status, &body))
    }

    pub(super) fn transport(&self, error: &reqwest::Error) -> RemoteError {
        RemoteError::of_transport(error, &self.server.to_string(), self.server.is_tls())
    }
}
