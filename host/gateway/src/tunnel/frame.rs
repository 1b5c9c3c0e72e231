//! Frames of the tunnel protocol in the format of bcs-api's agents. Each binary message of the WebSocket is one frame.
//!
//! A frame begins with zigzag varints: its number, the number of its connection, its kind, and for some kinds a
//! deadline in milliseconds. The rest is the payload.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

const TCP_PREFIX: &str = "tcp/";
/// The longest address in a frame, in bytes, including `tcp/`.
const LONGEST_ADDRESS: usize = 100;
/// The longest ID of a cluster in a frame, in bytes.
const LONGEST_CLUSTER: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) connection: i64,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Data(Bytes),
    /// Asks the other side to open a connection.
    Connect(TunnelDestination),
    /// Ends the connection. The text is the reason, or `EOF` if there was no error.
    Error(String),
    /// Asks the other side to send no more data of the connection until it gets `Resume`. Older programs ignore both
    /// `Pause` and `Resume`.
    Pause,
    Resume,
    /// Announces that a tunnel from an agent to the sending gateway has begun or ended.
    Announcement(TunnelAnnouncement),
    /// A frame of a kind that this version does not know.
    Other,
}

/// A message from one gateway to another about the agents' tunnels to the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelAnnouncement {
    /// A cluster's agent has opened a tunnel, which replaces its previous one. The bytes are the cluster's ID, a line
    /// feed, and the cluster's credentials.
    Added(Bytes),
    /// The agent of the cluster with this ID no longer has a tunnel to the gateway that sends this announcement.
    Removed(String),
}

/// The destination of a connection in a tunnel. A frame contains it as `tcp/host:port`, or, if the other side is a
/// gateway, as `{cluster}::tcp/host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelDestination {
    /// The cluster whose agent has to open the connection. Only a gateway sends this, to another gateway. If it is
    /// `None`, the other side of the tunnel opens the connection itself.
    pub cluster: Option<String>,
    /// The address: `host:port`.
    pub address: String,
}

pub(super) const EOF: &str = "EOF";

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of the tunnel is not a frame: {0}")]
pub(super) struct InvalidFrame(&'static str);

mod kind {
    pub(super) const DATA: i64 = 1;
    pub(super) const CONNECT: i64 = 2;
    pub(super) const ERROR: i64 = 3;
    pub(super) const ADDED: i64 = 4;
    pub(super) const REMOVED: i64 = 5;
    pub(super) const PAUSE: i64 = 6;
    pub(super) const RESUME: i64 = 7;
}

/// The time within which the other side should connect, in milliseconds. Frames that ask for a connection contain it.
const DIAL_DEADLINE: i64 = 15_000;

impl Frame {
    pub(super) fn new(connection: i64, content: Content) -> Self {
        Self { connection, content }
    }

    pub(super) fn encode(&self, number: i64) -> Bytes {
        let (kind, deadline, payload): (_, _, Vec<u8>) = match &self.content {
            Content::Data(bytes) => return encode_data(number, self.connection, bytes),
            Content::Connect(to) => (kind::CONNECT, Some(DIAL_DEADLINE), to.to_string().into()),
            Content::Error(text) => (kind::ERROR, None, text.clone().into()),
            Content::Pause => (kind::PAUSE, None, Vec::new()),
            Content::Announcement(TunnelAnnouncement::Added(bytes)) => (kind::ADDED, None, bytes.to_vec()),
            Content::Announcement(TunnelAnnouncement::Removed(cluster)) => {
                (kind::REMOVED, None, cluster.clone().into())
            }
            Content::Resume | Content::Other => (kind::RESUME, None, Vec::new()),
        };
        let mut frame = BytesMut::with_capacity(40 + payload.len());
        for value in [number, self.connection, kind].into_iter().chain(deadline) {
            put_varint(&mut frame, value);
        }
        frame.extend_from_slice(&payload);
        frame.freeze()
    }

    pub(super) fn decode(mut message: Bytes) -> Result<Self, InvalidFrame> {
        let _number = take_varint(&mut message)?;
        let connection = take_varint(&mut message)?;
        let kind = take_varint(&mut message)?;
        if matches!(kind, kind::DATA | kind::CONNECT) {
            let _deadline = take_varint(&mut message)?;
        }
        let content = match kind {
            kind::DATA => Content::Data(message),
            kind::CONNECT => Content::Connect(TunnelDestination::parse(&message)?),
            kind::ERROR => Content::Error(String::from_utf8_lossy(&message).into_owned()),
            kind::ADDED => Content::Announcement(TunnelAnnouncement::Added(message)),
            kind::REMOVED => {
                let cluster = String::from_utf8_lossy(&message).into_owned();
                Content::Announcement(TunnelAnnouncement::Removed(cluster))
            }
            kind::PAUSE => Content::Pause,
            kind::RESUME => Content::Resume,
            _ => Content::Other,
        };
        Ok(Self { connection, content })
    }
}

fn encode_data(number: i64, connection: i64, bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(40 + bytes.len());
    for value in [number, connection, kind::DATA, 0] {
        put_varint(&mut frame, value);
    }
    frame.extend_from_slice(bytes);
    frame.freeze()
}

impl TunnelDestination {
    pub(super) fn fits_in_frame(&self) -> bool {
        let is_cluster = |cluster: &String| (1..=LONGEST_CLUSTER).contains(&cluster.len());
        TCP_PREFIX.len() + self.address.len() <= LONGEST_ADDRESS && self.cluster.as_ref().is_none_or(is_cluster)
    }

    fn parse(payload: &[u8]) -> Result<Self, InvalidFrame> {
        let parsed = std::str::from_utf8(payload).ok().and_then(|text| {
            let (cluster, tcp) = match text.split_once("::") {
                // The text before `::` is usually the ID of a cluster, which contains no slash. If it contains a slash,
                // `::` belongs to an IPv6 address after `tcp/`, and there is no ID.
                Some((cluster, tcp)) if !cluster.contains('/') => (Some(cluster), tcp),
                _ => (None, text),
            };
            let to = Self {
                cluster: cluster.map(ToOwned::to_owned),
                address: tcp.strip_prefix(TCP_PREFIX)?.to_owned(),
            };
            to.fits_in_frame().then_some(to)
        });
        parsed.ok_or(InvalidFrame("it does not name an address as tcp/host:port"))
    }
}

impl fmt::Display for TunnelDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = &self.cluster {
            write!(f, "{cluster}::")?;
        }
        write!(f, "{TCP_PREFIX}{}", self.address)
    }
}

fn put_varint(frame: &mut BytesMut, value: i64) {
    let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while rest >= 0x80 {
        frame.extend_from_slice(&[rest.to_le_bytes()[0] | 0x80]);
        rest >>= 7;
    }
    frame.extend_from_slice(&[rest.to_le_bytes()[0]]);
}

fn take_varint(message: &mut Bytes) -> Result<i64, InvalidFrame> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        if !message.has_remaining() {
            return Err(InvalidFrame("it ends within its head"));
        }
        let byte = message.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    Err(InvalidFrame("a number in its head is too large"))
}

#[cfg(test)]
mod tests;
