//! Lookups of the labels of namespaces.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use admittance_admission::{Labels, NamespaceLookupError, is_dns_label};
use kube::{
    Api, Client, Resource,
    core::{ApiResource, PartialObjectMeta},
};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::Key,
    connection::Connection,
    health::ClusterWatch,
    item::CachedObject,
    metrics::Verb,
    request_error::{RequestError, permission},
    watch::{WatchSelection, WatchView, spawn},
};

const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

/// A namespace without its spec and status: only its metadata is requested.
type Namespace = PartialObjectMeta<CachedObject>;

/// The namespaces of the cluster and their labels. The watch starts with the first lookup, so a host that never looks
/// up a namespace needs no permission to watch them.
#[derive(Debug)]
pub(crate) struct NamespaceLabels {
    connection: Connection,
    view: Arc<WatchView<Arc<Labels>>>,
    task: OnceLock<AbortOnDropHandle<()>>,
}

fn namespace_resource() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        plural: "namespaces".to_owned(),
    }
}

fn namespace_api(client: Client) -> Api<Namespace> {
    Api::all_with(client, &namespace_resource())
}

fn labels_of(namespace: &mut Namespace) -> Labels {
    namespace.meta_mut().labels.take().unwrap_or_default()
}

fn cache_entry(mut namespace: Namespace) -> (Key, Arc<Labels>) {
    let labels = labels_of(&mut namespace);
    let name = namespace.metadata.name.unwrap_or_default();
    (Key::new(None, &name), Arc::new(labels))
}

fn not_found_error(name: &str) -> NamespaceLookupError {
    NamespaceLookupError(format!("namespace {name:?} not found"))
}

impl NamespaceLabels {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            view: Arc::new(WatchView::new("namespaces")),
            task: OnceLock::new(),
        }
    }

    pub(crate) fn start(&self, runtime: &Handle) {
        self.task.get_or_init(|| {
            let permission = permission("`list` and `watch`", "namespaces", "");
            let (connection, view) = (&self.connection, &self.view);
            spawn(
                runtime,
                connection,
                namespace_api,
                WatchSelection::All,
                view,
                cache_entry,
                permission,
            )
        });
    }

    pub(crate) fn status(&self) -> ClusterWatch {
        self.view.status("v1/Namespace")
    }

    /// Returns the labels of a namespace. Looks in the cache first, as kube-apiserver does, and asks the API server
    /// only if the cache lacks the namespace or is out of date.
    pub(crate) async fn labels(&self, name: &str) -> Result<Labels, NamespaceLookupError> {
        // The name comes from a request and becomes a part of a URL's path, so it must be valid.
        if !is_dns_label(name) {
            return Err(not_found_error(name));
        }
        if self.view.is_usable()
            && let Some(labels) = self.view.cache.get(&Key::new(None, name))
        {
            return Ok((*labels).clone());
        }
        let until = Instant::now() + LOOKUP_LIMIT;
        let client = self.connection.client();
        let answer = self
            .connection
            .ask(Verb::Get, until, async { namespace_api(client).get(name).await })
            .await;
        match answer {
            Ok(mut namespace) => Ok(labels_of(&mut namespace)),
            Err(RequestError::NotFound(_)) => Err(not_found_error(name)),
            Err(failure) => Err(self.lookup_error(name, &failure)),
        }
    }

    fn lookup_error(&self, name: &str, failure: &RequestError) -> NamespaceLookupError {
        let url = self.connection.url();
        let reason = match failure {
            RequestError::Timeout => format!("no answer within {}", humantime::format_duration(LOOKUP_LIMIT)),
            other => other.advice(&permission("`get`, `list` and `watch`", "namespaces", "")),
        };
        NamespaceLookupError(format!(
            "the labels of namespace {name:?} cannot be read from {url}: {reason}"
        ))
    }
}
