//! Records the responses that plugins receive from servers, so that a request can be replayed without the servers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::{ClusterKind, HttpAnswer};

const MAX_ENTRIES: usize = 256;
const MAX_SIZE: usize = 1 << 20;

/// The responses that plugins received during one admission request. Clones share the recording.
#[derive(Clone, Debug, Default)]
pub struct ResponseRecorder(Arc<Mutex<RecordedResponses>>);

/// The content of a [`ResponseRecorder`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecordedResponses {
    /// The responses to HTTP requests, in order.
    pub http: Vec<HttpAnswer>,
    /// Whether a plugin looked up an object or checked a permission.
    pub looked_up: bool,
    /// The objects that plugins looked up, as JSON. For each permission check that allowed an action, there are two
    /// more objects: a role that grants the action, and a role binding.
    pub objects: Vec<(ClusterKind, Arc<str>)>,
    /// The number of responses and objects that were left out of the recording, because it has reached its limits.
    pub missed: usize,
    bytes: usize,
}

impl ResponseRecorder {
    /// Removes all recorded responses from the recorder, and returns them.
    pub fn take(&self) -> RecordedResponses {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecordedResponses> {
        self.0.lock()
    }
}

impl RecordedResponses {
    pub(super) fn record_object(&mut self, kind: ClusterKind, object: Arc<str>) {
        let size = object.len();
        let entry = (kind, object);
        if !self.objects.contains(&entry) && self.make_room(size) {
            self.objects.push(entry);
        }
    }

    /// Reserves space in the recording for an entry of this size in bytes. If the recording is full, returns `false`,
    /// and counts the entry in `missed`.
    pub(super) fn make_room(&mut self, size: usize) -> bool {
        let entries = self.http.len() + self.objects.len();
        let fits = entries < MAX_ENTRIES && self.bytes.saturating_add(size) <= MAX_SIZE;
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
    fn a_recorder_counts_entries_that_do_not_fit() {
        let kind = ClusterKind::new("v1", "Node");
        let recorder = ResponseRecorder::default();
        let half: Arc<str> = "a".repeat(MAX_SIZE / 2).into();
        let other: Arc<str> = "b".repeat(MAX_SIZE / 2).into();
        recorder.record_objects(&kind, [half.clone(), other, half, "c".into()]);
        let recorded = recorder.take();
        assert_eq!((recorded.objects.len(), recorded.missed), (2, 1));
        for number in 0..=MAX_ENTRIES {
            recorder.record_objects(&kind, [number.to_string().into()]);
        }
        let recorded = recorder.take();
        assert_eq!((recorded.objects.len(), recorded.missed), (MAX_ENTRIES, 1));
        assert_eq!(recorder.take(), RecordedResponses::default());
    }
}
