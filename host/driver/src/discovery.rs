//! Servers that are registered in ZooKeeper, as an upstream takes them.

use std::sync::Arc;

use admittance_net::upstream::{FollowedServer, FollowedServers, InvalidServer, Server};
use admittance_zookeeper::{Member, MemberList, Members, ZooKeeper};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{config::NodePath, metric_names, server_info::ServerInfo};

/// The servers that are registered below a node. They are followed until this is dropped, and every clone.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    path: NodePath,
    servers: watch::Receiver<Arc<FollowedServers>>,
    _following: Arc<AbortOnDropHandle<()>>,
}

/// Whose registrations they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// Schedulers, of which the first is the master. They are reached as their own network reaches them.
    Schedulers,
    /// Drivers, all alike. They are reached from outside, where they say how.
    Drivers,
}

impl Discovery {
    /// Follow who is registered below this node of the ensemble.
    pub(crate) fn start(zookeeper: &ZooKeeper, path: NodePath, registered: Registered) -> Self {
        let members = zookeeper.members(path.as_str());
        let (sender, servers) = watch::channel(Arc::new(FollowedServers::default()));
        let following = tokio::spawn(follow(members, path.clone(), registered, sender));
        Self {
            path,
            servers,
            _following: Arc::new(AbortOnDropHandle::new(following)),
        }
    }

    /// Where they register.
    pub(crate) fn path(&self) -> &NodePath {
        &self.path
    }

    /// The servers, to be followed.
    pub(crate) fn servers(&self) -> watch::Receiver<Arc<FollowedServers>> {
        self.servers.clone()
    }
}

async fn follow(
    mut members: Members,
    path: NodePath,
    registered: Registered,
    sender: watch::Sender<Arc<FollowedServers>>,
) {
    let count = gauge!(metric_names::DISCOVERED, "path" => path.to_string());
    loop {
        let now = servers(&members.borrow(), &path, registered);
        let before = sender.borrow().clone();
        if *before != now {
            tell(&before, &now, &path, registered);
            count.set(u32::try_from(now.servers.len()).unwrap_or(u32::MAX));
            sender.send_replace(Arc::new(now));
        }
        members.changed().await;
    }
}

/// What the members of a node say, as servers. One that cannot be read is left out.
fn servers(members: &MemberList, path: &NodePath, registered: Registered) -> FollowedServers {
    let server = |member: &Member| match read(member, registered) {
        Ok(server) => Some(FollowedServer {
            name: member.name.clone(),
            server,
        }),
        Err(reason) => {
            tracing::warn!(%path, node = member.name, reason, "a server that is registered says not where it is");
            None
        }
    };
    FollowedServers {
        servers: members.members.iter().filter_map(server).collect(),
        is_known: members.is_read,
        lost: members.lost.clone(),
    }
}

fn read(member: &Member, registered: Registered) -> Result<Server, String> {
    let info: ServerInfo = serde_json::from_slice(&member.data).map_err(|error| error.to_string())?;
    let server = match registered {
        Registered::Schedulers => info.server(),
        Registered::Drivers => info.server_from_outside(),
    };
    server.map_err(|error: InvalidServer| error.to_string())
}

fn tell(before: &FollowedServers, now: &FollowedServers, path: &NodePath, registered: Registered) {
    match (&before.lost, &now.lost) {
        (None, Some(reason)) if now.is_known => {
            tracing::warn!(%path, reason, "who is registered is not known for sure any more; what was known last holds");
        }
        (Some(_), None) if before.is_known => tracing::info!(%path, "who is registered is known again"),
        _ => {}
    }
    if before.servers == now.servers && before.is_known == now.is_known {
        return;
    }
    let (old, new) = (before.servers.first(), now.servers.first());
    match registered {
        Registered::Schedulers if old != new => {
            counter!(metric_names::MASTER_CHANGES, "path" => path.to_string()).increment(1);
            match new {
                Some(master) => {
                    tracing::info!(%path, master = %master.server, node = master.name, "requests go to this scheduler from now on");
                }
                None => tracing::warn!(%path, "no scheduler is registered"),
            }
        }
        Registered::Schedulers | Registered::Drivers => {
            tracing::info!(%path, servers = now.servers.len(), "other servers are registered than before");
        }
    }
}
