//! Paths in the ways in which upstream servers may read them. A path must not bypass the chains because it is
//! spelled differently from the rules.

use percent_encoding::percent_decode_str;

/// The ways in which a server may read a path: decoded segment by segment (an encoded slash stays a
/// part of its segment), and decoded before it is split, as Go's servers do. In both, empty and dot
/// segments are gone. A server that removes dot segments before it decodes takes an encoded one (`%2e.`) for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReadings {
    /// Encoded slashes are still written `%2F`, so that it can be split.
    pub by_segment: String,
    /// Only if it differs.
    pub whole: Option<String>,
    /// With encoded dot segments as names. Only if there are any.
    pub encoded_dots: Option<String>,
}

impl PathReadings {
    /// Of the path of a URI, as it is written.
    pub fn of(path: &str) -> Self {
        // Most paths are plain.
        if !path.contains('%') && !path.contains("//") && !path.contains("/.") {
            return Self {
                by_segment: trim(path),
                whole: None,
                encoded_dots: None,
            };
        }
        let decode_segment = |segment: &str| decode(segment).replace('/', "%2F");
        let segments: Vec<String> = path.split('/').map(decode_segment).collect();
        let by_segment = normalize(segments.iter().map(String::as_str));
        let encoded_dots = path
            .split('/')
            .zip(&segments)
            .any(|(written, segment)| written != segment && [".", ".."].contains(&segment.as_str()))
            .then(|| {
                let path = normalize(path.split('/'));
                path.split('/').map(decode_segment).collect::<Vec<_>>().join("/")
            });
        let decoded = decode(path);
        let whole = normalize(decoded.split('/'));
        Self {
            whole: (whole != by_segment).then_some(whole),
            by_segment,
            encoded_dots,
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by_segment.as_str())
            .chain(self.whole.as_deref())
            .chain(self.encoded_dots.as_deref())
    }
}

/// The most times that a path may be encoded.
const ROUNDS: usize = 3;

/// A path as the most lenient servers read it, in lower case: decoded repeatedly, `\\` for
/// `/`, without the parameters of segments (`;x`), and cut at the end of a path or of a C string. `None` if
/// it is encoded too often, or contains control characters or invalid UTF-8.
///
/// Servers may disagree about a path that differs from this in more than its case.
pub(crate) fn lenient(path: &str) -> Option<String> {
    let mut text = path.to_owned();
    for round in 0.. {
        let decoded = percent_decode_str(&text).decode_utf8().ok()?.into_owned();
        if decoded == text {
            break;
        }
        if round == ROUNDS {
            return None;
        }
        text = decoded;
    }
    if let Some(end) = text.find(['\0', '?', '#']) {
        text.truncate(end);
    }
    if text.contains(char::is_control) {
        return None;
    }
    let text = text.replace('\\', "/").to_lowercase();
    let segments = text.split('/').map(|segment| {
        let segment = segment.split(';').next().unwrap_or_default().trim();
        // Windows drops dots at the end of a name.
        match segment.trim_end_matches('.') {
            "" => segment,
            name => name.trim_end(),
        }
    });
    Some(normalize(segments))
}

/// Whether all servers read the path in the same way.
pub(crate) fn is_plain(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/-_~:@".contains(&byte))
        && !path.contains("//")
}

/// A value taken from a template's parameter: with its encoded slashes as slashes.
pub(crate) fn parameter(value: &str) -> String {
    value.replace("%2F", "/")
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn trim(path: &str) -> String {
    match path.strip_suffix('/') {
        Some("") | None => path.to_owned(),
        Some(path) => path.to_owned(),
    }
}

fn normalize<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in segments {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lenient_readings() {
        for (path, expected) in [
            ("/v1/Jobs", Some("/v1/jobs")),
            ("/v1/jobs;a=b/x;y", Some("/v1/jobs/x")),
            ("/v1/x/..;/jobs", Some("/v1/jobs")),
            ("/v1\\jobs", Some("/v1/jobs")),
            ("/v1%5Cjobs", Some("/v1/jobs")),
            ("/v1/jobs%00.png", Some("/v1/jobs")),
            ("/v1/jobs%3Fx", Some("/v1/jobs")),
            ("/v1/jobs%23x", Some("/v1/jobs")),
            ("/v1/%256aobs", Some("/v1/jobs")),
            ("/v1%252Fjobs", Some("/v1/jobs")),
            ("/v1/%2525256aobs", None),
            ("/v1/jobs%20", Some("/v1/jobs")),
            ("/v1/jobs.", Some("/v1/jobs")),
            ("/v1/./jobs//", Some("/v1/jobs")),
            ("/v1%c0%afjobs", None),
            ("/v1/jobs%0a", None),
            ("/100%25", Some("/100%")),
        ] {
            assert_eq!(lenient(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn readings() {
        for (path, by_segment, whole, encoded_dots) in [
            ("/", "/", None, None),
            ("/a/b", "/a/b", None, None),
            ("/a/b/", "/a/b", None, None),
            ("//a///b", "/a/b", None, None),
            ("/a/./b/../c", "/a/c", None, None),
            ("/%61/b", "/a/b", None, None),
            ("/a/b%2Fc", "/a/b%2Fc", Some("/a/b/c"), None),
            ("/a/b%2fc", "/a/b%2Fc", Some("/a/b/c"), None),
            ("/a/%2e%2e/b", "/b", None, Some("/a/../b")),
            ("/a/x%2F..%2Fb", "/a/x%2F..%2Fb", Some("/a/b"), None),
            ("/../..", "/", None, None),
            ("/a/%2e.", "/", None, Some("/a/..")),
            ("/a/../b/%2E", "/b", None, Some("/b/.")),
        ] {
            let readings = PathReadings::of(path);
            assert_eq!(readings.by_segment, by_segment, "{path}");
            assert_eq!(readings.whole.as_deref(), whole, "{path}");
            assert_eq!(readings.encoded_dots.as_deref(), encoded_dots, "{path}");
        }
    }
}
