//! The state of a connection in a tunnel, as one side of the tunnel keeps it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{budget::Budget, inbox::Inbox};

/// The memory that an idle connection of a tunnel uses, in bytes: its buffers, TLS and HTTP.
const CONNECTION_COST: usize = 64 << 10;
/// The most memory that a connection of a tunnel may use. This is much more than `PAUSE_THRESHOLD`, because data
/// continue to arrive after a pause was requested: the kernels on both sides still hold some.
pub(super) const MAX_HELD_BYTES: usize = 16 << 20;
/// A connection that holds more than this many bytes is paused. It is resumed when only `RESUME_THRESHOLD` bytes are
/// left.
const PAUSE_THRESHOLD: usize = 1 << 20;
const RESUME_THRESHOLD: usize = 256 << 10;
/// The limits that replace `PAUSE_THRESHOLD` and `RESUME_THRESHOLD` while memory is scarce: while less than half of the
/// memory of the tunnel, the user or the gateway is free.
const SCARCE_PAUSE_THRESHOLD: usize = 128 << 10;
const SCARCE_RESUME_THRESHOLD: usize = 96 << 10;

#[derive(Debug)]
pub(super) struct TunnelConnection {
    pub(super) inbox: Inbox,
    /// Whether this side of the tunnel has asked the other side to pause the connection.
    pause_requested: AtomicBool,
    /// Whether the other side of the tunnel has asked this side to pause the connection.
    pub(super) paused: watch::Sender<bool>,
    /// A token that is cancelled when either side has ended the connection.
    pub(super) end_token: CancellationToken,
}

impl TunnelConnection {
    /// Creates a connection whose memory is charged to a part of `budget`. Returns `None` if the budget has too little
    /// memory left.
    pub(super) fn new(budget: &Arc<Budget>) -> Option<Self> {
        let budget = budget.part(MAX_HELD_BYTES);
        // A new connection is refused if less than an eighth of the memory is free. This memory is reserved for the
        // connections that are already open.
        if budget.has_scarce_parent(8) || budget.charge(CONNECTION_COST).is_err() {
            return None;
        }
        Some(Self {
            inbox: Inbox::new(budget),
            pause_requested: AtomicBool::new(false),
            paused: watch::Sender::new(false),
            end_token: CancellationToken::new(),
        })
    }

    /// Returns whether this side now has to ask the other side of the tunnel to pause the connection.
    pub(super) fn begin_pause(&self) -> bool {
        self.inbox.budget.charged_bytes() > self.thresholds().0 && !self.pause_requested.swap(true, Ordering::AcqRel)
    }

    /// Returns whether this side now has to ask the other side of the tunnel to resume the connection.
    pub(super) fn end_pause(&self) -> bool {
        self.inbox.budget.charged_bytes() <= self.thresholds().1 && self.pause_requested.swap(false, Ordering::AcqRel)
    }

    fn thresholds(&self) -> (usize, usize) {
        if self.inbox.budget.has_scarce_parent(2) {
            (SCARCE_PAUSE_THRESHOLD, SCARCE_RESUME_THRESHOLD)
        } else {
            (PAUSE_THRESHOLD, RESUME_THRESHOLD)
        }
    }
}
