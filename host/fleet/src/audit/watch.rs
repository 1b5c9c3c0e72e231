//! Watches the objects of an audited resource for changes.

use std::{sync::Arc, time::Duration};

use admittance_admission::Object;
use admittance_cluster::AnswerError;
use futures_util::StreamExt;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::mpsc::Sender,
    time::{Instant, sleep, timeout},
};

use super::client::{AuditClient, AuditedResource, content_error};
use crate::leader::backoff;

/// The time after which the API server is asked to end a watch, in seconds.
const WATCH_SECONDS: u64 = 240;
/// The API server should end a watch after `WATCH_SECONDS`. If it does not, this program ends the watch this much
/// later.
const GRACE: Duration = Duration::from_secs(30);
/// The minimum time from the beginning of a watch to the beginning of the next watch on the same resource.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);
/// The minimum time from the list of a resource to its next list.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum ObjectChange {
    Present(Object),
    Gone(Object),
    Works,
    Fails(AnswerError),
    /// The objects must be listed again, because the watch cannot continue.
    Expired,
}

#[derive(Deserialize)]
struct WatchedEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectOrError {
    metadata: WatchMetadata,
    code: u16,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WatchMetadata {
    resource_version: String,
}

/// Watches the objects of a resource from `version` on, until the watch expires. `number` identifies the resource.
pub(super) async fn follow(
    client: Arc<AuditClient>,
    resource: AuditedResource,
    number: u16,
    mut version: String,
    changes: Sender<(u16, ObjectChange)>,
) {
    let start = Instant::now();
    let mut pauses = backoff();
    loop {
        let watch_start = Instant::now();
        let pause = match watch_once(&client, &resource, number, &mut version, &changes).await {
            Ok(true) => {
                pauses.reset();
                MIN_WATCH_TIME.saturating_sub(watch_start.elapsed())
            }
            Ok(false) => {
                sleep(MIN_LIST_INTERVAL.saturating_sub(start.elapsed())).await;
                let _ = changes.send((number, ObjectChange::Expired)).await;
                return;
            }
            Err(error) => {
                if changes.send((number, ObjectChange::Fails(error))).await.is_err() {
                    return;
                }
                pauses.pause_after_failure()
            }
        };
        sleep(pause).await;
    }
}

/// Watches objects until the API server ends the watch. Returns whether another watch can continue from the last
/// version that was seen.
async fn watch_once(
    client: &AuditClient,
    resource: &AuditedResource,
    number: u16,
    version: &mut String,
    changes: &Sender<(u16, ObjectChange)>,
) -> Result<bool, AnswerError> {
    let path = resource.path(None);
    let query =
        format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}");
    let mut lines = match client.lines(&query).await {
        Err(AnswerError::Status { status, .. }) if status == StatusCode::GONE => return Ok(false),
        lines => lines?,
    };
    let content_error = |error: &dyn ToString| content_error(&path, &error.to_string());
    if changes.send((number, ObjectChange::Works)).await.is_err() {
        return Ok(true);
    }
    let limit = Duration::from_secs(WATCH_SECONDS) + GRACE;
    while let Ok(Some(line)) = timeout(limit, lines.next()).await {
        let line = line?;
        let WatchedEvent { kind, object } = serde_json::from_str(&line).map_err(|error| content_error(&error))?;
        let event_object: ObjectOrError = serde_json::from_str(object.get()).map_err(|error| content_error(&error))?;
        let parsed = || resource.parse_object(object).map_err(|error| content_error(&error));
        let change = match kind {
            "ADDED" | "MODIFIED" => Some(ObjectChange::Present(parsed()?)),
            "DELETED" => Some(ObjectChange::Gone(parsed()?)),
            "ERROR" if event_object.code == StatusCode::GONE => return Ok(false),
            "ERROR" => return Err(content_error(&event_object.message)),
            _ => None,
        };
        *version = event_object.metadata.resource_version;
        if let Some(change) = change
            && changes.send((number, change)).await.is_err()
        {
            return Ok(true);
        }
    }
    Ok(true)
}
