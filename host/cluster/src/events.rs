//! Events of Kubernetes, which `kubectl describe` shows with an object.

use admittance_admission::shortened;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event as Published, EventType, Recorder, Reporter};
use tokio::time::{Duration, Instant};

use crate::{
    ResourceError,
    connection::Connection,
    metrics::Verb,
    request_error::{RequestError, permission},
};

const CONTROLLER: &str = "admittance.dev/admittance";
/// The maximum length of an event's note that the API server accepts, in bytes.
const MAX_NOTE_LENGTH: usize = 1024;
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEvent {
    /// The object that the event is about. The event is stored in the namespace of the object.
    pub regarding: EventObject,
    pub related: Option<EventObject>,
    pub is_warning: bool,
    /// The reason of the event: a word in CamelCase, such as `Denied`.
    pub reason: &'static str,
    pub action: &'static str,
    /// The text of the event. If it is longer than the API server accepts, its end is cut off.
    pub note: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventObject {
    /// The API version of the object, such as `v1` or `apps/v1`.
    pub api_version: String,
    pub kind: String,
    /// The namespace of the object; empty for an object of the whole cluster, whose events are in `default`.
    pub namespace: String,
    /// The name of the object. For an object whose name the API server will generate, the prefix of that name.
    pub name: String,
    /// The UID of the object. It is empty if it is unknown.
    pub uid: String,
}

/// Writes events about objects to the API server. Cheap to clone.
///
/// If an event differs only in its note from an event of the last minutes, no new event is written, but the count of
/// the earlier event grows.
#[derive(Clone, derive_more::Debug)]
#[debug("EventWriter {{ connection: {connection:?}, .. }}")]
pub struct EventWriter {
    connection: Connection,
    recorder: Recorder,
}

impl EventWriter {
    pub(crate) fn new(connection: Connection) -> Self {
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(rustix::system::uname().nodename().to_string_lossy().into_owned()),
        };
        Self {
            recorder: Recorder::new(connection.client(), reporter),
            connection,
        }
    }

    pub async fn publish(&self, event: ClusterEvent) -> Result<(), ResourceError> {
        let kube_event = Published {
            type_: if event.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: event.reason.to_owned(),
            note: Some(shortened(&event.note, MAX_NOTE_LENGTH).into_owned()),
            action: event.action.to_owned(),
            secondary: event.related.map(object_reference),
        };
        let regarding = object_reference(event.regarding);
        let until = Instant::now() + REQUEST_LIMIT;
        let publish = self.recorder.publish(&kube_event, &regarding);
        let answer = self.connection.ask(Verb::Publish, until, publish).await;
        answer.map_err(|failure| {
            let message = failure.advice(&permission("`create` and `patch`", "events", "events.k8s.io"));
            match failure {
                RequestError::Unavailable(_) | RequestError::Timeout => ResourceError::Unavailable(message),
                _ => ResourceError::Refused(message),
            }
        })
    }
}

fn object_reference(object: EventObject) -> ObjectReference {
    let non_empty = |text: String| Some(text).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: non_empty(object.api_version),
        kind: non_empty(object.kind),
        namespace: non_empty(object.namespace),
        name: non_empty(object.name),
        uid: non_empty(object.uid),
        ..ObjectReference::default()
    }
}
