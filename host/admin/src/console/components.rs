//! Renders components that several pages use.

use std::time::Duration;

use admittance::Moment;
use admittance_definitions::document::to_yaml;
use maud::{Markup, html};
use serde_json::Value;

pub(super) use crate::health::{Tone, count_text};

impl Tone {
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

#[derive(Clone, Copy, Debug)]
pub(super) enum Column<'a> {
    Text(&'a str),
    Number(&'a str),
}

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

pub(super) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span.badge.(tone.class()) { (word) } }
}

pub(super) fn number(label: &str, value: u64, tone: Option<Tone>) -> Markup {
    html! {
        td.number data-label=(label) {
            @match tone.filter(|_| value > 0) {
                Some(tone) => { (badge(tone, &value.to_string())) }
                None => { (value) }
            }
        }
    }
}

/// Shows an active filter, with a link to `without`, the address of the page without this filter.
pub(super) fn chip(text: &str, without: &str) -> Markup {
    html! { a.chip href=(without) title="Remove this filter" { (text) span aria-hidden="true" { "×" } } }
}

/// Shows the steps of a rollout by their shares. The step `present` is marked, and `details` are shown next to it.
pub(super) fn steps(shares: &[String], present: &str, details: &Markup) -> Markup {
    let index = shares.iter().position(|share| share == present);
    html! {
        ol.steps {
            @for (number, share) in shares.iter().enumerate() {
                @let is_present = index == Some(number);
                li.done[index.is_some_and(|index| number < index)] aria-current=[is_present.then_some("step")] {
                    (share)
                    @if is_present { " " (details) }
                }
            }
        }
    }
}

/// Draws a coloured segment within a bar. `start` and `length` are thousandths of the bar's length.
pub(super) fn segment(tone: Tone, start: u128, length: u128) -> Markup {
    html! {
        svg.bar.(tone.class()) viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect x=(start) y="0" width=(length) height="10" {}
        }
    }
}

pub(super) fn meter(number: u64, limit: u64) -> Markup {
    let part = (u128::from(number) * 1000 / u128::from(limit.max(1))).min(1000);
    let tone = match part {
        0 => Tone::Plain,
        1..500 => Tone::Change,
        500..1000 => Tone::Warn,
        _ => Tone::Bad,
    };
    segment(tone, 0, part)
}

pub(super) fn empty_hint(text: &str, address: &str, step: &str) -> Markup {
    html! { p.empty { (text) " " a href=(address) { (step) } } }
}

/// The width and height of the coordinate system in which a sparkline is drawn. The style sheet stretches the drawing
/// to its place on the page.
const SPARKLINE_SIZE: (u64, u64) = (100, 20);

/// Draws values as a line from left to right. Screen readers read the label.
pub(super) fn sparkline(tone: Tone, label: &str, values: &[u64]) -> Markup {
    let (width, height) = SPARKLINE_SIZE;
    let highest = values.iter().copied().max().unwrap_or_default().max(1);
    let last = values.len().saturating_sub(1).max(1) as u64;
    let points: Vec<String> = (0..)
        .zip(values)
        .map(|(index, value)| {
            let below = u128::from(*value) * u128::from(height) / u128::from(highest);
            format!("{},{}", index * width / last, u128::from(height) - below)
        })
        .collect();
    html! {
        svg.spark.(tone.class()) viewBox={ "-1 -1 " (width + 2) " " (height + 2) } preserveAspectRatio="none" role="img" aria-label=(label) {
            polyline points=(points.join(" ")) {}
        }
    }
}

/// Shows date and time in UTC, to the second.
pub(super) fn moment(at: Moment) -> Markup {
    let full = at.to_string();
    let display_text = full.get(..19).unwrap_or(&full).replace('T', " ");
    html! { (moment_element("", at, &display_text)) " UTC" }
}

/// Shows a time relative to now: `5 min ago`, `in 2 h`. Hovering over it shows the exact time.
pub(super) fn relative_moment(at: Moment, now: Moment) -> Markup {
    match now.0.duration_since(at.0) {
        Ok(since) => moment_element("relative", at, &format!("{} ago", rounded_duration(since))),
        Err(ahead) => moment_element("relative", at, &format!("in {}", rounded_duration(ahead.duration()))),
    }
}

/// Shows the time since a moment: `for 5 min`.
pub(super) fn lasting_since(since: Moment, now: Moment) -> Markup {
    let time = now.0.duration_since(since.0).unwrap_or_default();
    moment_element("", since, &format!("for {}", rounded_duration(time)))
}

fn moment_element(class: &str, at: Moment, display_text: &str) -> Markup {
    let class = Some(class).filter(|class| !class.is_empty());
    html! { time class=[class] datetime=(at) title=(at) { (display_text) } }
}

fn rounded_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The size in bytes above which a text is cut on a page.
pub(super) const MAX_SHOWN_TEXT: usize = 64 << 10;

pub(super) fn shown_text(text: &str) -> Markup {
    let excerpt = text.get(..text.floor_char_boundary(MAX_SHOWN_TEXT)).unwrap_or(text);
    html! {
        pre.wrap { (excerpt) }
        @if excerpt.len() < text.len() {
            p.hint { "This is the beginning of " (text.len() >> 10) " KiB. The commands below and the API show all of it." }
        }
    }
}

pub(super) fn yaml(value: &Value) -> String {
    let text = to_yaml(value);
    text.strip_prefix("---\n").map(str::to_owned).unwrap_or(text)
}

/// Writes an object's namespace and name: `default/web`.
pub(super) fn object_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

/// Writes a duration with three digits: `412 µs`, `1.25 ms`.
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

/// Formats a percentile of durations; if there were no requests, the percentile is 0, and a dash is shown.
pub(super) fn latency(microseconds: u64) -> String {
    match microseconds {
        0 => NO_NUMBER.to_owned(),
        microseconds => duration(microseconds),
    }
}

pub(super) const NO_NUMBER: &str = "–";

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
        assert_eq!([latency(0), latency(412)], ["–", "412 µs"]);
    }

    #[test]
    fn yaml_is_written_without_a_document_marker() {
        assert_eq!(yaml(&serde_json::json!({"kind": "Pod"})), "kind: Pod\n");
    }

    #[test]
    fn the_highest_value_of_a_sparkline_is_drawn_at_the_top() {
        let markup = sparkline(Tone::Bad, "Failed", &[0, 5, 10]).into_string();
        assert!(markup.contains("points=\"0,20 50,10 100,0\""), "{markup}");
        let flat = sparkline(Tone::Bad, "Failed", &[0, 0]).into_string();
        assert!(flat.contains("points=\"0,20 100,20\""), "{flat}");
        assert!(
            sparkline(Tone::Bad, "Failed", &[])
                .into_string()
                .contains("points=\"\"")
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let markup = shown_text(&format!("a{}", "ä".repeat(MAX_SHOWN_TEXT))).into_string();
        assert!(markup.len() < MAX_SHOWN_TEXT + 300, "{}", markup.len());
        assert!(
            markup.contains("the beginning of 128 KiB"),
            "{}",
            &markup[MAX_SHOWN_TEXT..]
        );
        assert_eq!(shown_text("a<b").into_string(), "<pre class=\"wrap\">a&lt;b</pre>");
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
