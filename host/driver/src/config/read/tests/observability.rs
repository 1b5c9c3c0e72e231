use std::time::Duration;

use super::{MINIMAL, read};
use crate::TracingProtocol;

#[test]
fn the_tracing_section_is_read() {
    let config = read(&format!(
        "{MINIMAL}tracing:\n  endpoint: http://collector:4318\n  protocol: http/json\n  headers: {{ X-Key: /run/key }}\n  \
         sampling: 10%\n  timeout: 2s\n"
    ));
    let tracing = config.unwrap().tracing.unwrap();
    assert_eq!(tracing.endpoint, "http://collector:4318/v1/traces");
    assert_eq!(tracing.protocol, TracingProtocol::HttpJson);
    assert_eq!(tracing.headers, [("x-key".parse().unwrap(), "/run/key".into())]);
    assert_eq!(tracing.sampling.map(|share| share.to_string()).as_deref(), Some("10%"));
    assert_eq!(tracing.timeout, Some(Duration::from_secs(2)));

    let config = read(&format!(
        "{MINIMAL}tracing: {{ endpoint: \"http://collector/spans\" }}\n"
    ));
    let tracing = config.unwrap().tracing.unwrap();
    assert_eq!(tracing.endpoint, "http://collector/spans");
    assert!(tracing.sampling.is_none() && tracing.timeout.is_none());
    assert!(read(MINIMAL).unwrap().tracing.is_none());
}

#[test]
fn mistakes_in_the_tracing_section_are_reported() {
    for (text, expected) in [
        ("tracing: {}", "tracing.endpoint: missing"),
        (
            "tracing: { endpoint: \"collector:4317\" }",
            "tracing.endpoint: \"collector:4317\" is not a valid URL",
        ),
        (
            "tracing: { endpoint: \"http://a\", protocol: grpc }",
            "tracing.protocol: \"grpc\" is not a valid protocol",
        ),
        (
            "tracing: { endpoint: \"http://a\", headers: { \"a b\": x } }",
            "tracing.headers[\"a b\"]: \"a b\" is not a valid name of a header",
        ),
        (
            "tracing: { endpoint: \"http://a\", sampling: 0.1 }",
            "tracing.sampling: a number where a string is expected",
        ),
        (
            "tracing: { endpoint: \"http://a\", sampling: 101% }",
            "tracing.sampling: `101%` is not a valid share",
        ),
        (
            "tracing: { endpoint: \"http://a\", tls: { ca: missing.pem } }",
            "tracing.tls.ca: ",
        ),
    ] {
        let mistakes = read(&format!("{MINIMAL}{text}")).unwrap_err();
        assert!(
            matches!(mistakes.as_slice(), [mistake] if mistake.starts_with(expected)),
            "{text}: {mistakes:?}"
        );
    }
}
