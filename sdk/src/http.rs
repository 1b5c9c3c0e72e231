//! Sends HTTP requests to the origins that the stage grants.
//!
//! The plugin requests an origin with `capabilities = [http("https://policy.example.com")]`; the operator grants it
//! with `allow: { http: ["https://policy.example.com"] }`. A request to any other origin ends the call, as does a
//! request with a method or path that is not granted. In native builds every request returns [`Error::Unavailable`].

use serde::de::DeserializeOwned;

use crate::bindings::admittance::plugin::http as contract;

pub use crate::bindings::admittance::plugin::http::Response;

/// The reason why an HTTP request has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host does not send HTTP requests for plugins.
    #[error("HTTP requests are unavailable: {0}")]
    Unavailable(String),
    /// The request is invalid; the text says why.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// The connection to the server failed or broke; the text says where.
    #[error("the server is unreachable: {0}")]
    Unreachable(String),
    /// The server did not respond within nine tenths of the time that was left for the call.
    #[error("timeout: the server did not respond in time")]
    Timeout,
    /// The response was larger than this limit of the host, in bytes.
    #[error("the response is larger than the limit of {0} bytes")]
    TooLarge(u64),
    /// The body of the response cannot be parsed as the plugin's type.
    #[error("the response cannot be parsed as the plugin's type: {0}")]
    Read(String),
}

/// An HTTP request.
///
/// ```no_run
/// use admittance_sdk::{Error, http};
///
/// # fn ask() -> Result<(), Error> {
/// let answer = http::Request::get("https://policy.example.com/v1/rules").header("accept", "application/json").send()?;
/// if answer.status == 200 {
///     let rules: Vec<String> = answer.json()?;
///     # let _ = rules;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request(contract::Request);

impl Request {
    /// Builds a request with any method to an absolute `https` URL, or to an `http` URL of a loopback address.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self(contract::Request {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        })
    }

    /// Builds a GET request for an absolute URL.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Builds a POST request for an absolute URL.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Adds a header. A request is invalid if it sets a header that the host sets: `host`, `content-length`, hop-by-hop
    /// headers and the header of a granted credential.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body of the request.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = body.into();
        self
    }

    /// Sends the request and waits for the complete response. Redirects are not followed.
    ///
    /// # Errors
    /// Fails if there is no response. A response with a status such as 500 is not an error.
    pub fn send(self) -> Result<Response, Error> {
        let Self(request) = self;
        if cfg!(target_family = "wasm") {
            return Ok(contract::send(&request)?);
        }
        Err(Error::Unavailable(format!(
            "{} {}: there is no host in a native build",
            request.method, request.url
        )))
    }
}

impl Response {
    /// Returns the body of the response, parsed as JSON.
    ///
    /// # Errors
    /// Fails if the body cannot be parsed as the type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Read(error.to_string()))
    }
}

impl From<contract::Error> for Error {
    fn from(error: contract::Error) -> Self {
        match error {
            contract::Error::Unavailable(why) => Self::Unavailable(why),
            contract::Error::Invalid(why) => Self::Invalid(why),
            contract::Error::Unreachable(why) => Self::Unreachable(why),
            contract::Error::Timeout => Self::Timeout,
            contract::Error::TooLarge(limit) => Self::TooLarge(limit),
        }
    }
}
