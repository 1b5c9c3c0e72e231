//! Shows the progress of loading modules, of downloads and of uploads.

use std::{
    collections::{HashMap, HashSet},
    io::IsTerminal,
    time::Duration,
};

use admittance::{LivePlugin, Progress, catalog::FetchProgress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::output::sanitize_line;

/// Returns a callback that shows how plugins are loaded: as progress bars on a terminal until the first table is
/// loaded, and then as log lines.
pub(crate) fn loading_display() -> impl Fn(Progress) + Send + Sync + 'static {
    let screen = Mutex::new(LoadingScreen::Waiting);
    let (prepared, loaded) = (LoggedModules::default(), LoggedModules::default());
    let log = move |plugin: &LivePlugin| log_plugin(plugin, loaded.is_new(&plugin.status.digest));
    move |progress| {
        let mut screen = screen.lock();
        match progress {
            Progress::Started { plugins } => screen.start(plugins),
            Progress::Fetching {
                reference,
                progress: fetch,
            } => match &*screen {
                LoadingScreen::Bars(bars) => bars.transfers.show(&reference.to_string(), *fetch),
                LoadingScreen::Waiting | LoadingScreen::Plain => log_fetch(*fetch),
            },
            Progress::Preparing {
                chain,
                stage,
                digest,
                size,
            } => match &*screen {
                LoadingScreen::Bars(_) => {}
                LoadingScreen::Waiting | LoadingScreen::Plain if prepared.is_new(&digest.to_string()) => {
                    tracing::info!(%chain, %stage, %digest, size, "preparing a plugin");
                }
                LoadingScreen::Waiting | LoadingScreen::Plain => {
                    tracing::debug!(%chain, %stage, %digest, "preparing a plugin for another stage");
                }
            },
            Progress::Loaded(loaded) => {
                screen.advance();
                match &*screen {
                    LoadingScreen::Bars(bars) => bars.multi_progress.suspend(|| log(&loaded)),
                    LoadingScreen::Waiting | LoadingScreen::Plain => log(&loaded),
                }
            }
            Progress::Kept | Progress::Failed => screen.advance(),
            _ => {}
        }
    }
}

#[derive(Default)]
struct LoggedModules(Mutex<HashSet<String>>);

impl LoggedModules {
    fn is_new(&self, digest: &str) -> bool {
        let mut digests = self.0.lock();
        digests.insert(digest.to_owned())
    }
}

enum LoadingScreen {
    Waiting,
    Bars(Bars),
    /// No bars are shown, only log lines, because requests are served, or because standard error is not a terminal.
    Plain,
}

struct Bars {
    multi_progress: MultiProgress,
    plugins: ProgressBar,
    transfers: Transfers,
}

impl LoadingScreen {
    fn start(&mut self, plugins: usize) {
        let is_visible = plugins > 0 && std::io::stderr().is_terminal();
        *self = match self {
            Self::Waiting if is_visible => Self::Bars(Bars::new(plugins)),
            _ => Self::Plain,
        };
    }

    fn advance(&mut self) {
        if let Self::Bars(bars) = self {
            bars.plugins.inc(1);
            if bars.plugins.length() == Some(bars.plugins.position()) {
                bars.plugins.finish_and_clear();
                *self = Self::Plain;
            }
        }
    }
}

impl Bars {
    fn new(plugins: usize) -> Self {
        let multi_progress = MultiProgress::new();
        let bar = multi_progress.add(ProgressBar::new(plugins as u64));
        let bar = with_style(bar, "{spinner} loading plugins {bar:30} {pos}/{len} {elapsed}");
        Self {
            transfers: Transfers::new("fetching", Some(multi_progress.clone())),
            plugins: bar,
            multi_progress,
        }
    }
}

fn log_plugin(loaded: &LivePlugin, is_new: bool) {
    let status = &loaded.status;
    let configured = match &status.configured_per_call {
        None => "snapshot".to_owned(),
        Some(reason) => format!("in every call ({reason})"),
    };
    if !is_new {
        tracing::debug!(
            chain = %loaded.chain,
            stage = %loaded.stage,
            digest = %status.digest,
            %configured,
            from_store = status.from_store,
            took = ?loaded.took,
            "plugin loaded for another stage"
        );
        return;
    }
    tracing::info!(
        chain = %loaded.chain,
        stage = %loaded.stage,
        plugin = %status.name,
        version = %status.version,
        digest = %status.digest,
        signature = %status.signature,
        %configured,
        from_store = status.from_store,
        took = ?loaded.took,
        "plugin loaded"
    );
}

fn log_fetch(progress: FetchProgress) {
    match progress {
        FetchProgress::Started { reference, total } => {
            tracing::info!(%reference, bytes = total, "fetching a module");
        }
        FetchProgress::Retrying { after, error } => {
            tracing::warn!(%error, ?after, "a module could not be fetched; retrying");
        }
        FetchProgress::Received { .. } | FetchProgress::Finished => {}
    }
}

pub(crate) fn with_style(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

pub(crate) fn transfer_display(verb: &'static str) -> impl Fn(FetchProgress) + Send + Sync {
    let transfers = Transfers::new(verb, std::io::stderr().is_terminal().then(MultiProgress::new));
    move |progress| transfers.show("", progress)
}

#[derive(Debug)]
struct Transfers {
    bars: Option<MultiProgress>,
    /// The bars of the transfers that are under way, by the reference of the module.
    active_bars: Mutex<HashMap<String, ProgressBar>>,
    verb: &'static str,
}

impl Transfers {
    fn new(verb: &'static str, bars: Option<MultiProgress>) -> Self {
        Self {
            bars,
            active_bars: Mutex::default(),
            verb,
        }
    }

    fn show(&self, which: &str, progress: FetchProgress) {
        match &self.bars {
            Some(bars) => self.draw(bars, which, progress),
            None => {
                if let Some(line) = self.line(progress) {
                    anstream::eprintln!("{line}");
                }
            }
        }
    }

    fn line(&self, progress: FetchProgress) -> Option<String> {
        let verb = self.verb;
        match progress {
            FetchProgress::Started { reference, total } => {
                let size = total.map(|total| format!(", {total} bytes"));
                Some(format!("{verb} {reference}{}", size.unwrap_or_default()))
            }
            FetchProgress::Retrying { after, error } => Some(retry_text(after, &error.to_string())),
            FetchProgress::Received { .. } | FetchProgress::Finished => None,
        }
    }

    fn draw(&self, bars: &MultiProgress, which: &str, progress: FetchProgress) {
        let mut current = self.active_bars.lock();
        match progress {
            FetchProgress::Started { reference, total } => {
                if let Some(before) = current.remove(which) {
                    before.finish_and_clear();
                }
                let bar = bars.add(transfer_bar(total));
                bar.set_message(format!("{} {}", self.verb, sanitize_line(&reference)));
                current.insert(which.to_owned(), bar);
            }
            FetchProgress::Received { bytes } => {
                if let Some(bar) = current.get(which) {
                    bar.set_position(bytes);
                }
            }
            FetchProgress::Retrying { after, error } => {
                // An error is ignored, because it only means that the terminal was closed.
                let _ = bars.println(retry_text(after, &error.to_string()));
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

fn retry_text(after: Duration, error: &str) -> String {
    format!("{}; retrying in {:.1} s", sanitize_line(error), after.as_secs_f64())
}

fn transfer_bar(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => with_style(
            ProgressBar::new(total),
            "{spinner} {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}",
        ),
        None => with_style(ProgressBar::new_spinner(), "{spinner} {msg} {bytes} {bytes_per_sec}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bars_are_shown_until_the_first_table_is_loaded() {
        let mut screen = LoadingScreen::Bars(Bars::new(2));
        screen.advance();
        assert!(matches!(screen, LoadingScreen::Bars(_)));
        screen.advance();
        assert!(matches!(screen, LoadingScreen::Plain));
        // Progress bars end when the first table is loaded. From then on the program serves requests, whose log lines
        // would disturb the bars. So the modules that are loaded here get only log lines.
        screen.start(2);
        assert!(matches!(screen, LoadingScreen::Plain));
        let mut screen = LoadingScreen::Waiting;
        screen.start(0);
        assert!(matches!(screen, LoadingScreen::Plain), "nothing would ever end it");
    }

    fn fetch_start(total: Option<u64>) -> FetchProgress {
        FetchProgress::Started {
            reference: "oci://r/a:1".to_owned(),
            total,
        }
    }

    #[test]
    fn transfers_are_printed_as_lines_if_there_is_no_terminal() {
        let transfers = Transfers::new("fetching", None);
        for (progress, expected) in [
            (fetch_start(Some(10)), Some("fetching oci://r/a:1, 10 bytes")),
            (fetch_start(None), Some("fetching oci://r/a:1")),
            (FetchProgress::Received { bytes: 1 }, None),
            (FetchProgress::Finished, None),
        ] {
            assert_eq!(transfers.line(progress).as_deref(), expected);
        }
    }

    #[test]
    fn each_download_updates_its_own_progress_bar() {
        let bars = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden());
        let transfers = Transfers::new("fetching", Some(bars));
        let position = |which: &str| {
            let current = transfers.active_bars.lock();
            current.get(which).map(|bar| (bar.position(), bar.length()))
        };
        assert_eq!(position("a"), None);
        transfers.show("a", fetch_start(Some(10)));
        transfers.show("b", fetch_start(Some(20)));
        transfers.show("a", FetchProgress::Received { bytes: 4 });
        assert_eq!(position("a"), Some((4, Some(10))));
        assert_eq!(position("b"), Some((0, Some(20))));
        transfers.show("a", FetchProgress::Finished);
        assert_eq!((position("a"), position("b")), (None, Some((0, Some(20)))));
    }
}
