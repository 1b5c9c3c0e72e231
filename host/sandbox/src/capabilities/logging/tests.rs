use std::fmt;

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::with_default,
};
use tracing_subscriber::{
    Layer, Registry,
    filter::LevelFilter,
    layer::{Context, SubscriberExt as _},
};

use super::*;

#[derive(Clone, Default)]
struct EventLines(Arc<Mutex<Vec<String>>>);

struct LogFields(String);

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for EventLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        assert_eq!(event.metadata().target(), TARGET);
        let mut fields = LogFields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().push(fields.0);
    }
}

fn log_lines(limits: LogLimits, level: LevelFilter, happens: impl FnOnce(&CallLog)) -> Vec<String> {
    let events = EventLines::default();
    with_default(Registry::default().with(events.clone().with_filter(level)), || {
        let log = CallLog::new("p".into(), Uid::from("u1".to_owned()), limits);
        happens(&log);
        log.finish();
    });
    // Another test's thread may still hold this subscriber, and with it the list: `tracing` asks each subscriber about
    // each new place that logs.
    std::mem::take(&mut *events.0.lock())
}

const ALL_LEVELS: LevelFilter = LevelFilter::TRACE;

#[test]
fn each_line_of_a_plugin_becomes_a_log_event() {
    let lines = log_lines(LogLimits::default(), ALL_LEVELS, |log| {
        log.log_line(Level::DEBUG, "cache", "hit");
        log.write(Stream::Out, b"one\ntw");
        log.write(Stream::Err, b"\nbad\xff\n\n");
        log.write(Stream::Out, b"o");
    });
    assert_eq!(
        lines,
        [
            r#"DEBUG message=hit plugin="p" uid="u1" context="cache""#,
            r#"INFO message=one plugin="p" uid="u1" context="stdout""#,
            "WARN message=bad\u{fffd} plugin=\"p\" uid=\"u1\" context=\"stderr\"",
            r#"INFO message=two plugin="p" uid="u1" context="stdout""#,
        ]
    );
}

#[test]
fn log_lines_beyond_the_limit_are_dropped_and_counted() {
    for (case, limits, kept, dropped) in [
        ("lines", LogLimits { lines: 2, bytes: 1000 }, 2, 3),
        ("bytes", LogLimits { lines: 9, bytes: 14 }, 3, 2),
        ("no lines", LogLimits { lines: 0, bytes: 1000 }, 0, 5),
        ("enough", LogLimits { lines: 5, bytes: 20 }, 5, 0),
    ] {
        let lines = log_lines(limits, ALL_LEVELS, |log| {
            for _ in 0..5 {
                log.log_line(Level::INFO, "c", "abc");
            }
        });
        assert_eq!(
            lines.iter().filter(|line| line.contains("message=abc")).count(),
            kept,
            "{case}"
        );
        let count = lines.iter().find(|line| line.starts_with("WARN"));
        match dropped {
            0 => assert_eq!(count, None, "{case}"),
            dropped => assert!(
                count.unwrap().ends_with(&format!("dropped={dropped}")),
                "{case}: {count:?}"
            ),
        }
    }
}

#[test]
fn an_abandoned_call_logs_nothing_more() {
    let limits = LogLimits { lines: 1, bytes: 1000 };
    let lines = log_lines(limits, ALL_LEVELS, |log| {
        log.write(Stream::Out, b"first\nsecond\nand no end");
        log.close();
        log.write(Stream::Out, b" of a line\n");
        log.log_line(Level::INFO, "c", "late");
        log.log_request("GET https://a.example/", Ok(200));
    });
    let [first, dropped] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(
        first.contains("message=first") && dropped.ends_with("dropped=2"),
        "{lines:?}"
    );
}

#[test]
fn the_number_of_logged_requests_is_limited() {
    let lines = log_lines(LogLimits { lines: 0, bytes: 0 }, ALL_LEVELS, |log| {
        log.log_request(&"é".repeat(MAX_LINE), Err(&HttpError::Timeout));
        for _ in 0..MAX_REQUESTS + 1 {
            log.log_request("GET https://a.example/", Ok(200));
        }
    });
    let requests = lines.iter().filter(|line| line.starts_with("INFO"));
    assert_eq!(requests.count(), MAX_REQUESTS as usize);
    assert_eq!(lines[0].matches('é').count(), (MAX_LINE - "...".len()) / 2);
    assert!(lines.last().unwrap().ends_with("dropped=2"), "{lines:?}");
}

#[test]
fn lines_of_disabled_levels_are_not_formatted() {
    let lines = log_lines(LogLimits { lines: 1, bytes: 100 }, LevelFilter::INFO, |log| {
        log.log_line(Level::DEBUG, "", "quiet");
        log.log_line(Level::INFO, "", "loud");
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_line_that_is_too_long_is_truncated() {
    let lines = log_lines(LogLimits::default(), ALL_LEVELS, |log| {
        for _ in 0..100 {
            log.write(Stream::Out, &[b'z'; 1000]);
        }
        log.write(Stream::Out, b"\nshort\n");
    });
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].matches('z').count(), MAX_LINE);
}

#[test]
fn the_end_of_standard_error_is_kept() {
    log_lines(LogLimits { lines: 0, bytes: 0 }, ALL_LEVELS, |log| {
        log.write(Stream::Err, &[b'x'; 2 * MAX_TAIL]);
        log.write(Stream::Out, b"not this\n");
        log.write(Stream::Err, b"\nlast words\n");
        let tail = log.stderr_tail();
        assert!(
            tail.len() <= MAX_TAIL && tail.ends_with("x\nlast words"),
            "{}",
            tail.len()
        );
    });
}
