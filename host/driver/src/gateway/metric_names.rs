//! What a gateway counts and times.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const REQUESTS: &str = "admittance_gateway_requests_total";
pub(super) const DURATION: &str = "admittance_gateway_request_duration_seconds";
pub(super) const CLUSTERS: &str = "admittance_gateway_clusters";
pub(super) const TOKENS_RELOADED: &str = "admittance_gateway_tokens_last_reload_successful";
pub(super) const TOKEN_CHECKS: &str = "admittance_gateway_token_checks_total";

pub(crate) fn describe() {
    describe_counter!(
        REQUESTS,
        "Requests that the gateway answered, by cluster (`unknown` for those that it does not know), class of the \
         driver's or the gateway's status, and what was done with them (passage)"
    );
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Time from a request's head to the head of its reply, by cluster"
    );
    describe_gauge!(CLUSTERS, "Clusters that are listed, or found in ZooKeeper");
    describe_gauge!(
        TOKENS_RELOADED,
        "Whether what the file of tokens holds is in use: 0 when it changed to something that is no good"
    );
    describe_counter!(
        TOKEN_CHECKS,
        "Tokens that were looked at, by result: allowed, refused, or unanswered when the endpoint could not say; \
         and by source: file, endpoint, or cache for an endpoint's earlier answer"
    );
}
