//! Prints the results of commands.

use std::io::{self, Write};

use admittance_definitions::document::to_yaml;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use diffy::{DiffOptions, Line};
use serde::Serialize;
use serde_json::Value as Json;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Human-readable, coloured on a terminal.
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document, for scripts.
    Json,
    /// One YAML document, for scripts.
    Yaml,
}

impl Output {
    /// Prints a value in this format. ANSI colours in the text are removed if the output does not support them.
    pub(crate) fn print<T: Serialize + ?Sized>(self, value: &T, text: impl FnOnce(&T) -> String) -> crate::Result<()> {
        let text = match self {
            Self::Text => text(value),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => to_yaml(&serde_json::to_value(value)?),
        };
        Ok(write(&text)?)
    }
}

/// Writes to standard output. Returns an error if the reader of a pipe has closed it.
pub(crate) fn write_all(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to standard output. If the reader of a pipe has closed it, that is not an error.
pub(crate) fn write(text: &str) -> io::Result<()> {
    match write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Replaces control characters in untrusted text, because they could move the cursor or change colours.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Replaces control characters in untrusted text, as [`sanitize_line`] does, but keeps line breaks and tabs.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), " ")
}

/// Returns the lines that differ, in groups with `context` unchanged lines around each.
pub(crate) fn diff(before: Option<&Json>, after: Option<&Json>, context: usize) -> Vec<Vec<String>> {
    let lines = |object: Option<&Json>| {
        let text = object.map(|object| format!("{object:#}")).unwrap_or_default();
        sanitize_lines(&(text + "\n"))
    };
    let (before, after) = (lines(before), lines(after));
    let patch = DiffOptions::new()
        .set_context_len(context)
        .create_patch(&before, &after);
    let hunks = patch.hunks().iter().map(|hunk| {
        let lines = hunk.lines().iter().map(|line| match line {
            Line::Context(line) => format!("  {}", line.trim_end_matches('\n')),
            Line::Delete(line) => format!("{BAD}- {}{BAD:#}", line.trim_end_matches('\n')),
            Line::Insert(line) => format!("{GOOD}+ {}{GOOD:#}", line.trim_end_matches('\n')),
        });
        lines.collect()
    });
    hunks.collect()
}

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_untrusted_text_are_replaced() {
        for (text, one_line, lines) in [
            ("plain", "plain", "plain"),
            ("a\nb\tc", "a b c", "a\nb\tc"),
            ("\u{1b}[31mred\r", " [31mred ", " [31mred "),
            ("\u{9b}2J", " 2J", " 2J"),
        ] {
            assert_eq!(sanitize_line(text), one_line);
            assert_eq!(sanitize_lines(text), lines);
        }
    }
}
