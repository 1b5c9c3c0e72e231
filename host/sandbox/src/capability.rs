use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use admittance_admission::{ClusterKind, Deadline};
use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

/// The capabilities that a stage grants its plugin. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Kinds of the control plane that the plugin may read.
    pub cluster: BTreeSet<ClusterKind>,
    /// Origins that the plugin may send requests to.
    pub http: BTreeSet<Origin>,
    /// Environment values that the plugin sees: name and value.
    pub environment: BTreeMap<String, String>,
}

/// An invalid grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Not an https origin.
    #[error(
        "`{0}` is not a valid origin: write scheme and host, and the port if it is not 443 (`https://policy.example.com`)"
    )]
    Origin(String),
}

/// An https origin: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

impl Origin {
    /// The origin of an https address; `None` for any other scheme.
    pub fn of(url: &Url) -> Option<Self> {
        (url.scheme() == "https" && url.has_host()).then(|| Self(url.origin().ascii_serialization()))
    }

    /// As text: `https://policy.example.com`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || GrantError::Origin(text.to_owned());
        let url = Url::parse(text).map_err(|_| error())?;
        let bare = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if bare {
            Self::of(&url).ok_or_else(error)
        } else {
            Err(error())
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

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
pub struct HttpResponse {
    /// The status; any is allowed.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for (text, expected) in [
            ("https://a.example", Some("https://a.example")),
            ("https://A.example:443/", Some("https://a.example")),
            ("https://a.example:8443", Some("https://a.example:8443")),
            ("http://a.example", None),
            ("https://a.example/path", None),
            ("https://user@a.example", None),
            ("https://a.example?x", None),
            ("a.example", None),
            ("*", None),
        ] {
            let parsed = text.parse::<Origin>().ok();
            assert_eq!(parsed.as_ref().map(Origin::as_str), expected, "{text}");
        }
    }
}
