//! Shows the driver's dependencies on the console's health page.

use admittance::agreement::ReplicaStatus;
use admittance_admin::{HealthLine, HealthPanel, Tone};
use admittance_cluster::{ClusterWatch, LeaderStatus, WatchState};
use admittance_fleet::{WebhooksStatus, audit::AuditStatus};

use super::DriverStatus;

pub(super) fn panels(status: &DriverStatus) -> Vec<HealthPanel> {
    let replicas = status.replicas.iter().flat_map(|replicas| &replicas.replicas);
    let mut panels = vec![
        HealthPanel {
            title: "Upstream",
            lines: upstream(status),
        },
        HealthPanel {
            title: "ZooKeeper",
            lines: zookeeper(status),
        },
        HealthPanel {
            title: "Replicas",
            lines: replicas.map(replica).collect(),
        },
        HealthPanel {
            title: "Kubernetes",
            lines: kubernetes(status),
        },
    ];
    panels.extend(status.gateway.as_ref().map(admittance_gateway::admin::panel));
    panels
}

fn upstream(status: &DriverStatus) -> Vec<HealthLine> {
    let discovery = status.discovery.iter().map(|discovery| {
        let line = HealthLine::new(format!("discovered below {}", discovery.path))
            .count(discovery.registrations.len(), "server")
            .problem(discovery.problem.clone());
        if discovery.known {
            return line;
        }
        line.text(" ").badge(Tone::Warn, "not read yet")
    });
    let servers = status.upstream.iter();
    discovery
        .chain(servers.map(|server| HealthLine::new(&server.server).up(server.is_up)))
        .collect()
}

fn zookeeper(status: &DriverStatus) -> Vec<HealthLine> {
    let sessions = status.zookeeper.iter().map(|ensemble| {
        let tone = match &*ensemble.state {
            "connected" => Tone::Good,
            "connecting" => Tone::Warn,
            _ => Tone::Bad,
        };
        HealthLine::new(format!("{} ({})", ensemble.ensemble, ensemble.servers))
            .badge(tone, &ensemble.state)
            .text(" since ")
            .moment(ensemble.since)
            .problem(ensemble.problem.clone())
    });
    let registrations = status.registrations.iter().map(|registered| {
        let line = HealthLine::new(format!("registration below {}", registered.below));
        let line = match &registered.node {
            Some(node) => line.badge(Tone::Good, "registered").text(&format!(" as {node}")),
            None => line.badge(Tone::Bad, "missing"),
        };
        line.problem(registered.problem.clone())
    });
    sessions.chain(registrations).collect()
}

fn kubernetes(status: &DriverStatus) -> Vec<HealthLine> {
    let Some(cluster) = &status.cluster else {
        return Vec::new();
    };
    let watches = [&cluster.namespaces].into_iter().chain(&cluster.kinds);
    let mut lines: Vec<_> = watches.map(|watched| watch(&cluster.server, watched)).collect();
    lines.extend(status.leader.as_ref().map(leader));
    lines.extend(status.webhook_configurations.as_ref().map(webhooks));
    lines.extend(status.audit.as_ref().map(audit));
    lines
}

fn watch(server: &str, watch: &ClusterWatch) -> HealthLine {
    let tone = match watch.state {
        WatchState::Watching => Tone::Good,
        WatchState::Idle | WatchState::Starting => Tone::Warn,
        WatchState::Down | WatchState::Refused => Tone::Bad,
    };
    HealthLine::new(format!("watch of {} at {server}", watch.kind))
        .badge(tone, watch.state.as_str())
        .text(" since ")
        .moment(watch.since)
        .text(", ")
        .count(watch.objects, "object")
        .problem(watch.problem.clone())
}

fn webhooks(webhooks: &WebhooksStatus) -> HealthLine {
    let line = HealthLine::new(format!("webhook configurations {}", webhooks.name))
        .text(if webhooks.is_keeper {
            "kept by this replica"
        } else {
            "kept by another replica"
        })
        .problem(webhooks.problem.clone());
    match webhooks.last_write {
        Some(at) => line.text(", written ").moment(at),
        None => line,
    }
}

fn audit(audit: &AuditStatus) -> HealthLine {
    let problems = audit.problems.iter();
    let problems: Vec<_> = problems.map(|(what, why)| format!("{what}: {why}")).collect();
    let mut line = HealthLine::new("audit of what the cluster has")
        .problem((!problems.is_empty()).then(|| problems.join("; ")));
    if !audit.is_auditor {
        line = line.text("by another replica ");
    }
    if audit.running {
        line = line.text("running ");
    }
    if let Some(last) = &audit.last {
        line = line.text("ended ").moment(last.at);
        for (verdict, count) in audit.objects.iter().filter(|(_, count)| **count > 0) {
            line = line.text(&format!(", {count} {verdict}"));
        }
    }
    line
}

fn replica(replica: &ReplicaStatus) -> HealthLine {
    let (tone, state) = match (replica.alive, replica.ready) {
        (false, _) => (Tone::Plain, "gone"),
        (true, true) => (Tone::Good, "ready"),
        (true, false) => (Tone::Bad, "late"),
    };
    let mut line = HealthLine::new(&replica.name)
        .badge(tone, state)
        .text(" serves ")
        .code(&replica.live.short())
        .problem(replica.problem.clone());
    if replica.prepared != replica.live {
        line = line.text(", has prepared ").code(&replica.prepared.short());
    }
    if replica.leader {
        line = line.text(" ").badge(Tone::Plain, "leader");
    }
    line
}

fn leader(leader: &LeaderStatus) -> HealthLine {
    let line = HealthLine::new(format!("leader of the replicas, by the lease {}", leader.lease));
    match &leader.holder {
        Some(holder) if leader.is_self => line.text(&format!("{holder} (this replica)")),
        Some(holder) => line.text(holder),
        None => line.badge(Tone::Warn, "not known"),
    }
}
