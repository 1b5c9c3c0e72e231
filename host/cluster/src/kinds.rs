//! Objects of the kinds that plugins may read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use admittance_admission::{ClusterError, ClusterKind, Deadline};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
    discovery::{Scope, pinned_kind, verbs},
};
use tokio::{runtime::Handle, sync::OnceCell, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::Key,
    connection::Connection,
    health::WatchStatus,
    item::{Item, Stored},
    metrics::Verb,
    request_error::{RequestError, permission},
    selector::TextSelector,
    watch::{Pace, View, follow},
};

/// The longest time of a lookup, whatever its deadline.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// The kinds that were looked up, each with its watch.
#[derive(Debug)]
pub(crate) struct Kinds {
    connection: Connection,
    watches: Mutex<HashMap<ClusterKind, Watched>>,
}

/// A kind and the task that watches it; the task holds only the kind, so it ends with this.
#[derive(Debug)]
struct Watched {
    kind: Arc<Kind>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Kind {
    name: ClusterKind,
    connection: Connection,
    served: OnceCell<Served>,
    view: View<Stored>,
}

/// Discovery information about a kind.
#[derive(Clone, Debug)]
struct Served {
    resource: ApiResource,
    is_namespaced: bool,
    can_watch: bool,
}

impl Kinds {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            watches: Mutex::default(),
        }
    }

    /// The kind; starts its watch if necessary.
    fn kind(&self, name: &ClusterKind, runtime: &Handle) -> Arc<Kind> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = watches.get(name) {
            return watched.kind.clone();
        }
        let kind = Arc::new(Kind {
            name: name.clone(),
            connection: self.connection.clone(),
            served: OnceCell::new(),
            view: View::new(name.to_string()),
        });
        kind.view.health.starting();
        let followed = kind.clone();
        let task = AbortOnDropHandle::new(runtime.spawn(async move { followed.follow().await }));
        let watched = Watched {
            kind: kind.clone(),
            _task: task,
        };
        watches.insert(name.clone(), watched);
        kind
    }

    pub(crate) fn start(&self, name: &ClusterKind, runtime: &Handle) {
        self.kind(name, runtime);
    }

    pub(crate) fn status(&self) -> Vec<(ClusterKind, WatchStatus)> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status: Vec<_> = watches
            .iter()
            .map(|(name, watched)| (name.clone(), watched.kind.view.status()))
            .collect();
        status.sort_by(|(one, _), (other, _)| one.cmp(other));
        status
    }

    pub(crate) async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        deadline: Deadline,
        runtime: &Handle,
    ) -> Result<Option<String>, ClusterError> {
        check_segment(name, "object name")?;
        let until = deadline.within(LOOKUP_LIMIT).instant();
        self.kind(kind, runtime).get(namespace, name, until).await
    }

    pub(crate) async fn list(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        label_selector: &str,
        deadline: Deadline,
        runtime: &Handle,
    ) -> Result<Vec<String>, ClusterError> {
        let selector = TextSelector::parse(label_selector).map_err(ClusterError::Refused)?;
        let until = deadline.within(LOOKUP_LIMIT).instant();
        let kind = self.kind(kind, runtime);
        kind.list(namespace, &selector, label_selector, until).await
    }
}

impl Kind {
    /// The discovery information about the kind; requested once.
    async fn served(&self, until: Instant) -> Result<&Served, RequestError> {
        let discover = async {
            let gvk = match self.name.api_version().split_once('/') {
                Some((group, version)) => GroupVersionKind::gvk(group, version, self.name.kind()),
                None => GroupVersionKind::gvk("", self.name.api_version(), self.name.kind()),
            };
            let client = self.connection.client();
            let (resource, capabilities) = self
                .connection
                .ask(Verb::Discover, until, pinned_kind(&client, &gvk))
                .await?;
            Ok(Served {
                resource,
                is_namespaced: capabilities.scope == Scope::Namespaced,
                can_watch: capabilities.supports_operation(verbs::WATCH)
                    && capabilities.supports_operation(verbs::LIST),
            })
        };
        // Another lookup may already be requesting it, with another deadline.
        let served = tokio::time::timeout_at(until, self.served.get_or_try_init(|| discover)).await;
        match served {
            Ok(Err(RequestError::NotFound(_))) => Err(RequestError::NotFound(format!(
                "the API server has no kind `{}`: correct it, or install its CustomResourceDefinition",
                self.name
            ))),
            Ok(served) => served,
            Err(_) => Err(RequestError::Timeout),
        }
    }

    async fn follow(&self) {
        let mut pace = Pace::default();
        let served = loop {
            match self.served(Instant::now() + LOOKUP_LIMIT).await {
                Ok(served) => break served,
                Err(failure) => {
                    match &failure {
                        RequestError::Forbidden(words) => self.view.health.refused(words.clone()),
                        other => self.view.health.down(other.sentence()),
                    }
                    pace.wait(&failure).await;
                }
            }
        };
        let resource = &served.resource;
        if !served.can_watch {
            let words = format!(
                "the API server does not support listing and watching `{}`",
                self.name
            );
            self.view.health.refused(words);
            return;
        }
        let permission = permission("`list` and `watch`", &resource.plural, &resource.group);
        let entry = |item: Item| (item.key(), item.into_stored(resource));
        let api = |client| Api::<Item>::all_with(client, resource);
        follow(&self.connection, api, &self.view, entry, &permission).await;
    }

    /// The API for lookups in a namespace, or in all.
    fn api(&self, served: &Served, namespace: Option<&str>) -> Result<Api<Item>, ClusterError> {
        let client: Client = self.connection.client();
        match namespace {
            None => Ok(Api::all_with(client, &served.resource)),
            Some(_) if !served.is_namespaced => Err(ClusterError::Refused(format!(
                "`{}` is not namespaced: leave the namespace out",
                self.name
            ))),
            Some(namespace) => {
                check_segment(namespace, "namespace")?;
                Ok(Api::namespaced_with(client, namespace, &served.resource))
            }
        }
    }

    fn error(&self, served: &Served, verb: &str, failure: &RequestError) -> ClusterError {
        failure.for_plugin(&permission(verb, &served.resource.plural, &served.resource.group))
    }

    async fn discovered(&self, until: Instant) -> Result<&Served, ClusterError> {
        let served = self.served(until).await;
        served.map_err(|failure| {
            failure.for_plugin("allow this program's account to read the API server's discovery")
        })
    }

    async fn get(
        &self,
        namespace: Option<&str>,
        name: &str,
        until: Instant,
    ) -> Result<Option<String>, ClusterError> {
        let served = self.discovered(until).await?;
        let api = self.api(served, namespace)?;
        if namespace.is_none() && served.is_namespaced {
            return Err(ClusterError::Refused(format!(
                "`{}` is namespaced: give the namespace",
                self.name
            )));
        }
        if self.view.is_usable() {
            let stored = self.view.cache.get(&Key::new(namespace, name));
            return Ok(stored.map(|stored| stored.json.as_ref().to_owned()));
        }
        let answer = self.connection.ask(Verb::Get, until, api.get(name)).await;
        match answer {
            Ok(item) => Ok(Some(item.into_json(&served.resource))),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(failure) => Err(self.error(served, "`get`, `list` and `watch`", &failure)),
        }
    }

    async fn list(
        &self,
        namespace: Option<&str>,
        selector: &TextSelector,
        selector_text: &str,
        until: Instant,
    ) -> Result<Vec<String>, ClusterError> {
        let served = self.discovered(until).await?;
        let api = self.api(served, namespace)?;
        if self.view.is_usable() {
            let chosen = |stored: &Stored| selector.matches(&stored.labels);
            let stored = self.view.cache.list(namespace, chosen);
            return Ok(stored
                .iter()
                .map(|stored| stored.json.as_ref().to_owned())
                .collect());
        }
        let params = ListParams::default().labels(selector_text);
        let items = self.connection.list(&api, params, until).await;
        let items = items.map_err(|failure| self.error(served, "`list` and `watch`", &failure))?;
        Ok(items
            .into_iter()
            .map(|item| item.into_json(&served.resource))
            .collect())
    }
}

/// The longest name of an object.
const NAME_LENGTH: usize = 253;

/// Checks a text of a plugin that becomes one segment of a URL path, so that it cannot reach another kind.
/// Stricter than Kubernetes' own rule (`IsValidPathSegmentName`) only in characters that no name has.
fn check_segment(text: &str, what: &str) -> Result<(), ClusterError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    let holds = !matches!(text, "" | "." | "..") && text.len() <= NAME_LENGTH && text.bytes().all(is_letter);
    if holds {
        Ok(())
    } else {
        Err(ClusterError::Refused(format!("{text:?} is not a valid {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment_of_a_path() {
        for (text, expected) in [
            ("node-1.example.com", true),
            ("system:node", true),
            ("a@b", true),
            ("", false),
            (".", false),
            ("..", false),
            ("../secrets/key", false),
            ("a/status", false),
            ("a%2fstatus", false),
            ("a?watch=true", false),
            ("a#b", false),
            ("a b", false),
            ("a\r\nb", false),
            ("ä", false),
        ] {
            assert_eq!(check_segment(text, "name").is_ok(), expected, "{text:?}");
        }
        assert!(check_segment(&"a".repeat(NAME_LENGTH + 1), "name").is_err());
    }
}
