//! Sending requests to the origins that the stage grants.
//!
//! The plugin asks for an origin with `capabilities = [http("https://policy.example.com")]`; the
//! operator grants it with `allow: { http: ["https://policy.example.com"] }`. A request to any other
//! origin ends the call. Natively every request answers [`Error::Unavailable`].

use serde::de::DeserializeOwned;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This host sends no requests for plugins.
    #[error("no requests can be sent: {0}")]
    Unavailable(String),
    /// The request is not one that can be sent; the text says why.
    #[error("the request cannot be sent: {0}")]
    Invalid(String),
    /// No connection, or it broke; the text says where.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// No answer within the call's time.
    #[error("the server did not answer in time")]
    Timeout,
    /// The answer was larger than the host allows.
    #[error("the answer is larger than the {0} bytes that the host allows")]
    TooLarge(u64),
    /// The body does not have the shape that the plugin reads it as.
    #[error("the answer is not what this plugin can read: {0}")]
    Read(String),
}

/// One request.
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request of any method to an absolute `https` URL.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A GET.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A POST.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Add a header. The host sets `host`, `content-length` and the connection's own.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Set the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Send it and wait for the whole answer. Redirects are not followed.
    ///
    /// # Errors
    /// There is no answer. An answer with a status such as 500 is one.
    pub fn send(self) -> Result<Response, Error> {
        send(self)
    }
}

/// An answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Names and values, as they came.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// The body, read as JSON.
    ///
    /// # Errors
    /// The body does not have the type's shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Read(error.to_string()))
    }
}

#[cfg(target_family = "wasm")]
fn send(request: Request) -> Result<Response, Error> {
    use crate::bindings::admittance::plugin::http;
    let Request {
        method,
        url,
        headers,
        body,
    } = request;
    match http::send(&http::Request {
        method,
        url,
        headers,
        body,
    }) {
        Ok(http::Response {
            status,
            headers,
            body,
        }) => Ok(Response {
            status,
            headers,
            body,
        }),
        Err(http::Error::Unavailable(why)) => Err(Error::Unavailable(why)),
        Err(http::Error::Invalid(why)) => Err(Error::Invalid(why)),
        Err(http::Error::Unreachable(why)) => Err(Error::Unreachable(why)),
        Err(http::Error::Timeout) => Err(Error::Timeout),
        Err(http::Error::TooLarge(limit)) => Err(Error::TooLarge(limit)),
    }
}

#[cfg(not(target_family = "wasm"))]
fn send(request: Request) -> Result<Response, Error> {
    Err(Error::Unavailable(format!(
        "{} {}: there is no host around a native build",
        request.method, request.url
    )))
}
