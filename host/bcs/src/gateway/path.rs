//! Maps paths of the gateway to paths of a driver.

use http::{Uri, uri::PathAndQuery};
use percent_encoding::percent_decode_str;

/// Paths of the gateway begin with one of these. The first is bcs-api's; the second is the other one that
/// bcs-gateway-discovery leads to drivers, for consoles among others. The longer one comes first.
const OUTER: [&str; 2] = ["/bcsapi/v4/scheduler/mesos", "/bcsapi/v1"];
/// The prefix of all paths of a driver.
const INNER: &str = "/mesosdriver/v4";

/// Why a path does not lead to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidPath {
    #[error("not found: paths begin with /bcsapi/v4/scheduler/mesos/ or /bcsapi/v1/")]
    NotFound,
    /// A driver could read the path differently from the gateway, which checks permissions by it.
    #[error("the path has a segment `.` or `..`, or an empty one; write it without")]
    Dots,
    /// It is longer than a URI may be.
    #[error("the path is too long")]
    TooLong,
}

/// The path of the driver for a path of the gateway. The query and percent-encoding stay the same.
pub(super) fn inner(uri: &Uri) -> Result<PathAndQuery, InvalidPath> {
    let path = uri.path();
    let rest = OUTER
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix).filter(|rest| rest.starts_with('/')))
        .filter(|rest| rest.len() > 1)
        .ok_or(InvalidPath::NotFound)?;
    if !is_plain(rest) {
        return Err(InvalidPath::Dots);
    }
    let text = match uri.query() {
        Some(query) => format!("{INNER}{rest}?{query}"),
        None => format!("{INNER}{rest}"),
    };
    text.parse().map_err(|_| InvalidPath::TooLong)
}

/// Whether no segment between slashes, encoded ones included, is empty, `.` or `..`. The last may be empty.
fn is_plain(rest: &str) -> bool {
    let decoded = decoded(rest);
    let mut segments: Vec<&str> = decoded.split('/').skip(1).collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    !segments.iter().any(|segment| matches!(*segment, "" | "." | ".."))
}

/// The most times that servers on the way may decode a path.
const ROUNDS: usize = 4;

/// Whether every server reads this path in the same way: nothing is encoded twice, and no slash is encoded.
pub(super) fn has_one_reading(path: &str) -> bool {
    let once = percent_decode_str(path).decode_utf8();
    once.is_ok_and(|once| !once.contains('%') && once.matches('/').count() == path.matches('/').count())
}

/// The path with all percent-encoding decoded, repeatedly if it is encoded several times.
fn decoded(path: &str) -> String {
    let mut text = path.to_owned();
    for _ in 0..ROUNDS {
        if !text.contains('%') {
            break;
        }
        text = percent_decode_str(&text).decode_utf8_lossy().into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings() {
        for (path, expected) in [
            ("/a/b", true),
            ("/a/%62", true),
            ("/a/%E5%BA%94", true),
            ("/a%2Fb", false),
            ("/a%2fb", false),
            ("/%2561", false),
            ("/a%25", false),
            ("/a%zz", false),
            ("/a%FF", false),
        ] {
            assert_eq!(has_one_reading(path), expected, "{path}");
        }
    }

    #[test]
    fn paths() {
        use InvalidPath::{Dots, NotFound};
        for (outer, expected) in [
            ("/bcsapi/v4/scheduler/mesos/a/b", Ok("/mesosdriver/v4/a/b")),
            ("/bcsapi/v4/scheduler/mesos/a/", Ok("/mesosdriver/v4/a/")),
            (
                "/bcsapi/v4/scheduler/mesos/a?x=%20;y&",
                Ok("/mesosdriver/v4/a?x=%20;y&"),
            ),
            (
                "/bcsapi/v4/scheduler/mesos/a%2Fb%61",
                Ok("/mesosdriver/v4/a%2Fb%61"),
            ),
            (
                "/bcsapi/v4/scheduler/mesos/a..b/.c",
                Ok("/mesosdriver/v4/a..b/.c"),
            ),
            (
                "/bcsapi/v1/webconsole/x?host_ip=10.0.0.1",
                Ok("/mesosdriver/v4/webconsole/x?host_ip=10.0.0.1"),
            ),
            ("/bcsapi/v1/a%zz", Ok("/mesosdriver/v4/a%zz")),
            ("/", Err(NotFound)),
            ("/mesosdriver/v4/a", Err(NotFound)),
            ("/bcsapi/v4/scheduler/mesos", Err(NotFound)),
            ("/bcsapi/v4/scheduler/mesos/", Err(NotFound)),
            ("/bcsapi/v4/scheduler/mesosphere/a", Err(NotFound)),
            ("/bcsapi/v4/scheduler/k8s/a", Err(NotFound)),
            ("/bcsapi/v10/a", Err(NotFound)),
            ("/BCSAPI/v1/a", Err(NotFound)),
            ("/bcsapi/v1/../v4", Err(Dots)),
            ("/bcsapi/v1/a/./b", Err(Dots)),
            ("/bcsapi/v1/a//b", Err(Dots)),
            ("/bcsapi/v1//a", Err(Dots)),
            ("/bcsapi/v1/%2e%2e/a", Err(Dots)),
            ("/bcsapi/v1/a%2f..%2fb", Err(Dots)),
            ("/bcsapi/v1/a/%252e%252e/b", Err(Dots)),
        ] {
            let found = inner(&outer.parse().unwrap());
            let expected = expected.map(|path: &str| path.parse::<PathAndQuery>().unwrap());
            assert_eq!(found, expected, "{outer}");
        }
    }
}
