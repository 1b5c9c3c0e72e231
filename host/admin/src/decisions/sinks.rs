//! Writes decisions to disk and servers without delaying requests. If the queue of a disk or server is full, further
//! decisions are dropped and counted.

mod events;
mod http;
mod ndjson;

use std::{fmt::Debug, sync::Arc, time::Duration};

use admittance::{
    DecisionDetail, DecisionFilter, DecisionLog, DecisionStream, DecisionVerdict, LoggedDecision, Moment, StreamItem,
    admission::async_trait,
};
use admittance_cluster::{Cluster, EventWriter};
use admittance_definitions::Share;
use admittance_net::{Backoff, metric_table, tls::TlsError};
use futures_util::StreamExt;
use metrics::{Counter, counter};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{http::HttpSink, ndjson::Ndjson};
use super::{config::SinksConfig, database::DecisionDatabase};
use crate::threads::threads;

metric_table! {
    WRITTEN = Counter "admittance_decisions_written_total" [sink]
        "Decisions that were written, by sink: sqlite, ndjson, http, events";
    DROPPED = Counter "admittance_decisions_dropped_total" [sink]
        "Decisions that were not written because they arrived faster than the sink took them, or because it \
         refused them, by sink: sqlite, ndjson, http, events";
    FAILURES = Counter "admittance_decision_write_failures_total" [sink]
        "Attempts to write decisions that failed, by sink: sqlite, ndjson, http, events";
}

/// The maximum memory of decisions in the queue of one sink, in bytes.
const QUEUE_BYTES: usize = 32 << 20;

const MAX_BATCH_SIZE: usize = 500;

/// The time that a sink waits for one more decision after the driver was stopped, before it stops reading.
const LAST_ARRIVALS_TIMEOUT: Duration = Duration::from_millis(200);

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a sink cannot write decisions.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("decisions.sqlite: {0}")]
    Database(#[from] sqlx::Error),
    #[error("decisions.sqlite: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error("decisions: {path}: {source}", path = path.display())]
    File {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("decisions.ndjson: standard output: {0}")]
    StandardOutput(std::io::Error),
    #[error("decisions.http: {0}")]
    Tls(#[from] TlsError),
    #[error("decisions.http: {0}")]
    Token(String),
    #[error("decisions.http: {url} cannot be reached: {problem}")]
    Unreachable { url: String, problem: String },
    #[error("decisions.http: {url} answered with {status}")]
    Status { url: String, status: u16 },
    #[error("a decision cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl SinkError {
    fn is_temporary(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Json(_) => false,
            _ => true,
        }
    }
}

/// The opened sinks of a driver. They receive decisions once they are started.
#[derive(Debug)]
pub struct DecisionSinks {
    sinks: Vec<Box<dyn DecisionSink>>,
    selection: SinkSelection,
    database: Option<DecisionDatabase>,
    events: Option<EventWriter>,
}

#[async_trait]
pub(super) trait DecisionSink: Debug + Send {
    fn name(&self) -> &'static str;

    /// Returns how long a batch waits for further decisions after its first one; `None` if it is written at once.
    fn gathering_time(&self) -> Option<Duration> {
        None
    }

    /// Writes a batch of decisions. After a temporary error, this is called again with the whole batch.
    async fn write(&mut self, batch: &[DecisionDetail]) -> Result<(), SinkError>;
}

#[derive(Clone, Copy, Debug)]
struct SinkSelection {
    share: Option<Share>,
    has_objects: bool,
}

type QueuedDecision = (LoggedDecision, OwnedSemaphorePermit);

impl DecisionSinks {
    /// Opens the sinks. The sink for Events creates them in `cluster`. Must be called within a tokio runtime.
    pub async fn open(config: SinksConfig, cluster: Option<&Cluster>) -> Result<Self, SinkError> {
        let mut sinks: Vec<Box<dyn DecisionSink>> = Vec::new();
        let database = match config.sqlite {
            Some(config) => Some(DecisionDatabase::open(config).await?),
            None => None,
        };
        if let Some(database) = &database {
            sinks.push(Box::new(database.clone()));
        }
        if let Some(destination) = config.ndjson {
            sinks.push(Box::new(Ndjson::open(destination).await?));
        }
        if let Some(config) = config.http {
            sinks.push(Box::new(HttpSink::new(config)?));
        }
        Ok(Self {
            sinks,
            selection: SinkSelection {
                share: config.share,
                has_objects: config.objects,
            },
            database,
            events: cluster.filter(|_| config.events).map(Cluster::events),
        })
    }

    pub fn database(&self) -> Option<DecisionDatabase> {
        self.database.clone()
    }

    pub fn start(self, log: &DecisionLog) -> RunningSinks {
        let stop = CancellationToken::new();
        let selection = self.selection;
        let runs = self.sinks.into_iter().map(|sink| {
            let decisions = log.follow(DecisionFilter::default(), None);
            threads().spawn(run_sink(sink, decisions, selection, stop.clone()))
        });
        let mut tasks: Vec<_> = runs.collect();
        tasks.extend(self.events.map(|events| {
            let denied = log.follow(events::filter(), None);
            threads().spawn(events::run(events, denied, stop.clone()))
        }));
        RunningSinks { tasks, stop }
    }
}

#[derive(Debug)]
pub struct RunningSinks {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningSinks {
    /// Writes the decisions that the queues contain, then returns. Gives up after a few seconds.
    pub async fn finish(self) {
        self.stop.cancel();
        let end = tokio::time::Instant::now() + SHUTDOWN_TIMEOUT;
        for mut task in self.tasks {
            if tokio::time::timeout_at(end, &mut task).await.is_err() {
                tracing::warn!("the last decisions could not be written in time");
                task.abort();
            }
        }
    }
}

async fn run_sink(
    mut sink: Box<dyn DecisionSink>,
    decisions: DecisionStream,
    selection: SinkSelection,
    stop: CancellationToken,
) {
    let (sender, queue) = mpsc::unbounded_channel();
    let dropped = counter!(DROPPED, "sink" => sink.name());
    tokio::join!(
        queue_decisions(decisions, sender, QUEUE_BYTES, selection, dropped.clone(), stop),
        write_queue(&mut *sink, queue, selection, dropped)
    );
}

/// Puts decisions into the queue of a sink until the driver stops. A decision is dropped if the queue has no room.
async fn queue_decisions(
    mut decisions: DecisionStream,
    queue: mpsc::UnboundedSender<QueuedDecision>,
    queue_bytes: usize,
    selection: SinkSelection,
    dropped: Counter,
    stop: CancellationToken,
) {
    dropped.absolute(0);
    let room = Arc::new(Semaphore::new(queue_bytes));
    let mut unchanged = 0;
    loop {
        let followed = match stop.run_until_cancelled(decisions.next()).await {
            Some(followed) => followed,
            None => tokio::time::timeout(LAST_ARRIVALS_TIMEOUT, decisions.next())
                .await
                .ok()
                .flatten(),
        };
        match followed {
            Some(StreamItem::Decision(decision)) => {
                if !selection.is_due(&decision, &mut unchanged) {
                    continue;
                }
                let size = u32::try_from(decision.size()).unwrap_or(u32::MAX);
                match room.clone().try_acquire_many_owned(size) {
                    Ok(permit) => {
                        // Sending cannot fail, because the queue's receiver exists as long as this sender.
                        let _ = queue.send((decision, permit));
                    }
                    Err(_) => dropped.increment(1),
                }
            }
            Some(StreamItem::Missed(missed)) => dropped.increment(missed),
            Some(_) => {}
            None => return,
        }
    }
}

impl SinkSelection {
    fn is_due(self, decision: &LoggedDecision, unchanged: &mut u64) -> bool {
        if decision.verdict() != DecisionVerdict::Allowed {
            return true;
        }
        let number = *unchanged;
        *unchanged += 1;
        self.share.is_some_and(|share| share.is_due(number))
    }

    fn detail(self, decision: &LoggedDecision) -> DecisionDetail {
        if self.has_objects {
            decision.detail()
        } else {
            decision.record().into()
        }
    }
}

async fn write_queue(
    sink: &mut dyn DecisionSink,
    mut queue: mpsc::UnboundedReceiver<QueuedDecision>,
    selection: SinkSelection,
    dropped: Counter,
) {
    let written_decisions = counter!(WRITTEN, "sink" => sink.name());
    let failures = counter!(FAILURES, "sink" => sink.name());
    written_decisions.absolute(0);
    failures.absolute(0);
    let mut waiting = Vec::with_capacity(MAX_BATCH_SIZE);
    while queue.recv_many(&mut waiting, MAX_BATCH_SIZE).await > 0 {
        if let Some(time) = sink.gathering_time() {
            let gathering = async {
                while waiting.len() < MAX_BATCH_SIZE {
                    let room = MAX_BATCH_SIZE - waiting.len();
                    if queue.recv_many(&mut waiting, room).await == 0 {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(time, gathering).await;
        }
        let mut batch = Vec::with_capacity(waiting.len());
        for (decision, _) in &waiting {
            batch.push(selection.detail(decision));
            // A decision may contain a large object, so other tasks get a turn after each one.
            tokio::task::yield_now().await;
        }
        let count = batch.len() as u64;
        match write_with_retries(sink, &batch, &failures).await {
            Ok(()) => written_decisions.increment(count),
            Err(error) => {
                tracing::error!(sink = sink.name(), count, "decisions are not written: {error}");
                dropped.increment(count);
            }
        }
        // All decisions in `waiting` have been written or dropped. Each of them still holds a permit for its memory in
        // the queue. Clearing the list releases these permits.
        waiting.clear();
    }
}

async fn write_with_retries(
    sink: &mut dyn DecisionSink,
    batch: &[DecisionDetail],
    failures: &Counter,
) -> Result<(), SinkError> {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    let mut since = None;
    loop {
        let Err(error) = sink.write(batch).await else {
            if since.is_some() {
                tracing::info!(sink = sink.name(), "decisions can be written again");
            }
            return Ok(());
        };
        failures.increment(1);
        if !error.is_temporary() {
            return Err(error);
        }
        if since.is_none() {
            since = Some(Moment::now().0);
            tracing::error!(
                sink = sink.name(),
                "decisions cannot be written, and are kept as long as there is room: {error}"
            );
        }
        tokio::time::sleep(backoff.pause_after_failure()).await;
    }
}

fn json_lines(batch: &[DecisionDetail]) -> Result<Vec<u8>, SinkError> {
    let mut lines = Vec::new();
    for decision in batch {
        serde_json::to_writer(&mut lines, decision)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;
