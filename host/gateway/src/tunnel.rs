//! Tunnels: TCP connections from a gateway into a cluster, over one WebSocket that the cluster's agent opens. Gateways
//! also open tunnels to each other. Through such a tunnel, one gateway can use the tunnels that agents have opened to
//! the other gateway.
//!
//! The protocol is the one that bcs-api and its agents use. The reader of a connection can be slow, so each side limits
//! the memory for the bytes that wait for the reader. If they become too many, the side asks the other side to pause
//! the connection. An older program ignores this and continues to send; then the connection is ended. All of this
//! memory is charged to a [`Budget`].

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
    frame::{TunnelAnnouncement, TunnelDestination},
    session::{OutgoingFrames, TunnelSession},
};

const PING_INTERVAL: Duration = Duration::from_secs(5);
/// The time without any message after which a tunnel counts as lost. A ping is sent every 5 s, and the answer counts as
/// a message.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// The size of the data in one frame of a tunnel, in bytes. Agents of bcs-api use the same size.
const LARGEST_CHUNK: usize = 32 << 10;
/// The largest message that a gateway accepts from an agent, in bytes.
pub const LARGEST_AGENT_MESSAGE: usize = 64 << 10;
/// The largest message that is accepted from a gateway, in bytes. An announcement of a cluster contains certificates.
pub(crate) const LARGEST_GATEWAY_MESSAGE: usize = 256 << 10;
/// The most memory that a tunnel and its connections may use, in bytes.
pub(crate) const TUNNEL_LIMIT: usize = 96 << 20;
/// The memory that a tunnel without connections uses, in bytes, for the messages that are being read and written.
pub(crate) const TUNNEL_COST: usize = 256 << 10;

/// Returns the settings of a WebSocket with messages of at most `largest_message` bytes. Few messages may wait to be
/// written.
pub fn websocket_config(largest: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(32 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(1 << 20)
        .max_message_size(Some(largest))
        .max_frame_size(Some(largest))
}
