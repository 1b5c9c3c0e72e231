//! Describes the state of the gateway as lines, which the console and `admittance status` show with the states of the
//! driver's dependencies.

use admittance_admin::{HealthLine, HealthPanel, Tone};

use crate::{GatewayCluster, GatewayStatus, KubernetesCluster, PeersStatus, RolesStatus};

pub fn panel(gateway: &GatewayStatus) -> HealthPanel {
    let mut lines = Vec::new();
    if let Some(path) = &gateway.discovery {
        let line = HealthLine::new(format!("discovery below {path}"));
        lines.push(
            line.count(gateway.clusters.len(), "cluster")
                .problem(gateway.problem.clone()),
        );
    }
    lines.extend(gateway.clusters.iter().flat_map(driver_lines));
    if let Some(tokens) = &gateway.tokens {
        let line = HealthLine::new("tokens").problem(tokens.problem.clone());
        lines.push(match tokens.count {
            Some(count) => line.count(count, "token"),
            None => line.text(&tokens.source),
        });
    }
    if let Some(accounts) = &gateway.accounts {
        let line = HealthLine::new("users and clusters").problem(accounts.problem.clone());
        lines.push(if accounts.read {
            line.count(accounts.users, "user")
                .text(", ")
                .count(accounts.clusters, "cluster")
        } else {
            line.badge(Tone::Bad, "not read yet")
        });
    }
    lines.extend(gateway.kubernetes.iter().map(kubernetes_line));
    lines.extend(gateway.peers.iter().flat_map(peer_lines));
    lines.extend(gateway.roles.iter().flat_map(role_lines));
    HealthPanel {
        title: "Gateway",
        lines,
    }
}

fn driver_lines(cluster: &GatewayCluster) -> Vec<HealthLine> {
    let subject = format!("cluster {}", cluster.cluster);
    let mut lines = Vec::new();
    if cluster.drivers.is_empty() {
        let line = HealthLine::new(&subject).badge(Tone::Bad, "no driver");
        lines.push(line.problem(cluster.problem.clone()));
    } else if let Some(problem) = &cluster.problem {
        let line = HealthLine::new(&subject).count(cluster.drivers.len(), "driver");
        lines.push(line.problem(Some(problem.clone())));
    }
    lines.extend(cluster.drivers.iter().map(|driver| {
        HealthLine::new(format!("{subject}, driver {}", driver.server))
            .up_or_down(driver.is_up, driver.since)
            .problem(driver.problem.clone())
            .advice("Start the driver, or correct its address; until then, requests go to the other drivers of the cluster.")
    }));
    lines
}

fn role_lines(roles: &RolesStatus) -> Vec<HealthLine> {
    let line = HealthLine::new("roles in clusters").count(roles.grants, "role");
    let problems = roles
        .problems
        .iter()
        .map(|problem| HealthLine::new("roles in clusters").problem(Some(problem.clone())));
    std::iter::once(line).chain(problems).collect()
}

fn kubernetes_line(cluster: &KubernetesCluster) -> HealthLine {
    let line = HealthLine::new(format!("cluster {}", cluster.cluster)).problem(cluster.problem.clone());
    match (cluster.tunnels, cluster.gateways, cluster.reported) {
        (1.., _, _) => line.count(cluster.tunnels, "tunnel"),
        (0, 1.., _) => line.badge(Tone::Good, "through another gateway"),
        (0, 0, Some(_)) => line.badge(Tone::Good, "direct"),
        (0, 0, None) => line.badge(Tone::Bad, "not connected"),
    }
}

fn peer_lines(peers: &PeersStatus) -> Vec<HealthLine> {
    let problem = peers.problem.as_ref().or(peers.discovery.problem.as_ref());
    let line = HealthLine::new(format!("other gateways below {}", peers.discovery.path))
        .count(peers.gateways.len(), "gateway")
        .text(", ")
        .count(peers.accepted, "tunnel")
        .text(" to this one")
        .problem(problem.cloned());
    let gateways = peers.gateways.iter().map(|peer| {
        let line = HealthLine::new(format!("gateway {}", peer.server)).problem(peer.problem.clone());
        match peer.problem {
            None => line.badge(Tone::Good, "has a tunnel from this one"),
            Some(_) => line.badge(Tone::Bad, "has no tunnel from this one"),
        }
    });
    [line].into_iter().chain(gateways).collect()
}
