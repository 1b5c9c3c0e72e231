//! Maps paths of the gateway to paths of a driver.

use admittance_bcs::routes::PREFIX;
use http::{Uri, uri::PathAndQuery};
use percent_encoding::percent_decode_str;

use super::error::GatewayError;

/// The prefixes that the paths of requests to the gateway can have: the prefix of bcs-api, and the prefix of
/// bcs-gateway-discovery.
const PREFIXES: [&str; 2] = ["/bcsapi/v4/scheduler/mesos", "/bcsapi/v1"];

/// Returns the path at a driver for a path at the gateway. The query and percent-encoding are kept.
pub(super) fn driver_path(uri: &Uri) -> Result<PathAndQuery, GatewayError> {
    let path = uri.path();
    let is_below = |prefix: &&&str| path.strip_prefix(**prefix).is_some_and(|rest| rest.starts_with('/'));
    let prefix = PREFIXES.iter().find(is_below).ok_or(GatewayError::NoRoute)?;
    rewrite_prefix(uri, prefix, PREFIX)
}

pub(super) fn rewrite_prefix(uri: &Uri, prefix: &str, new_prefix: &str) -> Result<PathAndQuery, GatewayError> {
    let after_prefix = uri.path().strip_prefix(prefix).filter(|rest| rest.len() > 1);
    let rest = after_prefix.ok_or(GatewayError::NoRoute)?;
    if !has_plain_segments(rest) {
        return Err(GatewayError::DotSegment);
    }
    let text = match uri.query() {
        Some(query) => format!("{new_prefix}{rest}?{query}"),
        None => format!("{new_prefix}{rest}"),
    };
    text.parse().map_err(|_| GatewayError::PathTooLong)
}

/// Returns whether no segment of the path is empty, `.` or `..`. The path may end with a slash. Percent-encoded slashes
/// separate segments, too.
fn has_plain_segments(rest: &str) -> bool {
    let decoded = decode(rest);
    let mut segments: Vec<&str> = decoded.split('/').skip(1).collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    !segments.iter().any(|segment| matches!(*segment, "" | "." | ".."))
}

/// The maximum number of times that percent-encoding is removed from a path before the path is checked. There can be
/// several servers between a client and a driver, and each of them may decode the path once.
const MAX_DECODE_ROUNDS: usize = 4;

/// Returns whether every server reads this path in the same way: it has no encoded slash, and nothing is encoded twice.
pub(super) fn has_one_reading(path: &str) -> bool {
    let once = percent_decode_str(path).decode_utf8();
    once.is_ok_and(|once| !once.contains('%') && once.matches('/').count() == path.matches('/').count())
}

/// Returns the path without percent-encoding. What is encoded several times is decoded several times.
fn decode(path: &str) -> String {
    let mut text = path.to_owned();
    for _ in 0..MAX_DECODE_ROUNDS {
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
    fn paths_that_servers_may_read_differently_are_refused() {
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
    #[rustfmt::skip]
    fn gateway_paths_become_driver_paths() {
        use GatewayError::{DotSegment, NoRoute};
        for (path, expected) in [
            ("/bcsapi/v4/scheduler/mesos/a/b", Ok("/mesosdriver/v4/a/b")),
            ("/bcsapi/v4/scheduler/mesos/a/", Ok("/mesosdriver/v4/a/")),
            ("/bcsapi/v4/scheduler/mesos/a?x=%20;y&", Ok("/mesosdriver/v4/a?x=%20;y&")),
            ("/bcsapi/v4/scheduler/mesos/a%2Fb%61", Ok("/mesosdriver/v4/a%2Fb%61")),
            ("/bcsapi/v4/scheduler/mesos/a..b/.c", Ok("/mesosdriver/v4/a..b/.c")),
            ("/bcsapi/v1/webconsole/x?host_ip=10.0.0.1", Ok("/mesosdriver/v4/webconsole/x?host_ip=10.0.0.1")),
            ("/bcsapi/v1/a%zz", Ok("/mesosdriver/v4/a%zz")),
            ("/", Err(NoRoute)),
            ("/mesosdriver/v4/a", Err(NoRoute)),
            ("/bcsapi/v4/scheduler/mesos", Err(NoRoute)),
            ("/bcsapi/v4/scheduler/mesos/", Err(NoRoute)),
            ("/bcsapi/v4/scheduler/mesosphere/a", Err(NoRoute)),
            ("/bcsapi/v4/scheduler/k8s/a", Err(NoRoute)),
            ("/bcsapi/v10/a", Err(NoRoute)),
            ("/BCSAPI/v1/a", Err(NoRoute)),
            ("/bcsapi/v1/../v4", Err(DotSegment)),
            ("/bcsapi/v1/a/./b", Err(DotSegment)),
            ("/bcsapi/v1/a//b", Err(DotSegment)),
            ("/bcsapi/v1//a", Err(DotSegment)),
            ("/bcsapi/v1/%2e%2e/a", Err(DotSegment)),
            ("/bcsapi/v1/a%2f..%2fb", Err(DotSegment)),
            ("/bcsapi/v1/a/%252e%252e/b", Err(DotSegment)),
        ] {
            let actual = driver_path(&path.parse().unwrap());
            let expected = expected.map(|path: &str| path.parse::<PathAndQuery>().unwrap());
            assert_eq!(actual, expected, "{path}");
        }
    }
}
