//! Limits on connections and requests, with a fair share for each client.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A client gets another permit only while it holds fewer permits than this factor times the number of free permits. So
/// one client cannot take all permits.
const FREE_FACTOR: usize = 3;

/// A limit on concurrent connections, requests or streams. Clones share the limit. `K` is a client's address or name.
///
/// One client gets at most three quarters of the permits, and fewer if few are free, so that others can get some.
#[derive(Debug)]
pub struct FairLimit<K: Eq + Hash = ClientNetwork>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K: Eq + Hash> {
    limit: usize,
    counts: Mutex<PermitCounts<K>>,
}

#[derive(Debug)]
struct PermitCounts<K> {
    total: usize,
    by_client: HashMap<K, usize>,
}

/// One permit of a limit, or [several](Self::try_grow). They become free when this value is dropped.
#[derive(Debug)]
pub struct Permit<K: Eq + Hash = ClientNetwork> {
    limit: FairLimit<K>,
    client: K,
    count: usize,
}

/// The address of a client, or its /64 network for IPv6, because one client may use all addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientNetwork(IpAddr);

impl<K: Eq + Hash> Clone for FairLimit<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash> FairLimit<K> {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            counts: Mutex::new(PermitCounts {
                total: 0,
                by_client: HashMap::new(),
            }),
        }))
    }

    /// Returns a permit for this client, or `None` if no permit is free or the client has its share.
    pub fn try_acquire(&self, client: impl Into<K>) -> Option<Permit<K>> {
        let client = client.into();
        let mut counts = self.0.counts.lock();
        let free = self.0.limit.saturating_sub(counts.total);
        let client_count = counts.by_client.get(&client).copied().unwrap_or_default();
        if free == 0 || client_count >= free.saturating_mul(FREE_FACTOR) {
            return None;
        }
        counts.total += 1;
        counts.by_client.insert(client.clone(), client_count + 1);
        drop(counts);
        Some(Permit {
            limit: self.clone(),
            client,
            count: 1,
        })
    }
}

impl<K: Eq + Hash> Permit<K> {
    /// Adds `more` permits to this one. Returns `false` if too few are free, or the client would exceed its share.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let mut locked = self.limit.0.counts.lock();
        let counts = &mut *locked;
        let free = self.limit.0.limit.saturating_sub(counts.total);
        let Some(client_count) = counts.by_client.get_mut(&self.client) else {
            return false;
        };
        let new_count = client_count.saturating_add(more);
        if more > free || new_count > (free - more).saturating_add(1).saturating_mul(FREE_FACTOR) {
            return false;
        }
        *client_count = new_count;
        counts.total += more;
        self.count += more;
        true
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut counts = self.limit.0.counts.lock();
        counts.total = counts.total.saturating_sub(self.count);
        match counts.by_client.get_mut(&self.client) {
            Some(client_count) if *client_count > self.count => *client_count -= self.count,
            _ => {
                counts.by_client.remove(&self.client);
            }
        }
    }
}

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

/// The number of file descriptors that are left for files, webhooks, registries and the admin port.
const RESERVED_DESCRIPTORS: u64 = 512;

/// Raises this process's soft limit of open file descriptors to the hard limit. By default, the soft limit is often
/// only 1024, for programs that use `select`. Call this once at startup.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::debug!(%error, "the limit of open file descriptors stays as it is");
    }
}

/// Returns the default limit on client connections. It depends on how many file descriptors this process may open.
pub fn default_connections() -> usize {
    connections_for(getrlimit(Resource::Nofile).current)
}

fn connections_for(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.unwrap_or(u64::MAX);
    let for_connections = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2);
    usize::try_from(for_connections / 2)
        .unwrap_or(usize::MAX)
        .clamp(1, 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn no_client_gets_all_permits() {
        let limit = FairLimit::<ClientNetwork>::new(1024);
        let take_all =
            |client: &str| -> Vec<Permit> { std::iter::from_fn(|| limit.try_acquire(address(client))).collect() };
        let mut held_permits = Vec::new();
        for (client, share) in [("192.0.2.1", 768), ("192.0.2.2", 192), ("192.0.2.3", 48)] {
            let client_permits = take_all(client);
            assert_eq!(client_permits.len(), share, "{client}");
            held_permits.extend(client_permits);
        }
        assert!(limit.try_acquire(address("192.0.2.1")).is_none());
        assert!(
            limit.try_acquire(address("192.0.2.4")).is_some(),
            "one who has none gets one"
        );
        held_permits.clear();
        assert_eq!(take_all("192.0.2.3").len(), 768, "permits are given back");
        assert!(limit.0.counts.lock().by_client.is_empty());
    }

    #[test]
    fn a_single_permit_is_given_to_one_client_at_a_time() {
        let limit = FairLimit::<ClientNetwork>::new(1);
        let permit = limit.try_acquire(address("::1"));
        assert!(permit.is_some());
        assert!(limit.try_acquire(address("192.0.2.1")).is_none());
        drop(permit);
        assert!(limit.try_acquire(address("192.0.2.1")).is_some());
    }

    #[test]
    fn addresses_of_one_network_count_as_one_client() {
        for (one, other, is_same) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:0:0:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(
                ClientNetwork::from(address(one)) == ClientNetwork::from(address(other)),
                is_same,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn the_connection_limit_follows_from_the_descriptor_limit() {
        for (descriptors, connections) in [
            (Some(1024), 256),
            (Some(256), 64),
            (Some(20_000), 9744),
            (Some(65_536), 32_512),
            (Some(1), 1),
            (None, 1_000_000),
        ] {
            assert_eq!(connections_for(descriptors), connections, "{descriptors:?}");
        }
    }
}
