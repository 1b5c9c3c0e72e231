//! Stores decisions as bytes in a ring buffer, whose number of decisions and bytes is limited.
//!
//! A thread does not write each decision to the ring, because the ring's memory is usually in the cache of another
//! processor. Each thread first collects a few decisions of its own. When a thread has collected enough, the decisions
//! of all threads are moved to the ring, ordered by time.

use std::{
    collections::VecDeque,
    mem::size_of,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
    thread::available_parallelism,
};

use parking_lot::{Mutex, MutexGuard};

use super::packed::{PackedDecision, RequestOrigin, UnpackedParts};
use crate::decisions::observer::ObservedDecision;

/// The maximum number of decisions that a thread collects before they are moved to the ring.
const MAX_COLLECTED_COUNT: usize = 16;
/// The maximum size of the decisions that a thread collects before they are moved to the ring, in bytes.
const MAX_COLLECTED_SIZE: usize = 64 << 10;

/// The maximum number of decisions that a reader copies while it locks the ring.
const MAX_COPIED_COUNT: usize = 256;
/// The maximum size of the decisions that a reader copies while it locks the ring, in bytes.
const MAX_COPIED_SIZE: usize = 1 << 20;

pub(super) struct RingMemory {
    count: usize,
    bytes: usize,
    collections: Box<[Collection]>,
    ring: Mutex<DecisionRing>,
}

/// The decisions that one thread has collected. Because of the alignment, two threads never write to the same cache
/// line, which would slow both of them down.
#[derive(Default)]
#[repr(align(128))]
struct Collection(Mutex<CollectedDecisions>);

#[derive(Default)]
struct CollectedDecisions {
    bytes: Vec<u8>,
    decisions: Vec<(UnpackedParts, Range<usize>)>,
    origin: RequestOrigin,
}

#[derive(Default)]
pub(super) struct DecisionRing {
    bytes: VecDeque<u8>,
    slots: VecDeque<RingSlot>,
    /// The memory that all decisions in the ring take, in bytes.
    pub(super) size: usize,
    /// The number of decisions that were removed from the ring since the start.
    pub(super) removed_count: u64,
    last_id: u64,
}

struct RingSlot {
    id: u64,
    length: usize,
    size: usize,
    unpacked_parts: UnpackedParts,
}

fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    INDEX.with(|index| *index)
}

impl RingMemory {
    pub(super) fn new(count: usize, bytes: usize) -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        Self {
            count,
            bytes,
            collections: (0..threads).map(|_| Collection::default()).collect(),
            ring: Mutex::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.count > 0
    }

    pub(super) fn add(&self, observed: &ObservedDecision<'_>) {
        let index = thread_index() % self.collections.len();
        let Some(Collection(collection)) = self.collections.get(index) else {
            return;
        };
        let is_full = {
            let CollectedDecisions {
                bytes,
                decisions,
                origin,
            } = &mut *collection.lock();
            let start = bytes.len();
            // The objects of one decision may take at most a sixteenth of the log's memory. Otherwise, a single large
            // decision could push all others out of the log.
            let unpacked_parts = UnpackedParts::pack(observed, self.bytes / 16, origin, bytes);
            decisions.push((unpacked_parts, start..bytes.len()));
            decisions.len() >= MAX_COLLECTED_COUNT || bytes.len() >= MAX_COLLECTED_SIZE
        };
        if is_full {
            drop(self.collect_into_ring());
        }
    }

    /// Moves the decisions that the threads have collected to the ring, and returns the locked ring.
    pub(super) fn collect_into_ring(&self) -> MutexGuard<'_, DecisionRing> {
        let mut ring = self.ring.lock();
        let mut collections: Vec<_> = self.collections.iter().map(|collection| collection.0.lock()).collect();
        let mut decisions = Vec::new();
        for (index, collected) in collections.iter_mut().enumerate() {
            decisions.extend(collected.decisions.drain(..).map(|decision| (index, decision)));
        }
        decisions.sort_by_key(|(_, (unpacked, _))| unpacked.time);
        for (index, (unpacked, range)) in decisions {
            let collected = collections.get(index);
            let packed = collected.and_then(|collected| collected.bytes.get(range));
            ring.push(self.count, self.bytes, unpacked, packed.unwrap_or_default());
        }
        for collected in &mut collections {
            collected.bytes.clear();
            collected.bytes.shrink_to(MAX_COLLECTED_SIZE);
        }
        ring
    }
}

impl DecisionRing {
    fn push(&mut self, count: usize, bytes: usize, unpacked: UnpackedParts, packed: &[u8]) {
        let size = size_of::<RingSlot>() + packed.len() + unpacked.size();
        // An allocator usually reserves more memory than was requested: about an eighth more.
        let size = size + size / 8;
        if size > bytes {
            self.removed_count += 1;
            return;
        }
        while self.slots.len() >= count || self.size + size > bytes {
            let Some(oldest) = self.slots.pop_front() else {
                break;
            };
            self.bytes.drain(..oldest.length);
            self.size -= oldest.size;
            self.removed_count += 1;
        }
        let room = self.bytes.capacity() - self.bytes.len();
        if room < packed.len() {
            // A full buffer would normally double its capacity, which wastes memory. This buffer grows by an eighth of
            // its length only, or by the size of the decision if that is larger.
            self.bytes.reserve_exact(packed.len().max(self.bytes.len() / 8));
        }
        self.bytes.extend(packed);
        self.size += size;
        // Each id is at least the time in microseconds, so ids are larger after a restart than before it.
        self.last_id = unpacked.time.as_micros().max(self.last_id + 1);
        self.slots.push_back(RingSlot {
            id: self.last_id,
            length: packed.len(),
            size,
            unpacked_parts: unpacked,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn oldest_id(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.id)
    }

    pub(super) fn index_of(&self, id: u64) -> usize {
        self.slots.partition_point(|slot| slot.id < id)
    }

    pub(super) fn last_entries_before(&self, end: usize) -> Range<usize> {
        let slots_before = self.slots.range(..end.min(self.len())).rev();
        end.saturating_sub(copied_slot_count(slots_before))..end
    }

    pub(super) fn next_entries_from(&self, start: usize) -> Range<usize> {
        let slots_from = self.slots.range(start.min(self.len())..);
        start..start + copied_slot_count(slots_from)
    }

    pub(super) fn entries(&self, range: Range<usize>) -> Vec<PackedDecision> {
        let mut start: usize = self.slots.range(..range.start).map(|slot| slot.length).sum();
        let entries = self.slots.range(range).map(|slot| {
            let bytes = self.bytes.range(start..start + slot.length);
            start += slot.length;
            PackedDecision {
                id: slot.id,
                size: slot.size,
                packed_bytes: bytes.copied().collect(),
                unpacked_parts: slot.unpacked_parts.clone(),
            }
        });
        entries.collect()
    }
}

/// Returns how many of the first slots a reader may copy while it locks the ring: at most [`MAX_COPIED_COUNT`] slots of
/// at most [`MAX_COPIED_SIZE`] together. The first slot may always be copied, even if it is larger.
fn copied_slot_count<'s>(slots: impl Iterator<Item = &'s RingSlot>) -> usize {
    let mut bytes = 0;
    let copied_slots = slots.take(MAX_COPIED_COUNT).enumerate().take_while(|(index, slot)| {
        bytes += slot.length;
        *index == 0 || bytes <= MAX_COPIED_SIZE
    });
    copied_slots.count()
}
