//! Sets up the log of the program.

mod format;
mod writer;

use std::{borrow::Cow, io::IsTerminal};

use admittance_driver::{LogFormat, Traces};
use admittance_net::trace::SPANS;
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt,
};

use self::writer::LogOutput;
pub(crate) use self::writer::flush;

/// Sends log lines to standard error. A level more verbose than `info` applies only to this program's own lines,
/// because the compiler alone writes gigabytes at `trace`.
pub(crate) fn start(filter: &str, format: LogFormat) -> crate::Result<()> {
    start_with(filter, format, None)
}

/// Starts the log like [`start`]. If `traces` is given, also collects spans for export to it.
pub(crate) fn start_with(filter: &str, format: LogFormat, traces: Option<&Traces>) -> crate::Result<()> {
    let filter = parse_filter(filter)
        .map_err(|error| format!("log level `{filter}`: {error}; write error, warn, info, debug or trace"))?;
    let registry = tracing_subscriber::registry();
    match traces {
        None => registry.with(filter).with(log_layer(format)).try_init()?,
        // The filter belongs to the log lines alone. A filter for the whole registry would also remove spans that are
        // to be exported as traces.
        Some(traces) => registry
            .with(traces.layer())
            .with(log_layer(format).with_filter(filter))
            .try_init()?,
    }
    Ok(())
}

fn log_layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let terminal = std::io::stderr().is_terminal();
    if format == LogFormat::Pretty || (format == LogFormat::Auto && terminal) {
        let has_colours = terminal && std::env::var_os("NO_COLOR").is_none();
        format::pretty_layer(LogOutput, has_colours).boxed()
    } else {
        format::json_layer(LogOutput).boxed()
    }
}

fn parse_filter(filter: &str) -> Result<EnvFilter, String> {
    // `EnvFilter` reads any word that is not a level, such as the typo `inof`, as the name of a crate, and then logs
    // only the lines of that crate. So such a word is refused.
    let is_word = !filter.contains(['=', ',', '[', ':']);
    if is_word && (filter.is_empty() || filter.parse::<LevelFilter>().is_err()) {
        return Err("not a level".to_owned());
    }
    let mut directives: Vec<_> = filter.split(',').map(filter_directive).collect();
    // When the cluster or ZooKeeper cannot be reached, this program logs that once and says what to do. The client
    // libraries would also warn of every failed attempt. So at `info` and `warn`, these libraries log only errors.
    if matches!(filter.parse(), Ok(LevelFilter::INFO | LevelFilter::WARN)) {
        directives.push("kube_client=error,kube_runtime=error,notify=error,zookeeper_client=error".into());
    }
    // Some spans exist only to be exported as traces. Log lines do not show these spans, because another span of the
    // same request already adds the request's uid to each line.
    directives.push(format!("{SPANS}=off").into());
    EnvFilter::try_new(directives.join(",")).map_err(|error| error.to_string())
}

/// A level that is more verbose than `info`, such as `debug`, applies only to the crates of this program. All other
/// crates log at `info`.
fn filter_directive(part: &str) -> Cow<'_, str> {
    match part.trim().parse::<LevelFilter>() {
        Ok(level) if level > LevelFilter::INFO => format!("info,admittance={level}").into(),
        _ => part.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_of_one_word_must_be_a_level() {
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
            assert_eq!(parse_filter(filter).is_ok(), right, "{filter}");
        }
    }

    #[test]
    fn libraries_log_little_unless_the_filter_names_them() {
        for (filter, ours, compiler) in [
            ("trace", true, false),
            ("TRACE", true, false),
            ("debug", false, false),
            ("trace,kube=debug", true, false),
            ("info,admittance=trace", true, false),
            ("info,cranelift_codegen=trace", false, true),
            ("trace,cranelift_codegen=trace", true, true),
        ] {
            let registry = tracing_subscriber::registry().with(parse_filter(filter).unwrap());
            tracing::subscriber::with_default(registry, || {
                let ours_is = tracing::enabled!(target: "admittance_sandbox::prepare", tracing::Level::TRACE);
                let theirs_is = tracing::enabled!(target: "cranelift_codegen::machinst", tracing::Level::TRACE);
                assert_eq!((ours_is, theirs_is), (ours, compiler), "{filter}");
            });
        }
    }
}
