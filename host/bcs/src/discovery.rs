//! Follows the registrations of servers in ZooKeeper, so that the list of an upstream's servers stays up to date.

use std::sync::Arc;

use admittance_net::upstream::{FollowedServer, FollowedServers, UpstreamServer};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    metric_names,
    server_info::ServerInfo,
    status::DiscoveryStatus,
    zookeeper::{ChildList, FollowedChildren, NodePath, RegisteredMember, ZooKeeper},
};

/// A list of the servers that register below a node. It is kept up to date until all clones of this are dropped.
#[derive(Clone, Debug)]
pub struct Discovery {
    path: NodePath,
    servers: watch::Receiver<Arc<FollowedServers>>,
    _task: Arc<AbortOnDropHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The servers are schedulers. Only the first of them, which is the master, serves requests. Requests go to the
    /// internal address of the master.
    Schedulers,
    /// Drivers, any of which can serve a request. Requests go to a driver's external address if it has one.
    Drivers,
    /// Gateways, any of which can serve a request. Requests go to the internal address of a gateway.
    Gateways,
}

impl Discovery {
    /// Starts to follow the servers that register below this node of an ensemble.
    pub fn start(zookeeper: &ZooKeeper, path: NodePath, kind: ServerKind) -> Self {
        let members = zookeeper.members(path.as_str());
        let (sender, servers) = watch::channel(Arc::new(FollowedServers::default()));
        let following = tokio::spawn(follow(members, path.clone(), kind, sender));
        Self {
            path,
            servers,
            _task: Arc::new(AbortOnDropHandle::new(following)),
        }
    }

    pub fn status(&self) -> DiscoveryStatus {
        let servers = self.servers.borrow().clone();
        DiscoveryStatus {
            path: self.path.to_string(),
            known: servers.is_known,
            registrations: servers.servers.iter().map(|server| server.name.clone()).collect(),
            problem: servers.stale_reason.clone(),
        }
    }

    pub fn servers(&self) -> watch::Receiver<Arc<FollowedServers>> {
        self.servers.clone()
    }
}

async fn follow(
    mut members: FollowedChildren<RegisteredMember>,
    path: NodePath,
    kind: ServerKind,
    sender: watch::Sender<Arc<FollowedServers>>,
) {
    let count = gauge!(metric_names::DISCOVERED, "path" => path.to_string());
    loop {
        let now = followed_servers(&members.borrow(), &path, kind);
        let before = sender.borrow().clone();
        if *before != now {
            log_change(&before, &now, &path, kind);
            count.set(u32::try_from(now.servers.len()).unwrap_or(u32::MAX));
            sender.send_replace(Arc::new(now));
        }
        members.changed().await;
    }
}

fn followed_servers(members: &ChildList<RegisteredMember>, path: &NodePath, kind: ServerKind) -> FollowedServers {
    let server = |member: &RegisteredMember| match parse_server(member, kind) {
        Ok(server) => Some(FollowedServer {
            name: member.name.clone(),
            server,
        }),
        Err(reason) => {
            tracing::warn!(%path, node = member.name, reason, "a registered server has no usable address");
            None
        }
    };
    FollowedServers {
        servers: members.children.iter().filter_map(server).collect(),
        is_known: members.is_read,
        stale_reason: members.stale_reason.clone(),
    }
}

fn parse_server(member: &RegisteredMember, kind: ServerKind) -> Result<UpstreamServer, String> {
    let info: ServerInfo = serde_json::from_slice(&member.data).map_err(|error| error.to_string())?;
    let server = match kind {
        ServerKind::Schedulers | ServerKind::Gateways => info.server(),
        ServerKind::Drivers => info.external_server(),
    };
    server.map_err(|error| error.to_string())
}

fn log_change(before: &FollowedServers, now: &FollowedServers, path: &NodePath, kind: ServerKind) {
    match (&before.stale_reason, &now.stale_reason) {
        (None, Some(reason)) if now.is_known => {
            tracing::warn!(%path, reason, "discovery is stale: the last known servers are used");
        }
        (Some(_), None) if before.is_known => tracing::info!(%path, "discovery is up to date again"),
        _ => {}
    }
    if before.servers == now.servers && before.is_known == now.is_known {
        return;
    }
    let (old, new) = (before.servers.first(), now.servers.first());
    match kind {
        ServerKind::Schedulers if old != new => {
            counter!(metric_names::MASTER_CHANGES, "path" => path.to_string()).increment(1);
            match new {
                Some(master) => {
                    tracing::info!(%path, master = %master.server, node = master.name, "requests now go to this scheduler");
                }
                None => tracing::warn!(%path, "no scheduler is registered"),
            }
        }
        ServerKind::Schedulers | ServerKind::Drivers | ServerKind::Gateways => {
            tracing::info!(%path, servers = now.servers.len(), "the registered servers have changed");
        }
    }
}
