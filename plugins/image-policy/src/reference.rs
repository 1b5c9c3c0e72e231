//! Image references, in the grammar of the distribution project, which Docker and Kubernetes use:
//! `[registry[:port]/]path[:tag][@digest]`.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

const DEFAULT_REGISTRY: &str = "docker.io";

/// The maximum length of registry and path together, in bytes.
const NAME_LIMIT: usize = 255;

/// A reference in its complete form, with its registry and, for official images of Docker Hub, with `library/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    registry: &'a str,
    path: Cow<'a, str>,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceError {
    Empty,
    Registry,
    Path,
    Tag,
    Digest,
    TooLong,
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::Registry => "its registry must be a host name with an optional port",
            Self::Path => {
                "its path must consist of lower-case letters and digits, separated by \"/\", \".\", \"_\" or \"-\""
            }
            Self::Tag => "its tag must consist of at most 128 letters, digits, \"_\", \".\" and \"-\"",
            Self::Digest => {
                "its digest must be an algorithm and a hexadecimal value, such as \"sha256:\" and 64 digits"
            }
            Self::TooLong => "its name is longer than 255 characters",
        })
    }
}

impl<'a> Reference<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ReferenceError::Digest);
        }
        // A colon after the last slash starts a tag. A colon before the last slash starts a port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag);
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if looks_like_registry(first) => (first, path),
            _ => (DEFAULT_REGISTRY, name),
        };
        if !is_registry(registry) {
            return Err(ReferenceError::Registry);
        }
        if !is_path(path) || is_identifier(name) {
            return Err(ReferenceError::Path);
        }
        let registry = canonical_registry(registry);
        let path = if registry == DEFAULT_REGISTRY && !path.contains('/') {
            Cow::Owned(["library/", path].concat())
        } else {
            Cow::Borrowed(path)
        };
        if registry.len() + 1 + path.len() > NAME_LIMIT {
            return Err(ReferenceError::TooLong);
        }
        Ok(Self {
            registry,
            path,
            tag,
            digest,
        })
    }

    /// Returns whether the reference means the latest image: it has no digest, and no tag or the tag `latest`.
    pub(crate) fn is_latest(&self) -> bool {
        self.digest.is_none() && self.tag.is_none_or(|tag| tag == "latest")
    }

    pub(crate) fn has_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// Returns whether the reference begins with a prefix. The case of the registry does not matter, as in host names.
    pub(crate) fn has_prefix(&self, prefix: &ReferencePrefix) -> bool {
        self.registry.eq_ignore_ascii_case(&prefix.registry) && self.path_after_prefix(prefix).is_some()
    }

    /// Returns whether the reference is under a prefix, where a prefix without a port matches every port of its host.
    pub(crate) fn is_under_any_port(&self, prefix: &ReferencePrefix) -> bool {
        let host = if prefix.has_port() {
            self.registry
        } else {
            registry_host(self.registry)
        };
        host.eq_ignore_ascii_case(&prefix.registry) && self.path_after_prefix(prefix).is_some()
    }

    pub(crate) fn with_prefix_replaced(&self, from: &ReferencePrefix, to: &ReferencePrefix) -> Option<String> {
        if !self.has_prefix(from) {
            return None;
        }
        let rest = self.path_after_prefix(from)?;
        let mut text = String::with_capacity(
            to.registry.len()
                + to.path.len()
                + rest.len()
                + 2
                + self.tag.map_or(0, |tag| tag.len() + 1)
                + self.digest.map_or(0, |digest| digest.len() + 1),
        );
        text.push_str(&to.registry);
        for part in [to.path.as_str(), rest] {
            if !part.is_empty() {
                text.push('/');
                text.push_str(part);
            }
        }
        for (separator, part) in [(':', self.tag), ('@', self.digest)] {
            if let Some(part) = part {
                text.push(separator);
                text.push_str(part);
            }
        }
        Some(text)
    }

    /// Returns the part of the path after the prefix; `None` unless the prefix ends where a component of the path ends.
    fn path_after_prefix(&self, prefix: &ReferencePrefix) -> Option<&str> {
        if prefix.path.is_empty() {
            return Some(&self.path);
        }
        let rest = self.path.strip_prefix(prefix.path.as_str())?;
        if rest.is_empty() {
            Some(rest)
        } else {
            rest.strip_prefix('/')
        }
    }
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)?;
        self.tag.map_or(Ok(()), |tag| write!(f, ":{tag}"))?;
        self.digest.map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// A registry, or a registry and the beginning of a path, such as `registry.example.com:5000/team`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReferencePrefix {
    registry: String,
    path: String,
}

impl ReferencePrefix {
    /// Parses a prefix, which must have a registry. Ignores a trailing slash.
    ///
    /// # Errors Returns the reason why the text is invalid, as the rest of a sentence whose subject is the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('/').unwrap_or(text);
        if text.contains("://") {
            return Err("has a scheme; write only the host, such as \"registry.example.com\"");
        }
        let (registry, path) = match text.split_once('/') {
            Some((registry, path)) => (registry, Some(path)),
            None => (text, None),
        };
        if !looks_like_registry(registry) || !is_registry(registry) {
            return Err(
                "does not begin with a registry; use \"registry.example.com\", \"docker.io\" or \"docker.io/team\"",
            );
        }
        if path.is_some_and(|path| !is_path(path)) {
            return Err("is not a registry and a path; tags and digests are not allowed here");
        }
        Ok(Self {
            registry: canonical_registry(registry).to_owned(),
            path: path.unwrap_or_default().to_owned(),
        })
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.registry.eq_ignore_ascii_case(&other.registry)
            && (self.path.is_empty()
                || other
                    .path
                    .strip_prefix(self.path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    /// Returns a measure for comparing prefixes. If several match a reference, the one with the longest path is used.
    pub(crate) fn specificity(&self) -> usize {
        self.path.len()
    }

    fn has_port(&self) -> bool {
        registry_host(&self.registry).len() < self.registry.len()
    }
}

impl fmt::Display for ReferencePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.registry)?;
        if self.path.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.path)
        }
    }
}

/// Returns the canonical name of a registry. Docker Hub is the only one with several names.
fn canonical_registry(registry: &str) -> &str {
    if registry.eq_ignore_ascii_case("index.docker.io") || registry.eq_ignore_ascii_case(DEFAULT_REGISTRY) {
        DEFAULT_REGISTRY
    } else {
        registry
    }
}

/// Returns whether the first component of a name is a registry rather than the beginning of a path on Docker Hub.
fn looks_like_registry(component: &str) -> bool {
    component.contains(['.', ':'])
        || component == "localhost"
        || component.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn registry_host(registry: &str) -> &str {
    match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => registry,
    }
}

fn is_registry(registry: &str) -> bool {
    let host = registry_host(registry);
    let port = registry.strip_prefix(host).unwrap_or_default();
    if let Some(port) = port.strip_prefix(':')
        && (port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return false;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    host.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

fn is_path(path: &str) -> bool {
    path.split('/').all(is_path_component)
}

/// Returns whether a text matches `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    is_word(first)
        && is_word(last)
        && bytes
            .iter()
            .all(|&byte| is_word(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && component
            .split(|c: char| c.is_ascii_alphanumeric())
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

/// Returns whether a name is the identifier of a local image, which consists of 64 hexadecimal digits.
fn is_identifier(name: &str) -> bool {
    name.len() == 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Returns whether a text is a digest, such as `sha256:` and 64 digits. A digest with an unknown algorithm must have 32
/// digits or more.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, value)) = digest.split_once(':') else {
        return false;
    };
    let length_is_right = match algorithm {
        "sha256" => value.len() == 64,
        "sha384" => value.len() == 96,
        "sha512" => value.len() == 128,
        _ => value.len() >= 32,
    };
    length_is_right
        && value
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
        && algorithm.split(['+', '.', '_', '-']).all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn references_are_read_as_docker_reads_them() {
        let pinned = format!("a.io/b:1@{DIGEST}");
        let table = [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.29", "docker.io/library/nginx:1.29"),
            ("team/nginx", "docker.io/team/nginx"),
            ("docker.io/nginx", "docker.io/library/nginx"),
            ("index.docker.io/nginx", "docker.io/library/nginx"),
            ("Docker.io/team/nginx", "docker.io/team/nginx"),
            ("localhost/nginx", "localhost/nginx"),
            ("localhost:5000/nginx:1", "localhost:5000/nginx:1"),
            ("myhost:5000/nginx", "myhost:5000/nginx"),
            ("nginx:5000", "docker.io/library/nginx:5000"),
            (
                "dockerhub:8443/bcs/game/gamesvr:v1.1.1",
                "dockerhub:8443/bcs/game/gamesvr:v1.1.1",
            ),
            ("registry.example.com/a/b/c", "registry.example.com/a/b/c"),
            ("HOST/a", "HOST/a"),
            ("[::1]:5000/a:b", "[::1]:5000/a:b"),
            ("a--b/c__d.e_f", "docker.io/a--b/c__d.e_f"),
            (&pinned, &pinned),
        ];
        for (text, expected) in table {
            let reference = Reference::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(reference.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_reference_is_refused() {
        let long = format!("a.io/{}", "a".repeat(251));
        let long_tag = format!("a:{}", "b".repeat(129));
        let identifier = "a".repeat(64);
        let upper = format!("a@sha256:{}", "A".repeat(64));
        let table = [
            ("", ReferenceError::Empty),
            ("Nginx", ReferenceError::Path),
            ("team/Nginx", ReferenceError::Path),
            (" nginx", ReferenceError::Path),
            ("nginx ", ReferenceError::Path),
            ("a//b", ReferenceError::Path),
            ("a/", ReferenceError::Path),
            ("/a", ReferenceError::Path),
            ("a..b", ReferenceError::Path),
            ("a_-b", ReferenceError::Path),
            ("a___b", ReferenceError::Path),
            ("https://a.io/b", ReferenceError::Registry),
            ("a.io./b", ReferenceError::Registry),
            ("-a.io/b", ReferenceError::Registry),
            ("a.io:/b", ReferenceError::Registry),
            ("a.io:x/b", ReferenceError::Registry),
            ("[::g]:1/b", ReferenceError::Registry),
            ("nginx:", ReferenceError::Tag),
            ("nginx:-1", ReferenceError::Tag),
            (long_tag.as_str(), ReferenceError::Tag),
            ("nginx@", ReferenceError::Digest),
            ("nginx@sha256:123", ReferenceError::Digest),
            (upper.as_str(), ReferenceError::Digest),
            ("nginx@sha256", ReferenceError::Digest),
            (long.as_str(), ReferenceError::TooLong),
            (identifier.as_str(), ReferenceError::Path),
            ("n\u{e4}me", ReferenceError::Path),
        ];
        for (text, expected) in table {
            assert_eq!(Reference::parse(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_reference_without_tag_or_digest_means_the_latest_image() {
        let pinned = format!("nginx@{DIGEST}");
        let both = format!("nginx:latest@{DIGEST}");
        for (text, expected) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1", false),
            (&pinned, false),
            (&both, false),
        ] {
            assert_eq!(Reference::parse(text).expect(text).is_latest(), expected, "{text}");
        }
    }

    #[test]
    fn a_prefix_matches_only_whole_components_of_a_path() {
        let table = [
            ("nginx", "docker.io", true),
            ("nginx", "docker.io/library", true),
            ("nginx", "docker.io/library/", true),
            ("nginx", "docker.io/library/nginx", true),
            ("nginx", "docker.io/lib", false),
            ("team/a", "docker.io/team", true),
            ("teams/a", "docker.io/team", false),
            ("a.io/b", "a.io", true),
            ("A.IO/b", "a.io", true),
            ("a.io:5000/b", "a.io", false),
            ("a.io:5000/b", "a.io:5000", true),
            ("aa.io/b", "a.io", false),
            ("a.io.evil.com/b", "a.io", false),
        ];
        for (image, prefix, expected) in table {
            let reference = Reference::parse(image).expect(image);
            let prefix = ReferencePrefix::parse(prefix).expect(prefix);
            assert_eq!(reference.has_prefix(&prefix), expected, "{image} under {prefix}");
        }
    }

    #[test]
    fn a_prefix_without_a_port_matches_every_port() {
        for (image, prefix, expected) in [
            ("a.io:443/b", "a.io", true),
            ("a.io/b", "a.io", true),
            ("a.io:443/b", "a.io:5000", false),
            ("[::1]:443/b", "[::1]", true),
        ] {
            let reference = Reference::parse(image).expect(image);
            let prefix = ReferencePrefix::parse(prefix).expect(prefix);
            assert_eq!(reference.is_under_any_port(&prefix), expected, "{image} under {prefix}");
        }
    }

    #[test]
    fn rewriting_keeps_tag_and_digest() {
        let pinned = format!("team/a:1@{DIGEST}");
        let moved = format!("m.io/hub/team/a:1@{DIGEST}");
        let table = [
            ("nginx", "docker.io", "m.io/hub", Some("m.io/hub/library/nginx")),
            ("nginx:1", "docker.io/library", "m.io", Some("m.io/nginx:1")),
            ("nginx:1", "docker.io/library/nginx", "m.io/web", Some("m.io/web:1")),
            (&pinned, "docker.io", "m.io/hub/", Some(moved.as_str())),
            ("a.io/b", "docker.io", "m.io", None),
        ];
        for (image, from, to, expected) in table {
            let reference = Reference::parse(image).expect(image);
            let (from, to) = (
                ReferencePrefix::parse(from).expect(from),
                ReferencePrefix::parse(to).expect(to),
            );
            assert_eq!(
                reference.with_prefix_replaced(&from, &to).as_deref(),
                expected,
                "{image}"
            );
        }
    }

    #[test]
    fn prefixes_that_would_match_nothing_are_refused() {
        for text in [
            "",
            "team",
            "team/a",
            "https://a.io",
            "a.io/b:1",
            "a.io//b",
            "a.io//",
            "a.io/B",
        ] {
            assert!(ReferencePrefix::parse(text).is_err(), "{text}");
        }
    }
}
