use std::fmt;

use admittance_admission::Deadline;
use async_trait::async_trait;
use url::Url;

/// Sends requests for plugins that have the grant.
///
/// The sandbox checks address and grant before it calls, and stops waiting at the deadline. The
/// sender limits the size of the answer and follows no redirect: another origin may not be granted.
#[async_trait]
pub trait HttpSender: fmt::Debug + Send + Sync + 'static {
    /// Send one request and wait for the whole answer.
    ///
    /// # Errors
    ///
    /// When there is no answer; the error is passed to the plugin.
    async fn send(&self, request: HttpRequest, deadline: Deadline) -> Result<HttpResponse, HttpError>;
}

/// A request that a plugin sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// `GET`, `POST`, ... as the plugin wrote it.
    pub method: String,
    /// Absolute, https, of a granted origin, without user information and fragment.
    pub url: Url,
    /// Names and values as the plugin wrote them.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

/// The response to a plugin's request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpResponse {
    /// The status; any is allowed.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A response without headers.
    pub fn new(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
        }
    }
}

/// Why there is no answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Outgoing requests are not enabled on this host.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The request is invalid; the text says why.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The connection failed.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// Timeout.
    #[error("no answer in time")]
    Timeout,
    /// The answer is larger than this many bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
}
