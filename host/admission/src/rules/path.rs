//! The ways in which servers may interpret the methods and paths of requests. No spelling of a path may bypass a rule.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

/// The paths that common servers read from the same written path. Some servers split the path and then decode each
/// segment, so that an encoded slash (`%2F`) stays in its segment. Others, such as servers in Go, decode the path and
/// then split it, so that an encoded slash separates segments. Both kinds remove empty segments and dot segments such
/// as `..`. A server that removes dot segments before it decodes takes the encoded dot segment `%2e.` for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReadings {
    /// The path as read by servers that split it before they decode each segment. Encoded slashes stay `%2F`.
    pub by_segment: String,
    /// The path as read by servers that decode the whole path before they split it. `None` if they read the same path
    /// as servers that split first.
    pub decoded_first: Option<String>,
    /// The path as read by servers that first remove segments such as `..`, and then decode the path. These servers
    /// take an encoded segment such as `%2e.` for a name and keep it. `None` if the path has no encoded dot segment.
    pub encoded_dots: Option<String>,
}

impl PathReadings {
    /// Computes what common servers read from the path of a URI.
    pub fn new(path: &str) -> Self {
        // A path without these characters is decoded already, as most paths are.
        if !path.contains('%') && !path.contains("//") && !path.contains("/.") {
            return Self {
                by_segment: trim_slash(path),
                decoded_first: None,
                encoded_dots: None,
            };
        }
        let decode_segment = |segment: &str| decode(segment).replace('/', "%2F");
        let segments: Vec<String> = path.split('/').map(decode_segment).collect();
        let by_segment = normalize(segments.iter().map(String::as_str));
        let encoded_dots = path
            .split('/')
            .zip(&segments)
            .any(|(raw_segment, segment)| raw_segment != segment && [".", ".."].contains(&segment.as_str()))
            .then(|| {
                let path = normalize(path.split('/'));
                path.split('/').map(decode_segment).collect::<Vec<_>>().join("/")
            });
        let decoded_first = normalize(decode(path).split('/'));
        Self {
            decoded_first: (decoded_first != by_segment).then_some(decoded_first),
            by_segment,
            encoded_dots,
        }
    }

    /// Returns all paths that common servers read.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by_segment.as_str())
            .chain(self.decoded_first.as_deref())
            .chain(self.encoded_dots.as_deref())
    }
}

/// The number of times that a path may be percent-encoded. A path that is encoded more often is refused.
const MAX_DECODING_ROUNDS: usize = 3;

/// Servers differ in how they decode a path, so they may read hundreds of different paths from the path in one request.
/// This is the maximum total size of the paths that they may read, in bytes.
const MAX_READINGS_SIZE: usize = 32 << 10;

/// Stands for a slash that was decoded inside a segment. A path with this control character is refused, so the
/// character cannot have another meaning.
const INNER_SLASH: &str = "\u{1}";

/// Computes all paths that lenient servers may read from a path. A lenient server may apply any of the steps in this
/// function, in any order, and decodes the path at least once. For example, a server that ignores the parameters of
/// segments may do so before or after it decodes the path.
///
/// Returns `None` if the path is encoded too often, or may be read in too many ways; or if it contains invalid UTF-8,
/// control characters, or characters that may become separators.
pub fn lenient_readings(path: &str) -> Option<BTreeSet<String>> {
    if is_plain(path) {
        return Some(BTreeSet::from([path.to_owned()]));
    }
    if !is_readable(path) {
        return None;
    }
    let mut readings = BTreeSet::new();
    let mut undecoded_readings = BTreeSet::new();
    let mut remaining_size = MAX_READINGS_SIZE;
    let mut pending = vec![(path.to_owned(), false)];
    while let Some((text, is_decoded)) = pending.pop() {
        let visited = if is_decoded {
            &mut readings
        } else {
            &mut undecoded_readings
        };
        if !visited.insert(text.clone()) {
            continue;
        }
        remaining_size = remaining_size.checked_sub(text.len())?;
        let steps = [merge_slashes, remove_dots, replace_backslashes, drop_parameters];
        pending.extend(steps.map(|step| (step(&text), is_decoded)));
        if is_decoded {
            pending.extend([trim_segments, drop_query].map(|step| (step(&text), true)));
        }
        pending.extend([decode, decode_segments].map(|step| (step(&text), true)));
    }
    Some(readings)
}

fn is_readable(path: &str) -> bool {
    let mut text = path.to_owned();
    for _ in 0..=MAX_DECODING_ROUNDS {
        let Ok(decoded) = percent_decode_str(&text).decode_utf8() else {
            return false;
        };
        if decoded == text {
            return !text.contains(|c: char| c.is_control() || SEPARATORS_ELSEWHERE.contains(&c));
        }
        text = decoded.into_owned();
    }
    false
}

/// Characters that may become slashes, dots, semicolons, percent signs or backslashes when a server normalizes a text
/// (NFKC) or converts it to a Windows code page.
const SEPARATORS_ELSEWHERE: [char; 19] = [
    '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2100}', '\u{2101}', '\u{2105}', '\u{2106}', '\u{2215}',
    '\u{2216}', '\u{fe52}', '\u{fe54}', '\u{fe68}', '\u{fe6a}', '\u{ff05}', '\u{ff0e}', '\u{ff0f}', '\u{ff1b}',
    '\u{ff3c}',
];

fn merge_slashes(path: &str) -> String {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    format!("/{}", segments.collect::<Vec<_>>().join("/"))
}

/// Removes dot segments (RFC 3986, 5.2.4). A `..` removes the segment before it, even an empty one.
fn remove_dots(path: &str) -> String {
    let mut output_segments: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_dots = [".", ".."].contains(&segment);
        if segment == ".." {
            output_segments.pop();
        }
        if !is_dots {
            output_segments.push(segment);
        } else if segments.peek().is_none() {
            output_segments.push("");
        }
    }
    format!("/{}", output_segments.join("/"))
}

/// Replaces backslashes in a path with slashes, as some servers do.
fn replace_backslashes(path: &str) -> String {
    path.replace('\\', "/")
}

fn drop_parameters(path: &str) -> String {
    map_segments(path, |segment| segment.split(';').next().unwrap_or_default().to_owned())
}

/// Removes blanks and dots at the end of a path's segments, as Windows does with file names.
fn trim_segments(path: &str) -> String {
    map_segments(path, |segment| {
        let segment = segment.trim();
        match segment.trim_end_matches('.') {
            "" => segment.to_owned(),
            name => name.trim_end().to_owned(),
        }
    })
}

/// Removes a query or fragment from a decoded path: `%3F` may have become `?`, and `%23` may have become `#`.
fn drop_query(path: &str) -> String {
    path.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Splits the path before it decodes each segment, so that decoded slashes stay inside their segments.
fn decode_segments(path: &str) -> String {
    map_segments(path, |segment| decode(segment).replace('/', INNER_SLASH))
}

fn map_segments(path: &str, change: impl Fn(&str) -> String) -> String {
    path.split('/').map(change).collect::<Vec<_>>().join("/")
}

/// Returns the text in lower case. Letters that are equal apart from case become the same letter, even `s` and `ſ`.
pub fn fold_case(text: &str) -> String {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns whether the path has only characters and segments that all servers read in the same way.
fn is_plain(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/-_~:@".contains(&byte))
        && !path.contains("//")
        && !path.ends_with('/')
}

/// Returns the value of a path parameter that is taken from [`PathReadings`]. Encoded slashes in it are decoded.
pub fn parameter_value(value: &str) -> String {
    value.replace("%2F", "/")
}

/// Returns the value of a path parameter from a path that [`lenient_readings`] has returned. In such a path, a control
/// character stands for each slash that was decoded inside a segment. This function puts the slashes back.
pub fn lenient_parameter_value(value: &str) -> String {
    value.replace(INNER_SLASH, "/")
}

/// Decodes the percent-encoding of a text. Invalid UTF-8 is replaced.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn trim_slash(path: &str) -> String {
    match path.strip_suffix('/') {
        Some("") | None => path.to_owned(),
        Some(path) => path.to_owned(),
    }
}

fn normalize<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let mut output_segments: Vec<&str> = Vec::new();
    for segment in segments {
        match segment {
            "" | "." => {}
            ".." => {
                output_segments.pop();
            }
            segment => output_segments.push(segment),
        }
    }
    format!("/{}", output_segments.join("/"))
}

/// The headers whose value some servers use instead of the request's method.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];
/// The query parameter whose value some servers use instead of the request's method.
const METHOD_PARAMETER: &str = "_method";

/// Looks for a header or query parameter that makes some servers use another method or path than the request's. Returns
/// a text that names the first one, such as `the query parameter _method`. `target` is the request's path and query.
pub fn find_override<'a>(
    method: &str,
    target: &str,
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Option<String> {
    let is_override = |name: &str, value: &[u8]| {
        let name = header_key(name);
        if METHOD_HEADERS.contains(&name.as_str()) {
            !value.eq_ignore_ascii_case(method.as_bytes())
        } else {
            PATH_HEADERS.contains(&name.as_str()) && value != target.as_bytes()
        }
    };
    for (name, value) in headers {
        if name.starts_with(['x', 'X']) && is_override(name, value) {
            return Some(format!("the header {name}"));
        }
    }
    // Some servers accept semicolons instead of `&` between query parameters, so both separate parameters here.
    let (_, query) = target.split_once('?').unwrap_or_default();
    query
        .split(['&', ';'])
        .flat_map(|parameter| form_urlencoded::parse(parameter.as_bytes()))
        .any(|(key, value)| key == METHOD_PARAMETER && !value.eq_ignore_ascii_case(method))
        .then(|| format!("the query parameter {METHOD_PARAMETER}"))
}

/// Returns one name for all spellings of a header. Gateways to other programs (CGI, WSGI) treat `_` like `-`.
pub fn header_key(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has a written path, and some of the paths that lenient servers read from it.
    #[test]
    fn a_path_is_interpreted_in_every_way_that_a_lenient_server_might() {
        for (path, expected) in [
            ("/v1/jobs", vec!["/v1/jobs"]),
            ("/v1/Jobs", vec!["/v1/Jobs"]),
            ("/v1/jobs/", vec!["/v1/jobs/", "/v1/jobs"]),
            ("/v1//jobs", vec!["/v1//jobs", "/v1/jobs"]),
            ("/v1/jobs;a=b/x;y", vec!["/v1/jobs;a=b/x;y", "/v1/jobs/x"]),
            ("/v1/x/..;/jobs", vec!["/v1/x/../jobs", "/v1/jobs"]),
            ("/v1\\jobs", vec!["/v1\\jobs", "/v1/jobs"]),
            ("/v1%5Cjobs", vec!["/v1\\jobs", "/v1/jobs"]),
            ("/v1/jobs%3Fx", vec!["/v1/jobs?x", "/v1/jobs"]),
            ("/v1/jobs%23x", vec!["/v1/jobs#x", "/v1/jobs"]),
            ("/v1/%256aobs", vec!["/v1/%6aobs", "/v1/jobs"]),
            ("/v1%252Fjobs", vec!["/v1%2Fjobs", "/v1\u{1}jobs", "/v1/jobs"]),
            ("/v1/jobs%20", vec!["/v1/jobs ", "/v1/jobs"]),
            ("/v1/jobs.", vec!["/v1/jobs.", "/v1/jobs"]),
            ("/a/b//../..", vec!["/a/b//../..", "/a/", "/a", "/"]),
            ("/a%2Fb;c%2Fd", vec!["/a\u{1}b", "/a/b;c/d", "/a/b/d"]),
            ("/a;x%2Fy/b%2F../c", vec!["/a/b/../c", "/a/c", "/a/b\u{1}../c"]),
            ("/100%25", vec!["/100%"]),
        ] {
            let readings = lenient_readings(path).unwrap();
            for expected in expected {
                assert!(readings.contains(expected), "{path}: {expected:?} of {readings:?}");
            }
        }
    }

    #[test]
    fn a_path_with_ambiguous_characters_is_not_interpreted() {
        let long_path = "/%25255c;%255c;%5c;%2525253f.".repeat(40);
        for path in [
            "/v1/%2525256aobs",
            "/v1%c0%afjobs",
            "/v1/..%ef%bc%8fjobs",
            "/v1/%e2%80%a5/jobs",
            "/v1/jobs%0a",
            "/v1/jobs%00",
            "/v1/jobs%2500.png",
            &long_path,
        ] {
            assert_eq!(lenient_readings(path), None, "{path}");
        }
    }

    #[test]
    fn servers_read_an_ordinary_path_in_few_ways() {
        for (path, max_reading_count) in [
            ("/v1/job/web/plan", 1),
            ("/v1/job/Web.Front", 1),
            ("/v1/job/a%2Fb", 2),
            ("/v1/job/a%20b", 1),
            ("/v1/job/a/", 2),
            ("/v1/job/../job//a", 6),
        ] {
            let readings = lenient_readings(path).unwrap();
            assert!(readings.len() <= max_reading_count, "{path}: {readings:?}");
        }
    }

    #[test]
    fn a_path_has_one_interpretation_for_each_way_of_decoding() {
        for (path, by_segment, decoded_first, encoded_dots) in [
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
            let readings = PathReadings::new(path);
            assert_eq!(readings.by_segment, by_segment, "{path}");
            assert_eq!(readings.decoded_first.as_deref(), decoded_first, "{path}");
            assert_eq!(readings.encoded_dots.as_deref(), encoded_dots, "{path}");
        }
    }
}
