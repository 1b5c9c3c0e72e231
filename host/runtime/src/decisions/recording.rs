//! Records a sample of live requests and their results, to replay them later.

mod redaction;

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use admittance_admission::{HttpAnswer, Request, ResponseRecorder, ReviewVersion, write_response, write_review};
use admittance_definitions::Share;
use arc_swap::ArcSwap;
use futures_util::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

pub use self::redaction::{InvalidRedaction, Redacted, Redaction};
pub(crate) use self::redaction::{is_secret, redact_object, redact_patch};
use crate::{Moment, decisions::DecidedRequest};

/// The options of a recording of live requests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecordingConfig {
    /// The share of the matching requests that is recorded. Default: all requests that match a chain.
    pub share: Share,
    /// The values to redact in the recorded objects and patches. The content of Secrets is always redacted.
    pub redact: Vec<Redaction>,
}

/// A recorded request and the response of the chains, as one AdmissionReview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The version of AdmissionReview, `admission.k8s.io/v1`.
    pub api_version: String,
    /// The kind of the recorded document, `AdmissionReview`.
    pub kind: String,
    /// The recorded request, in the form in which kube-apiserver would send it.
    pub request: Redacted,
    /// The response to the recorded request, in the form that kube-apiserver expects.
    pub response: Redacted,
    /// Information about the recording of this request.
    pub recording: RecordingNote,
}

/// Information about how and when a request was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordingNote {
    /// The time at which the chains finished the recorded request.
    pub at: Moment,
    /// The revision that was live when the request was recorded.
    pub revision: u64,
    /// The number of values in the record that were redacted, which means replaced by `[redacted]`.
    pub redacted: usize,
    /// The responses to the HTTP requests that plugins sent for the recorded request, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<Redacted<HttpAnswer>>,
    /// The objects that plugins looked up for the recorded request; absent if plugins looked nothing up. If a plugin
    /// asked whether a user may do something, and the user may, the list contains roles that permit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Vec<Redacted>>,
    /// The number of HTTP responses and objects that were not recorded, because there were too many for one request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: usize,
}

pub(crate) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The maximum number of recorded requests that wait to be read. If there are more, they are dropped and counted.
const MAX_WAITING_REQUESTS: usize = 256;

/// A stream of recorded requests. Dropping it ends the recording.
#[derive(Debug)]
pub struct RequestRecording {
    requests: mpsc::Receiver<Arc<DecidedRequest>>,
    recorder: Arc<Recorder>,
    recorders: Weak<Recorders>,
    redact: Vec<Redaction>,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    share: Share,
    requests: mpsc::Sender<Arc<DecidedRequest>>,
    seen_count: AtomicU64,
    missed_count: AtomicU64,
}

/// The recordings that have not ended. Lives as long as the host.
#[derive(Debug, Default)]
pub(crate) struct Recorders(ArcSwap<Vec<Arc<Recorder>>>);

impl Recorders {
    pub(crate) fn open(self: &Arc<Self>, config: RecordingConfig) -> RequestRecording {
        let (sender, requests) = mpsc::channel(MAX_WAITING_REQUESTS);
        let recorder = Arc::new(Recorder {
            share: config.share,
            requests: sender,
            seen_count: AtomicU64::new(0),
            missed_count: AtomicU64::new(0),
        });
        self.0
            .rcu(|recorders| [recorders.as_slice(), std::slice::from_ref(&recorder)].concat());
        RequestRecording {
            requests,
            recorder,
            recorders: Arc::downgrade(self),
            redact: config.redact,
        }
    }

    /// Returns the recordings that include this request. If there are any, the responses and objects that plugins fetch
    /// for the request will be recorded, too.
    pub(crate) fn due_recorders(&self, request: &mut Request) -> Vec<Arc<Recorder>> {
        let recorders = self.0.load();
        let is_due = |recorder: &&Arc<Recorder>| {
            recorder
                .share
                .is_due(recorder.seen_count.fetch_add(1, Ordering::Relaxed))
        };
        let due_recorders: Vec<_> = recorders.iter().filter(is_due).cloned().collect();
        if !due_recorders.is_empty() {
            request.recorder = Some(ResponseRecorder::default());
        }
        due_recorders
    }
}

impl Recorder {
    pub(crate) fn deliver(&self, decided: Arc<DecidedRequest>) {
        if self.requests.try_send(decided).is_err() {
            self.missed_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestRecording {
    /// Returns the number of requests that are missing in the recording because they were not read fast enough.
    pub fn missed(&self) -> u64 {
        self.recorder.missed_count.load(Ordering::Relaxed)
    }
}

impl Stream for RequestRecording {
    type Item = RecordedRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(decided) = std::task::ready!(self.requests.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            if let Some(recorded) = build_recorded_request(&decided, &self.redact) {
                return Poll::Ready(Some(recorded));
            }
        }
    }
}

impl Drop for RequestRecording {
    fn drop(&mut self) {
        if let Some(recorders) = self.recorders.upgrade() {
            recorders.0.rcu(|recorders| {
                let mut recorders = recorders.to_vec();
                recorders.retain(|other| !Arc::ptr_eq(other, &self.recorder));
                recorders
            });
        }
    }
}

pub(crate) fn build_recorded_request(decided: &DecidedRequest, redact: &[Redaction]) -> Option<RecordedRequest> {
    let part = |text: &[u8], name: &str| {
        let mut review: Value = serde_json::from_slice(text).ok()?;
        review.get_mut(name).map(Value::take)
    };
    let review = write_review(ReviewVersion::V1, &decided.request_with_objects()?);
    let answer = write_response(ReviewVersion::V1, &decided.request.uid, Some(&decided.outcome));
    let (request, response) = (part(&review, "request")?, part(&answer, "response")?);
    let (request, response, mut redacted) = redaction::redact_review(&decided.request, redact, request, response);
    let mut http = Vec::new();
    for answer in &decided.recorded_responses.http {
        let (answer, count) = redaction::redact_answer(answer.clone(), redact);
        redacted += count;
        http.push(answer);
    }
    let mut cluster = Vec::new();
    for (kind, object) in &decided.recorded_responses.objects {
        let Ok(Value::Object(mut object)) = serde_json::from_str(object) else {
            continue;
        };
        // An object that was read from a list, such as a PodList, may lack its version and kind, so they are added.
        object.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        object.entry("kind").or_insert_with(|| kind.kind().into());
        let is_secret = kind.api_version() == "v1" && kind.kind() == "Secret";
        let (object, count) = redaction::redact_lookup(Value::Object(object), is_secret, redact);
        redacted += count;
        cluster.push(object);
    }
    Some(RecordedRequest {
        api_version: ReviewVersion::V1.api_version().to_owned(),
        kind: "AdmissionReview".to_owned(),
        request,
        response,
        recording: RecordingNote {
            at: decided.time,
            revision: decided.revision,
            redacted,
            http,
            cluster: decided.recorded_responses.looked_up.then_some(cluster),
            missed: decided.recorded_responses.missed,
        },
    })
}
