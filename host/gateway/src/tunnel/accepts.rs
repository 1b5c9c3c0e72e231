//! Decides which connections and announcements one side of a tunnel accepts from the other side.

use std::{any::Any, sync::Arc, time::Duration};

use tokio::net::TcpStream;

use super::{
    budget::Budget,
    frame::{TunnelAnnouncement, TunnelDestination},
    session::TunnelSession,
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The behaviour of one side of a tunnel when the other side asks for a connection or sends an announcement.
#[derive(derive_more::Debug)]
pub enum AllowedConnections {
    /// Opens no connections. This is for tunnels that agents have opened to a gateway.
    #[debug("Nothing")]
    Nothing,
    /// Opens connections to these addresses only, each `host:port`. An agent uses this, with the addresses of its
    /// cluster's API servers.
    #[debug("Only")]
    Only(Vec<String>),
    /// Opens connections through the tunnels that clusters' agents have opened to this gateway. Another gateway
    /// requests them, in a tunnel between the two gateways.
    #[debug("Through")]
    Through(FindTunnel),
    /// Opens no connections for the other side. Passes each announcement of the other side to this function, and ends
    /// the tunnel if the function returns an error. A gateway uses this for tunnels that other gateways open to it.
    #[debug("Announcements")]
    Announcements(TakeAnnouncement),
}

/// A function that returns the tunnel of the cluster with this ID. It also returns a guard, which has to be held as
/// long as a connection in the tunnel is open.
pub type FindTunnel = Box<dyn Fn(&str) -> Option<(TunnelSession, Guard)> + Send + Sync>;
pub type TakeAnnouncement = Box<dyn Fn(TunnelAnnouncement) -> Result<(), String> + Send + Sync>;
pub type Guard = Arc<dyn Any + Send + Sync>;

pub(super) enum ConnectTarget {
    Tcp(String),
    Tunnel(TunnelSession, Guard, TunnelDestination),
}

impl ConnectTarget {
    /// Returns the budget of the agent's tunnel if the connection goes through one, and otherwise `default_budget`.
    pub(super) fn budget<'a>(&'a self, default_budget: &'a Arc<Budget>) -> &'a Arc<Budget> {
        match self {
            Self::Tcp(_) => default_budget,
            Self::Tunnel(session, ..) => session.budget(),
        }
    }
}

impl AllowedConnections {
    /// Returns the connection to open for the other side, or an error that is sent to the other side.
    pub(super) fn find_target(&self, to: TunnelDestination) -> Result<ConnectTarget, String> {
        match (self, to.cluster) {
            (Self::Only(addresses), None) if addresses.contains(&to.address) => Ok(ConnectTarget::Tcp(to.address)),
            (Self::Through(find), Some(cluster)) => {
                let (session, guard) = find(&cluster).ok_or_else(|| format!("there is no tunnel of {cluster}"))?;
                let to = TunnelDestination {
                    cluster: None,
                    address: to.address,
                };
                Ok(ConnectTarget::Tunnel(session, guard, to))
            }
            _ => Err(format!("connections to {} are not allowed", to.address)),
        }
    }

    pub(super) fn take_announcement(&self, announcement: TunnelAnnouncement) -> Result<(), String> {
        match self {
            Self::Announcements(take) => take(announcement),
            // Only tunnels of the kind `Announcements` carry announcements. Announcements in other tunnels are ignored.
            Self::Nothing | Self::Only(_) | Self::Through(_) => Ok(()),
        }
    }
}

/// Connects to an API server. An error is sent to the other side of the tunnel.
pub(super) async fn connect(address: &str) -> Result<TcpStream, String> {
    let connecting = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address));
    let why = match connecting.await {
        Ok(Ok(stream)) => {
            // Nagle's algorithm is turned off, because it would only delay a request, which is one small write.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no connection within {DIAL_TIMEOUT:?}"),
    };
    tracing::warn!(address, why, "the API server cannot be reached");
    Err(why)
}
