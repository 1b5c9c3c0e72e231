//! Writes log lines in two formats. Values from plugins, webhooks and clients cannot add lines, move the terminal's
//! cursor, or make a line arbitrarily long.

use std::fmt::{self, Write as _};

use anstyle::Style;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::Record,
};
use tracing_log::NormalizeEvent as _;
use tracing_subscriber::{
    Layer,
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

/// The maximum size of the message and of each other field, in bytes. Longer text is truncated.
const FIELD_LIMIT: usize = 8 << 10;

pub(super) fn pretty_layer<S, W>(writer: W, has_colours: bool) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(PrettyFields)
        .with_writer(writer)
        .with_ansi(has_colours)
        .with_target(false)
}

pub(super) fn json_layer<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(JsonLines)
        .fmt_fields(JsonMembers)
        .with_writer(writer)
}

#[derive(Debug)]
struct PrettyFields;

impl<'w> FormatFields<'w> for PrettyFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = PrettyVisitor {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PrettyVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl PrettyVisitor<'_> {
    fn write_field(&mut self, field: &Field, value: fmt::Arguments<'_>) -> fmt::Result {
        let name = field.name();
        // The crate `log` adds fields such as `log.target`. They repeat what the line says already.
        if name.starts_with("log.") {
            return Ok(());
        }
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if name != "message" {
            let (italic, dim) = if self.writer.has_ansi_escapes() {
                (Style::new().italic(), Style::new().dimmed())
            } else {
                (Style::new(), Style::new())
            };
            write!(self.writer, "{italic}{name}{italic:#}{dim}={dim:#}")?;
        }
        EscapedText::write(&mut self.writer, EscapeRule::Rust, value)
    }
}

impl Visit for PrettyVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.result.is_ok() {
            self.result = self.write_field(field, format_args!("{value:?}"));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeRule {
    Rust,
    Json,
}

impl EscapeRule {
    fn write_escape(self, out: &mut Writer<'_>, char: char) -> fmt::Result {
        match (self, char) {
            (Self::Rust, _) => write!(out, "{}", char.escape_default()),
            (Self::Json, '"' | '\\') => write!(out, "\\{char}"),
            (Self::Json, '\n') => out.write_str("\\n"),
            (Self::Json, '\r') => out.write_str("\\r"),
            (Self::Json, '\t') => out.write_str("\\t"),
            (Self::Json, _) => write!(out, "\\u{:04x}", u32::from(char)),
        }
    }

    fn is_needed(self, char: char) -> bool {
        let is_part_of_json = self == Self::Json && matches!(char, '"' | '\\');
        is_part_of_json || is_harmful(char)
    }
}

/// Text in which control characters, and characters that change the direction of text, are escaped.
struct EscapedText<'a, 'w> {
    out: &'a mut Writer<'w>,
    escaping: EscapeRule,
    /// The number of bytes that may still be written before the text is cut off.
    remaining_bytes: usize,
    /// The number of bytes of the text that were cut off.
    cut_bytes: usize,
}

impl EscapedText<'_, '_> {
    fn write(out: &mut Writer<'_>, escaping: EscapeRule, text: fmt::Arguments<'_>) -> fmt::Result {
        let mut escaped = EscapedText {
            out,
            escaping,
            remaining_bytes: FIELD_LIMIT,
            cut_bytes: 0,
        };
        escaped.write_fmt(text)?;
        match escaped.cut_bytes {
            0 => Ok(()),
            cut => write!(escaped.out, "... ({cut} bytes more)"),
        }
    }
}

impl fmt::Write for EscapedText<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte| matches!(byte, b' '..=b'~') && !self.escaping.is_needed(char::from(byte));
        if self.cut_bytes == 0 && text.len() <= self.remaining_bytes && text.bytes().all(is_plain) {
            self.remaining_bytes -= text.len();
            return self.out.write_str(text);
        }
        for char in text.chars() {
            let length = char.len_utf8();
            if self.cut_bytes > 0 || length > self.remaining_bytes {
                self.cut_bytes += length;
                continue;
            }
            self.remaining_bytes -= length;
            if self.escaping.is_needed(char) {
                self.escaping.write_escape(self.out, char)?;
            } else {
                self.out.write_char(char)?;
            }
        }
        Ok(())
    }
}

fn is_harmful(char: char) -> bool {
    char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes each log event as a line with a JSON object. Its member `span` contains the fields of the span.
#[derive(Debug)]
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        writer.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\"", metadata.level())?;
        let mut visitor = JsonVisitor {
            writer: writer.by_ref(),
            is_first: false,
            result: Ok(()),
        };
        event.record(&mut visitor);
        visitor.result?;
        write!(writer, ",\"target\":\"{}\"", metadata.target())?;
        if let Some(span) = context.parent_span() {
            writer.write_str(",\"span\":{")?;
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
                write!(writer, "{fields},")?;
            }
            write!(writer, "\"name\":\"{}\"}}", span.name())?;
        }
        writer.write_str("}\n")
    }
}

#[derive(Debug)]
struct JsonMembers;

impl<'w> FormatFields<'w> for JsonMembers {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = JsonVisitor {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        if !current.fields.is_empty() {
            current.fields.push(',');
        }
        self.format_fields(current.as_writer(), fields)
    }
}

struct JsonVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl JsonVisitor<'_> {
    fn write_member(&mut self, field: &Field, write_value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        let name = field.name();
        if self.result.is_err() || name.starts_with("log.") {
            return;
        }
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        self.result = write!(self.writer, "{comma}\"{name}\":").and_then(|()| write_value(&mut self.writer));
    }

    fn write_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        self.write_member(field, |writer| {
            writer.write_char('"')?;
            EscapedText::write(writer, EscapeRule::Json, text)?;
            writer.write_char('"')
        });
    }
}

impl Visit for JsonVisitor<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write_member(field, |writer| {
            if value.is_finite() {
                write!(writer, "{value:?}")
            } else {
                writer.write_str("null")
            }
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write_member(field, |writer| write!(writer, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write_member(field, |writer| write!(writer, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write_member(field, |writer| write!(writer, "{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write_text(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write_text(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct LogLines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for LogLines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl LogLines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn capture_logs(log: impl Fn()) -> [String; 2] {
        let (pretty_lines, json_lines) = (LogLines::default(), LogLines::default());
        let writer = pretty_lines.clone();
        let subscriber = tracing_subscriber::registry().with(pretty_layer(move || writer.clone(), false));
        tracing::subscriber::with_default(subscriber, &log);
        let writer = json_lines.clone();
        let subscriber = tracing_subscriber::registry().with(json_layer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, &log);
        [pretty_lines.text(), json_lines.text()]
    }

    const HOSTILE: &str = "no\n2026-01-01T00:00:00Z ERROR fake\r\u{1b}[2J\u{9b}31m\u{202e}";

    #[test]
    fn a_log_message_is_one_line_without_control_characters() {
        let texts = capture_logs(|| {
            let span = tracing::info_span!("request", uid = HOSTILE, kind = %HOSTILE);
            let _entered = span.enter();
            tracing::warn!(value = HOSTILE, name = %HOSTILE, list = ?[HOSTILE], "denied: {HOSTILE}");
            tracing::warn!(
                error = &std::io::Error::other(HOSTILE) as &dyn std::error::Error,
                "failed"
            );
        });
        for text in &texts {
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(
                !text.trim_end_matches('\n').replace('\n', "").contains(char::is_control),
                "{text}"
            );
        }
        let [text, json_text] = texts;
        for text in [&text, &json_text] {
            assert!(!text.contains('\u{202e}'), "{text}");
        }
        assert!(
            text.contains(r"denied: no\n2026-01-01T00:00:00Z ERROR fake\r\u{1b}[2J\u{9b}31m\u{202e}"),
            "{text}"
        );
        for line in json_text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["span"]["uid"], HOSTILE);
        }
    }

    #[test]
    fn pretty_log_lines_have_the_format_of_tracing() {
        let [text, _] = capture_logs(|| {
            tracing::info!(count = 3, name = "a b", path = %"/v1", "done \u{e4}");
        });
        let (_, line) = text.split_once(' ').unwrap();
        assert_eq!(line, " INFO done \u{e4} count=3 name=\"a b\" path=/v1\n");
    }

    #[test]
    fn json_log_lines_keep_the_types_of_fields() {
        let [_, line] = capture_logs(|| {
            let span = tracing::info_span!("request", uid = "u", trace_id = tracing::field::Empty);
            span.record("trace_id", "t");
            let _entered = span.enter();
            tracing::warn!(
                target: "a::b", count = 3, ratio = 0.5, none = f64::NAN, is_new = true, below = -1, absent = None::<u8>,
                path = %"/\"v1\\", "done \t\u{e4}\u{1F980}"
            );
        });
        let mut line: Value = serde_json::from_str(&line).unwrap();
        let timestamp = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(humantime::parse_rfc3339(timestamp.as_str().unwrap()).is_ok());
        assert_eq!(
            line,
            json!({
                "level": "WARN", "message": "done \t\u{e4}\u{1F980}", "count": 3, "ratio": 0.5, "none": null,
                "is_new": true, "below": -1, "path": "/\"v1\\", "target": "a::b",
                "span": {"uid": "u", "trace_id": "t", "name": "request"},
            })
        );
    }

    #[test]
    fn long_log_fields_are_truncated() {
        let long = "\u{e4}".repeat(1 << 20);
        let texts = capture_logs(|| {
            let span = tracing::info_span!("request", uid = long);
            let _entered = span.enter();
            tracing::info!(value = long, name = %long, "{long}");
        });
        for text in texts {
            assert_eq!(text.lines().count(), 1);
            assert!(text.len() < 5 * FIELD_LIMIT, "{}", text.len());
            assert!(text.contains("bytes more)"));
        }
    }
}
