//! Where log lines go, and in which form.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Pretty on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people: coloured where the terminal has colours.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Send log lines to standard error. `filter` is a level or a filter in the syntax of
/// `tracing_subscriber::EnvFilter`.
///
/// # Errors
///
/// When the filter is none.
pub(crate) fn start(filter: &str, format: Format) -> crate::Result<()> {
    let filter = parse(filter)
        .map_err(|error| format!("log level `{filter}`: {error}; write error, warn, info, debug or trace"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let terminal = std::io::stderr().is_terminal();
    if format == Format::Pretty || (format == Format::Auto && terminal) {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none())
            .with_target(false);
        registry.with(lines).try_init()?;
    } else {
        let lines = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .with_writer(std::io::stderr);
        registry.with(lines).try_init()?;
    }
    Ok(())
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    // A lone word would be taken for the name of a module, of which everything else is silenced.
    let is_word = !filter.contains(['=', ',', '[', ':']);
    if is_word && (filter.is_empty() || filter.parse::<LevelFilter>().is_err()) {
        return Err("that is no level".to_owned());
    }
    let filter = match filter.parse::<LevelFilter>() {
        // What they find wrong with the cluster or the ensemble is told once, with what to do, by the crates that
        // use them.
        Ok(LevelFilter::INFO | LevelFilter::WARN) => {
            format!("{filter},kube_client=error,kube_runtime=error,zookeeper_client=error")
        }
        _ => filter.to_owned(),
    };
    EnvFilter::try_new(filter).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters() {
        for (filter, right) in [
            ("info", true),
            ("WARN", true),
            ("off", true),
            ("info,admittance=debug", true),
            ("admittance::plugin=trace", true),
            ("loud", false),
            ("", false),
            ("admittance=loud", false),
        ] {
            assert_eq!(parse(filter).is_ok(), right, "{filter}");
        }
    }
}
