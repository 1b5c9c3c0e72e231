use std::sync::Arc;

use admittance_bcs::{BcsConfig, SchedulersConfig, UpstreamKind};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};
use admittance_dialect::Dialect;
use admittance_gateway::GatewayConfig;

use super::{
    bcs::{self, BcsDialect},
    gateway::gateway,
    lists, rest, reviews, upstream,
    zookeeper::Ensembles,
};
use crate::config::{FrontConfig, ListConfig, ListenConfig, ReviewsConfig};

/// The content of `dialect`.
enum DialectConfig {
    Proxy(ProxyDialect),
    Gateway(Box<GatewayConfig>),
    Kubernetes(Box<ReviewsConfig>),
}

/// A dialect in front of an upstream.
enum ProxyDialect {
    Bcs(BcsDialect),
    Rest(Arc<dyn Dialect>),
}

pub(super) fn front(
    fields: &mut Fields<'_>,
    listen: &ListenConfig,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<(FrontConfig, Vec<ListConfig>)> {
    let has_cluster = fields.has("cluster");
    let dialect = fields.get_required(
        "dialect",
        "write `dialect: { bcs: { cluster: ... } }`, `rest: ...`, `kubernetes: {}` or `gateway: ...`",
        |node, mistakes| dialect(node, listen, ensembles, has_cluster, mistakes),
        mistakes,
    );
    let is_registered = matches!(
        dialect,
        None | Some(DialectConfig::Proxy(ProxyDialect::Bcs(_)) | DialectConfig::Gateway(_))
    );
    if !is_registered {
        let why = "only drivers of the dialect `bcs` and gateways are registered";
        fields.refuse("registration", why, "remove it", mistakes);
    }
    match dialect {
        Some(DialectConfig::Kubernetes(reviews)) => {
            let why = "the dialect `kubernetes` answers kube-apiserver and has no upstream";
            fields.refuse("upstream", why, "remove it", mistakes);
            Some((FrontConfig::Reviews(*reviews), Vec::new()))
        }
        Some(DialectConfig::Gateway(gateway)) => {
            let why = "a gateway finds drivers by their clusters";
            let fix = "write `dialect.gateway.clusters` or `discover`";
            fields.refuse("upstream", why, fix, mistakes);
            if gateway.accounts.is_none() {
                let why = "a gateway without `dialect.gateway.accounts` runs no chains";
                fields.refuse("definitions", why, "give them to the drivers behind it", mistakes);
            }
            let mut gateway = *gateway;
            gateway.registration = fields.get_optional(
                "registration",
                |node, mistakes| bcs::registration(node, None, listen, ensembles, mistakes),
                mistakes,
            );
            if gateway.peers.is_some() && !fields.has("registration") {
                let message = "other gateways find this one by its registration, which `dialect.gateway.peers` requires";
                let fix = "write `registration: { ip: 10.0.0.5 }`";
                fields.node().wrong(message, fix, mistakes);
            }
            Some((FrontConfig::Gateway(gateway), Vec::new()))
        }
        Some(DialectConfig::Proxy(dialect)) => proxy(fields, Some(dialect), listen, ensembles, mistakes),
        // The other sections are read nevertheless, for their mistakes.
        None => proxy(fields, None, listen, ensembles, mistakes),
    }
}

fn proxy(
    fields: &mut Fields<'_>,
    dialect: Option<ProxyDialect>,
    listen: &ListenConfig,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<(FrontConfig, Vec<ListConfig>)> {
    let cluster = match &dialect {
        Some(ProxyDialect::Bcs(bcs)) => Some(&bcs.cluster),
        _ => None,
    };
    let registration = fields.get_optional(
        "registration",
        |node, mistakes| bcs::registration(node, cluster, listen, ensembles, mistakes),
        mistakes,
    );
    let (servers, upstream, lists) = fields.get_required(
        "upstream",
        "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`, or `discover: {}` for schedulers of BCS",
        |node, mistakes| upstream::upstream(node, ensembles, mistakes),
        mistakes,
    )?;
    let front = match (dialect?, servers) {
        (ProxyDialect::Rest(dialect), SchedulersConfig::Listed(servers)) => FrontConfig::Proxy {
            dialect,
            servers,
            upstream,
        },
        (ProxyDialect::Rest(_), SchedulersConfig::Discovered(_)) => {
            let why = "only schedulers of BCS can be discovered";
            return refuse_discovery(fields, why, "write `servers`", mistakes);
        }
        (ProxyDialect::Bcs(bcs), servers) => {
            let behind = match (bcs.behind, &servers) {
                (None, SchedulersConfig::Listed(_)) => UpstreamKind::Driver,
                (None, SchedulersConfig::Discovered(_)) => UpstreamKind::Scheduler,
                (Some(UpstreamKind::Driver), SchedulersConfig::Discovered(_)) => {
                    let why =
                        "schedulers are discovered, and `dialect.bcs.behind` says that a driver is behind";
                    return refuse_discovery(
                        fields,
                        why,
                        "write `servers`, or `behind: scheduler`",
                        mistakes,
                    );
                }
                (Some(behind), _) => behind,
            };
            FrontConfig::Bcs(BcsConfig {
                cluster: bcs.cluster,
                behind,
                servers,
                upstream,
                console: bcs.console,
                custom_resources: bcs.custom_resources,
                registration,
            })
        }
    };
    let lists = lists::checked(lists, &front, mistakes)?;
    Some((front, lists))
}

/// Refuses `upstream.discover`.
fn refuse_discovery(
    fields: &mut Fields<'_>,
    why: &str,
    fix: &str,
    mistakes: &mut Mistakes,
) -> Option<(FrontConfig, Vec<ListConfig>)> {
    let mut upstream = fields.optional("upstream")?.object(mistakes)?;
    upstream.optional("discover")?.wrong(why, fix, mistakes);
    None
}

fn dialect(
    node: &Node<'_>,
    listen: &ListenConfig,
    ensembles: Ensembles,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<DialectConfig> {
    let mut fields = node.object(mistakes)?;
    let dialects = fields.present(&["bcs", "rest", "kubernetes", "gateway"]);
    fields.finish(mistakes);
    match dialects.as_slice() {
        [("bcs", node)] => {
            let bcs = bcs::dialect(node, has_cluster, mistakes)?;
            Some(DialectConfig::Proxy(ProxyDialect::Bcs(bcs)))
        }
        [("rest", node)] => {
            let rest = rest::dialect(node, mistakes)?;
            Some(DialectConfig::Proxy(ProxyDialect::Rest(Arc::new(rest))))
        }
        [("kubernetes", node)] => {
            let reviews = reviews::reviews(node, listen, has_cluster, mistakes)?;
            Some(DialectConfig::Kubernetes(Box::new(reviews)))
        }
        [("gateway", node)] => {
            let gateway = gateway(node, listen, ensembles, mistakes)?;
            Some(DialectConfig::Gateway(Box::new(gateway)))
        }
        [] => {
            let fix = "write `bcs: { cluster: ... }`, `rest: { routes: [ ... ] }`, `kubernetes: {}` or `gateway: { discover: {} }`";
            node.wrong("no dialect is configured", fix, mistakes);
            None
        }
        _ => {
            let fix = "keep one of `bcs`, `rest`, `kubernetes` and `gateway`";
            node.wrong("several dialects are configured", fix, mistakes);
            None
        }
    }
}
