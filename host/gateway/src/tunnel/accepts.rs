//! The answers of one side of a tunnel to requests for connections and announcements of tunnels by the other side.

use std::{any::Any, sync::Arc, time::Duration};

use tokio::net::TcpStream;

use super::{
    budget::Budget,
    frame::{Announcement, Destination},
    session::Session,
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The connections that a side accepts from the other one.
pub enum Accepts {
    /// The gateway of an agent opens no connections.
    Nothing,
    /// An agent opens those to its API server, each `host:port`.
    Only(Vec<String>),
    /// A gateway opens those to a cluster in the tunnel of the cluster's agent.
    Through(FindTunnel),
    /// A gateway takes the announcements of another, and opens no connections. An error ends the tunnel.
    Announcements(TakeAnnouncement),
}

/// The tunnel of a cluster, and what to hold as long as a connection in it is open.
pub type FindTunnel = Box<dyn Fn(&str) -> Option<(Session, Guard)> + Send + Sync>;
pub type TakeAnnouncement = Box<dyn Fn(Announcement) -> Result<(), String> + Send + Sync>;
pub type Guard = Arc<dyn Any + Send + Sync>;

/// A connection that the other side may have.
pub(super) enum Wanted {
    /// A TCP connection to `host:port`.
    Tcp(String),
    /// A connection in this tunnel. The guard is held as long as the connection is open.
    Tunnel(Session, Guard, Destination),
}

impl std::fmt::Debug for Accepts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Only(_) => "Only",
            Self::Through(_) => "Through",
            Self::Announcements(_) => "Announcements",
        })
    }
}

impl Wanted {
    /// The budget of the connection. If it uses another tunnel, it is charged to that tunnel.
    pub(super) fn budget<'a>(&'a self, own: &'a Arc<Budget>) -> &'a Arc<Budget> {
        match self {
            Self::Tcp(_) => own,
            Self::Tunnel(session, ..) => session.budget(),
        }
    }
}

impl Accepts {
    /// An error is the reason for the other side.
    pub(super) fn wanted(&self, to: Destination) -> Result<Wanted, String> {
        match (self, to.cluster) {
            (Self::Only(addresses), None) if addresses.contains(&to.address) => Ok(Wanted::Tcp(to.address)),
            (Self::Through(find), Some(cluster)) => {
                let (session, guard) =
                    find(&cluster).ok_or_else(|| format!("there is no tunnel of {cluster}"))?;
                let to = Destination {
                    cluster: None,
                    address: to.address,
                };
                Ok(Wanted::Tunnel(session, guard, to))
            }
            _ => Err(format!("connections to {} are not allowed", to.address)),
        }
    }

    pub(super) fn announced(&self, announcement: Announcement) -> Result<(), String> {
        match self {
            Self::Announcements(take) => take(announcement),
            // Of no use here.
            Self::Nothing | Self::Only(_) | Self::Through(_) => Ok(()),
        }
    }
}

/// Connects to an API server. An error is the reason for the other side.
pub(super) async fn connect(address: &str) -> Result<TcpStream, String> {
    let connecting = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address));
    let why = match connecting.await {
        Ok(Ok(stream)) => {
            // A request is one small write.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no connection within {DIAL_TIMEOUT:?}"),
    };
    tracing::warn!(address, why, "the API server cannot be reached");
    Err(why)
}
