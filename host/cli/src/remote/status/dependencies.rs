//! The dependencies of the driver: a line for each server, session and certificate.

use admittance::Moment;
use admittance_admin::api::CertificateStatus;
use admittance_bcs::status::ServerHealth;
use admittance_cluster::{ClusterWatch, WatchState};
use admittance_driver::status::DriverStatus;
use admittance_fleet::{WebhooksStatus, audit::AuditStatus};
use admittance_gateway::{GatewayStatus, PeersStatus};
use anstyle::Style;

use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, harmless},
};

/// Empty if there are none.
pub(super) fn text(status: &DriverStatus, now: Moment) -> String {
    let mut lines = Lines::default();
    for server in &status.upstream {
        lines.server("upstream", server);
    }
    if let Some(discovery) = &status.discovery {
        let servers = human::count(discovery.registrations.len(), "server");
        let style = if discovery.known { GOOD } else { WARN };
        let what = format!("discovery below {}", discovery.path);
        lines.add(&what, style, &servers, discovery.problem.as_deref());
    }
    for ensemble in &status.zookeeper {
        let style = match &*ensemble.state {
            "connected" => GOOD,
            "connecting" => WARN,
            _ => BAD,
        };
        let state = format!("{} for {}", ensemble.state, human::age(ensemble.since, now));
        let what = format!("ZooKeeper {} ({})", ensemble.ensemble, ensemble.servers);
        lines.add(&what, style, &state, ensemble.problem.as_deref());
    }
    for registration in &status.registrations {
        let (style, state) = match &registration.node {
            Some(node) => (GOOD, format!("as {node}")),
            None => (BAD, "missing".to_owned()),
        };
        let what = format!("registration below {}", registration.below);
        lines.add(&what, style, &state, registration.problem.as_deref());
    }
    if let Some(gateway) = &status.gateway {
        lines.gateway(gateway);
    }
    if let Some(cluster) = &status.cluster {
        for watch in [&cluster.namespaces].into_iter().chain(&cluster.kinds) {
            lines.watch(&cluster.server, watch, now);
        }
    }
    if let Some(leader) = &status.leader {
        let holder = leader.holder.as_deref().unwrap_or("not known");
        let own = if leader.is_self { " (this replica)" } else { "" };
        let style = if leader.holder.is_some() { GOOD } else { WARN };
        lines.add(
            &format!("leader, lease {}", leader.lease),
            style,
            &format!("{holder}{own}"),
            None,
        );
    }
    if let Some(webhooks) = &status.webhook_configurations {
        lines.webhooks(webhooks);
    }
    if let Some(audit) = &status.audit {
        lines.audit(audit);
    }
    for certificate in &status.certificates {
        lines.certificate(certificate, now);
    }
    lines.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, what: &str, style: Style, state: &str, problem: Option<&str>) {
        // A good state with a problem is a warning.
        let style = if problem.is_some() && style == GOOD {
            WARN
        } else {
            style
        };
        let problem = problem.map(|problem| format!("; {}", harmless(problem)));
        let (what, state) = (harmless(what), harmless(state));
        let problem = problem.unwrap_or_default();
        self.0 += &format!("{DIM}{what}:{DIM:#} {style}{state}{style:#}{problem}\n");
    }

    fn server(&mut self, what: &str, server: &ServerHealth) {
        let (style, state) = if server.is_up { (GOOD, "up") } else { (BAD, "down") };
        self.add(&format!("{what} {}", server.server), style, state, None);
    }

    fn gateway(&mut self, gateway: &GatewayStatus) {
        if let Some(path) = &gateway.discovery {
            let clusters = human::count(gateway.clusters.len(), "cluster");
            let what = format!("discovery below {path}");
            self.add(&what, GOOD, &clusters, gateway.problem.as_deref());
        }
        for cluster in &gateway.clusters {
            let what = format!("cluster {}", cluster.cluster);
            if cluster.problem.is_some() || cluster.drivers.is_empty() {
                let drivers = human::count(cluster.drivers.len(), "driver");
                self.add(&what, BAD, &drivers, cluster.problem.as_deref());
            }
            for driver in &cluster.drivers {
                self.server(&format!("{what}, driver"), driver);
            }
        }
        if let Some(tokens) = &gateway.tokens {
            let state = match tokens.count {
                Some(count) => human::count(count, "token"),
                None => tokens.source.clone(),
            };
            self.add("tokens", GOOD, &state, tokens.problem.as_deref());
        }
        if let Some(accounts) = &gateway.accounts {
            let (users, clusters) = (
                human::count(accounts.users, "user"),
                human::count(accounts.clusters, "cluster"),
            );
            let style = if accounts.read { GOOD } else { BAD };
            let state = format!("{users}, {clusters}");
            self.add("users and clusters", style, &state, accounts.problem.as_deref());
        }
        for cluster in &gateway.kubernetes {
            let tunnels = human::count(cluster.tunnels, "tunnel");
            let (style, state) = match (cluster.tunnels, cluster.gateways, cluster.reported) {
                (1.., _, _) => (GOOD, tunnels),
                (0, 1.., _) => (GOOD, "through another gateway".to_owned()),
                (0, 0, Some(_)) => (GOOD, "direct".to_owned()),
                (0, 0, None) => (BAD, "not connected".to_owned()),
            };
            let what = format!("cluster {}", cluster.cluster);
            self.add(&what, style, &state, cluster.problem.as_deref());
        }
        if let Some(peers) = &gateway.peers {
            self.peers(peers);
        }
    }

    fn peers(&mut self, peers: &PeersStatus) {
        let problem = peers.problem.as_deref().or(peers.discovery.problem.as_deref());
        let state = format!(
            "{}, {} to this one",
            human::count(peers.gateways.len(), "gateway"),
            human::count(peers.accepted, "tunnel")
        );
        let what = format!("other gateways below {}", peers.discovery.path);
        self.add(&what, GOOD, &state, problem);
        for gateway in &peers.gateways {
            let (style, state) = match gateway.problem {
                None => (GOOD, "has a tunnel from this one"),
                Some(_) => (BAD, "has no tunnel from this one"),
            };
            let what = format!("gateway {}", gateway.server);
            self.add(&what, style, state, gateway.problem.as_deref());
        }
    }

    fn watch(&mut self, server: &str, watch: &ClusterWatch, now: Moment) {
        let style = match watch.state {
            WatchState::Watching => GOOD,
            WatchState::Idle | WatchState::Starting => WARN,
            WatchState::Down | WatchState::Refused => BAD,
        };
        let (age, objects) = (
            human::age(watch.since, now),
            human::count(watch.objects, "object"),
        );
        let state = format!("{} for {age}, {objects}", watch.state);
        let what = format!("watch of {} at {server}", watch.kind);
        self.add(&what, style, &state, watch.problem.as_deref());
    }

    fn webhooks(&mut self, webhooks: &WebhooksStatus) {
        let keeper = match webhooks.is_keeper {
            true => "kept by this replica",
            false => "kept by another replica",
        };
        let state = match webhooks.last_write {
            Some(at) => format!("{keeper}, written at {}", human::clock(at)),
            None => keeper.to_owned(),
        };
        let what = format!("webhook configurations {}", webhooks.name);
        self.add(&what, GOOD, &state, webhooks.problem.as_deref());
    }

    fn audit(&mut self, audit: &AuditStatus) {
        let state = match (audit.is_auditor, &audit.last) {
            (false, _) => "by another replica".to_owned(),
            (true, None) => "running".to_owned(),
            (true, Some(last)) => {
                let objects = audit.objects.iter().filter(|(_, count)| **count > 0);
                let objects: Vec<_> = objects
                    .map(|(verdict, count)| format!("{count} {verdict}"))
                    .collect();
                let running = if audit.running { ", running again" } else { "" };
                format!(
                    "at {}, objects: {}{running}",
                    human::clock(last.at),
                    objects.join(", ")
                )
            }
        };
        let problems = audit.problems.iter();
        let problems: Vec<_> = problems.map(|(what, why)| format!("{what}: {why}")).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        self.add("audit", GOOD, &state, problem.as_deref());
    }

    fn certificate(&mut self, certificate: &CertificateStatus, now: Moment) {
        let (style, state) = match certificate.not_after {
            Some(end) if end <= now => (BAD, format!("expired at {}", human::clock(end))),
            Some(end) => (GOOD, format!("valid until {}", human::clock(end))),
            None => (GOOD, "none presented".to_owned()),
        };
        let what = format!("certificate of {}", certificate.certificate);
        self.add(&what, style, &state, certificate.problem.as_deref());
    }
}
