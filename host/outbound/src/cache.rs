//! Caches responses as their `Cache-Control` allows.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{IpNet, Moment};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, request, response};
use http_cache_semantics::{AfterResponse, BeforeRequest, CacheOptions, CachePolicy};
use parking_lot::{Mutex, MutexGuard};

use crate::sender::OutboundAnswer;

/// The key of a cached response. It contains all that the response may depend on: the networks and the credential of
/// the plugin's grant, the URI, and the headers of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResponseCacheKey {
    networks: Vec<IpNet>,
    credential: Option<String>,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ResponseCacheKey {
    pub(crate) fn new(networks: Vec<IpNet>, credential: Option<String>, request: &request::Parts) -> Self {
        let headers = request.headers.iter();
        Self {
            networks,
            credential,
            uri: request.uri.clone(),
            headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct StoredResponse {
    policy: CachePolicy,
    body: Bytes,
    size: u64,
}

/// A cache of responses whose total size is limited. If it is full, the least recently used responses are evicted.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    size_limit: u64,
    entries: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    responses_by_key: HashMap<Arc<ResponseCacheKey>, (u64, Arc<StoredResponse>)>,
    keys_by_use: BTreeMap<u64, Arc<ResponseCacheKey>>,
    use_count: u64,
    size: u64,
}

impl CacheEntries {
    fn get(&mut self, key: &ResponseCacheKey) -> Option<Arc<StoredResponse>> {
        let (last, stored) = self.responses_by_key.get_mut(key)?;
        let key = self.keys_by_use.remove(last)?;
        self.use_count += 1;
        *last = self.use_count;
        self.keys_by_use.insert(self.use_count, key);
        Some(stored.clone())
    }

    fn remove(&mut self, key: &ResponseCacheKey) {
        if let Some((last, stored)) = self.responses_by_key.remove(key) {
            self.keys_by_use.remove(&last);
            self.size -= stored.size;
        }
    }

    fn insert(&mut self, key: ResponseCacheKey, stored: StoredResponse, limit: u64) {
        self.remove(&key);
        if stored.size > limit {
            return;
        }
        while self.size + stored.size > limit {
            match self.keys_by_use.first_key_value().map(|(_, key)| key.clone()) {
                Some(oldest) => self.remove(&oldest),
                None => break,
            }
        }
        let key = Arc::new(key);
        self.use_count += 1;
        self.size += stored.size;
        self.keys_by_use.insert(self.use_count, key.clone());
        self.responses_by_key.insert(key, (self.use_count, Arc::new(stored)));
    }
}

pub(crate) enum CacheLookup {
    Answer(OutboundAnswer),
    /// The cached response is stale. To find out whether the response is still valid, the request is sent to the server
    /// with these headers, such as `If-None-Match`.
    Revalidate(Arc<StoredResponse>, HeaderMap),
    Send,
}

/// The options of the cache. The cache counts as private (not `shared`), because a cached response is only used for
/// requests with the same grant and headers. A response without an expiry time is never fresh: no lifetime is guessed.
const CACHE_OPTIONS: CacheOptions = CacheOptions {
    shared: false,
    cache_heuristic: 0.0,
    immutable_min_time_to_live: Duration::from_secs(24 * 3600),
    ignore_cargo_cult: false,
};

/// The estimated memory that a cached response needs besides its body, URI and headers, in bytes.
const ENTRY_OVERHEAD: usize = 1 << 10;
/// The estimated memory that a header of a cached response needs besides its name and value, in bytes.
const HEADER_OVERHEAD: usize = 1 << 8;

/// The largest `Age` of a cached response, in seconds. Much larger values would overflow in the cache policy.
const MAX_AGE_SECONDS: u64 = 365 * 24 * 3600;

impl ResponseCache {
    /// Creates a cache for `limit` bytes of responses; returns `None` if the limit is 0.
    pub(crate) fn new(limit: u64) -> Option<Self> {
        (limit > 0).then(|| Self {
            size_limit: limit,
            entries: Mutex::default(),
        })
    }

    fn entries(&self) -> MutexGuard<'_, CacheEntries> {
        self.entries.lock()
    }

    /// Returns whether the request may be answered from the cache: a GET without credentials, conditions or ranges.
    pub(crate) fn may_answer(request: &request::Parts) -> bool {
        let bypass_headers = [
            header::AUTHORIZATION,
            header::COOKIE,
            header::RANGE,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_UNMODIFIED_SINCE,
        ];
        request.method == Method::GET && !bypass_headers.iter().any(|name| request.headers.contains_key(name))
    }

    pub(crate) fn look_up(&self, key: &ResponseCacheKey, request: &request::Parts) -> CacheLookup {
        let Some(stored) = self.entries().get(key) else {
            return CacheLookup::Send;
        };
        match stored.policy.before_request(request, Moment::now().0) {
            BeforeRequest::Fresh(head) => CacheLookup::Answer(OutboundAnswer::new(&head, stored.body.clone(), true)),
            BeforeRequest::Stale { request, matches: true } => CacheLookup::Revalidate(stored, request.headers),
            BeforeRequest::Stale { .. } => CacheLookup::Send,
        }
    }

    pub(crate) fn invalidate(&self, uri: &Uri) {
        let mut entries = self.entries();
        let keys: Vec<_> = entries
            .responses_by_key
            .keys()
            .filter(|key| key.uri == *uri)
            .cloned()
            .collect();
        for key in keys {
            entries.remove(&key);
        }
    }

    pub(crate) fn store(&self, key: ResponseCacheKey, request: &request::Parts, head: &response::Parts, body: &Bytes) {
        let policy = CachePolicy::new_options(request, head, Moment::now().0, CACHE_OPTIONS);
        self.store_with_policy(key, request, &head.headers, policy, body);
    }

    /// Returns the cached response if the server says in `head`, for example with status 304, that the response is
    /// still valid. Otherwise, removes the response from the cache.
    pub(crate) fn answer_after_validation(
        &self,
        key: ResponseCacheKey,
        stored: &StoredResponse,
        request: &request::Parts,
        head: &response::Parts,
    ) -> Option<OutboundAnswer> {
        match stored.policy.after_response(request, head, Moment::now().0) {
            AfterResponse::NotModified(policy, head) => {
                let answer = OutboundAnswer::new(&head, stored.body.clone(), true);
                self.store_with_policy(key, request, &head.headers, policy, &stored.body);
                Some(answer)
            }
            AfterResponse::Modified(..) => {
                self.entries().remove(&key);
                None
            }
        }
    }

    fn store_with_policy(
        &self,
        key: ResponseCacheKey,
        request: &request::Parts,
        headers: &HeaderMap,
        policy: CachePolicy,
        body: &Bytes,
    ) {
        let age = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.parse().ok());
        let is_old = age.is_some_and(|age: u64| age > MAX_AGE_SECONDS);
        if is_old || !policy.is_storable() || !is_reusable(&policy, headers) {
            return;
        }
        let texts = |headers: &HeaderMap| -> usize {
            let sizes = headers
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD);
            sizes.sum()
        };
        let path = key.uri.path_and_query().map_or(0, |path| path.as_str().len());
        let size = body.len() + path + texts(&request.headers) + texts(headers) + ENTRY_OVERHEAD;
        let stored = StoredResponse {
            policy,
            // `body` may be a part of a larger buffer. A copy lets the buffer be freed while the body is cached.
            body: Bytes::copy_from_slice(body),
            size: size as u64,
        };
        self.entries().insert(key, stored, self.size_limit);
    }
}

/// Returns whether it makes sense to cache the response: it is fresh, or it has an `ETag` or `Last-Modified`, so that
/// the server can be asked later whether it is still valid.
fn is_reusable(policy: &CachePolicy, headers: &HeaderMap) -> bool {
    !policy.is_stale(Moment::now().0)
        || headers.contains_key(header::ETAG)
        || headers.contains_key(header::LAST_MODIFIED)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::{Request, Response};

    use super::*;

    fn response_of_size(size: u64) -> StoredResponse {
        let (request, ()) = Request::new(()).into_parts();
        let (response, ()) = Response::new(()).into_parts();
        StoredResponse {
            policy: CachePolicy::new_options(&request, &response, SystemTime::UNIX_EPOCH, CACHE_OPTIONS),
            body: Bytes::new(),
            size,
        }
    }

    #[test]
    fn the_least_recently_used_responses_are_evicted() {
        let key = |path: &'static str| ResponseCacheKey {
            networks: Vec::new(),
            credential: None,
            uri: Uri::from_static(path),
            headers: Vec::new(),
        };
        let mut entries = CacheEntries::default();
        for path in ["/a", "/b", "/c"] {
            entries.insert(key(path), response_of_size(30), 100);
        }
        assert!(entries.get(&key("/a")).is_some());
        entries.insert(key("/d"), response_of_size(40), 100);
        let presence = ["/a", "/b", "/c", "/d"].map(|path| entries.get(&key(path)).is_some());
        assert_eq!((presence, entries.size), ([true, false, true, true], 100));
        entries.insert(key("/a"), response_of_size(10), 100);
        assert_eq!(entries.size, 80);
        entries.insert(key("/e"), response_of_size(101), 100);
        assert_eq!(
            (entries.size, entries.responses_by_key.len(), entries.keys_by_use.len()),
            (80, 3, 3)
        );
    }
}
