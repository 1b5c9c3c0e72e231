//! Watches the objects of a kind, and keeps a cache of them.

use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};

use admittance_net::Backoff;
use futures_util::StreamExt;
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{runtime::Handle, sync::watch, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::{Key, ObjectCache},
    connection::Connection,
    health::{ClusterWatch, WatchHealth},
    metrics::{self, Verb},
    request_error::RequestError,
};

/// The time after which a watch is renewed, in seconds, so that a dead connection is noticed.
const WATCH_SECONDS: u32 = 60;
/// The pause after the first failure of a watch. It doubles with each further failure, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct WatchView<V> {
    pub(crate) cache: ObjectCache<V>,
    pub(crate) health: Arc<WatchHealth>,
}

impl<V> WatchView<V> {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            cache: ObjectCache::default(),
            health: Arc::new(WatchHealth::new(name)),
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.cache.is_synced() && self.health.is_fresh()
    }

    pub(crate) fn status(&self, kind: impl Into<String>) -> ClusterWatch {
        self.health.status(kind, self.cache.len())
    }
}

pub(crate) struct WatchPace {
    answers: watch::Receiver<bool>,
    pauses: Backoff,
    has_expired: bool,
}

impl WatchPace {
    pub(crate) fn new(connection: &Connection) -> Self {
        Self {
            answers: connection.answers(),
            pauses: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
            has_expired: false,
        }
    }

    fn reset(&mut self) {
        self.pauses.reset();
        self.has_expired = false;
    }

    /// Waits before the next attempt to watch. The pause becomes longer with each failure, and ends early when the API
    /// server answers any other request.
    pub(crate) async fn wait(&mut self) {
        let pause = sleep(self.pauses.pause_after_failure());
        let answers = async { while self.answers.changed().await.is_ok() && !*self.answers.borrow() {} };
        let does_answer = tokio::select! {
            () = pause => false,
            () = answers => true,
        };
        if does_answer {
            self.pauses.reset();
        }
        self.answers.mark_unchanged();
    }

    /// Must be called when the watch has expired. The objects are then listed again. If the previous watch expired too,
    /// and nothing arrived since, this method first waits, so that lists do not follow each other without a pause.
    async fn pause_after_expiry(&mut self) {
        if std::mem::replace(&mut self.has_expired, true) {
            self.wait().await;
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum WatchSelection {
    All,
    /// Only the object of this name, because the account may read no other object of the kind.
    Named(String),
    /// All objects with this label: `key=value`.
    Labelled(String),
}

/// Starts a task that [follows](follow) objects. The task ends when the returned handle is dropped.
pub(crate) fn spawn<K, V>(
    runtime: &Handle,
    connection: &Connection,
    api: impl Fn(Client) -> Api<K> + Send + 'static,
    selection: WatchSelection,
    view: &Arc<WatchView<V>>,
    entry: impl Fn(K) -> (Key, V) + Send + 'static,
    permission: String,
) -> AbortOnDropHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    view.health.record_starting();
    let (connection, view) = (connection.clone(), view.clone());
    AbortOnDropHandle::new(runtime.spawn(async move {
        follow(&connection, api, selection, &view, entry, &permission).await;
    }))
}

/// Watches objects, and keeps the cache of `view` up to date. Never returns. `entry` converts an object into its key
/// and the part of the object that is cached.
pub(crate) async fn follow<K, V>(
    connection: &Connection,
    api: impl Fn(Client) -> Api<K>,
    selection: WatchSelection,
    view: &WatchView<V>,
    entry: impl Fn(K) -> (Key, V),
    permission: &str,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
{
    let health = &view.health;
    let client = connection.observed_client(health.clone());
    let mut pace = WatchPace::new(connection);
    loop {
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        config = match &selection {
            WatchSelection::All => config,
            WatchSelection::Named(name) => config.fields(&format!("metadata.name={name}")),
            WatchSelection::Labelled(label) => config.labels(label),
        };
        let mut events = pin!(watcher(api(client.clone()), config));
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = health.wait_until_confirmed() => {
                    health.record_watching();
                    pace.reset();
                    continue;
                }
            };
            let problem = match event {
                Some(Ok(event)) => {
                    if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                        health.record_answer();
                        health.record_watching();
                        pace.reset();
                    }
                    apply_event(event, view, &entry);
                    continue;
                }
                Some(Err(error)) => WatchProblem::from(error),
                None => break,
            };
            match &problem {
                WatchProblem::Expired => {
                    tracing::info!(watch = health.name(), "the watch expired; listing again");
                    health.record_starting();
                    pace.pause_after_expiry().await;
                    break;
                }
                WatchProblem::Failed(verb, failure) => {
                    metrics::count_request(*verb, failure.result_label());
                    match failure {
                        RequestError::Forbidden(words) => health.record_refused(format!("{words}; {permission}")),
                        other => health.record_down(other.sentence()),
                    }
                    pace.wait().await;
                }
            }
        }
    }
}

fn apply_event<K, V: PartialEq>(event: Event<K>, view: &WatchView<V>, entry: &impl Fn(K) -> (Key, V)) {
    match event {
        Event::Init => view.cache.begin_list(),
        Event::InitApply(object) => {
            let (key, value) = entry(object);
            view.cache.add_to_list(key, value);
        }
        Event::InitDone => {
            view.cache.end_list();
            view.health.record_list();
            tracing::debug!(watch = view.health.name(), objects = view.cache.len(), "listed");
        }
        Event::Apply(object) => {
            let (key, value) = entry(object);
            if view.cache.insert(key, value) {
                view.health.record_change();
            }
        }
        Event::Delete(object) => {
            view.cache.remove(&entry(object).0);
            view.health.record_change();
        }
    }
}

enum WatchProblem {
    /// The server no longer has the changes since the version from which the watch was to continue (status 410).
    Expired,
    Failed(Verb, RequestError),
}

const GONE_STATUS: u16 = 410;

impl From<watcher::Error> for WatchProblem {
    fn from(error: watcher::Error) -> Self {
        let (verb, error) = match error {
            watcher::Error::InitialListFailed(error) => (Verb::List, error),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => (Verb::Watch, error),
            watcher::Error::WatchError(status) => (Verb::Watch, kube::Error::Api(status)),
            watcher::Error::NoResourceVersion => {
                let words = "the API server returns no resourceVersion, so the kind cannot be watched";
                return Self::Failed(Verb::Watch, RequestError::Refused(words.to_owned()));
            }
        };
        match &error {
            kube::Error::Api(status) if status.code == GONE_STATUS => Self::Expired,
            other => Self::Failed(verb, RequestError::from_client(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_resets_the_pauses_between_attempts() {
        let mut pace = WatchPace {
            answers: watch::channel(true).1,
            pauses: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
            has_expired: false,
        };
        let waits: Vec<_> = (0..12).map(|_| pace.pauses.pause_after_failure()).collect();
        assert!(waits[0] < FIRST_PAUSE * 3 && waits[11] >= MAX_PAUSE, "{waits:?}");
        pace.reset();
        assert!(pace.pauses.pause_after_failure() < FIRST_PAUSE * 3);
    }
}
