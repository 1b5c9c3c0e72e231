use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// One client address is given a place while it holds fewer than so many times as many as are free.
const SHARE: usize = 3;

/// A limited number of places, for connections or for requests. Cheap to clone, and clones share the places.
///
/// No client address gets all of them: one that is alone gets three quarters, and as places run short each
/// gets less, so that an address that holds none always finds one.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    client: IpAddr,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            taken: Mutex::default(),
        }))
    }

    /// A place for this client; none when all are taken, or when this client holds its share.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Place> {
        let client = network(client);
        let mut taken = self.taken();
        let free = self.0.limit.saturating_sub(taken.total);
        let held = taken.by_client.get(&client).copied().unwrap_or_default();
        if free == 0 || held >= free.saturating_mul(SHARE) {
            return None;
        }
        taken.total += 1;
        taken.by_client.insert(client, held + 1);
        drop(taken);
        Some(Place {
            places: self.clone(),
            client,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.total = taken.total.saturating_sub(1);
        match taken.by_client.get_mut(&self.client) {
            Some(held) if *held > 1 => *held -= 1,
            _ => {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

/// The address that counts as one client: of IPv6 the network, since a client has 2^64 addresses in its own.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn no_client_takes_all() {
        let places = Places::new(1024);
        let take_all =
            |client: &str| -> Vec<Place> { std::iter::from_fn(|| places.take(address(client))).collect() };
        let mut held = Vec::new();
        for (client, share) in [("192.0.2.1", 768), ("192.0.2.2", 192), ("192.0.2.3", 48)] {
            let taken = take_all(client);
            assert_eq!(taken.len(), share, "{client}");
            held.extend(taken);
        }
        assert!(places.take(address("192.0.2.1")).is_none());
        assert!(
            places.take(address("192.0.2.4")).is_some(),
            "one who has none gets one"
        );
        held.clear();
        assert_eq!(take_all("192.0.2.3").len(), 768, "places are given back");
        assert!(places.taken().by_client.is_empty());
    }

    #[test]
    fn one_place() {
        let places = Places::new(1);
        let place = places.take(address("::1"));
        assert!(place.is_some());
        assert!(places.take(address("192.0.2.1")).is_none());
        drop(place);
        assert!(places.take(address("192.0.2.1")).is_some());
    }

    #[test]
    fn clients() {
        for (one, other, is_same) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:0:0:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(
                network(address(one)) == network(address(other)),
                is_same,
                "{one} {other}"
            );
        }
    }
}
