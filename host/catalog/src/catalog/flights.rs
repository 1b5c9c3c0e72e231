use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::Freshness;
use crate::{Digest, Error, Module, ModuleReference};

type Key = (ModuleReference, Option<Digest>, Freshness);

/// The result of the last fetch, and when it ended. Locked during a fetch.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Result<Module, Error>)>>>;

/// Fetches in progress. Lives as long as the catalog.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Slot>>);

impl Flights {
    /// Fetches, or waits for a task that is fetching the same and shares its result.
    pub(super) async fn share(
        &self,
        key: Key,
        fetch: impl Future<Output = Result<Module, Error>>,
    ) -> Result<Module, Error> {
        let asked = Instant::now();
        let slot = self.all().entry(key.clone()).or_default().clone();
        // Also dropped when this task is cancelled while it waits.
        let guard = SlotGuard {
            flights: self,
            key,
            slot,
        };
        let mut last = guard.slot.lock().await;
        if let Some((ended, result)) = last.as_ref()
            && *ended >= asked
        {
            return result.clone();
        }
        let result = fetch.await;
        *last = Some((Instant::now(), result.clone()));
        result
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One task's share in a slot. The last one removes the slot, so that no module is kept in memory.
struct SlotGuard<'a> {
    flights: &'a Flights,
    key: Key,
    slot: Slot,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.flights.all();
        // The map's, and this one.
        if Arc::strong_count(&self.slot) == 2 {
            all.remove(&self.key);
        }
    }
}
