//! Creates Events in the Kubernetes cluster for denied requests.

use std::{collections::HashMap, time::Duration};

use admittance::{
    DecisionFilter, DecisionRecord, DecisionStream, DecisionVerdict, LoggedDecision, StreamItem, admission::Operation,
};
use admittance_cluster::{ClusterEvent, EventObject, EventWriter};
use futures_util::StreamExt;
use metrics::{Counter, counter};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{DROPPED, FAILURES, WRITTEN};

const NAME: &str = "events";
const QUEUE_LENGTH: usize = 256;
const TOTAL_RATE: EventRate = EventRate {
    burst: 100.0,
    interval: Duration::from_millis(200),
};
/// The rate limit of Events about one object. A workload, for example, may create a denied Pod again and again.
const OBJECT_RATE: EventRate = EventRate {
    burst: 5.0,
    interval: Duration::from_secs(60),
};
/// The maximum number of objects that have a rate limit of their own.
const MAX_OBJECTS: usize = 4096;

pub(super) async fn run(events: EventWriter, decisions: DecisionStream, stop: CancellationToken) {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let dropped = counter!(DROPPED, "sink" => NAME);
    dropped.absolute(0);
    tokio::join!(
        queue_events(decisions, sender, dropped.clone(), stop),
        publish_events(events, queue, dropped)
    );
}

pub(super) fn filter() -> DecisionFilter {
    let mut filter = DecisionFilter::default();
    filter.verdict = vec![DecisionVerdict::Denied];
    filter
}

/// Puts an Event into the queue for each denied request. If the queue is full, the Event is dropped.
async fn queue_events(
    mut decisions: DecisionStream,
    queue: mpsc::Sender<ClusterEvent>,
    dropped: Counter,
    stop: CancellationToken,
) {
    let mut limits = EventLimits::default();
    while let Some(Some(followed)) = stop.run_until_cancelled(decisions.next()).await {
        let decision = match followed {
            StreamItem::Decision(decision) => decision,
            StreamItem::Missed(missed) => {
                dropped.increment(missed);
                continue;
            }
            _ => continue,
        };
        let record = decision.record();
        // A dry run must leave no trace in the cluster.
        if record.dry_run {
            continue;
        }
        let event = event(&decision, record);
        if !limits.allow(&event, Instant::now()) || queue.try_send(event).is_err() {
            dropped.increment(1);
        }
    }
}

async fn publish_events(events: EventWriter, mut queue: mpsc::Receiver<ClusterEvent>, dropped: Counter) {
    let written_events = counter!(WRITTEN, "sink" => NAME);
    let failures = counter!(FAILURES, "sink" => NAME);
    written_events.absolute(0);
    failures.absolute(0);
    let mut problem = None;
    while let Some(event) = queue.recv().await {
        match events.publish(event).await {
            Ok(()) => {
                problem = None;
                written_events.increment(1);
            }
            // A failed Event is not sent again. It would come late, and a late Event has little value.
            Err(error) => {
                failures.increment(1);
                dropped.increment(1);
                let error = error.to_string();
                if problem.as_ref() != Some(&error) {
                    tracing::warn!("an event for a denied request cannot be written: {error}");
                }
                problem = Some(error);
            }
        }
    }
}

/// Makes the Event for a denied request. If the object does not exist, such as when its creation was denied, the Event
/// belongs to the object's namespace instead.
fn event(decision: &LoggedDecision, record: DecisionRecord) -> ClusterEvent {
    let (api_version, kind) = match record.kind.rsplit_once('/') {
        Some((api_version, kind)) => (api_version.to_owned(), kind.to_owned()),
        None => (String::new(), record.kind.clone()),
    };
    let is_secret = record.kind == "v1/Secret";
    let namespace = record.namespace.unwrap_or_default();
    let object = EventObject {
        api_version,
        kind,
        namespace: namespace.clone(),
        name: if record.name.is_empty() {
            decision.generate_name().unwrap_or_default()
        } else {
            record.name
        },
        // A denied object was not created, so its uid belongs to no object.
        uid: decision.stored_uid().unwrap_or_default(),
    };
    let subject = if object.name.is_empty() {
        object.kind.clone()
    } else {
        format!("{} {}", object.kind, object.name)
    };
    // The message of a decision about a Secret may quote the Secret's content. It is left out, because more people may
    // read Events than Secrets.
    let denial_reason = record.message.filter(|_| !is_secret).unwrap_or_else(|| {
        let denied = record.stages.iter().find(|stage| stage.result == "deny");
        denied.map_or_else(String::new, |stage| {
            format!("denied by stage {} of chain {}", stage.stage, stage.chain)
        })
    });
    let (regarding, related) = if object.uid.is_empty() && !namespace.is_empty() {
        (namespace_of(namespace), Some(object))
    } else {
        (object, None)
    };
    ClusterEvent {
        regarding,
        related,
        is_warning: true,
        reason: "Denied",
        action: match record.operation {
            Operation::Create => "Create",
            Operation::Update => "Update",
            Operation::Delete => "Delete",
            Operation::Connect => "Connect",
        },
        note: format!("{subject}, requested by {}: {denial_reason}", record.user),
    }
}

/// Returns the namespace with this name, as the object of an Event. The Event is created in the same namespace.
fn namespace_of(name: String) -> EventObject {
    EventObject {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: name.clone(),
        name,
        uid: String::new(),
    }
}

/// A limit on the rate of Events: first a burst, then one Event per interval.
#[derive(Clone, Copy)]
struct EventRate {
    burst: f64,
    interval: Duration,
}

struct RemainingEvents {
    count: f64,
    counted_at: Instant,
}

impl EventRate {
    fn remaining(self, rest: Option<&RemainingEvents>, now: Instant) -> f64 {
        rest.map_or(self.burst, |rest| {
            let intervals = (now - rest.counted_at).as_secs_f64() / self.interval.as_secs_f64();
            (rest.count + intervals).min(self.burst)
        })
    }
}

#[derive(Default)]
struct EventLimits {
    total: Option<RemainingEvents>,
    objects: HashMap<EventObject, RemainingEvents>,
}

impl EventLimits {
    fn allow(&mut self, event: &ClusterEvent, now: Instant) -> bool {
        let object = event.related.as_ref().unwrap_or(&event.regarding);
        let object_allowance = OBJECT_RATE.remaining(self.objects.get(object), now);
        let total_allowance = TOTAL_RATE.remaining(self.total.as_ref(), now);
        if object_allowance < 1.0 || total_allowance < 1.0 {
            return false;
        }
        if self.objects.len() >= MAX_OBJECTS {
            self.objects
                .retain(|_, rest| OBJECT_RATE.remaining(Some(rest), now) < OBJECT_RATE.burst);
        }
        let after_event = |count: f64| RemainingEvents {
            count: count - 1.0,
            counted_at: now,
        };
        self.total = Some(after_event(total_allowance));
        if self.objects.len() < MAX_OBJECTS {
            self.objects.insert(object.clone(), after_event(object_allowance));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> ClusterEvent {
        ClusterEvent {
            regarding: EventObject {
                name: name.to_owned(),
                ..EventObject::default()
            },
            related: None,
            is_warning: true,
            reason: "Denied",
            action: "Create",
            note: String::new(),
        }
    }

    #[test]
    fn events_are_limited_per_object_and_in_total() {
        let (mut limits, start) = (EventLimits::default(), Instant::now());
        let mut count_allowed = |name: &str, count: usize, second: u64| {
            let now = start + Duration::from_secs(second);
            (0..count).filter(|_| limits.allow(&event(name), now)).count()
        };
        // (object, denied requests, time of the requests in seconds, expected Events)
        for (name, requests, second, expected) in [
            ("a", 10, 0, 5),
            ("b", 3, 0, 3),
            ("a", 10, 59, 0),
            ("a", 10, 60, 1),
            ("a", 10, 240, 3),
            ("b", 10, 240, 5),
        ] {
            assert_eq!(
                count_allowed(name, requests, second),
                expected,
                "{name} after {second} s"
            );
        }
        let of_others = (0..1000)
            .map(|number| count_allowed(&number.to_string(), 1, 1000))
            .sum::<usize>();
        assert_eq!(of_others, 100);
        let of_others = (0..1000)
            .map(|number| count_allowed(&number.to_string(), 1, 1001))
            .sum::<usize>();
        assert_eq!(of_others, 5);
    }
}
