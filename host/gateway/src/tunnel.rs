//! Tunnels: TCP connections from a gateway into a cluster, over one WebSocket that the cluster's agent opens. Gateways
//! also open tunnels to each other, to use the tunnels of each other's agents.
//!
//! bcs-api and its agents use the same protocol. Both sides limit the memory for a connection whose reader is slow:
//! they ask the other side to pause the connection. If the other side is an older program and continues to send, they
//! end the connection. All of this memory is charged to a [`Budget`].

mod accepts;
pub mod agent;
mod budget;
pub(crate) mod connect;
mod connection;
mod frame;
mod inbox;
mod session;

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use self::session::serve_agent;
pub use self::{
    accepts::{AllowedConnections, FindTunnel, Guard, TakeAnnouncement},
    budget::Budget,
    frame::{Announcement, TunnelDestination},
    session::{Outgoing, Session},
};

/// The interval at which each side sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// A tunnel counts as lost if no message arrives for this time. Every ping is answered.
const SILENCE: Duration = Duration::from_secs(20);
/// The size of the data in one frame, in bytes. Agents of bcs-api use the same size.
const CHUNK: usize = 32 << 10;
/// The largest message from an agent, in bytes.
pub const LARGEST_OF_AGENT: usize = 64 << 10;
/// The largest message from a gateway, in bytes. It may be an announcement, which contains certificates.
pub(crate) const LARGEST_OF_GATEWAY: usize = 256 << 10;
/// The largest memory of a tunnel with its connections, in bytes.
pub(crate) const TUNNEL_LIMIT: usize = 96 << 20;
/// The memory of a tunnel without connections, in bytes, for the messages that are being read and written.
pub(crate) const TUNNEL_COST: usize = 256 << 10;

/// Returns the limits of a WebSocket whose messages have at most this size. At most a few messages wait to be written.
pub fn websocket_config(largest: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(32 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(1 << 20)
        .max_message_size(Some(largest))
        .max_frame_size(Some(largest))
}
