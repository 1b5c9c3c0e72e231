//! What every command has in common when it writes to the screen.

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// What `--output` chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people, coloured on a terminal.
    #[default]
    Text,
    /// For scripts: one JSON document.
    Json,
}

/// As it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Refused or wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Worth a second look.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
