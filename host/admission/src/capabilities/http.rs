//! The capability `http`: plugins send requests to servers that their stage grants.

pub(crate) mod answers;

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc};

use async_trait::async_trait;
use ipnet::IpNet;
use url::{Host, Position, Url};

use self::answers::HttpAnswer;
use crate::{
    Deadline, Failure, ResponseRecorder,
    rules::path::{decode, find_override, lenient_readings},
};

/// A server to which a plugin may send requests: scheme (https; http for loopback addresses), host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub struct HttpOrigin(String);

/// The error for an invalid origin. Its message omits the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a valid origin: write https, the host, and the port if it is not 443, \
     `https://policy.example.com`; http is for loopback addresses, `http://127.0.0.1:8181`"
)]
pub struct InvalidHttpOrigin;

impl HttpOrigin {
    /// Returns the origin of an https URL, or of an http URL with a loopback address; `None` for other URLs.
    pub fn from_url(url: &Url) -> Option<Self> {
        let is_loopback = || match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == LOCALHOST,
            None => false,
        };
        let is_supported = match url.scheme() {
            "https" => url.has_host(),
            "http" => is_loopback(),
            _ => false,
        };
        is_supported.then(|| Self(url.origin().ascii_serialization()))
    }

    /// Returns the origin as text, such as `https://policy.example.com`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the host is the name `localhost`.
    pub fn is_localhost(&self) -> bool {
        let (_, rest) = self.0.split_once("://").unwrap_or_default();
        rest.strip_prefix(LOCALHOST)
            .is_some_and(|port| port.is_empty() || port.starts_with(':'))
    }
}

const LOCALHOST: &str = "localhost";

impl FromStr for HttpOrigin {
    type Err = InvalidHttpOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|_| InvalidHttpOrigin)?;
        let is_bare = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        Self::from_url(&url).filter(|_| is_bare).ok_or(InvalidHttpOrigin)
    }
}

/// The requests that a stage lets its plugin send to one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// The server that receives the requests.
    pub origin: HttpOrigin,
    /// The granted HTTP methods in upper case; an empty set grants all methods.
    pub methods: BTreeSet<String>,
    /// The granted paths; an empty list grants all paths.
    pub paths: Vec<PathPrefix>,
    /// The networks to which the plugin may connect although they are not public, such as `10.0.0.0/8`. The addresses
    /// of the origin's host name must be public, or in one of these networks.
    pub networks: Vec<IpNet>,
    /// The name of the credential that the host adds to the plugin's requests.
    pub credential: Option<String>,
}

impl From<HttpOrigin> for HttpGrant {
    fn from(origin: HttpOrigin) -> Self {
        Self {
            origin,
            methods: BTreeSet::new(),
            paths: Vec::new(),
            networks: Vec::new(),
            credential: None,
        }
    }
}

impl HttpGrant {
    /// Returns the first of `grants` that allows the request. If none does, the error is a message that says which
    /// grant is missing and how to add it. The message contains two texts of the caller: `sender`, such as `a policy`,
    /// says who sends the request, and `list` names the configured list of grants.
    pub fn find_grant<'a>(
        grants: &'a [Self],
        origin: &HttpOrigin,
        request: &HttpRequest,
        (sender, list): (&str, &str),
    ) -> Result<&'a Self, String> {
        let (method, path) = (request.method.as_str(), request.url.path());
        let header_pairs = request.headers.iter();
        let headers = header_pairs.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let override_source = find_override(method, &request.url[Position::BeforePath..], headers);
        let mut is_overridden = false;
        let mut fix = format!("add `{origin}` to {list}");
        for grant in grants.iter().filter(|grant| grant.origin == *origin) {
            let allows_path = grant.paths.is_empty() || grant.paths.iter().any(|prefix| prefix.includes(path));
            let allows_method = grant.methods.is_empty() || grant.methods.contains(method);
            let is_limited = !grant.paths.is_empty() || !grant.methods.is_empty();
            match (allows_path, allows_method) {
                (true, true) if is_limited && override_source.is_some() => is_overridden = true,
                (true, true) => return Ok(grant),
                (true, false) => {
                    fix = format!("add `{method}` to `methods` of `{origin}` in {list}");
                }
                (false, _) => {
                    fix = format!("add the path to `paths` of `{origin}` in {list}");
                }
            }
        }
        if let Some(name) = override_source.filter(|_| is_overridden) {
            fix = format!("remove {name}, which names another method or path than the request's own");
        }
        let mut request_text = format!("{method} {path}");
        crate::verdict::shorten(&mut request_text, MAX_REQUEST_TEXT_SIZE);
        Err(format!(
            "{sender} sends a request to `{origin}` without permission ({request_text}); {fix}"
        ))
    }
}

/// The maximum size of a method and its path in an error message, in bytes. Longer ones are cut.
const MAX_REQUEST_TEXT_SIZE: usize = 200;

/// A prefix of URL paths. `/v1/` includes every path below it; `/v1` also includes itself, but not `/v10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefix(String);

/// A text that is not a valid path prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid path: write it as it is in URLs, beginning with `/`, without query, `//` and `..`")]
pub struct InvalidPathPrefix(pub String);

impl PathPrefix {
    /// Returns whether the prefix includes this path in every way in which servers may decode the path.
    fn includes(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.0.as_str());
        let is_included = rest.is_some_and(|rest| rest.is_empty() || self.0.ends_with('/') || rest.starts_with('/'));
        // A server may drop the trailing slash of a path, so the trailing slash of the prefix is not compared.
        let prefix = decode(self.0.trim_end_matches('/'));
        let is_within = |reading: &String| {
            let rest = reading.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_included && lenient_readings(path).is_some_and(|readings| readings.iter().all(is_within))
    }
}

impl FromStr for PathPrefix {
    type Err = InvalidPathPrefix;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse("https://host").and_then(|host| host.join(text));
        // The URL parser normalizes the path of each request; for example, it removes `..`. A prefix that is not
        // normalized can match no request, so it is refused.
        let is_path = url.is_ok_and(|url| url.path() == text && text.starts_with('/'));
        let prefix = Self(text.to_owned());
        if is_path && prefix.includes(text) {
            Ok(prefix)
        } else {
            Err(InvalidPathPrefix(text.to_owned()))
        }
    }
}

/// Sends HTTP requests for plugins.
///
/// The sandbox checks before each call that the stage grants the request. The sandbox waits for the call until the
/// deadline. The sender checks the addresses of the host name, limits the size of the response, and follows no
/// redirect, because a redirect may lead to an origin that is not granted.
#[async_trait]
pub trait HttpSender: fmt::Debug + Send + Sync + 'static {
    /// Sends one request, and returns the whole response.
    ///
    /// # Errors
    ///
    /// Fails when the server does not respond. The plugin gets the error, except for [`HttpError::Denied`].
    async fn send(
        &self,
        grant: &HttpGrant,
        request: HttpRequest,
        deadline: Deadline,
    ) -> Result<HttpResponse, HttpError>;
}

/// An HTTP request that a plugin sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method as the plugin wrote it, such as `GET`.
    pub method: String,
    /// The absolute URL. It has the granted origin, and neither user information nor a fragment.
    pub url: Url,
    /// The names and values of the request's headers, as the plugin wrote them.
    pub headers: Vec<(String, String)>,
    /// The body of the request; empty if there is none.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Creates a request without headers and body.
    pub fn new(method: impl Into<String>, url: Url) -> Self {
        Self {
            method: method.into(),
            url,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Creates a request without headers and body from the text of its URL. Also returns the origin.
    ///
    /// # Errors
    ///
    /// Returns [`HttpError::Invalid`] if no request can be sent to the URL.
    pub fn parse(method: impl Into<String>, text: &str) -> Result<(Self, HttpOrigin), HttpError> {
        if text.len() > MAX_URL_SIZE {
            return Err(HttpError::Invalid(format!(
                "the URL has {} bytes; the limit is {MAX_URL_SIZE}",
                text.len()
            )));
        }
        let invalid = |problem: &str| HttpError::Invalid(format!("`{text}` {problem}"));
        let url = Url::parse(text).map_err(|error| invalid(&format!("is not a valid URL: {error}")))?;
        let origin = HttpOrigin::from_url(&url)
            .ok_or_else(|| invalid("is neither an https URL, nor an http URL of a loopback address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HttpError::Invalid("the URL has a user name or a password".to_owned()));
        }
        if url.fragment().is_some() {
            return Err(invalid("has a fragment"));
        }
        Ok((Self::new(method, url), origin))
    }

    /// Sends the request, which must be one that `grant` allows. The response is recorded if there is a recorder. The
    /// timeout is nine tenths of the time until the deadline, so that the hook can still decide if no response arrives.
    ///
    /// # Errors
    ///
    /// Fails as [`HttpSender::send`] does, and with [`HttpError::Timeout`] after the timeout.
    pub async fn send(
        self,
        grant: &HttpGrant,
        sender: &dyn HttpSender,
        recorder: Option<&ResponseRecorder>,
        deadline: Deadline,
    ) -> Result<HttpResponse, HttpError> {
        let recorded_request = recorder.map(|recorder| (recorder, self.method.clone(), self.url.clone()));
        let deadline = Deadline::after(deadline.remaining().mul_f64(REQUEST_TIME_SHARE));
        let timed_answer = tokio::time::timeout_at(deadline.instant(), sender.send(grant, self, deadline)).await;
        let answer = timed_answer.unwrap_or(Err(HttpError::Timeout));
        if let Some((recorder, method, url)) = recorded_request {
            recorder.record_http(HttpAnswer::record(&method, &url, &answer));
        }
        answer
    }
}

const MAX_URL_SIZE: usize = 16 << 10;

const REQUEST_TIME_SHARE: f64 = 0.9;

/// The HTTP requests that the host's configuration lets Kyverno policies send. A policy cannot grant itself requests.
#[derive(Clone, Debug)]
pub struct PolicyHttp {
    /// The granted requests, which every Kyverno policy may send.
    pub grants: Arc<[HttpGrant]>,
    /// The sender of the requests.
    pub sender: Arc<dyn HttpSender>,
}

/// The response to an HTTP request of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpResponse {
    /// The HTTP status of the response, which may be an error.
    pub status: u16,
    /// The names and values of the response's headers.
    pub headers: Vec<(String, String)>,
    /// The whole body of the response.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Creates a response without headers.
    pub fn new(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
        }
    }
}

/// The reason why a plugin's HTTP request got no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The host cannot send requests, for this reason.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The request is invalid, for this reason.
    #[error("invalid request: {0}")]
    Invalid(String),
    #[error("unreachable: {0}")]
    /// The connection to the server failed, for this reason.
    Unreachable(String),
    /// The server did not respond by the deadline.
    #[error("no answer in time")]
    Timeout,
    /// The response is larger than this many bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    /// Neither stage nor configuration grants the request. The hook's call ends with the failure `capability-denied`.
    #[error("{0}")]
    Denied(String),
    /// The host has no file descriptors or no memory left. The hook's call ends with the failure `overloaded`.
    #[error(transparent)]
    Exhausted(#[from] Failure),
}

#[cfg(test)]
mod tests;
