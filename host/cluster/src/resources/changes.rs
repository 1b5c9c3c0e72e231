//! Notices that resources have changed: by a watch on them, or, while there is no watch, by listing them repeatedly.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use futures_util::future::select_all;
use serde_json::Value;
use tokio::time::Instant;

use super::{Resource, ResourceError, WatchedResources};

/// The pause between two lists of the resources by `changed`. It lists them only when it cannot wait for a watch: while
/// the watch is down, or after a list has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct LastResourceRead {
    changes: u64,
    read_at: Instant,
    /// The version of each resource that was read; `None` if the read failed.
    versions: Option<Vec<ContentVersion>>,
}

/// A hash of metadata fields that show whether a resource has changed, such as its generation and labels. If only the
/// status of the resource changes, the hash remains the same.
pub(super) type ContentVersion = u64;

const VERSIONED_FIELDS: [&str; 6] = ["namespace", "name", "uid", "generation", "labels", "annotations"];

pub(super) fn content_version(metadata: Option<&Value>) -> ContentVersion {
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
    let mut hasher = DefaultHasher::new();
    for name in VERSIONED_FIELDS {
        field(name).map(Value::to_string).hash(&mut hasher);
    }
    if field("generation").is_none() {
        field("resourceVersion").map(Value::to_string).hash(&mut hasher);
    }
    hasher.finish()
}

fn content_versions(resources: &[Resource]) -> Vec<ContentVersion> {
    let metadata = |resource: &'_ Resource| content_version(resource.object.get("metadata"));
    resources.iter().map(metadata).collect()
}

impl WatchedResources {
    /// Returns a counter that grows whenever the watch reports a change, goes down or comes up.
    pub fn changes(&self) -> u64 {
        *self.0.view.health.changes().borrow()
    }

    /// Waits until [`changes`](Self::changes) differs from this number.
    pub async fn changed_since(&self, changes: u64) {
        let mut receiver = self.0.view.health.changes();
        let _ = receiver.wait_for(|number| *number != changes).await;
    }

    /// Returns whether the watch on the resources is up. While it is down, [`changes`](Self::changes) does not signal
    /// that a resource changed.
    pub fn is_watched(&self) -> bool {
        self.0.view.health.is_watching()
    }

    /// Reads all resources, and stores the result, so that [`changed`](Self::changed) can compare with it.
    pub async fn read(&self) -> Result<Vec<Resource>, ResourceError> {
        let changes = self.changes();
        let result = self.list().await;
        *self.0.last_read.lock() = Some(LastResourceRead {
            changes,
            read_at: Instant::now(),
            versions: result.as_deref().ok().map(content_versions),
        });
        result
    }

    /// Waits until it is worth calling [`read`](Self::read) again: a resource may have changed since the last read, or
    /// the API server has become available or unavailable. The returned future may be dropped, and this method called
    /// again, without missing a change.
    pub async fn changed(&self) {
        loop {
            let Some(last) = self.0.last_read.lock().clone() else {
                return;
            };
            let changed = self.changed_since(last.changes);
            if last.versions.is_some() && self.is_watched() {
                return changed.await;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(last.read_at + RETRY_PAUSE) => {}
            }
            let changes = self.changes();
            if self.list().await.as_deref().ok().map(content_versions) != last.versions {
                return;
            }
            if let Some(last) = &mut *self.0.last_read.lock() {
                last.changes = changes;
                last.read_at = Instant::now();
            }
        }
    }
}

/// Returns a future that completes when a resource of one of these kinds changes. Each change after this call counts,
/// even if the future is polled only later.
pub fn next_change<'r, K>(kinds: K) -> impl Future<Output = ()> + use<'r, K>
where
    K: IntoIterator<Item = &'r WatchedResources>,
{
    let changes: Vec<_> = kinds
        .into_iter()
        .map(|resources| Box::pin(resources.changed_since(resources.changes())))
        .collect();
    async {
        select_all(changes).await;
    }
}
