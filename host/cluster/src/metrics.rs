//! The metrics of this crate, through the `metrics` facade: the embedding program chooses the exporter.

use admittance_admission::keywords;
use admittance_net::metric_table;
use metrics::{counter, gauge};

metric_table! {
    REQUESTS = Counter "admittance_cluster_requests_total" [verb, result]
        "Requests to the Kubernetes API server, by verb: get, list, watch, discover, review, forward, \
         create, replace, apply, delete, publish; and result: ok, not-found, conflict, forbidden, refused, \
         unavailable, timeout";
    LEADER = Gauge "admittance_cluster_leader" [lease]
        "Whether this program is the leader of its replicas (1) or not (0), by lease";
    WATCH_UP = Gauge "admittance_cluster_watch_up" [kind]
        "Whether the watch of a kind is up (1) or not (0), by kind; namespaces are watched as `namespaces`";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Discover,
    Review,
    Forward,
    Create,
    Replace,
    Apply,
    Delete,
    Publish,
}

keywords!(Verb, "purpose of a request": Get = "get", List = "list", Watch = "watch", Discover = "discover", Review = "review", Forward = "forward", Create = "create", Replace = "replace", Apply = "apply", Delete = "delete", Publish = "publish");

/// Sets the counters of failures to 0 at the start. Otherwise a counter would appear only with the first failure, and
/// nobody could see that it has increased.
pub(crate) fn initialize_counters() {
    for verb in Verb::ALL {
        for result in ["forbidden", "refused", "unavailable", "timeout"] {
            counter!(REQUESTS, "verb" => verb.as_str(), "result" => result).absolute(0);
        }
    }
}

pub(crate) fn count_request(verb: Verb, result: &'static str) {
    counter!(REQUESTS, "verb" => verb.as_str(), "result" => result).increment(1);
}

pub(crate) fn set_watch_up(kind: &str, is_up: bool) {
    gauge!(WATCH_UP, "kind" => kind.to_owned()).set(f64::from(u8::from(is_up)));
}

pub(crate) fn set_leader(lease: &str, is_leader: bool) {
    gauge!(LEADER, "lease" => lease.to_owned()).set(f64::from(u8::from(is_leader)));
}
