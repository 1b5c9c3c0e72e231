//! The services of BCS that are not drivers of Mesos clusters: other servers behind bcs-api, and the drivers of
//! Kubernetes clusters. All are found in ZooKeeper. Only users who may use every cluster can use the other servers.

use std::{collections::BTreeMap, sync::Arc};

use admittance_bcs::{
    ClusterId,
    discovery::{Discovery, ServerKind},
    routes::Permission,
    zookeeper::{NodePath, ZooKeeper},
};
use admittance_net::upstream::{Servers, Upstream, UpstreamConfig};
use http::{Method, header::UPGRADE, request::Parts};

use crate::{
    clusters::{ClusterDrivers, Clusters},
    error::GatewayError,
    path,
};

/// The ZooKeeper node below which all programs of BCS register.
const ENDPOINTS_NODE: &str = "/bcs/services/endpoints";

/// A service of BCS: its path prefix at the gateway, the ZooKeeper node of its servers, and its prefix at the servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceRoute {
    gateway_prefix: &'static str,
    node: &'static str,
    server_prefix: &'static str,
}

const fn route(gateway_prefix: &'static str, node: &'static str, server_prefix: &'static str) -> ServiceRoute {
    ServiceRoute {
        gateway_prefix,
        node,
        server_prefix,
    }
}

const SERVICE_ROUTES: [ServiceRoute; 5] = [
    route("/bcsapi/v4/storage", "storage", "/bcsstorage/v1"),
    route("/bcsapi/v4/detection", "networkdetection", "/detection/v4"),
    route("/bcsapi/v4/metric", "metricservice", "/api/v1/metric"),
    route("/bcsapi/v4/netservice", "netservice", "/v1"),
    route("/bcsapi/v4/clusterkeeper", "clusterkeeper", "/bcsclusterkeeper/v1"),
];
/// The route to the drivers of Kubernetes clusters. Each cluster has its own node below `kubernetedriver`.
const KUBERNETES_ROUTE: ServiceRoute = route("/bcsapi/v4/scheduler/k8s", "kubernetedriver", "/k8sdriver/v4");

/// The name that stands in permissions for every cluster. No cluster has this name.
pub(super) const EVERY_CLUSTER: &str = "*";

#[derive(Debug)]
pub(super) struct Services {
    services: Vec<(ServiceRoute, Arc<ClusterDrivers>)>,
    kubernetes: Clusters,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ServiceTarget<'a> {
    Service(ServiceRoute, &'a Arc<ClusterDrivers>),
    /// The driver of the Kubernetes cluster that the header names.
    KubernetesDriver,
}

impl Services {
    pub(super) fn start(config: &UpstreamConfig, zookeeper: &ZooKeeper) -> Self {
        let config = UpstreamConfig {
            // The configured health check fits only drivers of Mesos clusters, so it is not used for other servers.
            health: None,
            ..config.clone()
        };
        let services = SERVICE_ROUTES.iter().filter_map(|route| {
            let (id, node) = (ClusterId::from_node_name(route.node).ok()?, node_of_route(*route)?);
            let discovery = Discovery::start(zookeeper, node, ServerKind::Gateways);
            let servers = Servers::Followed(discovery.servers());
            Some((*route, ClusterDrivers::new(&config, id, servers, Some(discovery))))
        });
        Self {
            services: services.collect(),
            kubernetes: {
                let kubernetes_discovery = node_of_route(KUBERNETES_ROUTE).map(|node| (node, zookeeper));
                Clusters::with_discovery(&config, BTreeMap::new(), kubernetes_discovery, false)
            },
        }
    }

    pub(super) fn find(&self, path: &str) -> Option<ServiceTarget<'_>> {
        let is_below = |route: &ServiceRoute| {
            path.strip_prefix(route.gateway_prefix)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        if is_below(&KUBERNETES_ROUTE) {
            return Some(ServiceTarget::KubernetesDriver);
        }
        let matching_service = self.services.iter().find(|(route, _)| is_below(route));
        matching_service.map(|(route, drivers)| ServiceTarget::Service(*route, drivers))
    }

    pub(super) fn registered_drivers(
        route: ServiceRoute,
        drivers: &Arc<ClusterDrivers>,
    ) -> Result<Arc<ClusterDrivers>, GatewayError> {
        match drivers.no_driver_reason() {
            None => Ok(drivers.clone()),
            Some(_) => Err(GatewayError::NoService(route.node.to_owned())),
        }
    }

    pub(super) async fn kubernetes_driver(&self, cluster: &str) -> Result<Arc<ClusterDrivers>, GatewayError> {
        let drivers = self.kubernetes.find(cluster).await;
        drivers.map_err(|_| GatewayError::NoService(format!("{} for {cluster}", KUBERNETES_ROUTE.node)))
    }

    pub(super) fn upstreams(&self) -> impl Iterator<Item = Upstream> + '_ {
        let drivers: Vec<_> = self
            .kubernetes
            .current_clusters()
            .clusters
            .values()
            .map(|drivers| drivers.upstream.clone())
            .collect();
        let services = self.services.iter().map(|(_, service)| service.upstream.clone());
        services.chain(drivers)
    }
}

impl ServiceTarget<'_> {
    fn route(&self) -> ServiceRoute {
        match self {
            Self::Service(route, _) => *route,
            Self::KubernetesDriver => KUBERNETES_ROUTE,
        }
    }

    /// Replaces the path of a client's request with the path that the servers of BCS expect. Returns the permission
    /// that the request needs.
    pub(super) fn rewrite(&self, head: &mut Parts) -> Result<Permission, GatewayError> {
        let ServiceRoute {
            gateway_prefix,
            server_prefix,
            ..
        } = self.route();
        head.uri = path::rewrite_prefix(&head.uri, gateway_prefix, server_prefix)?.into();
        let is_kubernetes = matches!(self, Self::KubernetesDriver);
        let is_method = [Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(&head.method)
            || (is_kubernetes && head.method == Method::PATCH);
        if !is_method {
            return Err(GatewayError::Method);
        }
        let is_read = head.method == Method::GET && !head.headers.contains_key(UPGRADE);
        Ok(match (is_read, is_kubernetes) {
            (true, _) => Permission::Read,
            (false, false) => Permission::Write,
            // The driver of a Kubernetes cluster can change anything in the cluster. So every request to it that is not
            // a read needs the highest permission.
            (false, true) => Permission::Hooks,
        })
    }
}

fn node_of_route(route: ServiceRoute) -> Option<NodePath> {
    format!("{ENDPOINTS_NODE}/{}", route.node).parse().ok()
}
