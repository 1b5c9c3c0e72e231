//! The state of a connection at one side of a tunnel.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{budget::Budget, inbox::Inbox};

/// The memory of an idle connection in bytes: its buffers, TLS and HTTP.
const CONNECTION_COST: usize = 64 << 10;
/// The maximum memory of a connection. When it is used up, nothing more is read from the tunnel for a limited time. The
/// limit must have room for the megabytes that can still be in the buffers of the kernels when a pause is requested.
pub(super) const MOST_HELD: usize = 16 << 20;
/// A connection that holds more than `PAUSE_AT` bytes is paused, and resumed at `RESUME_AT` bytes.
const PAUSE_AT: usize = 1 << 20;
const RESUME_AT: usize = 256 << 10;
/// These limits apply instead while less than half of the memory of the tunnel, the user or the gateway is free.
const SCARCE_PAUSE_AT: usize = 128 << 10;
const SCARCE_RESUME_AT: usize = 96 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) inbox: Inbox,
    /// Whether this side has asked the other side to pause.
    pause_requested: AtomicBool,
    /// Whether the other side has asked this side to pause.
    pub(super) paused: watch::Sender<bool>,
    /// Cancelled when either side has ended the connection.
    pub(super) ended: CancellationToken,
}

impl Connection {
    /// Creates a connection whose memory is a part of this budget; `None` if the budget has too little left.
    pub(super) fn new(budget: &Arc<Budget>) -> Option<Self> {
        let budget = budget.part(MOST_HELD);
        // The last eighth of the memory is left for existing connections.
        if budget.has_less_than_one_in(8) || budget.charge(CONNECTION_COST).is_err() {
            return None;
        }
        Some(Self {
            inbox: Inbox::new(budget),
            pause_requested: AtomicBool::new(false),
            paused: watch::Sender::new(false),
            ended: CancellationToken::new(),
        })
    }

    /// Returns whether this side has to ask the other side to pause now.
    pub(super) fn begin_pause(&self) -> bool {
        self.inbox.budget.used() > self.thresholds().0 && !self.pause_requested.swap(true, Ordering::AcqRel)
    }

    /// Returns whether this side has to ask the other side to resume now.
    pub(super) fn end_pause(&self) -> bool {
        self.inbox.budget.used() <= self.thresholds().1 && self.pause_requested.swap(false, Ordering::AcqRel)
    }

    fn thresholds(&self) -> (usize, usize) {
        if self.inbox.budget.has_less_than_one_in(2) {
            (SCARCE_PAUSE_AT, SCARCE_RESUME_AT)
        } else {
            (PAUSE_AT, RESUME_AT)
        }
    }
}
