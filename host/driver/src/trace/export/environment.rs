//! Reads OpenTelemetry's environment variables.
//!
//! The endpoint variables apply if the configuration has no section `tracing`, and the timeout variable if that section
//! has no timeout. OpenTelemetry's own crates read the variables for headers, resource, sampler and batches.

use std::{env, time::Duration};

use admittance_net::tls::{self, ClientTls, Trust};
use http::Uri;

use super::TracesError;
use crate::config::{TracingConfig, TracingProtocol};

const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const QUEUE_SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// Returns the maximum number of spans that wait for the collector. Further spans are dropped.
pub(super) fn queue_size() -> usize {
    /// The default: 16,384 spans. Several thousand requests produce as many, and they take a few MiB of memory.
    const DEFAULT_QUEUE_SIZE: usize = 16 * 1024;
    let configured_size = env::var(QUEUE_SIZE).ok().and_then(|size| size.parse().ok());
    configured_size.unwrap_or(DEFAULT_QUEUE_SIZE)
}

/// Completes the configuration of the export from environment variables; returns `None` if nothing is exported.
pub(super) fn with_environment(config: Option<TracingConfig>) -> Result<Option<TracingConfig>, TracesError> {
    with_variables(config, |name| env::var(name).ok().filter(|value| !value.is_empty()))
}

fn with_variables(
    config: Option<TracingConfig>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<TracingConfig>, TracesError> {
    if variable(DISABLED_VARIABLE).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let find_first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
    let config = match config {
        Some(config) => Some(config),
        None if variable(EXPORTER).is_some_and(|name| name == "none") => None,
        None => match read_endpoint(&variable)? {
            Some(endpoint) => Some(TracingConfig {
                endpoint,
                protocol: find_first(PROTOCOLS).map_or(Ok(TracingProtocol::default()), parse_protocol)?,
                headers: Vec::new(),
                sampling: None,
                timeout: None,
                tls: ClientTls::from(tls::client_config(Trust::SystemAnd(None), None)?),
            }),
            None => None,
        },
    };
    let Some(mut config) = config else {
        return Ok(None);
    };
    if config.timeout.is_none() {
        config.timeout = find_first(TIMEOUTS).map(parse_timeout).transpose()?;
    }
    Ok(Some(config))
}

/// Returns the URL of the collector. It is the value of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` as it is, or else that of
/// `OTEL_EXPORTER_OTLP_ENDPOINT` with the path for traces appended.
fn read_endpoint(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>, TracesError> {
    let setting = match (variable(TRACES_ENDPOINT), variable(ENDPOINT)) {
        (Some(url), _) => (TRACES_ENDPOINT, url),
        (None, Some(url)) => (
            ENDPOINT,
            format!("{}{}", url.trim_end_matches('/'), TracingConfig::PATH),
        ),
        (None, None) => return Ok(None),
    };
    let (name, url) = setting;
    let parsed: Option<Uri> = url.parse().ok();
    let is_http = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
    match parsed.filter(is_http) {
        Some(url) => Ok(Some(url)),
        None => Err(variable_error(
            name,
            format!("{url:?} is not a valid URL; write http://collector:4318"),
        )),
    }
}

fn parse_protocol((name, value): (&'static str, String)) -> Result<TracingProtocol, TracesError> {
    let protocol = value.parse::<TracingProtocol>();
    protocol.map_err(|error| variable_error(name, format!("{error}, and the collector's port for HTTP, 4318")))
}

fn parse_timeout((name, value): (&'static str, String)) -> Result<Duration, TracesError> {
    match value.parse() {
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Err(_) => Err(variable_error(
            name,
            format!("{value:?} is not a number of milliseconds"),
        )),
    }
}

fn variable_error(variable: &'static str, reason: String) -> TracesError {
    TracesError::Environment { variable, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed_config(
        variables: &[(&str, &str)],
    ) -> Result<Option<(String, TracingProtocol, Option<Duration>)>, String> {
        let variable = |name: &str| {
            let pair = variables.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        match with_variables(None, variable) {
            Ok(config) => Ok(config.map(|config| (config.endpoint.to_string(), config.protocol, config.timeout))),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn environment_variables_name_the_collector_of_traces() {
        use TracingProtocol::{HttpJson, HttpProtobuf};
        let url = "http://collector:4318";
        let traces = "http://collector:4318/v1/traces";
        let other_url = "https://other/x";
        for (variables, expected) in [
            (&[][..], None),
            (&[(ENDPOINT, url)], Some((traces, HttpProtobuf, None))),
            (
                &[(ENDPOINT, "http://collector:4318/")],
                Some((traces, HttpProtobuf, None)),
            ),
            (
                &[(ENDPOINT, url), (TRACES_ENDPOINT, other_url)],
                Some((other_url, HttpProtobuf, None)),
            ),
            (
                &[(ENDPOINT, url), (PROTOCOLS[1], "http/json"), (TIMEOUTS[1], "1500")],
                Some((traces, HttpJson, Some(Duration::from_millis(1500)))),
            ),
            (&[(ENDPOINT, url), (DISABLED_VARIABLE, "TRUE")], None),
            (&[(ENDPOINT, url), (EXPORTER, "none")], None),
        ] {
            let expected = expected.map(|(url, protocol, timeout)| (url.to_owned(), protocol, timeout));
            assert_eq!(completed_config(variables), Ok(expected), "{variables:?}");
        }
    }

    #[test]
    fn invalid_environment_variables_for_tracing_are_reported() {
        let url = (ENDPOINT, "http://collector:4318");
        for (variables, expected) in [
            (
                &[(ENDPOINT, "collector:4318")][..],
                "\"collector:4318/v1/traces\" is not a valid URL",
            ),
            (
                &[url, (PROTOCOLS[0], "grpc")],
                "\"grpc\" is not a valid protocol; write http/protobuf or http/json",
            ),
            (&[url, (TIMEOUTS[0], "10s")], "\"10s\" is not a number of milliseconds"),
        ] {
            let error = completed_config(variables).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
