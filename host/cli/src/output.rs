//! Output functions shared by all commands.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;

use admittance_definitions::document::to_yaml;

/// The values of `--output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Human-readable, coloured on a terminal.
    #[default]
    Text,
    /// For scripts: one JSON document.
    Json,
}

/// The values of `--output` for commands that list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Human-readable, coloured on a terminal.
    #[default]
    Table,
    /// For scripts: one JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl Form {
    /// Prints a value in this format. `for_people` may contain ANSI colours; they are removed where they are
    /// not supported.
    pub(crate) fn print<T: Serialize + ?Sized>(
        self,
        value: &T,
        for_people: impl FnOnce(&T) -> String,
    ) -> crate::Result<()> {
        let text = match self {
            Self::Table => for_people(value),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => to_yaml(&serde_json::to_value(value)?),
        };
        Ok(write(&text)?)
    }
}

/// Writes to standard output. A closed pipe is not an error.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// An untrusted text, made safe for a terminal: control characters could move the cursor or change colours.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The same with its line breaks.
pub(crate) fn harmless_lines(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars()
        .map(|c| if is_harmful(c) { ' ' } else { c })
        .collect()
}

/// Style of good results.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of refusals and errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Style of warnings.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
/// Style of secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Style of headings.
pub(crate) const BOLD: Style = Style::new().bold();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_move_no_cursor() {
        for (text, one_line, lines) in [
            ("plain", "plain", "plain"),
            ("a\nb\tc", "a b c", "a\nb\tc"),
            ("\u{1b}[31mred\r", " [31mred ", " [31mred "),
            ("\u{9b}2J", " 2J", " 2J"),
        ] {
            assert_eq!(harmless(text), one_line);
            assert_eq!(harmless_lines(text), lines);
        }
    }
}
