//! Limits the memory for bodies that are buffered whole, with a fair share for each client.

use bytes::Bytes;
use http::Extensions;
use metrics::{counter, gauge};

use crate::{
    limits::{FairLimit, Permit},
    listener::Client,
    telemetry,
};

/// Limits the bytes of all bodies that are buffered at the same time. Each request carries the budget as an extension.
/// Clones share the limit. Like every [`FairLimit`], it gives one client address at most three quarters.
#[derive(Clone, Debug)]
pub struct BodyBudget(FairLimit);

/// The budget has too little memory left for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Self::REASON)]
pub struct NoBodyMemory;

impl NoBodyMemory {
    /// The message to the client.
    pub const REASON: &str =
        "the memory for request bodies is used up, or your address has its share of it; try again later";
}

/// The memory that one body occupies. Dropping it frees the memory.
#[derive(Debug)]
pub struct BodyMemory {
    /// `None` for a request without a budget, which is not limited.
    permit: Option<Permit>,
    bytes: usize,
}

impl BodyBudget {
    /// Returns the default budget: 256 MiB, or the [`least`](Self::least) budget for the largest body if that is more.
    pub fn default_for(largest_body: usize) -> usize {
        (256 << 20).max(Self::least(largest_body))
    }

    /// Returns the smallest budget that lets a single client send a body of this many bytes.
    pub fn least(largest_body: usize) -> usize {
        largest_body.saturating_mul(2)
    }

    pub fn new(bytes: usize) -> Self {
        Self(FairLimit::new(bytes))
    }
}

impl BodyMemory {
    /// Begins to count the memory of a body that the request's client sends. At first, the body occupies no memory. A
    /// request without a [`BodyBudget`] is not limited.
    pub fn begin(extensions: &Extensions) -> Result<Self, NoBodyMemory> {
        let budget = extensions.get::<BodyBudget>().zip(extensions.get::<Client>());
        let permit =
            budget.map(|(budget, client)| budget.0.try_acquire(client.address.ip()).ok_or_else(refuse));
        Ok(Self {
            permit: permit.transpose()?,
            bytes: 0,
        })
    }

    /// Occupies this many more bytes.
    pub fn take(&mut self, bytes: usize) -> Result<(), NoBodyMemory> {
        if let Some(permit) = &mut self.permit {
            if !permit.try_grow(bytes) {
                return Err(refuse());
            }
            self.bytes += bytes;
            gauge!(telemetry::BODY_BYTES).increment(bytes as f64);
        }
        Ok(())
    }

    /// Returns the body's content. The memory is freed when the last clone of the content is dropped.
    pub fn hold(self, content: Bytes) -> Bytes {
        if self.permit.is_none() || content.is_empty() {
            return content;
        }
        Bytes::from_owner(HeldBody {
            content,
            _memory: self,
        })
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

    fn request(budget: &BodyBudget, client: [u8; 4]) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(budget.clone());
        extensions.insert(Client {
            address: (client, 1).into(),
            is_tls: false,
        });
        extensions
    }

    #[test]
    fn the_memory_of_a_body_is_freed_with_its_last_clone() {
        let budget = BodyBudget::new(1000);
        let (one, other) = (request(&budget, [192, 0, 2, 1]), request(&budget, [192, 0, 2, 2]));
        let mut memory = BodyMemory::begin(&one).unwrap();
        memory.take(700).unwrap();
        let body = memory.hold(Bytes::from_static(b"content"));
        assert_eq!(body, "content");
        let part = body.slice(1..2);
        drop(body);
        // The budget has memory left, but the client already has its share.
        assert!(BodyMemory::begin(&one).unwrap().take(100).is_err());
        assert!(BodyMemory::begin(&other).unwrap().take(200).is_ok());
        drop(part);
        assert!(BodyMemory::begin(&one).unwrap().take(700).is_ok());
    }

    #[test]
    fn a_single_client_can_send_the_largest_body() {
        for size in [1, 10, 1 << 10, 7 << 20, 1 << 30] {
            let budget = BodyBudget::new(BodyBudget::least(size));
            let mut memory = BodyMemory::begin(&request(&budget, [192, 0, 2, 1])).unwrap();
            assert!(memory.take(size).is_ok(), "{size}");
        }
    }

    #[test]
    fn bodies_are_not_limited_if_there_is_no_budget() {
        let mut memory = BodyMemory::begin(&Extensions::new()).unwrap();
        assert!(memory.take(usize::MAX).is_ok());
    }
}
