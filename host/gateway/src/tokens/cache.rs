use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// The maximum number of cached answers. It limits the memory that a client can use by trying many tokens.
const CAPACITY: usize = 10_000;

/// The digest of everything that a check sends to the server. The server may decide by any part of it, so requests
/// share a cached answer only if all parts are equal. The token itself is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey([u8; 32]);

impl CacheKey {
    pub(super) fn new(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

#[derive(Debug)]
pub(super) struct AnswerCache {
    lifetime: Duration,
    entries: Mutex<HashMap<CacheKey, (bool, Instant)>>,
}

impl AnswerCache {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            entries: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &CacheKey) -> Option<bool> {
        let entries = self.entries.lock();
        let (allowed, until) = entries.get(key)?;
        (Instant::now() < *until).then_some(*allowed)
    }

    pub(super) fn put(&self, key: CacheKey, allowed: bool) {
        if self.lifetime.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(key, (allowed, now + self.lifetime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cached_answers_expire() {
        let cache = AnswerCache::new(Duration::from_secs(10));
        let (yes, no) = (CacheKey::new(b"yes"), CacheKey::new(b"no"));
        assert_eq!(cache.get(&yes), None);
        cache.put(yes, true);
        cache.put(no, false);
        assert_eq!((cache.get(&yes), cache.get(&no)), (Some(true), Some(false)));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((cache.get(&yes), cache.get(&no)), (Some(true), Some(false)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((cache.get(&yes), cache.get(&no)), (None, None));

        let disabled = AnswerCache::new(Duration::ZERO);
        disabled.put(yes, true);
        assert_eq!(disabled.get(&yes), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_keeps_a_limited_number_of_answers() {
        let cache = AnswerCache::new(Duration::from_secs(10));
        for number in 0..2 * CAPACITY {
            cache.put(CacheKey::new(number.to_string().as_bytes()), false);
        }
        let last = CacheKey::new((2 * CAPACITY - 1).to_string().as_bytes());
        assert_eq!(cache.get(&last), Some(false));
        assert!(cache.entries.lock().len() <= CAPACITY);
    }
}
