//! Writes log lines in two formats. Field values from guests, webhooks and clients cannot add lines, move the cursor of
//! a terminal, or make a line arbitrarily long.

use std::fmt::{self, Write as _};

use anstyle::Style;
use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::{Format, Json, JsonFields, Writer},
    },
    registry::LookupSpan,
};

/// The longest value of a field, including the message, in bytes. Longer values are truncated.
const FIELD_LIMIT: usize = 8 << 10;

/// Returns the layer that writes human-readable lines.
pub(super) fn pretty<S, W>(writer: W, has_colours: bool) -> impl Layer<S>
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

pub(super) fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    let format = tracing_subscriber::fmt::format()
        .json()
        .flatten_event(true)
        .with_span_list(false);
    tracing_subscriber::fmt::layer()
        .event_format(BoundedJson(format))
        .fmt_fields(JsonFields::new())
        .with_writer(writer)
}

/// Writes the fields of pretty lines and of their spans.
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
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) -> fmt::Result {
        let name = field.name();
        // The fields that the crate `log` adds repeat the line.
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
        let mut escaped = Escaped {
            out: &mut self.writer,
            left: FIELD_LIMIT,
            cut: 0,
        };
        escaped.write_fmt(value)?;
        match escaped.cut {
            0 => Ok(()),
            cut => write!(self.writer, "{}", Cut(cut)),
        }
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
            self.result = self.write(field, format_args!("{value:?}"));
        }
    }
}

/// Escapes control characters, and characters that change the direction of text.
struct Escaped<'a, 'w> {
    out: &'a mut Writer<'w>,
    /// The number of bytes for which there is still room.
    left: usize,
    /// The number of bytes that were cut off.
    cut: usize,
}

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if is_plain && self.cut == 0 && text.len() <= self.left {
            self.left -= text.len();
            return self.out.write_str(text);
        }
        for char in text.chars() {
            let length = char.len_utf8();
            if self.cut > 0 || length > self.left {
                self.cut += length;
                continue;
            }
            self.left -= length;
            if is_harmful(char) {
                write!(self.out, "{}", char.escape_default())?
            } else {
                self.out.write_char(char)?
            }
        }
        Ok(())
    }
}

fn is_harmful(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The marker for this number of truncated bytes.
struct Cut(usize);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "... ({} bytes more)", self.0)
    }
}

/// Writes fields as JSON, which escapes ASCII control characters. Other harmful characters are escaped here, and long
/// fields are truncated.
struct BoundedJson(Format<Json>);

impl<S, N> FormatEvent<S, N> for BoundedJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        if line.len() > FIELD_LIMIT {
            let mut value: Value = serde_json::from_str(&line).map_err(|_| fmt::Error)?;
            shorten(&mut value);
            line = format!("{value}\n");
        }
        // Outside of strings, the only harmful character in JSON is the end of the line.
        if line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
            return writer.write_str(&line);
        }
        for char in line.chars() {
            if char == '\n' || !is_harmful(char) {
                writer.write_char(char)?;
            } else {
                write!(writer, "\\u{:04x}", u32::from(char))?;
            }
        }
        Ok(())
    }
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > FIELD_LIMIT => {
            let end = text.floor_char_boundary(FIELD_LIMIT);
            let cut = Cut(text.len() - end).to_string();
            text.truncate(end);
            text.push_str(&cut);
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// Logs in both formats, and returns the lines in each of them.
    fn logged(log: impl Fn()) -> [String; 2] {
        let (for_people, objects) = (Lines::default(), Lines::default());
        let writer = for_people.clone();
        let subscriber = tracing_subscriber::registry().with(pretty(move || writer.clone(), false));
        tracing::subscriber::with_default(subscriber, &log);
        let writer = objects.clone();
        let subscriber = tracing_subscriber::registry().with(json(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, &log);
        [for_people.text(), objects.text()]
    }

    const HOSTILE: &str = "no\n2026-01-01T00:00:00Z ERROR fake\r\u{1b}[2J\u{9b}31m\u{202e}";

    #[test]
    fn a_message_is_one_line_without_control_characters() {
        let texts = logged(|| {
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
                !text
                    .trim_end_matches('\n')
                    .replace('\n', "")
                    .contains(char::is_control),
                "{text}"
            );
        }
        let [text, objects] = texts;
        for text in [&text, &objects] {
            assert!(!text.contains('\u{202e}'), "{text}");
        }
        assert!(
            text.contains(r"denied: no\n2026-01-01T00:00:00Z ERROR fake\r\u{1b}[2J\u{9b}31m\u{202e}"),
            "{text}"
        );
        for line in objects.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["span"]["uid"], HOSTILE);
        }
    }

    #[test]
    fn pretty_lines_have_the_format_of_tracing() {
        let [text, _] = logged(|| {
            tracing::info!(count = 3, name = "a b", path = %"/v1", "done \u{e4}");
        });
        let (_, line) = text.split_once(' ').unwrap();
        assert_eq!(line, " INFO done \u{e4} count=3 name=\"a b\" path=/v1\n");
    }

    #[test]
    fn long_fields_are_truncated() {
        let long = "\u{e4}".repeat(1 << 20);
        let texts = logged(|| {
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
