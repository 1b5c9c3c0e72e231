//! Tunnels: TCP connections from a gateway into a cluster, over one WebSocket that the cluster's agent opens. Gateways
//! open them to each other, too, and use the tunnels of another's agents.
//!
//! The protocol is that of bcs-api and its agents. Both sides bound what they hold for a connection whose reader is
//! slow: they ask the other side to pause it, and end it if the other side, an older program, goes on.

mod accepts;
pub mod agent;
pub(crate) mod connect;
mod frame;
mod session;

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use self::session::serve_agent;
pub(crate) use self::{
    accepts::{Accepts, Guard},
    frame::{Announcement, Destination},
    session::{Outgoing, Session},
};

/// How often each side sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Without any message for so long, a tunnel has ended. Every ping is answered.
const SILENCE: Duration = Duration::from_secs(20);
/// The largest message. Agents send 32 KiB of data at most.
const LARGEST_MESSAGE: usize = 1 << 20;

/// The limits of a WebSocket. At most a few messages wait to be written.
pub(crate) fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(32 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(4 << 20)
        .max_message_size(Some(LARGEST_MESSAGE))
        .max_frame_size(Some(LARGEST_MESSAGE))
}
