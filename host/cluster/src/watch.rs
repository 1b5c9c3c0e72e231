//! Following the changes of a kind.

use std::{
    fmt::Debug,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::StreamExt;
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::{
    cache::{Cache, Key},
    connection::Connection,
    health::{Health, WatchStatus},
    measure::{self, Verb},
    trouble::Trouble,
};

/// A watch is asked for anew after this many seconds, so that a connection that died without a word is
/// noticed soon after.
const WATCH_SECONDS: u32 = 60;
/// The wait after the first failure; it doubles with each, up to `SLOWEST`.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const SLOWEST: Duration = Duration::from_secs(30);
/// The wait after a refusal: someone must change something first.
const REFUSED_WAIT: Duration = Duration::from_secs(60);

/// What a watch keeps: the objects, and how it is doing. Shared by the watch and look-ups.
#[derive(Debug)]
pub(crate) struct View<V> {
    pub(crate) cache: Cache<V>,
    pub(crate) health: Arc<Health>,
}

impl<V> View<V> {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            cache: Cache::default(),
            health: Arc::new(Health::new(name)),
        }
    }

    /// Whether the cache may be asked in place of the server.
    pub(crate) fn is_usable(&self) -> bool {
        self.cache.is_synced() && self.health.is_fresh()
    }

    pub(crate) fn status(&self) -> WatchStatus {
        self.health.status(self.cache.is_synced(), self.cache.len())
    }
}

/// How long to wait between attempts.
pub(crate) struct Pace {
    waits: ExponentialBackoff,
    last: Option<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            waits: Self::waits(),
            last: None,
        }
    }

    fn waits() -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(FIRST_WAIT)
            .with_max_delay(SLOWEST)
            .with_jitter()
            .without_max_times()
            .build()
    }

    /// Waits as long as this trouble asks for.
    pub(crate) async fn wait(&mut self, trouble: &Trouble) {
        let now = Instant::now();
        // All was well for a while: this is a new failure.
        if self
            .last
            .is_some_and(|last| now.duration_since(last) > SLOWEST * 2)
        {
            self.waits = Self::waits();
        }
        let wait = match trouble {
            Trouble::Forbidden(_) | Trouble::NotFound(_) | Trouble::Conflict(_) | Trouble::Refused(_) => {
                REFUSED_WAIT
            }
            Trouble::Unavailable(_) | Trouble::Timeout => self.waits.next().unwrap_or(SLOWEST),
        };
        sleep(wait).await;
        self.last = Some(Instant::now());
    }
}

/// Fills the view and keeps it up to date, for ever. `entry` takes what is kept of an object;
/// `permission` ends the sentence of a refusal.
pub(crate) async fn follow<K, V>(
    connection: &Connection,
    api: impl Fn(Client) -> Api<K>,
    view: &View<V>,
    entry: impl Fn(K) -> (Key, V),
    permission: &str,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let client = connection.observed(view.health.clone());
    let mut pace = Pace::new();
    loop {
        let mut events = pin!(watcher(
            api(client.clone()),
            watcher::Config::default().timeout(WATCH_SECONDS)
        ));
        while let Some(event) = events.next().await {
            let problem = match event {
                Ok(event) => {
                    take(event, view, &entry);
                    continue;
                }
                Err(error) => Problem::from(error),
            };
            match &problem {
                Problem::Expired => {
                    tracing::debug!(
                        watch = view.health.name(),
                        "the watch is too far behind: listing anew"
                    );
                    pace.wait(&Trouble::Timeout).await;
                    break;
                }
                Problem::Failed(verb, trouble) => {
                    measure::count(*verb, trouble.result());
                    match trouble {
                        Trouble::Forbidden(words) => view.health.refused(format!("{words}; {permission}")),
                        other => view.health.down(other.sentence()),
                    }
                    pace.wait(trouble).await;
                }
            }
        }
    }
}

fn take<K, V>(event: Event<K>, view: &View<V>, entry: &impl Fn(K) -> (Key, V)) {
    match event {
        Event::Init => view.cache.begin_list(),
        Event::InitApply(object) => {
            let (key, value) = entry(object);
            view.cache.listed(key, value);
        }
        Event::InitDone => {
            view.cache.end_list();
            tracing::debug!(watch = view.health.name(), objects = view.cache.len(), "listed");
            view.health.something_changed();
        }
        Event::Apply(object) => {
            view.health.heard();
            let (key, value) = entry(object);
            view.cache.insert(key, value);
            view.health.something_changed();
        }
        Event::Delete(object) => {
            view.health.heard();
            view.cache.remove(&entry(object).0);
            view.health.something_changed();
        }
    }
}

enum Problem {
    /// The server no longer has the changes since the last one that was seen (410).
    Expired,
    Failed(Verb, Trouble),
}

/// 410 Gone.
const GONE: u16 = 410;

impl From<watcher::Error> for Problem {
    fn from(error: watcher::Error) -> Self {
        let (verb, error) = match error {
            watcher::Error::InitialListFailed(error) => (Verb::List, error),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
                (Verb::Watch, error)
            }
            watcher::Error::WatchError(status) => (Verb::Watch, kube::Error::Api(status)),
            watcher::Error::NoResourceVersion => {
                let words = "the API server gives no resourceVersion, so the kind cannot be watched";
                return Self::Failed(Verb::Watch, Trouble::Refused(words.to_owned()));
            }
        };
        match &error {
            kube::Error::Api(status) if status.code == GONE => Self::Expired,
            other => Self::Failed(verb, Trouble::from_client(other)),
        }
    }
}
