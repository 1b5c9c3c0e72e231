//! Makes small parts of pages.

use admittance::Moment;
use maud::{Markup, html};

/// The colour of a state, which its word says too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Change,
    Warn,
    Bad,
}

impl Tone {
    /// Its class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Change => "change",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column<'a> {
    Text(&'a str),
    /// The cells are aligned right.
    Number(&'a str),
}

/// Shows the headings of a table.
pub(super) fn headings(columns: &[Column<'_>]) -> Markup {
    html! {
        thead { tr {
            @for column in columns {
                @match column {
                    Column::Text(name) => th scope="col" { (name) },
                    Column::Number(name) => th.number scope="col" { (name) },
                }
            }
        } }
    }
}

/// Shows a word in a coloured field.
pub(super) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span.badge.(tone.class()) { (word) } }
}

/// Shows date and time in UTC, to the second.
pub(super) fn moment(at: Moment) -> Markup {
    html! { (plain_moment(at)) " UTC" }
}

/// Shows date and time under a heading that mentions UTC.
pub(super) fn plain_moment(at: Moment) -> Markup {
    let exact = at.to_string();
    let shown = exact.get(..19).unwrap_or(&exact).replace('T', " ");
    html! { time datetime=(exact) title=(exact) { (shown) } }
}

/// The longest text that a page shows, in bytes.
pub(super) const LONGEST_TEXT: usize = 64 << 10;

/// Shows a text, or its beginning if it is longer than [`LONGEST_TEXT`].
pub(super) fn text(text: &str) -> Markup {
    let shown = text.get(..text.floor_char_boundary(LONGEST_TEXT)).unwrap_or(text);
    html! {
        pre.wrap { (shown) }
        @if shown.len() < text.len() {
            p.hint { "This is the beginning of " (text.len() >> 10) " KiB. The commands below and the API show all of it." }
        }
    }
}

/// Writes the name of an object: `default/web`.
pub(super) fn object_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

/// Writes `1 plugin`, `2 plugins`.
pub(super) fn count(count: u64, one: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// Writes a number of microseconds as a duration with three digits: `412 µs`, `1.25 ms`.
pub(super) fn duration(microseconds: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = microseconds as f64;
    let (value, unit) = match microseconds {
        0..1000 => (value, "µs"),
        1000..1_000_000 => (value / 1e3, "ms"),
        _ => (value / 1e6, "s"),
    };
    let digits = match (unit, value) {
        ("µs", _) => 0,
        (_, ..10.0) => 2,
        (_, ..100.0) => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (microseconds, expected) in [
            (0, "0 µs"),
            (412, "412 µs"),
            (999, "999 µs"),
            (1_250, "1.25 ms"),
            (12_500, "12.5 ms"),
            (125_000, "125 ms"),
            (1_250_000, "1.25 s"),
            (125_000_000, "125 s"),
        ] {
            assert_eq!(duration(microseconds), expected, "{microseconds}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let markup = text(&format!("a{}", "ä".repeat(LONGEST_TEXT))).into_string();
        assert!(markup.len() < LONGEST_TEXT + 300, "{}", markup.len());
        assert!(
            markup.contains("the beginning of 128 KiB"),
            "{}",
            &markup[LONGEST_TEXT..]
        );
        assert_eq!(text("a<b").into_string(), "<pre class=\"wrap\">a&lt;b</pre>");
    }

    #[test]
    fn moments_are_shown_to_the_second() {
        let at = Moment(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_500));
        assert_eq!(
            moment(at).into_string(),
            "<time datetime=\"1970-01-01T00:00:01.500Z\" title=\"1970-01-01T00:00:01.500Z\">1970-01-01 00:00:01</time> UTC"
        );
    }
}
