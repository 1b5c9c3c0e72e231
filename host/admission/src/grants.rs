use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use crate::ClusterKind;

/// What a stage grants its plugin. Default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Kinds of the control plane that the plugin may read.
    pub cluster: BTreeSet<ClusterKind>,
    /// Origins that the plugin may send requests to.
    pub http: BTreeSet<HttpOrigin>,
    /// Environment values that the plugin sees: name and value.
    pub environment: BTreeMap<String, String>,
}

/// An https origin: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpOrigin(String);

/// A text that is not a valid https origin. The message does not repeat it, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a valid origin: write https, the host, and the port if it is not 443, `https://policy.example.com`"
)]
pub struct InvalidHttpOrigin;

impl HttpOrigin {
    /// The origin of an https address; `None` for any other scheme.
    pub fn of(url: &Url) -> Option<Self> {
        (url.scheme() == "https" && url.has_host()).then(|| Self(url.origin().ascii_serialization()))
    }

    /// As text: `https://policy.example.com`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HttpOrigin {
    type Err = InvalidHttpOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|_| InvalidHttpOrigin)?;
        let is_bare = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        Self::of(&url).filter(|_| is_bare).ok_or(InvalidHttpOrigin)
    }
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for HttpOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HttpOrigin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
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
            let parsed = text.parse::<HttpOrigin>().ok();
            assert_eq!(parsed.as_ref().map(HttpOrigin::as_str), expected, "{text}");
        }
    }
}
