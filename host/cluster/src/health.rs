//! How a watch is doing: for look-ups, for the operator, for the log.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    sync::{Notify, watch},
    time::sleep_until,
};

use crate::metrics;

/// How long objects are taken from the cache while the watch is down. After that every look-up asks the
/// API server, and fails when it cannot be reached.
pub const STALE_LIMIT: Duration = Duration::from_secs(300);
/// How long a watch that the API server accepted must stay open before it is up. A watch from a version that
/// the server no longer has is accepted too: the error is its first event.
const CONFIRM_AFTER: Duration = Duration::from_millis(250);

/// What a watch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// Nobody asked for this yet.
    Idle,
    /// A list is under way: the first, or a new one because the watch expired.
    Starting,
    /// Changes arrive.
    Watching,
    /// The API server gives no changes now; it is tried again and again, at most 30 s apart.
    Down,
    /// The API server does not allow it; every look-up asks the server, and the watch is tried again
    /// every minute.
    Refused,
}

impl WatchState {
    /// For messages and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Watching => "watching",
            Self::Down => "down",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for WatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A watch, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// What it is doing.
    pub state: WatchState,
    /// When that began.
    pub since: SystemTime,
    /// Whether all objects were listed once.
    pub is_synced: bool,
    /// How many objects are in the cache.
    pub objects: usize,
    /// When the API server last answered the list or the watch. While all is well it is asked anew every
    /// minute, so a much older time means that it is silent.
    pub heard: Option<SystemTime>,
    /// The last error, with what to do about it; none once all is well.
    pub last_error: Option<String>,
}

/// The state of one watch. Shared by the watch, which writes it, and look-ups.
#[derive(Debug)]
pub(crate) struct Health {
    /// What is watched, in messages and as the label of the gauge.
    name: String,
    now: Mutex<Now>,
    /// How often the objects, or the state, became others.
    changes: watch::Sender<u64>,
    /// Told when the API server accepts a watch.
    accepted: Notify,
}

#[derive(Debug)]
struct Now {
    state: WatchState,
    since: SystemTime,
    /// When the cache was last known to be up to date, unless the watch is up.
    current: Instant,
    /// When the API server accepted the watch that is not confirmed yet.
    accepted: Option<Instant>,
    heard: Option<SystemTime>,
    last_error: Option<String>,
}

impl Health {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            now: Mutex::new(Now {
                state: WatchState::Idle,
                since: SystemTime::now(),
                current: Instant::now(),
                accepted: None,
                heard: None,
                last_error: None,
            }),
            changes: watch::Sender::new(0),
            accepted: Notify::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the state; whether it is another one than before.
    fn enter(&self, state: WatchState, last_error: Option<String>) -> bool {
        let mut now = self.lock();
        let changes = now.state != state;
        if changes {
            if now.state == WatchState::Watching {
                now.current = Instant::now();
            }
            now.state = state;
            now.since = SystemTime::now();
        }
        now.accepted = None;
        now.last_error = last_error;
        drop(now);
        if changes {
            metrics::watch_up(&self.name, state == WatchState::Watching);
            self.something_changed();
        }
        changes
    }

    /// Wakes who waits for changes.
    pub(crate) fn something_changed(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    /// How often something changed, and when it does again.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether changes arrive.
    pub(crate) fn is_watching(&self) -> bool {
        self.lock().state == WatchState::Watching
    }

    /// A list begins.
    pub(crate) fn starting(&self) {
        self.enter(WatchState::Starting, None);
    }

    /// The API server answered.
    pub(crate) fn heard(&self) {
        self.lock().heard = Some(SystemTime::now());
    }

    /// A list is complete.
    pub(crate) fn listed(&self) {
        self.lock().current = Instant::now();
        self.something_changed();
    }

    /// The API server accepted a watch.
    pub(crate) fn accepted(&self) {
        let mut now = self.lock();
        now.heard = Some(SystemTime::now());
        if now.state != WatchState::Watching {
            now.accepted = Some(Instant::now());
            self.accepted.notify_one();
        }
    }

    /// Waits until a watch that was accepted has stayed open for `CONFIRM_AFTER`; for ever while the watch
    /// is up already.
    pub(crate) async fn confirmed(&self) {
        loop {
            let accepted = self.lock().accepted;
            match accepted {
                Some(at) => {
                    sleep_until((at + CONFIRM_AFTER).into()).await;
                    // Otherwise it was closed, and another one was accepted.
                    if self.lock().accepted == Some(at) {
                        return;
                    }
                }
                None => self.accepted.notified().await,
            }
        }
    }

    /// The watch works: it brings changes, or stayed open.
    pub(crate) fn watching(&self) {
        if self.enter(WatchState::Watching, None) {
            tracing::info!(watch = self.name, "the watch is up");
        }
    }

    pub(crate) fn down(&self, error: String) {
        if self.enter(WatchState::Down, Some(error.clone())) {
            tracing::warn!(
                watch = self.name,
                error,
                "the watch is down and is retried"
            );
        }
    }

    pub(crate) fn refused(&self, error: String) {
        if self.enter(WatchState::Refused, Some(error.clone())) {
            tracing::warn!(
                watch = self.name,
                error,
                "the watch is refused; every lookup is sent to the API server"
            );
        }
    }

    /// Whether the cache may be believed, once it was filled.
    pub(crate) fn is_fresh(&self) -> bool {
        let now = self.lock();
        match now.state {
            WatchState::Watching => true,
            WatchState::Starting | WatchState::Down => now.current.elapsed() < STALE_LIMIT,
            WatchState::Idle | WatchState::Refused => false,
        }
    }

    pub(crate) fn status(&self, is_synced: bool, objects: usize) -> WatchStatus {
        let now = self.lock();
        WatchStatus {
            state: now.state,
            since: now.since,
            is_synced,
            objects,
            heard: now.heard,
            last_error: now.last_error.clone(),
        }
    }

    /// As if the cache had been up to date that much earlier.
    #[cfg(test)]
    fn age(&self, age: Duration) {
        let mut now = self.lock();
        now.current = now.current.checked_sub(age).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_believed_for_a_while() {
        let health = Health::new("nodes");
        assert!(!health.is_fresh(), "nothing is known yet");
        health.starting();
        assert!(health.is_fresh());
        health.watching();
        health.age(STALE_LIMIT * 2);
        assert!(health.is_fresh(), "a watch that is up may be quiet for long");
        health.down("gone".into());
        assert!(health.is_fresh());
        health.age(STALE_LIMIT);
        health.down("still gone".into());
        assert!(!health.is_fresh(), "another error does not make it younger");
        let status = health.status(true, 3);
        assert_eq!(status.last_error.as_deref(), Some("still gone"));
        health.watching();
        assert!(health.is_fresh());
        assert_eq!(health.status(true, 3).last_error, None);
        health.down("gone".into());
        health.age(STALE_LIMIT / 2);
        health.starting();
        health.accepted();
        health.down("expired, and no list".into());
        health.age(STALE_LIMIT / 2);
        assert!(!health.is_fresh(), "an attempt does not make it younger");
        health.listed();
        assert!(health.is_fresh());
        health.refused("no".into());
        assert!(!health.is_fresh());
    }
}
