//! Decides which connections and announcements one side of a tunnel accepts from the other side.

use std::{any::Any, sync::Arc, time::Duration};

use tokio::net::TcpStream;

use super::{
    budget::Budget,
    frame::{Announcement, TunnelDestination},
    session::Session,
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The connections that one side of a tunnel opens for the other side.
#[derive(derive_more::Debug)]
pub enum AllowedConnections {
    /// No connections: for tunnels that agents open to a gateway.
    #[debug("Nothing")]
    Nothing,
    /// Connections to these addresses, each `host:port`: for an agent, the addresses of its API servers.
    #[debug("Only")]
    Only(Vec<String>),
    /// Connections through the tunnel of a cluster's agent: for tunnels that a gateway opens to other gateways.
    #[debug("Through")]
    Through(FindTunnel),
    /// No connections, but announcements: for tunnels that other gateways open. If this function returns an error, the
    /// tunnel ends.
    #[debug("Announcements")]
    Announcements(TakeAnnouncement),
}

/// Returns the tunnel of a cluster, and a guard that is held as long as a connection in it is open.
pub type FindTunnel = Box<dyn Fn(&str) -> Option<(Session, Guard)> + Send + Sync>;
pub type TakeAnnouncement = Box<dyn Fn(Announcement) -> Result<(), String> + Send + Sync>;
pub type Guard = Arc<dyn Any + Send + Sync>;

/// The connection to open for the other side.
pub(super) enum ConnectTarget {
    /// A TCP connection to `host:port`.
    Tcp(String),
    /// A connection in this tunnel. The guard is held as long as the connection is open.
    Tunnel(Session, Guard, TunnelDestination),
}

impl ConnectTarget {
    /// Returns the budget to charge for the connection: the budget of the agent's tunnel that it uses, or else `own`.
    pub(super) fn budget<'a>(&'a self, own: &'a Arc<Budget>) -> &'a Arc<Budget> {
        match self {
            Self::Tcp(_) => own,
            Self::Tunnel(session, ..) => session.budget(),
        }
    }
}

impl AllowedConnections {
    /// Returns the connection to open, or an error to send to the other side.
    pub(super) fn wanted(&self, to: TunnelDestination) -> Result<ConnectTarget, String> {
        match (self, to.cluster) {
            (Self::Only(addresses), None) if addresses.contains(&to.address) => {
                Ok(ConnectTarget::Tcp(to.address))
            }
            (Self::Through(find), Some(cluster)) => {
                let (session, guard) =
                    find(&cluster).ok_or_else(|| format!("there is no tunnel of {cluster}"))?;
                let to = TunnelDestination {
                    cluster: None,
                    address: to.address,
                };
                Ok(ConnectTarget::Tunnel(session, guard, to))
            }
            _ => Err(format!("connections to {} are not allowed", to.address)),
        }
    }

    pub(super) fn announced(&self, announcement: Announcement) -> Result<(), String> {
        match self {
            Self::Announcements(take) => take(announcement),
            // Announcements are ignored.
            Self::Nothing | Self::Only(_) | Self::Through(_) => Ok(()),
        }
    }
}

/// Connects to an API server. The error is sent to the other side.
pub(super) async fn connect(address: &str) -> Result<TcpStream, String> {
    let connecting = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address));
    let why = match connecting.await {
        Ok(Ok(stream)) => {
            // A request is one small write, so Nagle's algorithm would only delay it.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no connection within {DIAL_TIMEOUT:?}"),
    };
    tracing::warn!(address, why, "the API server cannot be reached");
    Err(why)
}
