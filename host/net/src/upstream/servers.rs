use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
    vec::IntoIter,
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{UpstreamServer, health::UpstreamHealth};

/// The servers of an upstream.
#[derive(Clone, Debug)]
pub enum Servers {
    Listed(Vec<UpstreamServer>),
    /// The servers that register themselves. The receiver gets a new list whenever the servers change. If it gets no
    /// more lists, the servers in the last list are used.
    Followed(watch::Receiver<Arc<FollowedServers>>),
}

/// The registered servers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedServers {
    /// The registered servers in the order of their registration. The first is the master.
    pub servers: Vec<FollowedServer>,
    /// Whether the list of servers was read. Before that, the list is empty, and requests wait.
    pub is_known: bool,
    /// The reason why the list of servers may be out of date; `None` if it is current.
    pub stale_reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedServer {
    /// The name of the server's registration. It changes when the server registers again.
    pub name: String,
    pub server: UpstreamServer,
}

/// The order in which a request tries the servers of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The servers take turns (round robin): each request begins with the server after the one with which the previous
    /// request began. Servers that are down come last.
    Turns,
    /// The servers register themselves, and the server that registered first is the master. Only the master is tried.
    /// If it refuses the connection, the request waits for a new master, up to the connect timeout. If the servers are
    /// configured instead, they are tried in their order.
    Master,
    /// The server with the fewest requests in flight from this program comes first. Servers that are down come last.
    LeastLoaded,
}

#[derive(Debug)]
pub(super) struct ServerTarget {
    pub(super) server: UpstreamServer,
    pub(super) health: UpstreamHealth,
    /// The name of the server's registration; empty if the server is configured.
    name: String,
    in_flight: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct InFlightGuard(Arc<ServerTarget>);

impl ServerTarget {
    fn new(server: UpstreamServer, name: String) -> Arc<Self> {
        Arc::new(Self {
            server,
            health: UpstreamHealth::default(),
            name,
            in_flight: AtomicUsize::new(0),
        })
    }

    pub(super) fn enter(self: &Arc<Self>) -> InFlightGuard {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct ServerSet {
    pub(super) choice: Choice,
    turn: AtomicUsize,
    followed: Option<watch::Receiver<Arc<FollowedServers>>>,
    known_servers: Mutex<KnownServers>,
}

#[derive(Debug)]
struct KnownServers {
    /// The registered servers from which `targets` was made; `None` if the servers are configured.
    source: Option<Arc<FollowedServers>>,
    targets: Arc<[Arc<ServerTarget>]>,
}

impl ServerSet {
    pub(super) fn new(servers: Servers, choice: Choice) -> Self {
        let (initial_servers, followed) = match servers {
            Servers::Listed(servers) => (servers, None),
            Servers::Followed(followed) => (Vec::new(), Some(followed)),
        };
        let targets = initial_servers
            .into_iter()
            .map(|server| ServerTarget::new(server, String::new()));
        Self {
            choice,
            turn: AtomicUsize::new(0),
            followed,
            known_servers: Mutex::new(KnownServers {
                source: None,
                targets: targets.collect(),
            }),
        }
    }

    pub(super) fn targets(&self) -> Arc<[Arc<ServerTarget>]> {
        let mut known_servers = self.known_servers.lock();
        if let Some(followed) = &self.followed {
            let followed = followed.borrow().clone();
            if !known_servers
                .source
                .as_ref()
                .is_some_and(|source| Arc::ptr_eq(source, &followed))
            {
                // A server keeps its health state as long as its registration stays the same. If the server registers
                // again, it gets a new name, and counts as a new server.
                let target = |followed: &FollowedServer| {
                    let is_same =
                        |target: &&Arc<ServerTarget>| target.server == followed.server && target.name == followed.name;
                    let before = known_servers.targets.iter().find(is_same).cloned();
                    before.unwrap_or_else(|| ServerTarget::new(followed.server.clone(), followed.name.clone()))
                };
                known_servers.targets = followed.servers.iter().map(target).collect();
                known_servers.source = Some(followed);
            }
        }
        known_servers.targets.clone()
    }

    /// Returns the servers to try for one request, `avoided` ones last. Waits up to `patience` until servers are known.
    pub(super) async fn attempts(&self, patience: Duration, avoided: &[UpstreamServer]) -> Attempts<'_> {
        if let Some(followed) = &self.followed {
            let mut followed = followed.clone();
            // `wait_for` fails if there are no more updates of the list of servers. The request then tries the servers
            // that are known, as after a timeout.
            let _ = tokio::time::timeout(patience, followed.wait_for(|servers| servers.is_known)).await;
        }
        match (&self.followed, self.choice) {
            (Some(followed), Choice::Master) => Attempts::Master {
                set: self,
                followed: followed.clone(),
                refused: None,
                until: None,
                patience,
            },
            _ => {
                let mut order = self.ordered_targets();
                order.sort_by_key(|target| avoided.contains(&target.server));
                Attempts::InOrder(order.into_iter())
            }
        }
    }

    fn ordered_targets(&self) -> Vec<Arc<ServerTarget>> {
        let targets = self.targets();
        if self.choice == Choice::Master || targets.len() == 1 {
            return targets.to_vec();
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut up, down): (Vec<_>, Vec<_>) = targets.iter().cloned().partition(|target| target.health.is_up());
        if let Some(first) = turn.checked_rem(up.len()) {
            up.rotate_left(first);
        }
        if self.choice == Choice::LeastLoaded {
            // The sort keeps the order of servers with equal load, so these servers take turns.
            up.sort_by_key(|target| target.in_flight.load(Ordering::Relaxed));
        }
        up.extend(down);
        up
    }
}

#[derive(Debug)]
pub(super) enum Attempts<'s> {
    InOrder(IntoIter<Arc<ServerTarget>>),
    Master {
        set: &'s ServerSet,
        followed: watch::Receiver<Arc<FollowedServers>>,
        refused: Option<Arc<ServerTarget>>,
        until: Option<Instant>,
        patience: Duration,
    },
}

impl Attempts<'_> {
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::InOrder(targets) if targets.as_slice().is_empty())
    }

    /// Returns the server to try next, after no connection to the previous one could be made. `None` if none is left.
    pub(super) async fn next(&mut self) -> Option<Arc<ServerTarget>> {
        let (set, followed, refused, until, patience) = match self {
            Self::InOrder(targets) => return targets.next(),
            Self::Master {
                set,
                followed,
                refused,
                until,
                patience,
            } => (set, followed, refused, until, *patience),
        };
        loop {
            followed.mark_unchanged();
            let master = set.targets().first().cloned();
            match (refused.as_ref(), master) {
                (None, None) => return None,
                (Some(refused), Some(master)) if Arc::ptr_eq(refused, &master) => {}
                (Some(_), None) => {}
                (_, Some(master)) => {
                    *refused = Some(master.clone());
                    return Some(master);
                }
            }
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            match tokio::time::timeout_at(until, followed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }
}
