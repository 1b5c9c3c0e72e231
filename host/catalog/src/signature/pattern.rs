use std::{path::Path, str::FromStr};

use url::{Host, Url};

use super::{
    ReferenceSource,
    glob::PathGlob,
    source::{Scheme, canonical_host, is_docker_hub, registry_host},
};

/// A pattern of module references. `**` matches all references, and `https://**` all of one scheme. Any other pattern
/// is `file:`, `https://` or `oci://`, followed by a path. In the path, `*` matches any characters but `/`. `**` must
/// be a whole part, and matches any number of parts. A host may begin with `*.`, which stands for exactly one label.
///
/// An artifact's tag and digest and a URL's query are ignored; a file is matched by its path after symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct SourcePattern {
    text: String,
    sources: SourcePatterns,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SourcePatterns {
    All,
    Scheme(Scheme),
    /// Matches files under `directory` whose path below the directory matches `rest`.
    Files {
        directory: String,
        rest: PathGlob,
    },
    Hosted {
        scheme: Scheme,
        host: HostPattern,
        port: u16,
        path: PathGlob,
    },
}

/// Matches the host `name`. If `is_under` is set, it matches the hosts directly below `name` instead, such as
/// `a.example.com` for `example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    name: String,
    is_under: bool,
}

/// The error of an invalid pattern or issuer. Its message contains the problem and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}: {fix}")]
pub struct InvalidPattern {
    pub text: String,
    /// The problem, as a predicate whose subject is the text of the pattern or issuer.
    pub problem: &'static str,
    pub fix: &'static str,
}

impl SourcePattern {
    pub fn matches(&self, source: &ReferenceSource) -> bool {
        match &self.sources {
            SourcePatterns::All => true,
            SourcePatterns::Scheme(scheme) => source.scheme == *scheme,
            SourcePatterns::Files { directory, rest } => {
                source.scheme == Scheme::File && matches_file(directory, rest, &source.path)
            }
            SourcePatterns::Hosted {
                scheme,
                host,
                port,
                path,
            } => {
                source.scheme == *scheme
                    && source
                        .authority
                        .as_ref()
                        .is_some_and(|(source_host, source_port)| host.matches(source_host) && port == source_port)
                    && path.matches(&source.path)
            }
        }
    }
}

/// Returns whether the path of a file is under this directory and matches `rest`.
fn matches_file(directory: &str, rest: &PathGlob, file: &str) -> bool {
    let below = |directory: &str| {
        let rest_of_file = match directory {
            "/" => file.strip_prefix('/'),
            directory => file.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')),
        };
        rest_of_file.is_some_and(|text| rest.matches(text))
    };
    let resolved = Path::new(directory).canonicalize();
    below(directory) || resolved.is_ok_and(|resolved| resolved.to_str().is_some_and(below))
}

impl HostPattern {
    fn new(host: &str, is_under: bool) -> Option<Self> {
        let parsed = Host::parse(host).ok()?;
        if host.contains('*') || (is_under && !matches!(parsed, Host::Domain(_))) {
            return None;
        }
        Some(Self {
            name: canonical_host(&parsed.to_string()),
            is_under,
        })
    }

    fn matches(&self, host: &str) -> bool {
        if self.is_under {
            host.split_once('.')
                .is_some_and(|(label, rest)| !label.is_empty() && rest == self.name)
        } else {
            host == self.name
        }
    }
}

fn split_wildcard(authority: &str) -> (&str, bool) {
    match authority.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (authority, false),
    }
}

impl FromStr for SourcePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sources = match text.split_once(':') {
            _ if text == "**" => Ok(SourcePatterns::All),
            Some(("file", "**")) => Ok(SourcePatterns::Scheme(Scheme::File)),
            Some(("https", "//**")) => Ok(SourcePatterns::Scheme(Scheme::Https)),
            Some(("oci", "//**")) => Ok(SourcePatterns::Scheme(Scheme::Oci)),
            Some(("file", path)) => parse_file_pattern(path),
            Some(("https", rest)) => parse_https_pattern(rest),
            Some(("oci", rest)) => parse_oci_pattern(rest),
            _ => Err((
                "names no source",
                "write `**`, or `file:/directory/**`, `https://host/path/**`, `oci://registry/repository/**`",
            )),
        };
        sources
            .map(|sources| Self {
                text: text.to_owned(),
                sources,
            })
            .map_err(|(problem, fix)| InvalidPattern {
                text: text.to_owned(),
                problem,
                fix,
            })
    }
}

type ProblemAndFix = (&'static str, &'static str);

fn parse_glob(text: &str) -> Result<PathGlob, ProblemAndFix> {
    let fix = "write `*` for characters within a part, or `**` alone between two `/`";
    PathGlob::new(text).map_err(|problem| (problem, fix))
}

fn parse_file_pattern(path: &str) -> Result<SourcePatterns, ProblemAndFix> {
    let path = match path.strip_prefix("//") {
        Some(absolute) => absolute,
        None => path,
    };
    let inside = path
        .strip_prefix('/')
        .ok_or(("has no absolute path", "write `file:` and a path that begins with `/`"))?;
    let parts: Vec<&str> = inside.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err((
            "has an empty part, a `.` or a `..` in its path",
            "write the path without, `file:/directory/**`",
        ));
    }
    // If the directories in a pattern are symbolic links, they are resolved. The last part of a pattern names the file
    // itself and is not resolved: if the file is a symbolic link, the pattern never matches it.
    let plain = parts
        .iter()
        .take(parts.len().saturating_sub(1))
        .take_while(|part| !part.contains('*'))
        .count();
    let (directory, rest) = parts.split_at(plain);
    Ok(SourcePatterns::Files {
        directory: format!("/{}", directory.join("/")),
        rest: parse_glob(&rest.join("/"))?,
    })
}

fn parse_https_pattern(rest: &str) -> Result<SourcePatterns, ProblemAndFix> {
    let fix = "write `https://`, the host, and a path, `https://plugins.example.com/**`";
    let (authority, path) = split_authority(rest).ok_or(("names no host and path", fix))?;
    if path.contains(['?', '#', '%', '\\']) {
        return Err((
            "has a query, a fragment, an escape or a `\\`",
            "write only the path, with plain characters",
        ));
    }
    if is_not_normalized(path) {
        return Err(("has an empty part, a `.` or a `..` in its path", fix));
    }
    let wrong_host = ("names no host", fix);
    // The pattern's host is parsed by `url`, so that it is normalised in the same way as the hosts of references.
    let (name, is_under) = split_wildcard(authority);
    let url = Url::parse(&format!("https://{name}/")).map_err(|_| wrong_host)?;
    if !url.username().is_empty() || url.password().is_some() || url.path() != "/" || name.contains('@') {
        return Err(("has a user, or no host", fix));
    }
    let host = url.host_str().ok_or(wrong_host)?;
    Ok(SourcePatterns::Hosted {
        scheme: Scheme::Https,
        host: HostPattern::new(host, is_under).ok_or(wrong_host)?,
        port: url.port_or_known_default().ok_or(wrong_host)?,
        path: parse_glob(path)?,
    })
}

fn parse_oci_pattern(rest: &str) -> Result<SourcePatterns, ProblemAndFix> {
    let fix = "write `oci://`, the registry's host, and a repository, `oci://registry.example.com/plugins/**`";
    let (authority, path) = split_authority(rest).ok_or(("names no registry and repository", fix))?;
    if path.contains([':', '@']) {
        return Err((
            "has a tag or a digest",
            "leave it out: a rule is for a repository, whatever the tag",
        ));
    }
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '*' | '/');
    if is_not_normalized(path) || path.ends_with('/') || !path.chars().all(is_fine) {
        return Err(("names no repository", fix));
    }
    if let Some((_, port)) = authority.rsplit_once(':')
        && !port.ends_with(']')
        && port.parse::<u16>().is_err()
    {
        return Err(("has an invalid port", fix));
    }
    let (name, is_under) = split_wildcard(authority);
    let (host, port) = registry_host(name);
    // A repository of Docker Hub without a user is an official image, as in Docker's tools.
    let is_official = is_docker_hub(&host, port) && !is_under && !path.contains('/') && path != "**";
    let path = if is_official {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    Ok(SourcePatterns::Hosted {
        scheme: Scheme::Oci,
        host: HostPattern::new(&host, is_under).ok_or(("names no registry", fix))?,
        port,
        path: parse_glob(&path)?,
    })
}

fn split_authority(rest: &str) -> Option<(&str, &str)> {
    rest.strip_prefix("//")?
        .split_once('/')
        .filter(|(authority, path)| !authority.is_empty() && !path.is_empty())
}

/// Returns whether a path has an empty part, a `.` or a `..`. An empty part at the end is allowed, because URLs of
/// directories end with a slash.
fn is_not_normalized(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts.iter().any(|part| matches!(*part, "" | "." | ".."))
}

#[cfg(test)]
mod tests;
