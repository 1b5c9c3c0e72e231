//! Samples of live requests with what became of them, to replay them elsewhere.

mod redaction;

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use admittance_admission::{Outcome, Request, ReviewVersion};
use admittance_definitions::Share;
use admittance_dialect as dialect;
use admittance_webhook as webhook;
use arc_swap::ArcSwap;
use futures_util::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

pub use self::redaction::{InvalidRedaction, Redaction};
use crate::Moment;

/// Which requests are recorded, and what of them.
#[derive(Clone, Debug, Default)]
pub struct RecordingConfig {
    /// Of the requests that some chain is for, this share. Default: all.
    pub share: Share,
    /// What is left out of objects and patches. What Secrets hold is always left out.
    pub redact: Vec<Redaction>,
}

/// A request as it came to the chains and what they said, as one AdmissionReview with both halves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// `admission.k8s.io/v1`.
    pub api_version: String,
    /// `AdmissionReview`.
    pub kind: String,
    /// As kube-apiserver would ask about it.
    pub request: Value,
    /// As kube-apiserver would be answered.
    pub response: Value,
    /// About the record itself.
    pub recording: RecordingNote,
}

/// About a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordingNote {
    /// When the chains were done with the request.
    pub at: Moment,
    /// Of the table that was live.
    pub revision: u64,
    /// How many values were left out, each written as `[redacted]`.
    pub redacted: usize,
}

/// Requests that wait to be read, at most. More are left out, and counted.
const WAITING: usize = 256;

/// Recorded requests as they come. Dropped, it ends the recording.
#[derive(Debug)]
pub struct Recording {
    requests: mpsc::Receiver<Taken>,
    tap: Arc<Recorder>,
    recorders: Weak<Recorders>,
    redact: Vec<Redaction>,
}

/// One request that was taken. Its text is made where it is read, not on the request's way.
#[derive(Debug)]
struct Taken {
    request: Request,
    outcome: Outcome,
    at: Moment,
    revision: u64,
}

/// Where requests are taken.
#[derive(Debug)]
pub(crate) struct Recorder {
    share: Share,
    requests: mpsc::Sender<Taken>,
    seen: AtomicU64,
    missed: AtomicU64,
}

/// The recordings that go on. Lives as long as the host.
#[derive(Debug, Default)]
pub(crate) struct Recorders(ArcSwap<Vec<Arc<Recorder>>>);

impl Recorders {
    /// Begin to record.
    pub(crate) fn open(self: &Arc<Self>, config: RecordingConfig) -> Recording {
        let (sender, requests) = mpsc::channel(WAITING);
        let tap = Arc::new(Recorder {
            share: config.share,
            requests: sender,
            seen: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        });
        self.0
            .rcu(|recorders| [recorders.as_slice(), std::slice::from_ref(&tap)].concat());
        Recording {
            requests,
            tap,
            recorders: Arc::downgrade(self),
            redact: config.redact,
        }
    }

    /// The request for those who want this one; without recordings, which is usual, it costs nothing.
    pub(crate) fn take(&self, request: &Request) -> Option<(Request, Vec<Arc<Recorder>>)> {
        let recorders = self.0.load();
        if recorders.is_empty() {
            return None;
        }
        let due = |tap: &&Arc<Recorder>| tap.share.is_due(tap.seen.fetch_add(1, Ordering::Relaxed));
        let due: Vec<_> = recorders.iter().filter(due).cloned().collect();
        (!due.is_empty()).then(|| (request.clone(), due))
    }
}

/// Hand on what was taken, with what became of it.
pub(crate) fn hand_on((request, recorders): (Request, Vec<Arc<Recorder>>), outcome: &Outcome, revision: u64) {
    for tap in recorders {
        let taken = Taken {
            request: request.clone(),
            outcome: outcome.clone(),
            at: Moment::now(),
            revision,
        };
        if tap.requests.try_send(taken).is_err() {
            tap.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recording {
    /// How many requests were left out because they came faster than they were read.
    pub fn missed(&self) -> u64 {
        self.tap.missed.load(Ordering::Relaxed)
    }
}

impl Stream for Recording {
    type Item = RecordedRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(taken) = std::task::ready!(self.requests.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            if let Some(recorded) = write(&taken, &self.redact) {
                return Poll::Ready(Some(recorded));
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(recorders) = self.recorders.upgrade() {
            recorders.0.rcu(|recorders| {
                let mut recorders = recorders.to_vec();
                recorders.retain(|tap| !Arc::ptr_eq(tap, &self.tap));
                recorders
            });
        }
    }
}

fn write(taken: &Taken, redact: &[Redaction]) -> Option<RecordedRequest> {
    let part = |text: &[u8], name: &str| {
        let mut review: Value = serde_json::from_slice(text).ok()?;
        review.get_mut(name).map(Value::take)
    };
    let review = webhook::write_review(ReviewVersion::V1, &taken.request).ok()?;
    let answer = dialect::write_review(ReviewVersion::V1, &taken.request.uid, Some(&taken.outcome));
    let mut request = part(&review, "request")?;
    let mut response = part(&answer, "response")?;
    let redacted = redaction::apply(&taken.request, redact, &mut request, &mut response);
    Some(RecordedRequest {
        api_version: ReviewVersion::V1.api_version().to_owned(),
        kind: "AdmissionReview".to_owned(),
        request,
        response,
        recording: RecordingNote {
            at: taken.at,
            revision: taken.revision,
            redacted,
        },
    })
}
