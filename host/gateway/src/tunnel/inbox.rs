//! The bytes that have arrived for a connection in a tunnel, until the connection's reader takes them.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{LARGEST_CHUNK, budget::Budget};

/// The smallest chunk that an inbox allocates, in bytes. Small frames share a chunk.
const SMALLEST_CHUNK: usize = 512;
/// The memory of a chunk besides its data, in bytes: for its allocation, and for its entry in the queue.
const CHUNK_COST: usize = 64;

#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) budget: Arc<Budget>,
    queue: Mutex<FrameQueue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct FrameQueue {
    chunks: VecDeque<Chunk>,
    is_closed: bool,
}

/// Bytes that were taken from an inbox. They count in the budget until they are passed to [`Inbox::record_delivery`].
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    cost: usize,
}

impl Inbox {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            queue: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds bytes to the queue. If they do not fit, returns the budget that is full. A closed inbox ignores the bytes.
    pub(super) fn push(&self, bytes: &[u8]) -> Result<(), &Budget> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Ok(());
        }
        let spare = |chunk: &Chunk| chunk.bytes.capacity() - chunk.bytes.len();
        let fitting = queue.chunks.back().map_or(0, spare).min(bytes.len());
        let (fitting, rest) = bytes.split_at(fitting);
        // Each new chunk is twice as large as the previous one, so that many small frames need few chunks.
        let next = queue
            .chunks
            .back()
            .map_or(SMALLEST_CHUNK, |last| 2 * last.bytes.capacity());
        let size = rest.len().max(next.min(LARGEST_CHUNK));
        if !rest.is_empty() {
            self.budget.charge(size + CHUNK_COST)?;
        }
        if let Some(last) = queue.chunks.back_mut() {
            last.bytes.extend_from_slice(fitting);
        }
        if !rest.is_empty() {
            let mut bytes = Vec::with_capacity(size);
            bytes.extend_from_slice(rest);
            let cost = size + CHUNK_COST;
            queue.chunks.push_back(Chunk { bytes, cost });
        }
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for bytes and takes them from the queue. Returns `None` if the inbox is closed and all bytes were taken.
    pub(super) async fn take(&self) -> Option<Chunk> {
        loop {
            let changed = self.changed.notified();
            {
                let mut queue = self.queue.lock();
                if let Some(chunk) = queue.chunks.pop_front() {
                    return Some(chunk);
                }
                if queue.is_closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    pub(super) fn record_delivery(&self, chunk: Chunk) {
        let cost = chunk.cost;
        drop(chunk);
        self.budget.release(cost);
    }

    /// Closes the inbox: later bytes are ignored, but the reader can take the bytes that have arrived.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }

    pub(super) fn clear(&self) {
        let chunks = std::mem::take(&mut self.queue.lock().chunks);
        chunks.into_iter().for_each(|chunk| self.record_delivery(chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn charge_and_content_after(frames: &[&[u8]]) -> (usize, Vec<u8>) {
        let inbox = Inbox::new(Budget::new(1 << 20));
        for frame in frames {
            inbox.push(frame).unwrap();
        }
        let charged_bytes = inbox.budget.charged_bytes();
        inbox.close();
        let mut all = Vec::new();
        while let Some(chunk) = inbox.take().await {
            all.extend_from_slice(&chunk.bytes);
            inbox.record_delivery(chunk);
        }
        assert_eq!(inbox.budget.charged_bytes(), 0);
        (charged_bytes, all)
    }

    #[tokio::test]
    async fn frames_are_charged_for_the_memory_that_they_take() {
        let (charged_bytes, all) = charge_and_content_after(&vec![&b""[..]; 10_000]).await;
        assert_eq!((charged_bytes, all.len()), (0, 0));
        // Each frame has only one byte. If each frame had its own chunk, `charged_bytes` would be much larger.
        let (charged_bytes, all) = charge_and_content_after(&vec![&b"a"[..]; 10_000]).await;
        assert_eq!(all, vec![b'a'; 10_000]);
        assert!((10_000..25_000).contains(&charged_bytes), "{charged_bytes}");
        let large = [b'b'; 100_000];
        let (charged_bytes, all) = charge_and_content_after(&[b"a", &large, b"c", b"d"]).await;
        assert_eq!(all, [b"a", &large[..], b"cd"].concat());
        assert!((100_000..140_000).contains(&charged_bytes), "{charged_bytes}");
    }

    #[tokio::test]
    async fn bytes_that_do_not_fit_leave_the_inbox_unchanged() {
        let inbox = Inbox::new(Budget::new(1000));
        inbox.push(&[1; 600]).unwrap();
        let charged_bytes = inbox.budget.charged_bytes();
        assert!(std::ptr::eq(inbox.push(&[2; 600]).unwrap_err(), &*inbox.budget));
        assert_eq!(inbox.budget.charged_bytes(), charged_bytes);
        let chunk = inbox.take().await.unwrap();
        assert_eq!(chunk.bytes, [1; 600]);
        inbox.record_delivery(chunk);
        inbox.push(&[2; 600]).unwrap();
        inbox.clear();
        assert_eq!(inbox.budget.charged_bytes(), 0);
    }
}
