//! What the driver depends on beside its definitions: a line for each server, session and certificate.

use std::fmt::Write as _;

use admittance::Moment;
use admittance_admin::api::{CertificateStatus, ClusterWatch, DriverStatus, GatewayStatus, ServerHealth};

use crate::{
    human,
    output::{BAD, DIM, GOOD, ODD, harmless},
};

/// How a line begins.
#[derive(Clone, Copy)]
enum Mark {
    Good,
    Waiting,
    Bad,
}

/// With ANSI colours; empty when there is nothing to tell.
pub(super) fn lines(status: &DriverStatus, now: Moment) -> String {
    let mut lines = Lines::default();
    for server in &status.upstream {
        lines.server("upstream", server);
    }
    if let Some(discovery) = &status.discovery {
        let found = human::count(discovery.registrations.len() as u64, "server", "servers");
        let mark = if discovery.known {
            Mark::Good
        } else {
            Mark::Waiting
        };
        let what = format!("discovery below {}", discovery.path);
        lines.add(&what, mark, &found, discovery.problem.as_deref());
    }
    for ensemble in &status.zookeeper {
        let mark = match &*ensemble.state {
            "connected" => Mark::Good,
            "connecting" => Mark::Waiting,
            _ => Mark::Bad,
        };
        let state = format!("{} for {}", ensemble.state, human::age(ensemble.since, now));
        let what = format!("ZooKeeper {} ({})", ensemble.ensemble, ensemble.servers);
        lines.add(&what, mark, &state, ensemble.problem.as_deref());
    }
    for registration in &status.registrations {
        let (mark, state) = match &registration.node {
            Some(node) => (Mark::Good, format!("as {node}")),
            None => (Mark::Bad, "missing".to_owned()),
        };
        let what = format!("registration below {}", registration.below);
        lines.add(&what, mark, &state, registration.problem.as_deref());
    }
    if let Some(gateway) = &status.gateway {
        lines.gateway(gateway);
    }
    if let Some(cluster) = &status.cluster {
        for watch in [&cluster.namespaces].into_iter().chain(&cluster.kinds) {
            lines.watch(&cluster.server, watch, now);
        }
    }
    for certificate in &status.certificates {
        lines.certificate(certificate, now);
    }
    lines.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, what: &str, mark: Mark, state: &str, problem: Option<&str>) {
        let (what, state) = (harmless(what), harmless(state));
        let style = match (mark, problem) {
            (Mark::Bad, _) => BAD,
            (Mark::Waiting, _) | (Mark::Good, Some(_)) => ODD,
            (Mark::Good, None) => GOOD,
        };
        // Writing into a String does not fail.
        let _ = match problem {
            Some(problem) => writeln!(
                self.0,
                "{DIM}{what}:{DIM:#} {style}{state}{style:#}; {}",
                harmless(problem)
            ),
            None => writeln!(self.0, "{DIM}{what}:{DIM:#} {style}{state}{style:#}"),
        };
    }

    fn server(&mut self, what: &str, server: &ServerHealth) {
        let (mark, state) = match server.is_up {
            true => (Mark::Good, "up"),
            false => (Mark::Bad, "down"),
        };
        self.add(&format!("{what} {}", server.server), mark, state, None);
    }

    fn gateway(&mut self, gateway: &GatewayStatus) {
        if let Some(path) = &gateway.discovery {
            let found = human::count(gateway.clusters.len() as u64, "cluster", "clusters");
            let what = format!("discovery below {path}");
            self.add(&what, Mark::Good, &found, gateway.problem.as_deref());
        }
        for cluster in &gateway.clusters {
            if cluster.problem.is_some() || cluster.drivers.is_empty() {
                let drivers = human::count(cluster.drivers.len() as u64, "driver", "drivers");
                let what = format!("cluster {}", cluster.cluster);
                self.add(&what, Mark::Bad, &drivers, cluster.problem.as_deref());
            }
            for driver in &cluster.drivers {
                self.server(&format!("cluster {}, driver", cluster.cluster), driver);
            }
        }
        if let Some(tokens) = &gateway.tokens {
            let state = match tokens.count {
                Some(count) => human::count(count as u64, "token", "tokens"),
                None => tokens.source.clone(),
            };
            self.add("tokens", Mark::Good, &state, tokens.problem.as_deref());
        }
    }

    fn watch(&mut self, server: &str, watch: &ClusterWatch, now: Moment) {
        let mark = match &*watch.state {
            "watching" => Mark::Good,
            "idle" | "starting" => Mark::Waiting,
            _ => Mark::Bad,
        };
        let objects = human::count(watch.objects as u64, "object", "objects");
        let state = format!("{} for {}, {objects}", watch.state, human::age(watch.since, now));
        let what = format!("watch of {} at {server}", watch.kind);
        self.add(&what, mark, &state, watch.problem.as_deref());
    }

    fn certificate(&mut self, certificate: &CertificateStatus, now: Moment) {
        let (mark, state) = match certificate.not_after {
            Some(end) if end <= now => (Mark::Bad, format!("expired at {}", human::clock(end))),
            Some(end) => (Mark::Good, format!("valid until {}", human::clock(end))),
            None => (Mark::Good, "none presented".to_owned()),
        };
        let what = format!("certificate of {}", certificate.certificate);
        self.add(&what, mark, &state, certificate.problem.as_deref());
    }
}
