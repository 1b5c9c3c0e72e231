//! Describes the driver's dependencies, for the console and `admittance status`.

use admittance::{Moment, agreement::ReplicaStatus};
use admittance_admin::{HealthLine, HealthPanel, Tone};
use admittance_cluster::{ClusterWatch, LeaderStatus, WatchState};
use admittance_fleet::{WebhooksStatus, audit::AuditStatus};

use super::DriverStatus;

pub(super) fn dependency_panels(status: &DriverStatus, now: Moment) -> Vec<HealthPanel> {
    let panel = |title, lines| HealthPanel { title, lines };
    let mut panels = vec![
        panel("Upstream", upstream_lines(status)),
        panel("ZooKeeper", zookeeper_lines(status)),
    ];
    panels.extend(status.gateway.as_ref().map(admittance_gateway::admin::panel));
    let certificates = status.certificates.iter();
    panels.extend([
        panel("Kubernetes", kubernetes_lines(status)),
        panel(
            "Certificates",
            certificates.map(|certificate| certificate.health(now)).collect(),
        ),
    ]);
    panels
}

pub(super) fn own_panels(status: &DriverStatus) -> Vec<HealthPanel> {
    let panel = |title, lines| HealthPanel { title, lines };
    let replicas = status.replicas.iter().flat_map(|replicas| &replicas.replicas);
    vec![
        panel("Listeners", status.listeners.iter().map(HealthLine::from).collect()),
        panel(
            "Definitions",
            status.table.stores.iter().map(HealthLine::from).collect(),
        ),
        panel("Replicas", replicas.map(replica_line).collect()),
    ]
}

fn upstream_lines(status: &DriverStatus) -> Vec<HealthLine> {
    let discovery = status.discovery.iter().map(|discovery| {
        let line = HealthLine::new(format!("discovery below {}", discovery.path))
            .count(discovery.registrations.len(), "server")
            .problem(discovery.problem.clone());
        if discovery.known {
            return line;
        }
        line.text(" ").badge(Tone::Warn, "not read yet")
    });
    status
        .upstream
        .iter()
        .map(|server| {
            HealthLine::new(format!("upstream {}", server.server))
                .up_or_down(server.is_up, server.since)
                .problem(server.problem.clone())
                .advice("Requests go to the other servers. Start it, or correct its address in the configuration.")
        })
        .chain(discovery)
        .collect()
}

fn zookeeper_lines(status: &DriverStatus) -> Vec<HealthLine> {
    let sessions = status.zookeeper.iter().map(|ensemble| {
        let tone = match &*ensemble.state {
            "connected" => Tone::Good,
            "connecting" => Tone::Warn,
            _ => Tone::Bad,
        };
        HealthLine::new(format!("ZooKeeper {} ({})", ensemble.ensemble, ensemble.servers))
            .badge(tone, &ensemble.state)
            .lasting_since(ensemble.since)
            .problem(ensemble.problem.clone())
            .advice("Check the servers of the ensemble, and the network to them; the driver connects again by itself.")
    });
    let registrations = status.registrations.iter().map(|registered| {
        let line = HealthLine::new(format!("registration below {}", registered.below));
        let line = match &registered.node {
            Some(node) => line.badge(Tone::Good, "registered").text(format!(" as {node}")),
            None => line.badge(Tone::Bad, "missing"),
        };
        line.problem(registered.problem.clone())
    });
    sessions.chain(registrations).collect()
}

fn kubernetes_lines(status: &DriverStatus) -> Vec<HealthLine> {
    let Some(cluster) = &status.cluster else {
        return Vec::new();
    };
    let watches = [&cluster.namespaces].into_iter().chain(&cluster.kinds);
    let mut lines: Vec<_> = watches
        .map(|cluster_watch| watch_line(&cluster.server, cluster_watch))
        .collect();
    lines.extend(status.leader.as_ref().map(leader_line));
    lines.extend(status.webhook_configurations.as_ref().map(webhooks_line));
    lines.extend(status.audit.as_ref().map(audit_line));
    lines
}

fn watch_line(server: &str, watch: &ClusterWatch) -> HealthLine {
    let tone = match watch.state {
        WatchState::Watching => Tone::Good,
        WatchState::Idle | WatchState::Starting => Tone::Warn,
        WatchState::Down | WatchState::Refused => Tone::Bad,
    };
    HealthLine::new(format!("watch of {} at {server}", watch.kind))
        .badge(tone, watch.state.as_str())
        .lasting_since(watch.since)
        .text(", ")
        .count(watch.objects, "object")
        .problem(watch.problem.clone())
        .advice("If the API server refuses the watch, grant list and watch of this kind to the driver's account.")
}

fn webhooks_line(webhooks: &WebhooksStatus) -> HealthLine {
    let line = HealthLine::new(format!("webhook configurations {}", webhooks.name))
        .text(if webhooks.is_keeper {
            "kept by this replica"
        } else {
            "kept by another replica"
        })
        .problem(webhooks.problem.clone());
    match webhooks.last_write {
        Some(at) => line.text(", written at ").moment(at),
        None => line,
    }
}

fn audit_line(audit: &AuditStatus) -> HealthLine {
    let entries = audit.problems.iter();
    let problems: Vec<_> = entries.map(|(subject, why)| format!("{subject}: {why}")).collect();
    let line = HealthLine::new("audit").problem((!problems.is_empty()).then(|| problems.join("; ")));
    let Some(last) = audit.last.as_ref().filter(|_| audit.is_auditor) else {
        return line.text(if audit.is_auditor {
            "running"
        } else {
            "by another replica"
        });
    };
    let counts = audit.objects.iter().filter(|(_, count)| **count > 0);
    let objects: Vec<_> = counts.map(|(verdict, count)| format!("{count} {verdict}")).collect();
    let running = if audit.running { ", running again" } else { "" };
    line.text("at ")
        .moment(last.at)
        .text(format!(", objects: {}{running}", objects.join(", ")))
}

fn replica_line(replica: &ReplicaStatus) -> HealthLine {
    let (tone, state) = match (replica.alive, replica.ready) {
        (false, _) => (Tone::Plain, "gone"),
        (true, true) => (Tone::Good, "ready"),
        (true, false) => (Tone::Bad, "late"),
    };
    let mut line = HealthLine::new(format!("replica {}", replica.name))
        .badge(tone, state)
        .text(" serves ")
        .code(replica.live.to_short_hex())
        .problem(replica.problem.clone());
    if replica.prepared != replica.live {
        line = line.text(", has prepared ").code(replica.prepared.to_short_hex());
    }
    if replica.leader {
        line = line.text(" ").badge(Tone::Plain, "leader");
    }
    line
}

fn leader_line(leader: &LeaderStatus) -> HealthLine {
    let line = HealthLine::new(format!("leader, lease {}", leader.lease));
    match &leader.holder {
        Some(holder) if leader.is_self => line.text(format!("{holder} (this replica)")),
        Some(holder) => line.text(holder),
        None => line.badge(Tone::Warn, "not known"),
    }
}
