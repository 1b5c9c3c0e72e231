//! What plugins learn from outside while a request is recorded.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::{ClusterKind, HttpAnswer};

/// The most entries of a tape, and the most bytes of their texts.
const ENTRIES: usize = 256;
const BYTES: usize = 1 << 20;

/// Answers to requests and look-ups of plugins, for one request. What does not fit is counted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Taped>>);

/// The content of a [`Tape`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Taped {
    /// Answers to HTTP requests, in order.
    pub http: Vec<HttpAnswer>,
    /// Whether a plugin looked something up, or asked what a user may do.
    pub looked_up: bool,
    /// Objects that look-ups found, as JSON, with their kind; and for each allowed action of a user, a role and its
    /// binding.
    pub objects: Vec<(ClusterKind, Arc<str>)>,
    /// How many answers and objects did not fit.
    pub missed: usize,
    bytes: usize,
}

impl Tape {
    /// What was added so far.
    pub fn take(&self) -> Taped {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Taped> {
        self.0.lock()
    }
}

impl Taped {
    /// Adds an object. What several plugins look up is kept once.
    pub(super) fn keep(&mut self, kind: ClusterKind, object: Arc<str>) {
        let size = object.len();
        let entry = (kind, object);
        if !self.objects.contains(&entry) && self.make_room(size) {
            self.objects.push(entry);
        }
    }

    /// Whether an entry of this size fits. One that does not is counted.
    pub(super) fn make_room(&mut self, size: usize) -> bool {
        let entries = self.http.len() + self.objects.len();
        let fits = entries < ENTRIES && self.bytes.saturating_add(size) <= BYTES;
        if fits {
            self.bytes += size;
        } else {
            self.missed += 1;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_is_bounded() {
        let kind = ClusterKind::new("v1", "Node");
        let tape = Tape::default();
        let half: Arc<str> = "a".repeat(BYTES / 2).into();
        let other: Arc<str> = "b".repeat(BYTES / 2).into();
        tape.objects(&kind, [&half, &other, &half, &"c".into()]);
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (2, 1));
        for number in 0..=ENTRIES {
            tape.objects(&kind, [&number.to_string().into()]);
        }
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (ENTRIES, 1));
        assert_eq!(tape.take(), Taped::default());
    }
}
