//! The cache of an endpoint's answers.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// The capacity. Bounds the memory that a client can use by trying tokens.
const MOST: usize = 10_000;

/// A digest of the whole request: the token itself is not stored, and the server may decide by
/// any part of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question([u8; 32]);

impl Question {
    pub(super) fn new(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

/// Cached answers. Lives as long as the endpoint.
#[derive(Debug)]
pub(super) struct Answers {
    lifetime: Duration,
    known: Mutex<HashMap<Question, (bool, Instant)>>,
}

impl Answers {
    /// Answers expire after `lifetime`.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            known: Mutex::default(),
        }
    }

    /// The cached answer, unless it has expired.
    pub(super) fn get(&self, question: &Question) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (allowed, until) = known.get(question)?;
        (Instant::now() < *until).then_some(*allowed)
    }

    pub(super) fn put(&self, question: Question, allowed: bool) {
        if self.lifetime.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(question, (allowed, now + self.lifetime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_hold_for_a_while() {
        let answers = Answers::new(Duration::from_secs(10));
        let (yes, no) = (Question::new(b"yes"), Question::new(b"no"));
        assert_eq!(answers.get(&yes), None);
        answers.put(yes, true);
        answers.put(no, false);
        assert_eq!((answers.get(&yes), answers.get(&no)), (Some(true), Some(false)));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((answers.get(&yes), answers.get(&no)), (Some(true), Some(false)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((answers.get(&yes), answers.get(&no)), (None, None));

        let forgetful = Answers::new(Duration::ZERO);
        forgetful.put(yes, true);
        assert_eq!(forgetful.get(&yes), None);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_too_many() {
        let answers = Answers::new(Duration::from_secs(10));
        for number in 0..2 * MOST {
            answers.put(Question::new(number.to_string().as_bytes()), false);
        }
        let last = Question::new((2 * MOST - 1).to_string().as_bytes());
        assert_eq!(answers.get(&last), Some(false));
        assert!(answers.known.lock().unwrap().len() <= MOST);
    }
}
