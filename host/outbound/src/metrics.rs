//! Metrics of outbound requests, through the `metrics` facade: the embedding program chooses the exporter.

use std::time::Duration;

use admittance_admission::{HttpError, HttpOrigin};
use admittance_net::{metric_table, status_class};
use metrics::{counter, histogram};

use crate::sender::OutboundAnswer;

metric_table! {
    REQUESTS = Counter "admittance_plugin_http_requests_total" [origin, result]
        "HTTP requests of plugins, by origin and result: 2xx and so on, cached, unavailable, invalid, \
         unreachable, timeout, too-large, denied";
    DURATION = Histogram Seconds "admittance_plugin_http_duration_seconds" [origin]
        "Time of an HTTP request of a plugin, including those that failed or were answered from the cache";
}

pub(crate) fn record_request(origin: &HttpOrigin, answer: &Result<OutboundAnswer, HttpError>, took: Duration) {
    let result = match answer {
        Ok(OutboundAnswer { is_cached: true, .. }) => "cached",
        Ok(answer) => status_class(answer.status),
        Err(HttpError::Unavailable(_)) => "unavailable",
        Err(HttpError::Invalid(_)) => "invalid",
        Err(HttpError::Unreachable(_)) => "unreachable",
        Err(HttpError::Timeout) => "timeout",
        Err(HttpError::TooLarge(_)) => "too-large",
        Err(HttpError::Denied(_)) => "denied",
        Err(HttpError::Exhausted(_)) => "overloaded",
    };
    counter!(REQUESTS, "origin" => origin.to_string(), "result" => result).increment(1);
    histogram!(DURATION, "origin" => origin.to_string()).record(took);
}
