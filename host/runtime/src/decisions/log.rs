//! Returns the decisions in memory, page by page or as a stream of new ones.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::Notify;

use super::{
    ChainRates, DecidedRequest, DecisionDetail, DecisionFilter, DecisionList, DecisionRecord, DecisionVerdict,
    DecisionsConfig, packed::PackedDecision, rates, ring::RingMemory, write,
};
use crate::{Moment, Redaction, decisions::observer::ObservedDecision};

/// The time that a follower waits for more decisions after the first one, so that requests need not wake it often.
const GATHERING_TIME: Duration = Duration::from_millis(20);

/// The log of the decisions on the latest requests that matched a chain, in memory. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("DecisionLog {{ .. }}")]
pub struct DecisionLog(Arc<Inner>);

struct Inner {
    memory: RingMemory,
    redact: Arc<[Redaction]>,
    is_awaited: AtomicBool,
    arrival: Notify,
}

/// A decision that is kept in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LoggedDecision {
    id: u64,
    bytes: usize,
    pub(crate) decided_request: Arc<DecidedRequest>,
    redact: Arc<[Redaction]>,
}

/// An item of a [`DecisionStream`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamItem {
    /// A decision that matches the filter of the stream.
    Decision(LoggedDecision),
    /// The number of decisions that were removed from the log before the stream could read them. Decisions that do not
    /// match the filter are counted, too.
    Missed(u64),
}

/// A stream of new decisions, which never ends. It delays no request: a reader that is too slow misses decisions.
#[derive(derive_more::Debug)]
#[debug("DecisionStream {{ .. }}")]
pub struct DecisionStream(Pin<Box<dyn Stream<Item = StreamItem> + Send>>);

impl DecisionLog {
    /// The maximum size of a page of decisions, in bytes. A decision that is larger is on a page by itself.
    pub const PAGE_BYTES: usize = 4 << 20;
    /// The maximum number of decisions that [`get`](Self::get) returns on one page.
    pub const MAX_UID_PAGE_COUNT: usize = 20;

    pub(crate) fn new(config: Option<DecisionsConfig>) -> Self {
        let config = config.unwrap_or(DecisionsConfig {
            count: 0,
            ..DecisionsConfig::default()
        });
        Self(Arc::new(Inner {
            memory: RingMemory::new(config.count, config.bytes),
            redact: config.redact.into(),
            is_awaited: AtomicBool::new(false),
            arrival: Notify::new(),
        }))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.memory.is_on()
    }

    pub(crate) fn add(&self, observed: &ObservedDecision<'_>) {
        let Inner {
            memory,
            is_awaited,
            arrival,
            ..
        } = &*self.0;
        memory.add(observed);
        // A follower is a task that waits for new decisions. Before it waits, it sets `is_awaited` and reads the log
        // once more. So it either finds the decision that was just added, or is notified here.
        if is_awaited.load(Ordering::Relaxed) && is_awaited.swap(false, Ordering::Relaxed) {
            arrival.notify_waiters();
        }
    }

    /// Returns the newest decisions with ids smaller than `before`: at most `limit` decisions, whose size without
    /// objects is at most [`PAGE_BYTES`](Self::PAGE_BYTES).
    pub fn list(&self, filter: &DecisionFilter, before: Option<u64>, limit: usize) -> DecisionList {
        let oldest = filter.since.map_or(0, Moment::as_micros);
        let mut decisions = Vec::new();
        let mut bytes = 0;
        let mut next = None;
        for entry in self.entries_newest_first(before).take_while(|entry| entry.id >= oldest) {
            if !filter.includes(&entry) {
                continue;
            }
            bytes += entry.size_without_objects();
            if decisions.len() == limit || (bytes > Self::PAGE_BYTES && !decisions.is_empty()) {
                next = decisions.last().map(|record: &DecisionRecord| record.id);
                break;
            }
            decisions.extend(self.logged_decision(entry).map(|decision| decision.record()));
        }
        DecisionList { decisions, next }
    }

    /// Returns the newest decisions with this uid and ids smaller than `before`, in ascending order and with their
    /// objects: at most
    /// [`MAX_UID_PAGE_COUNT`](Self::MAX_UID_PAGE_COUNT) decisions, of at most [`PAGE_BYTES`](Self::PAGE_BYTES). Also
    /// returns the number of older decisions with this uid. Many decisions can have the same uid: kube-apiserver may
    /// send one request to several paths of this program, and some clients choose the uid themselves.
    pub fn get(&self, uid: &str, before: Option<u64>) -> (Vec<LoggedDecision>, usize) {
        let entries = self.entries_newest_first(before);
        let matching = entries.filter(|entry| entry.read_part().is_some_and(|packed| packed.uid == uid));
        let (mut decisions, mut bytes, mut older_count) = (Vec::new(), 0, 0);
        for entry in matching {
            bytes += entry.size;
            if older_count > 0
                || decisions.len() == Self::MAX_UID_PAGE_COUNT
                || (bytes > Self::PAGE_BYTES && !decisions.is_empty())
            {
                older_count += 1;
            } else {
                decisions.extend(self.logged_decision(entry));
            }
        }
        decisions.reverse();
        (decisions, older_count)
    }

    /// Returns a stream of the decisions after the one with the id `after`. If `after` is `None`, returns a stream of
    /// the decisions that are made from now on.
    pub fn follow(&self, filter: DecisionFilter, after: Option<u64>) -> DecisionStream {
        let position = {
            let ring = self.0.memory.collect_into_ring();
            match after {
                Some(id) => ring.removed_count + ring.index_of(id.saturating_add(1)) as u64,
                None => ring.removed_count + ring.len() as u64,
            }
        };
        let follower = Follower {
            log: self.clone(),
            filter,
            position,
        };
        let batches = stream::unfold(follower, async |mut follower| {
            let batch = follower.next_batch().await;
            Some((stream::iter(batch), follower))
        });
        DecisionStream(Box::pin(batches.flatten()))
    }

    /// Returns the rates of each chain over the last `within`, or over the time that the log covers if that is shorter.
    pub fn rates(&self, within: Duration) -> Vec<ChainRates> {
        let now = Moment::now().0;
        let since = Moment(now.checked_sub(within).unwrap_or(SystemTime::UNIX_EPOCH)).as_micros();
        let recent = self.entries_newest_first(None).take_while(|entry| entry.id >= since);
        let is_full = {
            let ring = self.0.memory.collect_into_ring();
            ring.removed_count > 0 && ring.oldest_id().is_some_and(|id| id >= since)
        };
        rates::chain_rates(recent, within, now, is_full)
    }

    /// Returns the id of the oldest decision in the log.
    pub fn oldest_id(&self) -> Option<u64> {
        self.0.memory.collect_into_ring().oldest_id()
    }

    fn logged_decision(&self, entry: PackedDecision) -> Option<LoggedDecision> {
        Some(LoggedDecision {
            id: entry.id,
            bytes: entry.size,
            ..self.unlogged_decision(entry.unpack()?)
        })
    }

    pub(crate) fn unlogged_decision(&self, decided_request: DecidedRequest) -> LoggedDecision {
        LoggedDecision {
            id: 0,
            bytes: 0,
            decided_request: Arc::new(decided_request),
            redact: self.0.redact.clone(),
        }
    }

    /// Returns the entries of the log with ids smaller than `before`, the newest first. Skips entries that leave the
    /// log in the meantime.
    fn entries_newest_first(&self, before: Option<u64>) -> impl Iterator<Item = PackedDecision> {
        let mut end = {
            let ring = self.0.memory.collect_into_ring();
            let index = before.map_or(ring.len(), |id| ring.index_of(id));
            ring.removed_count + index as u64
        };
        let chunks = std::iter::from_fn(move || {
            let ring = self.0.memory.collect_into_ring();
            let range = ring.last_entries_before(usize::try_from(end.checked_sub(ring.removed_count)?).ok()?);
            end = ring.removed_count + range.start as u64;
            let mut chunk = ring.entries(range);
            chunk.reverse();
            Some(chunk).filter(|chunk| !chunk.is_empty())
        });
        chunks.flatten()
    }
}

struct Follower {
    log: DecisionLog,
    filter: DecisionFilter,
    position: u64,
}

impl Follower {
    async fn next_batch(&mut self) -> Vec<StreamItem> {
        let log = self.log.clone();
        loop {
            let mut arrival = std::pin::pin!(log.0.arrival.notified());
            // `enable` registers for notifications now, before the log is read. A decision that is added after the
            // reading then wakes this task.
            arrival.as_mut().enable();
            let (missed_count, entries) = self.take_entries();
            if missed_count == 0 && entries.is_empty() {
                arrival.await;
                tokio::time::sleep(GATHERING_TIME).await;
                continue;
            }
            let mut batch = Vec::new();
            if missed_count > 0 {
                batch.push(StreamItem::Missed(missed_count));
            }
            let included = entries.into_iter().filter(|entry| self.filter.includes(entry));
            let logged_decisions = included.filter_map(|entry| self.log.logged_decision(entry));
            batch.extend(logged_decisions.map(StreamItem::Decision));
            if !batch.is_empty() {
                return batch;
            }
            // The filter may skip thousands of decisions in a row, so other tasks on this thread get time to run.
            tokio::task::yield_now().await;
        }
    }

    fn take_entries(&mut self) -> (u64, Vec<PackedDecision>) {
        self.log.0.is_awaited.store(true, Ordering::Relaxed);
        let ring = self.log.0.memory.collect_into_ring();
        let missed_count = ring.removed_count.saturating_sub(self.position);
        let first = self.position.saturating_sub(ring.removed_count);
        let first = usize::try_from(first).unwrap_or(usize::MAX).min(ring.len());
        let range = ring.next_entries_from(first);
        self.position = ring.removed_count + range.end as u64;
        (missed_count, ring.entries(range))
    }
}

impl LoggedDecision {
    /// Returns the id of the decision; 0 if the decision is not in the log.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the verdict of the chains on the request.
    pub fn verdict(&self) -> DecisionVerdict {
        self.decided_request.verdict
    }

    /// Returns the redacted decision, without the objects of the request.
    pub fn record(&self) -> DecisionRecord {
        write::decision_record(self.id, &self.decided_request, &self.redact)
    }

    /// Returns the redacted decision with the objects of the request.
    pub fn detail(&self) -> DecisionDetail {
        write::decision_detail(self.id, &self.decided_request, &self.redact)
    }

    /// Returns `metadata.generateName` of the request's object; `None` if the object has none, or is not in the log.
    pub fn generate_name(&self) -> Option<String> {
        self.decided_request.generate_name()
    }

    /// Returns `metadata.uid` of the object stored before the request; `None` if there is none, or if the log lacks it.
    pub fn stored_uid(&self) -> Option<String> {
        self.decided_request.stored_uid()
    }

    /// Returns an estimate of how many bytes of memory the decision takes in the log.
    pub fn size(&self) -> usize {
        self.bytes
    }
}

impl Stream for DecisionStream {
    type Item = StreamItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests;
