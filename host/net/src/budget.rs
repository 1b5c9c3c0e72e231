//! Limits the memory for request bodies that are buffered as a whole, with a fair share for each client.

use bytes::Bytes;
use http::Extensions;
use metrics::{counter, gauge};

use crate::{
    limits::{FairLimit, Permit},
    listener::ConnectedClient,
    telemetry,
};

/// A limit on the bytes of all bodies that are buffered at the same time. Each request carries it as an extension.
/// Clones share the limit. As a [`FairLimit`], it gives one client address at most three quarters of the bytes.
#[derive(Clone, Debug)]
pub struct BodyBudget(FairLimit);

/// The error if too little memory is left for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Self::REASON)]
pub struct NoBodyMemory;

impl NoBodyMemory {
    /// The message to the client if too little memory is left for its body.
    pub const REASON: &str =
        "the memory for request bodies is used up, or your address has its share of it; try again later";
}

/// The part of a [`BodyBudget`] that one body occupies. It becomes free when this value is dropped.
#[derive(Debug)]
pub struct BodyMemory {
    /// The permits for the occupied bytes; `None` for a request without a budget, whose body is not limited.
    permit: Option<Permit>,
    bytes: usize,
}

impl BodyBudget {
    /// Returns the default budget in bytes. It is 256 MiB, or more if a single client needs more to send a body of
    /// `largest_body` bytes (see [`smallest_for`](Self::smallest_for)).
    pub fn default_for(largest_body: usize) -> usize {
        (256 << 20).max(Self::smallest_for(largest_body))
    }

    /// Returns the smallest budget with which a single client can send a body of this many bytes.
    pub fn smallest_for(largest_body: usize) -> usize {
        largest_body.saturating_mul(2)
    }

    pub fn new(bytes: usize) -> Self {
        Self(FairLimit::new(bytes))
    }
}

impl BodyMemory {
    /// Begins to count the memory of a request's body, for the client of the request. At first, the body occupies no
    /// memory. Without a [`BodyBudget`] in `extensions`, the memory is not limited.
    pub fn begin(extensions: &Extensions) -> Result<Self, NoBodyMemory> {
        let budget = extensions.get::<BodyBudget>().zip(extensions.get::<ConnectedClient>());
        let permit = budget.map(|(budget, client)| budget.0.try_acquire(client.address.ip()).ok_or_else(refuse));
        Ok(Self {
            permit: permit.transpose()?,
            bytes: 0,
        })
    }

    /// Reserves this many bytes for the body, in addition to the bytes that are already reserved for it.
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoBodyMemory> {
        if let Some(permit) = &mut self.permit {
            if !permit.try_grow(bytes) {
                return Err(refuse());
            }
            self.bytes += bytes;
            gauge!(telemetry::BODY_BYTES).increment(bytes as f64);
        }
        Ok(())
    }

    /// Ties the memory of the body to its content. The memory is released with the last clone of the returned content.
    pub fn hold(self, content: Bytes) -> Bytes {
        if self.permit.is_none() || content.is_empty() {
            return content;
        }
        Bytes::from_owner(HeldBody { content, _memory: self })
    }
}

fn refuse() -> NoBodyMemory {
    counter!(telemetry::BODIES_REFUSED).increment(1);
    NoBodyMemory
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            gauge!(telemetry::BODY_BYTES).decrement(self.bytes as f64);
        }
    }
}

struct HeldBody {
    content: Bytes,
    _memory: BodyMemory,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_extensions(budget: &BodyBudget, client: [u8; 4]) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(budget.clone());
        extensions.insert(ConnectedClient {
            address: (client, 1).into(),
            is_tls: false,
        });
        extensions
    }

    #[test]
    fn the_memory_of_a_body_is_freed_with_its_last_clone() {
        let budget = BodyBudget::new(1000);
        let (one, other) = (
            request_extensions(&budget, [192, 0, 2, 1]),
            request_extensions(&budget, [192, 0, 2, 2]),
        );
        let mut memory = BodyMemory::begin(&one).unwrap();
        memory.grow(700).unwrap();
        let body = memory.hold(Bytes::from_static(b"content"));
        assert_eq!(body, "content");
        let part = body.slice(1..2);
        drop(body);
        assert!(BodyMemory::begin(&one).unwrap().grow(100).is_err());
        assert!(BodyMemory::begin(&other).unwrap().grow(200).is_ok());
        drop(part);
        assert!(BodyMemory::begin(&one).unwrap().grow(700).is_ok());
    }

    #[test]
    fn a_single_client_can_send_the_largest_body() {
        for size in [1, 10, 1 << 10, 7 << 20, 1 << 30] {
            let budget = BodyBudget::new(BodyBudget::smallest_for(size));
            let mut memory = BodyMemory::begin(&request_extensions(&budget, [192, 0, 2, 1])).unwrap();
            assert!(memory.grow(size).is_ok(), "{size}");
        }
    }

    #[test]
    fn bodies_are_not_limited_if_there_is_no_budget() {
        let mut memory = BodyMemory::begin(&Extensions::new()).unwrap();
        assert!(memory.grow(usize::MAX).is_ok());
    }
}
