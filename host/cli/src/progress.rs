//! What is seen while plugins are compiled.

use std::{io::IsTerminal, sync::OnceLock, time::Duration};

use admittance::{Configured, Progress};
use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress of loading: a bar on a terminal, and a log line for each plugin.
pub(crate) fn show() -> impl Fn(Progress) + Send + Sync + 'static {
    let bar: OnceLock<ProgressBar> = OnceLock::new();
    move |progress| match progress {
        Progress::Started { plugins } => {
            if std::io::stderr().is_terminal() {
                let _ = bar.set(started(plugins));
            }
        }
        Progress::Loaded(status) => {
            advance(bar.get());
            let log = || {
                let configured = match &status.configured {
                    Configured::Snapshot => "snapshot".to_owned(),
                    Configured::PerCall { reason } => format!("in every call ({reason})"),
                };
                tracing::info!(
                    chain = %status.chain,
                    stage = %status.stage,
                    plugin = %status.plugin,
                    version = %status.version,
                    digest = %status.digest,
                    %configured,
                    from_cache = status.from_cache,
                    took = ?status.took,
                    "plugin loaded"
                );
            };
            match bar.get() {
                Some(bar) => bar.suspend(log),
                None => log(),
            }
        }
        Progress::Failed => advance(bar.get()),
    }
}

fn started(plugins: usize) -> ProgressBar {
    let bar = ProgressBar::new(plugins as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} loading plugins {bar:30} {pos}/{len} {elapsed}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn advance(bar: Option<&ProgressBar>) {
    if let Some(bar) = bar {
        bar.inc(1);
        if bar.length() == Some(bar.position()) {
            bar.finish_and_clear();
        }
    }
}
