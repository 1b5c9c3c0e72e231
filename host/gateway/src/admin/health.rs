//! The gateway on the console's health page.

use admittance_admin::{HealthLine, HealthPanel, Tone};
use admittance_bcs::status::ServerHealth;

use crate::{GatewayCluster, GatewayStatus, KubernetesCluster};

/// Its clusters, tokens, users and peers.
pub fn panel(gateway: &GatewayStatus) -> HealthPanel {
    let mut lines = Vec::new();
    if let Some(path) = &gateway.discovery {
        let line = HealthLine::new(format!("discovered below {path}"));
        lines.push(
            line.count(gateway.clusters.len(), "cluster")
                .problem(gateway.problem.clone()),
        );
    }
    lines.extend(gateway.clusters.iter().map(drivers));
    lines.extend(gateway.kubernetes.iter().map(kubernetes));
    if let Some(tokens) = &gateway.tokens {
        let line = HealthLine::new("tokens").problem(tokens.problem.clone());
        lines.push(match tokens.count {
            Some(count) => line.count(count, "token"),
            None => line.text(&tokens.source),
        });
    }
    if let Some(accounts) = &gateway.accounts {
        let line = HealthLine::new("users and clusters").problem(accounts.problem.clone());
        let line = line.count(accounts.users, "user").text(", ");
        lines.push(line.count(accounts.clusters, "cluster"));
    }
    for peer in gateway.peers.iter().flat_map(|peers| &peers.gateways) {
        let line = HealthLine::new(format!("gateway {}", peer.server)).problem(peer.problem.clone());
        lines.push(match peer.problem {
            None => line.badge(Tone::Good, "connected"),
            Some(_) => line.badge(Tone::Bad, "not connected"),
        });
    }
    HealthPanel {
        title: "Gateway",
        lines,
    }
}

fn drivers(cluster: &GatewayCluster) -> HealthLine {
    let line = HealthLine::new(format!("cluster {}", cluster.cluster)).problem(cluster.problem.clone());
    if cluster.drivers.is_empty() {
        return line.badge(Tone::Bad, "no driver");
    }
    let add = |line: HealthLine, (number, driver): (usize, &ServerHealth)| {
        let before = if number == 0 { "" } else { ", " };
        line.text(&format!("{before}{} ", driver.server)).up(driver.is_up)
    };
    cluster.drivers.iter().enumerate().fold(line, add)
}

fn kubernetes(cluster: &KubernetesCluster) -> HealthLine {
    let line = HealthLine::new(format!("cluster {}", cluster.cluster)).problem(cluster.problem.clone());
    match (cluster.tunnels, cluster.gateways, cluster.reported) {
        (1.., _, _) => line
            .badge(Tone::Good, "connected")
            .text(" ")
            .count(cluster.tunnels, "tunnel"),
        (0, 1.., _) => line.badge(Tone::Good, "through another gateway"),
        (0, 0, Some(_)) => line.badge(Tone::Good, "direct"),
        (0, 0, None) => line.badge(Tone::Bad, "not connected"),
    }
}
