//! Recording of the answers that plugins receive from outside, so that a request can be replayed without the servers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::{ClusterKind, HttpAnswer};

const ENTRIES: usize = 256;
const BYTES: usize = 1 << 20;

/// The answers to requests and lookups of plugins during one request. Answers that do not fit are counted. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Taped>>);

/// The content of a [`Tape`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Taped {
    /// Answers to HTTP requests, in order.
    pub http: Vec<HttpAnswer>,
    /// Whether a plugin looked something up, or checked what a user may do.
    pub looked_up: bool,
    /// The objects that lookups found, as JSON, with their kind; and a role with its binding for each action that a
    /// user may do.
    pub objects: Vec<(ClusterKind, Arc<str>)>,
    /// The number of answers and objects that did not fit.
    pub missed: usize,
    bytes: usize,
}

impl Tape {
    /// Removes and returns the entries.
    pub fn take(&self) -> Taped {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Taped> {
        self.0.lock()
    }
}

impl Taped {
    /// Adds an object. An object that several plugins look up is added once.
    pub(super) fn keep(&mut self, kind: ClusterKind, object: Arc<str>) {
        let size = object.len();
        let entry = (kind, object);
        if !self.objects.contains(&entry) && self.make_room(size) {
            self.objects.push(entry);
        }
    }

    /// Returns whether an entry of this size fits. If it does, its space is reserved; otherwise it is counted as
    /// missed.
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
    fn a_tape_counts_entries_that_do_not_fit() {
        let kind = ClusterKind::new("v1", "Node");
        let tape = Tape::default();
        let half: Arc<str> = "a".repeat(BYTES / 2).into();
        let other: Arc<str> = "b".repeat(BYTES / 2).into();
        tape.objects(&kind, [half.clone(), other, half, "c".into()]);
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (2, 1));
        for number in 0..=ENTRIES {
            tape.objects(&kind, [number.to_string().into()]);
        }
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (ENTRIES, 1));
        assert_eq!(tape.take(), Taped::default());
    }
}
