use std::sync::Arc;

use admittance_bcs::{BcsConfig, GatewayConfig, SchedulersConfig, UpstreamKind};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};
use admittance_dialect::Dialect;

use super::{
    bcs::{self, BcsDialect},
    gateway::gateway,
    rest, upstream,
    zookeeper::Ensembles,
};
use crate::config::{FrontConfig, ListenConfig};

/// The content of `dialect`: a proxy, a webhook server, or a gateway.
enum DialectConfig {
    Bcs(BcsDialect),
    Rest(Arc<dyn Dialect>),
    Kubernetes,
    Gateway(Box<GatewayConfig>),
}

pub(super) fn front(
    fields: &mut Fields<'_>,
    listen: Option<&ListenConfig>,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<FrontConfig> {
    let has_cluster = fields.has("cluster");
    let dialect = fields.get_required(
        "dialect",
        "write `dialect: { bcs: { cluster: ... } }`, `rest: ...`, `kubernetes: {}` or `gateway: ...`",
        |node, mistakes| dialect(node, ensembles, has_cluster, mistakes),
        mistakes,
    );
    if let Some(DialectConfig::Rest(_) | DialectConfig::Kubernetes | DialectConfig::Gateway(_)) = dialect {
        fields.refuse(
            "registration",
            "only drivers of the dialect `bcs` are registered",
            "remove it",
            mistakes,
        );
    }
    if let Some(DialectConfig::Kubernetes) = dialect {
        fields.refuse(
            "upstream",
            "the dialect `kubernetes` answers kube-apiserver and has no upstream",
            "remove it",
            mistakes,
        );
        return Some(FrontConfig::Reviews);
    }
    if let Some(DialectConfig::Gateway(gateway)) = dialect {
        let why = "a gateway finds drivers by their clusters";
        fields.refuse(
            "upstream",
            why,
            "write `dialect.gateway.clusters` or `discover`",
            mistakes,
        );
        let why = "a gateway runs no chains";
        fields.refuse("definitions", why, "give them to the drivers behind it", mistakes);
        return Some(FrontConfig::Gateway(*gateway));
    }
    let cluster = match &dialect {
        Some(DialectConfig::Bcs(bcs)) => Some(&bcs.cluster),
        _ => None,
    };
    let registration = super::if_there(fields.optional("registration"), mistakes, |node, mistakes| {
        bcs::registration(node, cluster, listen, ensembles, mistakes)
    });
    let upstream_node = fields.required(
        "upstream",
        "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`, or `discover: {}` for schedulers of BCS",
        mistakes,
    );
    let upstream = upstream_node
        .as_ref()
        .and_then(|node| upstream::upstream(node, ensembles, mistakes));
    match (dialect?, upstream_node, upstream?) {
        (DialectConfig::Kubernetes, ..) => Some(FrontConfig::Reviews),
        (DialectConfig::Gateway(gateway), ..) => Some(FrontConfig::Gateway(*gateway)),
        (DialectConfig::Rest(dialect), _, (SchedulersConfig::Listed(servers), upstream)) => {
            Some(FrontConfig::Proxy {
                dialect,
                servers,
                upstream,
            })
        }
        (DialectConfig::Rest(_), node, (SchedulersConfig::Discovered(_), _)) => {
            let fix = "write `servers`";
            undiscovered(node, "only schedulers of BCS can be discovered", fix, mistakes)
        }
        (DialectConfig::Bcs(bcs), node, (servers, upstream)) => {
            let behind = match (bcs.behind, &servers) {
                (None, SchedulersConfig::Listed(_)) => UpstreamKind::Driver,
                (None, SchedulersConfig::Discovered(_)) => UpstreamKind::Scheduler,
                (Some(UpstreamKind::Driver), SchedulersConfig::Discovered(_)) => {
                    let why =
                        "schedulers are discovered, and `dialect.bcs.behind` says that a driver is behind";
                    return undiscovered(node, why, "write `servers`, or `behind: scheduler`", mistakes);
                }
                (Some(behind), _) => behind,
            };
            Some(FrontConfig::Bcs(BcsConfig {
                cluster: bcs.cluster,
                behind,
                servers,
                upstream,
                console: bcs.console.unwrap_or_default(),
                custom_resources: bcs.custom_resources,
                registration: registration?,
            }))
        }
    }
}

/// Refuses `upstream.discover`.
fn undiscovered(
    upstream: Option<Node<'_>>,
    why: &str,
    fix: &str,
    mistakes: &mut Mistakes,
) -> Option<FrontConfig> {
    if let Some(discover) = upstream?.object(mistakes)?.optional("discover") {
        discover.wrong(why, fix, mistakes);
    }
    None
}

fn dialect(
    node: &Node<'_>,
    ensembles: Ensembles,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<DialectConfig> {
    let mut fields = node.object(mistakes)?;
    let (bcs, rest, kubernetes, gateway_node) = (
        fields.optional("bcs"),
        fields.optional("rest"),
        fields.optional("kubernetes"),
        fields.optional("gateway"),
    );
    fields.finish(mistakes);
    match (bcs, rest, kubernetes, gateway_node) {
        (Some(bcs), None, None, None) => bcs::dialect(&bcs, has_cluster, mistakes).map(DialectConfig::Bcs),
        (None, Some(rest), None, None) => {
            Some(DialectConfig::Rest(Arc::new(rest::dialect(&rest, mistakes)?)))
        }
        (None, None, None, Some(node)) => {
            gateway(&node, ensembles, mistakes).map(|gateway| DialectConfig::Gateway(Box::new(gateway)))
        }
        (None, None, Some(kubernetes), None) => {
            kubernetes.object(mistakes)?.finish(mistakes);
            Some(DialectConfig::Kubernetes)
        }
        (None, None, None, None) => {
            node.wrong(
                "no dialect is configured",
                "write `bcs: { cluster: ... }`, `rest: { routes: [ ... ] }`, `kubernetes: {}` or `gateway: { discover: {} }`",
                mistakes,
            );
            None
        }
        _ => {
            node.wrong(
                "several dialects are configured",
                "keep one of `bcs`, `rest`, `kubernetes` and `gateway`",
                mistakes,
            );
            None
        }
    }
}
