//! The health of a watch: the status and the log show it, and lookups use the cache only if the watch is healthy.

use std::time::{Duration, Instant};

use admittance_admission::{Moment, keywords};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    time::sleep_until,
};

use crate::metrics;

/// The time for which the cache is used after the watch went down. After that, lookups are sent to the API server.
pub const STALE_LIMIT: Duration = Duration::from_secs(300);
/// An accepted watch counts as up only after it has stayed open for this time. The reason is that the API server
/// accepts even a watch whose version has expired, and reports this error only afterwards, as the first event.
const CONFIRMATION_TIME: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The watch was not started, because there was no lookup yet.
    Idle,
    /// The objects are being listed, for the first time or because the watch expired.
    Starting,
    Watching,
    /// The API server cannot be watched now. The watch is retried at least every 30 s.
    Down,
    /// The API server forbids the watch. Every lookup is sent to the server, and the watch is retried every minute.
    Refused,
}

keywords!(WatchState, "state of a watch": Idle = "idle", Starting = "starting", Watching = "watching", Down = "down", Refused = "refused");

/// A watch on objects of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterWatch {
    /// The watched kind: `v1/Node`.
    pub kind: String,
    /// The state of the watch.
    pub state: WatchState,
    /// The time at which the watch entered its present state.
    pub since: Moment,
    /// The number of cached objects.
    pub objects: usize,
    /// The time at which the API server last answered. A healthy watch is renewed every minute, so a much older time
    /// means that the server does not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Moment>,
    /// The last error. It is absent when the watch works again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Debug)]
pub(crate) struct WatchHealth {
    name: String,
    state: Mutex<HealthState>,
    /// A counter that grows with every change of the objects or of the state.
    changes: watch::Sender<u64>,
    acceptance_signal: Notify,
}

#[derive(Debug)]
struct HealthState {
    state: WatchState,
    since: Moment,
    /// The last time at which the cache was known to be current.
    current_at: Instant,
    /// The time at which the API server accepted the watch. It is set only while the watch is new, until the watch has
    /// stayed open for `CONFIRMATION_TIME` or has failed.
    accepted_at: Option<Instant>,
    last_answer: Option<Moment>,
    last_error: Option<String>,
}

impl WatchHealth {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: Mutex::new(HealthState {
                state: WatchState::Idle,
                since: Moment::now(),
                current_at: Instant::now(),
                accepted_at: None,
                last_answer: None,
                last_error: None,
            }),
            changes: watch::Sender::new(0),
            acceptance_signal: Notify::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn enter(&self, state: WatchState, last_error: Option<String>) -> bool {
        let mut health = self.state.lock();
        let has_changed = health.state != state;
        if has_changed {
            if health.state == WatchState::Watching {
                health.current_at = Instant::now();
            }
            health.state = state;
            health.since = Moment::now();
        }
        health.accepted_at = None;
        health.last_error = last_error;
        drop(health);
        if has_changed {
            metrics::set_watch_up(&self.name, state == WatchState::Watching);
            self.record_change();
        }
        has_changed
    }

    pub(crate) fn record_change(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.state.lock().state == WatchState::Watching
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.state.lock().state == WatchState::Refused
    }

    pub(crate) fn record_starting(&self) {
        self.enter(WatchState::Starting, None);
    }

    pub(crate) fn record_answer(&self) {
        self.state.lock().last_answer = Some(Moment::now());
    }

    pub(crate) fn record_list(&self) {
        self.state.lock().current_at = Instant::now();
        self.record_change();
    }

    pub(crate) fn record_accepted(&self) {
        let mut health = self.state.lock();
        health.last_answer = Some(Moment::now());
        if health.state != WatchState::Watching {
            health.accepted_at = Some(Instant::now());
            self.acceptance_signal.notify_one();
        }
    }

    /// Returns when a watch that the API server accepted has stayed open for `CONFIRMATION_TIME`. Only then is a watch
    /// up.
    pub(crate) async fn wait_until_confirmed(&self) {
        loop {
            let accepted_at = self.state.lock().accepted_at;
            match accepted_at {
                Some(acceptance) => {
                    sleep_until((acceptance + CONFIRMATION_TIME).into()).await;
                    if self.state.lock().accepted_at == Some(acceptance) {
                        return;
                    }
                }
                None => self.acceptance_signal.notified().await,
            }
        }
    }

    pub(crate) fn record_watching(&self) {
        if self.enter(WatchState::Watching, None) {
            tracing::info!(watch = self.name, "the watch is up");
        }
    }

    pub(crate) fn record_down(&self, error: String) {
        if self.enter(WatchState::Down, Some(error.clone())) {
            tracing::warn!(watch = self.name, error, "the watch is down and is retried");
        }
    }

    pub(crate) fn record_refused(&self, error: String) {
        if self.enter(WatchState::Refused, Some(error.clone())) {
            tracing::warn!(
                watch = self.name,
                error,
                "the watch is refused; every lookup is sent to the API server"
            );
        }
    }

    /// Returns whether the watch is up, or has been down for so short a time that the cache may still be used.
    pub(crate) fn is_fresh(&self) -> bool {
        let health = self.state.lock();
        match health.state {
            WatchState::Watching => true,
            WatchState::Starting | WatchState::Down => health.current_at.elapsed() < STALE_LIMIT,
            WatchState::Idle | WatchState::Refused => false,
        }
    }

    pub(crate) fn status(&self, kind: impl Into<String>, objects: usize) -> ClusterWatch {
        let health = self.state.lock();
        ClusterWatch {
            kind: kind.into(),
            state: health.state,
            since: health.since,
            objects,
            heard: health.last_answer,
            problem: health.last_error.clone(),
        }
    }

    #[cfg(test)]
    fn make_older(&self, age: Duration) {
        let mut health = self.state.lock();
        health.current_at = health.current_at.checked_sub(age).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_used_for_a_while_after_the_watch_went_down() {
        let health = WatchHealth::new("nodes");
        assert!(!health.is_fresh(), "nothing is known yet");
        health.record_starting();
        assert!(health.is_fresh());
        health.record_watching();
        health.make_older(STALE_LIMIT * 2);
        assert!(health.is_fresh(), "a watch that is up may be quiet for long");
        health.record_down("gone".into());
        assert!(health.is_fresh());
        health.make_older(STALE_LIMIT);
        health.record_down("still gone".into());
        assert!(!health.is_fresh(), "another error does not make it younger");
        let status = health.status("v1/Node", 3);
        assert_eq!(status.problem.as_deref(), Some("still gone"));
        health.record_watching();
        assert!(health.is_fresh());
        assert_eq!(health.status("v1/Node", 3).problem, None);
        health.record_down("gone".into());
        health.make_older(STALE_LIMIT / 2);
        health.record_starting();
        health.record_accepted();
        health.record_down("expired, and no list".into());
        health.make_older(STALE_LIMIT / 2);
        assert!(!health.is_fresh(), "an attempt does not make it younger");
        health.record_list();
        assert!(health.is_fresh());
        health.record_refused("no".into());
        assert!(!health.is_fresh());
    }
}
