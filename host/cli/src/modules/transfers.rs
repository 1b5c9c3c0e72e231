//! Progress display of downloads and uploads.

use std::{
    collections::HashMap,
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use admittance::catalog::FetchProgress;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::output::harmless;

/// Bars on a terminal, a line for each event otherwise. Lives as long as the transfers.
#[derive(Debug)]
pub(crate) struct Transfers {
    /// `None` without a terminal.
    bars: Option<MultiProgress>,
    /// The bars, by reference.
    current: Mutex<HashMap<String, ProgressBar>>,
    /// `fetching` or `pushing`.
    verb: &'static str,
}

impl Transfers {
    /// Alongside other bars, if there are any.
    pub(crate) fn new(verb: &'static str, bars: Option<MultiProgress>) -> Self {
        Self {
            bars,
            current: Mutex::default(),
            verb,
        }
    }

    /// Separate bars, if standard error is a terminal.
    pub(crate) fn on_terminal(verb: &'static str) -> Self {
        Self::new(verb, std::io::stderr().is_terminal().then(MultiProgress::new))
    }

    /// Shows the progress of a transfer; a single one is shown without its name.
    pub(crate) fn show(&self, which: &str, progress: FetchProgress) {
        match &self.bars {
            Some(bars) => self.draw(bars, which, progress),
            None => {
                if let Some(line) = self.line(progress) {
                    anstream::eprintln!("{line}");
                }
            }
        }
    }

    /// The line for an event without a terminal.
    fn line(&self, progress: FetchProgress) -> Option<String> {
        let verb = self.verb;
        match progress {
            FetchProgress::Started {
                reference,
                total: Some(total),
            } => Some(format!("{verb} {reference}, {total} bytes")),
            FetchProgress::Started {
                reference,
                total: None,
            } => Some(format!("{verb} {reference}")),
            FetchProgress::Retrying { after, error } => Some(again(after, &error.to_string())),
            FetchProgress::Received { .. } | FetchProgress::Finished => None,
        }
    }

    fn draw(&self, bars: &MultiProgress, which: &str, progress: FetchProgress) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            FetchProgress::Started { reference, total } => {
                if let Some(before) = current.remove(which) {
                    before.finish_and_clear();
                }
                let bar = bars.add(bar(total));
                bar.set_message(format!("{} {}", self.verb, harmless(&reference)));
                current.insert(which.to_owned(), bar);
            }
            FetchProgress::Received { bytes } => {
                if let Some(bar) = current.get(which) {
                    bar.set_position(bytes);
                }
            }
            FetchProgress::Retrying { after, error } => {
                // A closed terminal is not an error.
                let _ = bars.println(again(after, &error.to_string()));
            }
            FetchProgress::Finished => {
                if let Some(bar) = current.remove(which) {
                    bar.finish_and_clear();
                    bars.remove(&bar);
                }
            }
        }
    }
}

fn again(after: Duration, error: &str) -> String {
    format!("{}; retrying in {after:?}", harmless(error))
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{spinner} {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {msg} {bytes} {bytes_per_sec}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(total: Option<u64>) -> FetchProgress {
        FetchProgress::Started {
            reference: "oci://r/a:1".to_owned(),
            total,
        }
    }

    #[test]
    fn lines_where_there_is_no_terminal() {
        let transfers = Transfers::new("fetching", None);
        for (progress, expected) in [
            (started(Some(10)), Some("fetching oci://r/a:1, 10 bytes")),
            (started(None), Some("fetching oci://r/a:1")),
            (FetchProgress::Received { bytes: 1 }, None),
            (FetchProgress::Finished, None),
        ] {
            assert_eq!(transfers.line(progress).as_deref(), expected);
        }
    }

    #[test]
    fn each_bar_follows_its_download() {
        let bars = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden());
        let transfers = Transfers::new("fetching", Some(bars));
        let position = |which: &str| {
            let current = transfers.current.lock().unwrap();
            current.get(which).map(|bar| (bar.position(), bar.length()))
        };
        assert_eq!(position("a"), None);
        transfers.show("a", started(Some(10)));
        transfers.show("b", started(Some(20)));
        transfers.show("a", FetchProgress::Received { bytes: 4 });
        assert_eq!(position("a"), Some((4, Some(10))));
        assert_eq!(position("b"), Some((0, Some(20))));
        transfers.show("a", FetchProgress::Finished);
        assert_eq!((position("a"), position("b")), (None, Some((0, Some(20)))));
    }
}
