//! Progress display while plugins are loaded.

use std::{
    collections::HashSet,
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use admittance::{Loaded, Progress, catalog::FetchProgress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::modules::Transfers;

/// Shows the progress of loading: bars on a terminal until the first table is loaded, and a log line for each
/// module.
pub(crate) fn show() -> impl Fn(Progress) + Send + Sync + 'static {
    let screen = Mutex::new(Screen::Waiting);
    let known = Mutex::new(HashSet::new());
    let log = move |loaded: &Loaded| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        log(loaded, known.insert(loaded.status.digest.clone()));
    };
    move |progress| {
        let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Started { plugins } => screen.start(plugins),
            Progress::Fetching {
                reference,
                progress: fetch,
            } => match &*screen {
                Screen::Bars(bars) => bars.transfers.show(&reference.to_string(), *fetch),
                Screen::Waiting | Screen::Plain => log_fetch(*fetch),
            },
            Progress::Loaded(loaded) => {
                screen.advance();
                match &*screen {
                    Screen::Bars(bars) => bars.all.suspend(|| log(&loaded)),
                    Screen::Waiting | Screen::Plain => log(&loaded),
                }
            }
            Progress::Kept | Progress::Failed => screen.advance(),
            _ => {}
        }
    }
}

/// The state of the display.
enum Screen {
    /// Loading has not started.
    Waiting,
    Bars(Bars),
    /// Only log lines: requests are served, or there is no terminal.
    Plain,
}

struct Bars {
    all: MultiProgress,
    plugins: ProgressBar,
    transfers: Transfers,
}

impl Screen {
    fn start(&mut self, plugins: usize) {
        let is_seen = plugins > 0 && std::io::stderr().is_terminal();
        *self = match self {
            Self::Waiting if is_seen => Self::Bars(Bars::new(plugins)),
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
        let all = MultiProgress::new();
        let bar = all.add(ProgressBar::new(plugins as u64));
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} loading plugins {bar:30} {pos}/{len} {elapsed}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            transfers: Transfers::new("fetching", Some(all.clone())),
            plugins: bar,
            all,
        }
    }
}

/// One line at `info` for each module; further stages with it are logged at `debug`.
fn log(loaded: &Loaded, is_new: bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_there_until_the_first_table_is() {
        let mut screen = Screen::Bars(Bars::new(2));
        screen.advance();
        assert!(matches!(screen, Screen::Bars(_)));
        screen.advance();
        assert!(matches!(screen, Screen::Plain));
        // Later tables are made while requests are served, and log lines would break through bars.
        screen.start(2);
        assert!(matches!(screen, Screen::Plain));
        let mut screen = Screen::Waiting;
        screen.start(0);
        assert!(matches!(screen, Screen::Plain), "nothing would ever end it");
    }
}
