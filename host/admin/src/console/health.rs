//! What the driver depends on: listeners, servers, stores, watches, certificates, and the space that it uses.

use admittance::{Moment, StorageStatus, StoreStatus};
use admittance_definitions::StoreKind;
use axum::{Router, extract::State, response::Response, routing::get};
use bytesize::ByteSize;
use maud::{Markup, html};

use super::{
    layout::{Section, page},
    parts::{Tone, badge, count, moment},
    session::Session,
};
use crate::{
    Api,
    api::{
        AuditStatus, CertificateStatus, ClusterStatus, DriverStatus, GatewayStatus, LeaderStatus,
        ListenerStatus, ReplicaStatus, ServerHealth, WatchState,
    },
};

/// Certificates that expire within this time are marked.
const SOON: std::time::Duration = std::time::Duration::from_secs(14 * 24 * 3600);

pub(super) fn router() -> Router<Api> {
    Router::new().route("/health", get(health))
}

async fn health(session: Session, State(api): State<Api>) -> Response {
    let status = (api.sources.status)();
    let storage = api.sources.host.storage().await;
    let content = content(&status, &storage, Moment::now());
    page(&session, Section::Health, "Health", content)
}

/// A line of a table: a dependency, its state, and its problem.
struct Line {
    what: String,
    state: Markup,
    problem: Option<String>,
}

fn content(status: &DriverStatus, storage: &[StorageStatus], now: Moment) -> Markup {
    html! {
        (overview(status))
        div.panels {
            (table("Listeners", status.listeners.iter().map(listener).collect()))
            (table("Certificates", status.certificates.iter().map(|entry| certificate(entry, now)).collect()))
            (table("Upstream", upstream(status)))
            (table("Definitions", status.table.stores.iter().map(store).collect()))
            (table("ZooKeeper", zookeeper(status)))
            @if let Some(replicas) = &status.replicas { (table("Replicas", replicas.replicas.iter().map(replica).collect())) }
            @if let Some(cluster) = &status.cluster {
                (table("Kubernetes", kubernetes(status, cluster)))
            }
            @if let Some(gateway) = &status.gateway {
                (table("Gateway", lines_of_gateway(gateway)))
            }
            (table("On disk", storage.iter().map(space).collect()))
        }
    }
}

fn overview(status: &DriverStatus) -> Markup {
    let table = &status.table;
    html! {
        @if status.stopping {
            p.notice.warn { "The driver is stopping: it finishes the requests in flight." }
        }
        @if let Some(replicas) = &status.replicas {
            @for sentence in &replicas.waiting { p.notice.warn { "A change waits: " (sentence) "." } }
        }
        @if let Some(problem) = &table.problem {
            div.notice.bad {
                p { "The newest definitions are not live since " (moment(problem.since)) ", after " (count(problem.attempts, "attempt")) "." }
                ul { @for mistake in &problem.mistakes { li { (mistake) } } }
            }
        }
        dl.facts {
            dt { "Version" }
            dd { (table.version) }
            dt { "Live" }
            dd { "revision " (table.revision) " (" span.mono { (table.hash.short()) } ")" " since " (moment(table.live_since)) }
            dt { "In memory" }
            dd { (count(table.tables as u64, "table")) ", " (count(table.plugins as u64, "plugin")) @if table.building { ", and a table is being built" } }
            dt { "History" }
            dd {
                (count(table.history.revisions as u64, "revision"))
                @if table.history.directory.is_none() { ", until the program ends: no directory is configured" }
                @if let Some(problem) = &table.history.problem { " " (badge(Tone::Bad, "not written")) " " (problem) }
            }
        }
    }
}

/// Nothing without lines.
fn table(title: &str, lines: Vec<Line>) -> Markup {
    html! {
        @if !lines.is_empty() {
            section {
                h2 { (title) }
                table.data {
                    thead.visually-hidden { tr { th scope="col" { "What" } th scope="col" { "State" } } }
                    tbody {
                        @for Line { what, state, problem } in lines {
                            tr {
                                th scope="row" { (what) }
                                td { (state) @if let Some(problem) = problem { div.muted { (problem) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn listener(listener: &ListenerStatus) -> Line {
    let encryption = if listener.is_tls { "TLS" } else { "no TLS" };
    Line {
        what: listener.listener.clone(),
        state: html! { span.mono { (listener.address) } " " (badge(Tone::Plain, encryption)) },
        problem: None,
    }
}

fn certificate(certificate: &CertificateStatus, now: Moment) -> Line {
    let state = match certificate.not_after {
        Some(end) if end <= now => html! { (badge(Tone::Bad, "expired")) " at " (moment(end)) },
        Some(end) if end.0 <= now.0 + SOON => {
            html! { (badge(Tone::Warn, "expires soon")) " at " (moment(end)) }
        }
        Some(end) => html! { (badge(Tone::Good, "valid")) " until " (moment(end)) },
        None => badge(Tone::Plain, "none presented"),
    };
    Line {
        what: certificate.certificate.clone(),
        state,
        problem: certificate.problem.clone(),
    }
}

fn upstream(status: &DriverStatus) -> Vec<Line> {
    let discovery = status.discovery.iter().map(|discovery| Line {
        what: format!("discovered below {}", discovery.path),
        state: html! {
            (count(discovery.registrations.len() as u64, "server"))
            @if !discovery.known { " " (badge(Tone::Warn, "not read yet")) }
        },
        problem: discovery.problem.clone(),
    });
    discovery.chain(status.upstream.iter().map(server)).collect()
}

fn server(server: &ServerHealth) -> Line {
    Line {
        what: server.server.clone(),
        state: up(server.is_up),
        problem: None,
    }
}

fn up(is_up: bool) -> Markup {
    if is_up {
        badge(Tone::Good, "up")
    } else {
        badge(Tone::Bad, "down")
    }
}

fn store(store: &StoreStatus) -> Line {
    Line {
        what: store.location.clone(),
        state: match (store.lost, store.count) {
            (true, _) => badge(Tone::Bad, "cannot be read"),
            (false, None) => badge(Tone::Warn, "not read yet"),
            (false, Some(number)) => {
                let unit = match (store.kind, number) {
                    (StoreKind::Files, _) => count(number as u64, "file"),
                    (StoreKind::Entries, 1) => "1 entry".to_owned(),
                    (StoreKind::Entries, _) => format!("{number} entries"),
                };
                html! { (badge(Tone::Good, "read")) " " (unit) }
            }
        },
        problem: None,
    }
}

fn zookeeper(status: &DriverStatus) -> Vec<Line> {
    let sessions = status.zookeeper.iter().map(|ensemble| {
        let tone = match &*ensemble.state {
            "connected" => Tone::Good,
            "connecting" => Tone::Warn,
            _ => Tone::Bad,
        };
        Line {
            what: format!("{} ({})", ensemble.ensemble, ensemble.servers),
            state: html! { (badge(tone, &ensemble.state)) " since " (moment(ensemble.since)) },
            problem: ensemble.problem.clone(),
        }
    });
    let registrations = status.registrations.iter().map(|node| Line {
        what: format!("registration below {}", node.below),
        state: match &node.node {
            Some(node) => html! { (badge(Tone::Good, "registered")) " as " (node) },
            None => badge(Tone::Bad, "missing"),
        },
        problem: node.problem.clone(),
    });
    sessions.chain(registrations).collect()
}

fn watches(cluster: &ClusterStatus) -> Vec<Line> {
    let watches = [&cluster.namespaces].into_iter().chain(&cluster.kinds);
    let lines = watches.map(|watch| {
        let tone = match watch.state {
            WatchState::Watching => Tone::Good,
            WatchState::Idle | WatchState::Starting => Tone::Warn,
            WatchState::Down | WatchState::Refused => Tone::Bad,
        };
        Line {
            what: format!("watch of {} at {}", watch.kind, cluster.server),
            state: html! {
                (badge(tone, watch.state.as_str())) " since " (moment(watch.since)) ", " (count(watch.objects as u64, "object"))
            },
            problem: watch.problem.clone(),
        }
    });
    lines.collect()
}

fn kubernetes(status: &DriverStatus, cluster: &ClusterStatus) -> Vec<Line> {
    let mut lines = watches(cluster);
    lines.extend(status.leader.as_ref().map(leader));
    lines.extend(webhooks(status));
    lines.extend(status.audit.as_ref().map(audit));
    lines
}

fn webhooks(status: &DriverStatus) -> Option<Line> {
    let webhooks = status.webhook_configurations.as_ref()?;
    let keeper = match webhooks.is_keeper {
        true => "kept by this replica",
        false => "kept by another replica",
    };
    Some(Line {
        what: format!("webhook configurations {}", webhooks.name),
        state: html! {
            (keeper)
            @if let Some(at) = webhooks.last_write { ", written " (moment(at)) }
        },
        problem: webhooks.problem.clone(),
    })
}

fn audit(audit: &AuditStatus) -> Line {
    let objects = audit.objects.iter().filter(|(_, count)| **count > 0);
    let problems = audit.problems.iter();
    let problems: Vec<_> = problems.map(|(what, why)| format!("{what}: {why}")).collect();
    Line {
        what: "audit of what the cluster has".to_owned(),
        state: html! {
            @if !audit.is_auditor { "by another replica" }
            @if audit.running { "running " }
            @if let Some(last) = &audit.last {
                "ended " (moment(last.at))
                @for (verdict, count) in objects { ", " (count) " " (verdict) }
            }
        },
        problem: (!problems.is_empty()).then(|| problems.join("; ")),
    }
}

fn replica(replica: &ReplicaStatus) -> Line {
    let (tone, state) = match (replica.alive, replica.ready) {
        (false, _) => (Tone::Plain, "gone"),
        (true, true) => (Tone::Good, "ready"),
        (true, false) => (Tone::Bad, "late"),
    };
    Line {
        what: replica.name.clone(),
        state: html! {
            (badge(tone, state)) " serves " span.mono { (replica.live.short()) }
            @if replica.prepared != replica.live { ", has prepared " span.mono { (replica.prepared.short()) } }
            @if replica.leader { " " (badge(Tone::Plain, "leader")) }
        },
        problem: replica.problem.clone(),
    }
}

fn leader(leader: &LeaderStatus) -> Line {
    Line {
        what: format!("leader of the replicas, by the lease {}", leader.lease),
        state: html! {
            @match &leader.holder {
                Some(holder) => { (holder) @if leader.is_self { " (this replica)" } },
                None => (badge(Tone::Warn, "not known")),
            }
        },
        problem: None,
    }
}

fn lines_of_gateway(gateway: &GatewayStatus) -> Vec<Line> {
    let plain = |what: String, state: String, problem: &Option<String>| Line {
        what,
        state: html! { (state) },
        problem: problem.clone(),
    };
    let mut lines = Vec::new();
    if let Some(path) = &gateway.discovery {
        let clusters = count(gateway.clusters.len() as u64, "cluster");
        lines.push(plain(
            format!("discovered below {path}"),
            clusters,
            &gateway.problem,
        ));
    }
    for cluster in &gateway.clusters {
        lines.push(Line {
            what: format!("cluster {}", cluster.cluster),
            state: html! {
                @if cluster.drivers.is_empty() { (badge(Tone::Bad, "no driver")) }
                @for driver in &cluster.drivers { div { (driver.server) " " (up(driver.is_up)) } }
            },
            problem: cluster.problem.clone(),
        });
    }
    for cluster in &gateway.kubernetes {
        let state = match (cluster.tunnels, cluster.gateways, cluster.reported) {
            (1.., _, _) => {
                html! { (badge(Tone::Good, "connected")) " " (count(cluster.tunnels as u64, "tunnel")) }
            }
            (0, 1.., _) => badge(Tone::Good, "through another gateway"),
            (0, 0, Some(_)) => badge(Tone::Good, "direct"),
            (0, 0, None) => badge(Tone::Bad, "not connected"),
        };
        lines.push(Line {
            what: format!("cluster {}", cluster.cluster),
            state,
            problem: cluster.problem.clone(),
        });
    }
    if let Some(tokens) = &gateway.tokens {
        let state = match tokens.count {
            Some(tokens) => count(tokens as u64, "token"),
            None => tokens.source.clone(),
        };
        lines.push(plain("tokens".to_owned(), state, &tokens.problem));
    }
    if let Some(accounts) = &gateway.accounts {
        let (users, clusters) = (
            count(accounts.users as u64, "user"),
            count(accounts.clusters as u64, "cluster"),
        );
        let state = format!("{users}, {clusters}");
        lines.push(plain("users and clusters".to_owned(), state, &accounts.problem));
    }
    for peer in gateway.peers.iter().flat_map(|peers| &peers.gateways) {
        let state = match peer.problem {
            None => badge(Tone::Good, "connected"),
            Some(_) => badge(Tone::Bad, "not connected"),
        };
        lines.push(Line {
            what: format!("gateway {}", peer.server),
            state,
            problem: peer.problem.clone(),
        });
    }
    lines
}

fn space(storage: &StorageStatus) -> Line {
    let limit = storage
        .limit
        .map(|limit| format!(" of {}", ByteSize(limit).display().iec()));
    Line {
        what: storage.name.clone(),
        state: html! {
            (ByteSize(storage.bytes).display().iec()) (limit.unwrap_or_default()) " in "
            (count(storage.files, "file")) ", " span.mono { (storage.directory.display()) }
        },
        problem: None,
    }
}
