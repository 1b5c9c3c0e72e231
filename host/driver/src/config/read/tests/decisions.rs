use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use admittance::DecisionsConfig;
use admittance_admin::{NdjsonTarget, SinksConfig};

use super::{MINIMAL, read, read_in};

#[test]
fn decisions_are_kept_in_memory_by_default() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.decisions, DecisionsConfig::default());
    assert_eq!((config.decisions.count, config.decisions.bytes), (10_000, 64 << 20));
    assert_eq!(config.decision_sinks, SinksConfig::default());
    let off = read(&format!("{MINIMAL}\ndecisions: {{ memory: {{ count: 0 }} }}")).unwrap();
    assert_eq!(off.decisions.count, 0);
}

#[test]
fn all_sinks_of_decisions_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "a-token-of-16-characters").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "{MINIMAL}
decisions:
  memory: {{ count: 5, size: 2MiB }}
  redact: [/spec/*/value]
  share: 0%
  objects: true
  sqlite: {{ file: decisions.db, keep: 7d, sizeLimit: 10MiB }}
  ndjson: {{ file: decisions.ndjson }}
  http: {{ url: \"https://logs.example.com/in\", tokenFile: token }}
"
    );
    let config = read_in(&directory, &text).unwrap();
    assert_eq!((config.decisions.count, config.decisions.bytes), (5, 2 << 20));
    assert_eq!(config.decisions.redact[0].to_string(), "/spec/*/value");
    let sinks = config.decision_sinks;
    assert_eq!((sinks.share, sinks.objects), (None, true));
    let sqlite = sinks.sqlite.unwrap();
    assert_eq!(sqlite.file, directory.path().join("decisions.db"));
    assert_eq!(sqlite.keep, Duration::from_secs(7 * 24 * 3600));
    assert_eq!(sqlite.size_limit, 10 << 20);
    let file = NdjsonTarget::File(directory.path().join("decisions.ndjson"));
    assert_eq!(sinks.ndjson, Some(file));
    let http = sinks.http.unwrap();
    assert_eq!(http.url.as_str(), "https://logs.example.com/in");
    assert_eq!(http.token_file, Some(token));
}

#[test]
fn events_about_decisions_need_a_cluster() {
    let config = read(&format!("{MINIMAL}\ncluster: {{}}\ndecisions: {{ events: true }}")).unwrap();
    assert!(config.decision_sinks.events);
    let mistakes = read(&format!("{MINIMAL}\ndecisions: {{ events: true }}")).unwrap_err();
    assert!(
        mistakes[0].contains("decisions.events: no Kubernetes cluster"),
        "{mistakes:?}"
    );
}

#[test]
fn mistakes_in_the_decisions_section_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "a-token-of-16-characters").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    for (text, expected) in [
        (
            "{ memory: { count: 0 }, ndjson: { standardOutput: true } }",
            "decisions: decisions are written from memory",
        ),
        (
            "{ memory: { size: 1KiB } }",
            "decisions.memory.size: 1KiB is out of range",
        ),
        ("{ redact: [spec] }", "decisions.redact[0]: `spec` is not a valid field"),
        ("{ share: half }", "decisions.share: `half` is not a valid share"),
        ("{ sqlite: {} }", "decisions.sqlite.file: missing"),
        (
            "{ sqlite: { file: a, keep: 1s } }",
            "decisions.sqlite.keep: 1s is out of range",
        ),
        ("{ ndjson: {} }", "decisions.ndjson: exactly one place is expected"),
        (
            "{ ndjson: { file: a, standardOutput: true } }",
            "decisions.ndjson: exactly one place is expected",
        ),
        (
            "{ http: { url: \"ftp://a/\" } }",
            "decisions.http.url: \"ftp://a/\" is not a valid URL",
        ),
        (
            "{ http: { url: \"http://logs.example.com/\", tokenFile: token } }",
            "decisions.http.tokenFile: the token would be sent over the network in the clear",
        ),
        (
            "{ http: { url: \"https://a/\", tokenFile: none } }",
            "decisions.http.tokenFile: ",
        ),
    ] {
        let mistakes = read_in(&directory, &format!("{MINIMAL}\ndecisions: {text}")).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{text}: {mistakes:?}");
        };
        assert!(mistake.starts_with(expected), "{text}: {mistake}");
    }
    let local = "{ http: { url: \"http://127.0.0.1:1/\", tokenFile: token } }";
    assert!(read_in(&directory, &format!("{MINIMAL}\ndecisions: {local}")).is_ok());
}
