//! The clusters that a gateway knows from its configuration and from ZooKeeper, and their drivers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use admittance_bcs::{
    ClusterId,
    discovery::{Discovery, ServerKind},
    zookeeper::{ChildList, FollowedChildren, NodePath, ZooKeeper},
};
use admittance_net::upstream::{Choice, FollowedServers, Servers, Upstream, UpstreamConfig};
use metrics::gauge;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{config::GatewayConfig, consoles::Hosts, error::GatewayError};
use crate::{metric_names, status::GatewayCluster};

/// The clusters that the configuration lists, and the clusters that are discovered in ZooKeeper. Dropping this value
/// ends the discovery.
#[derive(Debug)]
pub(super) struct Clusters {
    known_clusters: watch::Receiver<Arc<KnownClusters>>,
    path: Option<NodePath>,
    /// The longest time that a request waits until the list of clusters is read for the first time.
    wait: Duration,
    _watch: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Default)]
pub(super) struct KnownClusters {
    pub(super) clusters: BTreeMap<ClusterId, Arc<ClusterDrivers>>,
    pub(super) is_known: bool,
    pub(super) stale_reason: Option<String>,
    is_counted: bool,
}

impl KnownClusters {
    fn update_metric(&self) {
        if self.is_counted {
            let count = u32::try_from(self.clusters.len()).unwrap_or(u32::MAX);
            gauge!(metric_names::GATEWAY_CLUSTERS).set(count);
        }
    }
}

/// The drivers of one cluster. They live as long as the cluster is known or a request to them is in flight.
#[derive(Debug)]
pub(super) struct ClusterDrivers {
    pub(super) id: ClusterId,
    pub(super) upstream: Upstream,
    discovery: Option<Discovery>,
    pub(super) hosts: Hosts,
    _checking: Option<AbortOnDropHandle<()>>,
}

impl ClusterDrivers {
    pub(super) fn new(
        config: &UpstreamConfig,
        id: ClusterId,
        servers: Servers,
        discovery: Option<Discovery>,
    ) -> Arc<Self> {
        let upstream = Upstream::new(servers, Choice::LeastLoaded, config.clone());
        let checking = config.health.is_some().then(|| {
            let upstream = upstream.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { upstream.check_health().await }))
        });
        Arc::new(Self {
            id,
            upstream,
            discovery,
            hosts: Hosts::default(),
            _checking: checking,
        })
    }

    pub(super) fn no_driver_reason(&self) -> Option<&'static str> {
        let servers = self.followed_servers()?;
        (servers.is_known && servers.servers.is_empty()).then_some("no driver of it is registered")
    }

    fn followed_servers(&self) -> Option<Arc<FollowedServers>> {
        Some(self.discovery.as_ref()?.servers().borrow().clone())
    }

    pub(super) fn status(&self) -> GatewayCluster {
        GatewayCluster {
            cluster: self.id.to_string(),
            drivers: self.upstream.health().into_iter().map(Into::into).collect(),
            problem: self.problem(),
        }
    }

    fn problem(&self) -> Option<String> {
        let servers = self.followed_servers()?;
        match (&servers.stale_reason, self.no_driver_reason()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some(no_driver)) => Some(no_driver.to_owned()),
            (None, None) if servers.is_known => None,
            (None, None) => Some("the registered drivers are not known yet".to_owned()),
        }
    }
}

impl Clusters {
    pub(super) fn start(config: &GatewayConfig, service: Option<&ZooKeeper>) -> Self {
        let listed_clusters = config.clusters.iter().map(|(id, servers)| {
            let servers = Servers::Listed(servers.clone());
            (
                id.clone(),
                ClusterDrivers::new(&config.drivers, id.clone(), servers, None),
            )
        });
        Self::with_discovery(
            &config.drivers,
            listed_clusters.collect(),
            config.discovery.clone().zip(service),
            true,
        )
    }

    pub(super) fn with_discovery(
        drivers: &UpstreamConfig,
        listed_clusters: BTreeMap<ClusterId, Arc<ClusterDrivers>>,
        discovery: Option<(NodePath, &ZooKeeper)>,
        is_counted: bool,
    ) -> Self {
        let known_clusters = KnownClusters {
            clusters: listed_clusters,
            is_known: discovery.is_none(),
            stale_reason: None,
            is_counted,
        };
        known_clusters.update_metric();
        let wait = drivers.connect_timeout;
        let (sender, receiver) = watch::channel(Arc::new(known_clusters));
        let watch = discovery.as_ref().map(|(path, zookeeper)| {
            let watch = ClusterFollower {
                zookeeper: (*zookeeper).clone(),
                children: zookeeper.children(path.as_str()),
                path: path.clone(),
                config: drivers.clone(),
                sender,
            };
            AbortOnDropHandle::new(tokio::spawn(watch.run()))
        });
        Self {
            known_clusters: receiver,
            path: discovery.map(|(path, _)| path),
            wait,
            _watch: watch,
        }
    }

    /// Returns the drivers of this cluster. Waits up to `wait` until the list of clusters is read for the first time.
    pub(super) async fn find(&self, id: &str) -> Result<Arc<ClusterDrivers>, GatewayError> {
        let mut receiver = self.known_clusters.clone();
        let is_decided = |list: &Arc<KnownClusters>| list.is_known || list.clusters.contains_key(id);
        // `wait_for` fails only if the task that follows the list of clusters has ended. Then the last list is used.
        let _ = tokio::time::timeout(self.wait, receiver.wait_for(is_decided)).await;
        let current = self.current_clusters();
        let reason = match current.clusters.get(id) {
            Some(drivers) => match drivers.no_driver_reason() {
                None => return Ok(drivers.clone()),
                Some(reason) => reason,
            },
            None if current.is_known => "",
            None => "the clusters have not been read from ZooKeeper yet",
        };
        Err(GatewayError::UnknownCluster {
            cluster: id.to_owned(),
            reason: reason.to_owned(),
        })
    }

    pub(super) fn current_clusters(&self) -> Arc<KnownClusters> {
        self.known_clusters.borrow().clone()
    }

    pub(super) fn path(&self) -> Option<&NodePath> {
        self.path.as_ref()
    }
}

struct ClusterFollower {
    zookeeper: ZooKeeper,
    children: FollowedChildren<String>,
    path: NodePath,
    config: UpstreamConfig,
    sender: watch::Sender<Arc<KnownClusters>>,
}

impl ClusterFollower {
    async fn run(mut self) {
        loop {
            let now = self.known_clusters(&self.children.borrow());
            let before = self.sender.send_replace(Arc::new(now));
            self.log_change(&before);
            self.children.changed().await;
        }
    }

    /// Returns all clusters: those in the configuration, and those that have a node in ZooKeeper. `names` contains the
    /// names of these nodes. If a cluster was known before, its drivers stay the same.
    fn known_clusters(&self, names: &ChildList<String>) -> KnownClusters {
        let before = self.sender.borrow().clone();
        let listed_clusters = before
            .clusters
            .iter()
            .filter(|(_, drivers)| drivers.discovery.is_none());
        let mut clusters: BTreeMap<_, _> = listed_clusters
            .map(|(id, drivers)| (id.clone(), drivers.clone()))
            .collect();
        // Each cluster has a node whose name is the ID of the cluster. Drivers can register next to these nodes, so
        // names that are not IDs of clusters are skipped.
        for id in names
            .children
            .iter()
            .filter_map(|name| ClusterId::from_node_name(name).ok())
        {
            let Ok(path) = self.path.child(id.as_str()) else {
                continue;
            };
            clusters.entry(id.clone()).or_insert_with(|| {
                before.clusters.get(&id).cloned().unwrap_or_else(|| {
                    let discovery = Discovery::start(&self.zookeeper, path, ServerKind::Drivers);
                    let servers = Servers::Followed(discovery.servers());
                    ClusterDrivers::new(&self.config, id, servers, Some(discovery))
                })
            });
        }
        KnownClusters {
            clusters,
            is_known: names.is_read,
            stale_reason: names.stale_reason.clone(),
            is_counted: before.is_counted,
        }
    }

    fn log_change(&self, before: &KnownClusters) {
        let path = &self.path;
        let now = self.sender.borrow();
        now.update_metric();
        match (&before.stale_reason, &now.stale_reason) {
            (None, Some(reason)) if now.is_known => {
                tracing::warn!(%path, reason, "discovery of clusters is stale: the last known clusters are used");
            }
            (Some(_), None) if before.is_known => {
                tracing::info!(%path, "discovery of clusters is up to date again")
            }
            _ => {}
        }
        for cluster in now.clusters.keys().filter(|id| !before.clusters.contains_key(*id)) {
            tracing::info!(%path, %cluster, "cluster added");
        }
        for cluster in before.clusters.keys().filter(|id| !now.clusters.contains_key(*id)) {
            tracing::warn!(%path, %cluster, "cluster removed");
        }
    }
}
