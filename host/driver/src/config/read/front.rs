use std::sync::Arc;

use admittance::dialect::{Bcs, Cluster, Dialect};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};

use super::{only, rest, upstream};
use crate::config::FrontConfig;

/// What `dialect` says: of a proxy, or of a webhook server.
enum DialectConfig {
    Proxy(Arc<dyn Dialect>),
    Kubernetes,
}

pub(super) fn front(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<FrontConfig> {
    let dialect = fields
        .required(
            "dialect",
            "write `dialect: { bcs: { cluster: ... } }`, `rest: ...` or `kubernetes: {}`",
            mistakes,
        )
        .and_then(|node| dialect(&node, mistakes));
    if let Some(DialectConfig::Kubernetes) = dialect {
        fields.refuse(
            "upstream",
            "the dialect `kubernetes` answers kube-apiserver and has no upstream",
            "remove it",
            mistakes,
        );
        return Some(FrontConfig::Reviews);
    }
    let upstream = fields
        .required(
            "upstream",
            "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`",
            mistakes,
        )
        .and_then(|node| upstream::upstream(&node, mistakes));
    match dialect? {
        DialectConfig::Kubernetes => Some(FrontConfig::Reviews),
        DialectConfig::Proxy(dialect) => Some(FrontConfig::Proxy {
            dialect,
            upstream: upstream?,
        }),
    }
}

fn dialect(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<DialectConfig> {
    let mut fields = node.object(mistakes)?;
    let (bcs, rest, kubernetes) = (
        fields.optional("bcs"),
        fields.optional("rest"),
        fields.optional("kubernetes"),
    );
    fields.finish(mistakes);
    match (bcs, rest, kubernetes) {
        (Some(bcs), None, None) => {
            let cluster = only(&bcs, "cluster", "name the cluster, BCS-MESOS-10001", mistakes)?;
            let cluster = cluster.parse_with(Cluster::new, mistakes)?;
            Some(DialectConfig::Proxy(Arc::new(Bcs::new(cluster))))
        }
        (None, Some(rest), None) => Some(DialectConfig::Proxy(Arc::new(rest::dialect(&rest, mistakes)?))),
        (None, None, Some(kubernetes)) => {
            kubernetes.object(mistakes)?.finish(mistakes);
            Some(DialectConfig::Kubernetes)
        }
        (None, None, None) => {
            node.wrong(
                "there is no dialect",
                "write `bcs: { cluster: ... }`, `rest: { routes: [ ... ] }` or `kubernetes: {}`",
                mistakes,
            );
            None
        }
        _ => {
            node.wrong(
                "there are several dialects",
                "keep one of `bcs`, `rest` and `kubernetes`",
                mistakes,
            );
            None
        }
    }
}
