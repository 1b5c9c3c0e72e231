//! Kubewarden's `cache`: values that a policy stores between calls.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host_calls::{Answer, parse};

/// The prefix of keys that are reserved for Kubewarden itself.
const RESERVED_PREFIX: &str = "kubewarden_internal_";

const MAX_ENTRIES: usize = 1024;
const MAX_CACHE_SIZE: usize = 1 << 20;

const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The values that a policy has stored, until they expire.
#[derive(Default)]
pub(crate) struct PolicyCache(Mutex<HashMap<String, CachedValue>>);

struct CachedValue {
    value: Arc<[u8]>,
    expires_at: Instant,
}

#[derive(Serialize)]
struct CacheAnswer<'a> {
    code: u8,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a [u8]>,
}

#[derive(Deserialize)]
struct CacheSet {
    key: String,
    value: Vec<u8>,
    /// The time for which the cache keeps the value, in seconds.
    ttl: u64,
}

#[derive(Deserialize)]
struct CacheGet {
    key: String,
}

impl PolicyCache {
    pub(super) fn set(&self, payload: &[u8], now: Instant) -> Answer {
        let CacheSet { key, value, ttl } = parse(payload)?;
        let size = key.len().saturating_add(value.len());
        let problem = if key.starts_with(RESERVED_PREFIX) {
            Some(format!("keys that begin with `{RESERVED_PREFIX}` are reserved"))
        } else if size > MAX_CACHE_SIZE {
            Some(format!(
                "key and value have {size} bytes; the limit is {MAX_CACHE_SIZE}"
            ))
        } else {
            let expires_at = now + Duration::from_secs(ttl).min(MAX_LIFETIME);
            let value = value.into();
            self.insert(key, CachedValue { value, expires_at }, now);
            None
        };
        let code = u8::from(problem.is_some());
        let answer = json!({"code": code, "message": problem.unwrap_or_else(|| "ok".to_owned())});
        Ok(answer.to_string().into_bytes())
    }

    pub(super) fn get(&self, payload: &[u8], now: Instant) -> Answer {
        let CacheGet { key } = parse(payload)?;
        let value = {
            let entries = self.0.lock();
            let entry = entries.get(&key).filter(|cached_value| now < cached_value.expires_at);
            entry.map(|cached_value| Arc::clone(&cached_value.value))
        };
        let answer = CacheAnswer {
            code: 0,
            message: if value.is_some() { "hit" } else { "miss" },
            value: value.as_deref(),
        };
        serde_json::to_vec(&answer).map_err(|error| error.to_string())
    }

    /// If the cache is full, the values that would expire first are removed.
    fn insert(&self, key: String, value: CachedValue, now: Instant) {
        let mut entries = self.0.lock();
        entries.insert(key, value);
        let size = |(key, cached_value): (&String, &CachedValue)| key.len() + cached_value.value.len();
        let mut bytes: usize = entries.iter().map(size).sum();
        if entries.len() <= MAX_ENTRIES && bytes <= MAX_CACHE_SIZE {
            return;
        }
        entries.retain(|_, cached_value| now < cached_value.expires_at);
        bytes = entries.iter().map(size).sum();
        let mut expirations: Vec<(Instant, String)> = entries
            .iter()
            .map(|(key, cached_value)| (cached_value.expires_at, key.clone()))
            .collect();
        expirations.sort_unstable();
        for (_, key) in expirations {
            if entries.len() <= MAX_ENTRIES && bytes <= MAX_CACHE_SIZE {
                return;
            }
            if let Some(removed) = entries.remove(&key) {
                bytes -= key.len() + removed.value.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn set(cache: &PolicyCache, key: &str, value: &[u8], ttl: u64, now: Instant) -> Value {
        let payload = json!({"key": key, "value": value, "ttl": ttl}).to_string();
        serde_json::from_slice(&cache.set(payload.as_bytes(), now).unwrap()).unwrap()
    }

    fn get(cache: &PolicyCache, key: &str, now: Instant) -> Value {
        let payload = json!({"key": key}).to_string();
        serde_json::from_slice(&cache.get(payload.as_bytes(), now).unwrap()).unwrap()
    }

    #[test]
    fn cached_values_are_kept_until_they_expire() {
        let (cache, now) = (PolicyCache::default(), Instant::now());
        let miss = json!({"code": 0, "message": "miss"});
        assert_eq!(get(&cache, "a", now), miss);
        assert_eq!(
            set(&cache, "a", b"\x01\xff", 10, now),
            json!({"code": 0, "message": "ok"})
        );
        let hit = json!({"code": 0, "message": "hit", "value": [1, 255]});
        assert_eq!(get(&cache, "a", now), hit);
        assert_eq!(get(&cache, "a", now + Duration::from_secs(9)), hit);
        assert_eq!(get(&cache, "a", now + Duration::from_secs(10)), miss);
        set(&cache, "now", b"1", 0, now);
        assert_eq!(get(&cache, "now", now), miss);
        set(&cache, "ever", b"1", u64::MAX, now);
        assert_eq!(get(&cache, "ever", now + MAX_LIFETIME), miss);
        let refused = set(&cache, "kubewarden_internal_a", b"1", 10, now);
        assert_eq!(refused["code"], 1);
        assert_eq!(get(&cache, "kubewarden_internal_a", now), miss);
        cache.set(b"{}", now).unwrap_err();
        cache.get(b"{}", now).unwrap_err();
    }

    #[test]
    fn the_number_and_size_of_cached_values_are_limited() {
        let (cache, now) = (PolicyCache::default(), Instant::now());
        let half = vec![7; MAX_CACHE_SIZE / 2];
        set(&cache, "long", &half, 20, now);
        set(&cache, "short", &half, 10, now);
        assert_eq!(get(&cache, "short", now)["message"], "miss");
        assert_eq!(get(&cache, "long", now)["message"], "hit");
        assert_eq!(set(&cache, "large", &vec![7; MAX_CACHE_SIZE], 10, now)["code"], 1);
        let cache = PolicyCache::default();
        for number in 0..=MAX_ENTRIES {
            set(&cache, &number.to_string(), b"", 10 + number as u64, now);
        }
        assert_eq!(get(&cache, "0", now)["message"], "miss");
        assert_eq!(get(&cache, "1", now)["message"], "hit");
    }
}
