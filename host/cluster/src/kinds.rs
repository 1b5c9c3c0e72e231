//! Lookups of objects of the kinds that plugins may read.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Duration};

use admittance_admission::{ClusterError, ClusterKind, ClusterPage, ClusterQuery, Deadline};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
    discovery::{Scope, pinned_kind, verbs},
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::OnceCell, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::{Key, ObjectCache},
    connection::Connection,
    health::ClusterWatch,
    item::{CachedObject, StoredText},
    metrics::Verb,
    request_error::{RequestError, permission},
    selector::TextSelector,
    watch::{WatchPace, WatchSelection, WatchView, follow},
};

/// The maximum duration of a lookup, even if the caller's deadline is later.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct LookedUpKinds {
    connection: Connection,
    watches: Mutex<HashMap<ClusterKind, KindWatch>>,
}

/// A watch on a kind, which ends when this is dropped.
#[derive(Debug)]
struct KindWatch {
    kind: Arc<WatchedKind>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct WatchedKind {
    name: ClusterKind,
    connection: Connection,
    discovered_kind: OnceCell<DiscoveredKind>,
    view: WatchView<StoredText>,
}

#[derive(Clone, Debug)]
struct DiscoveredKind {
    resource: ApiResource,
    is_namespaced: bool,
    can_watch: bool,
}

impl LookedUpKinds {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            watches: Mutex::default(),
        }
    }

    fn watched_kind(&self, name: &ClusterKind, runtime: &Handle) -> Arc<WatchedKind> {
        let mut watches = self.watches.lock();
        if let Some(kind_watch) = watches.get(name) {
            return kind_watch.kind.clone();
        }
        let kind = Arc::new(WatchedKind {
            name: name.clone(),
            connection: self.connection.clone(),
            discovered_kind: OnceCell::new(),
            view: WatchView::new(name.to_string()),
        });
        kind.view.health.record_starting();
        let watched_kind = kind.clone();
        let task = AbortOnDropHandle::new(runtime.spawn(async move { watched_kind.follow().await }));
        let new_watch = KindWatch {
            kind: kind.clone(),
            _task: task,
        };
        watches.insert(name.clone(), new_watch);
        kind
    }

    pub(crate) fn start(&self, name: &ClusterKind, runtime: &Handle) {
        self.watched_kind(name, runtime);
    }

    pub(crate) fn status(&self) -> Vec<ClusterWatch> {
        let watches = self.watches.lock();
        let mut kinds: Vec<_> = watches.iter().collect();
        kinds.sort_by_key(|(name, _)| *name);
        let status = |(name, kind_watch): (&ClusterKind, &KindWatch)| kind_watch.kind.view.status(name.to_string());
        kinds.into_iter().map(status).collect()
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
        self.watched_kind(kind, runtime).get(namespace, name, until).await
    }

    pub(crate) async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
        runtime: &Handle,
    ) -> Result<ClusterPage, ClusterError> {
        let selector = TextSelector::parse(&query.label_selector).map_err(ClusterError::Refused)?;
        let until = deadline.within(LOOKUP_LIMIT).instant();
        self.watched_kind(kind, runtime).list(query, &selector, until).await
    }
}

impl WatchedKind {
    async fn discover_kind(&self, until: Instant) -> Result<&DiscoveredKind, RequestError> {
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
            Ok(DiscoveredKind {
                resource,
                is_namespaced: capabilities.scope == Scope::Namespaced,
                can_watch: capabilities.supports_operation(verbs::WATCH)
                    && capabilities.supports_operation(verbs::LIST),
            })
        };
        let discovery = tokio::time::timeout_at(until, self.discovered_kind.get_or_try_init(|| discover)).await;
        match discovery {
            Ok(Err(RequestError::NotFound(_))) => Err(RequestError::NotFound(format!(
                "the API server has no kind `{}`: correct it, or install its CustomResourceDefinition",
                self.name
            ))),
            Ok(outcome) => outcome,
            Err(_) => Err(RequestError::Timeout),
        }
    }

    async fn follow(&self) {
        let mut pace = WatchPace::new(&self.connection);
        let discovered_kind = loop {
            match self.discover_kind(Instant::now() + LOOKUP_LIMIT).await {
                Ok(kind) => break kind,
                Err(failure) => {
                    match &failure {
                        RequestError::Forbidden(words) => self.view.health.record_refused(words.clone()),
                        other => self.view.health.record_down(other.sentence()),
                    }
                    pace.wait().await;
                }
            }
        };
        let resource = &discovered_kind.resource;
        if !discovered_kind.can_watch {
            let words = format!("the API server does not support listing and watching `{}`", self.name);
            self.view.health.record_refused(words);
            return;
        }
        let permission = permission("`list` and `watch`", &resource.plural, &resource.group);
        let entry = |item: CachedObject| (item.key(), item.into_stored(resource));
        let api = |client| Api::<CachedObject>::all_with(client, resource);
        follow(
            &self.connection,
            api,
            WatchSelection::All,
            &self.view,
            entry,
            &permission,
        )
        .await;
    }

    fn api(&self, kind: &DiscoveredKind, namespace: Option<&str>) -> Result<Api<CachedObject>, ClusterError> {
        let client: Client = self.connection.client();
        match namespace {
            None => Ok(Api::all_with(client, &kind.resource)),
            Some(_) if !kind.is_namespaced => Err(ClusterError::Refused(format!(
                "`{}` is not namespaced: leave the namespace out",
                self.name
            ))),
            Some(namespace) => {
                check_segment(namespace, "namespace")?;
                Ok(Api::namespaced_with(client, namespace, &kind.resource))
            }
        }
    }

    fn lookup_error(&self, kind: &DiscoveredKind, verb: &str, failure: &RequestError) -> ClusterError {
        failure.to_plugin_error(&permission(verb, &kind.resource.plural, &kind.resource.group))
    }

    async fn discover_for_plugin(&self, until: Instant) -> Result<&DiscoveredKind, ClusterError> {
        self.discover_kind(until).await.map_err(|failure| {
            failure.to_plugin_error("allow this program's account to read the API server's discovery")
        })
    }

    async fn get(&self, namespace: Option<&str>, name: &str, until: Instant) -> Result<Option<String>, ClusterError> {
        let kind = self.discover_for_plugin(until).await?;
        let api = self.api(kind, namespace)?;
        if namespace.is_none() && kind.is_namespaced {
            return Err(ClusterError::Refused(format!(
                "`{}` is namespaced: give the namespace",
                self.name
            )));
        }
        if self.view.is_usable() {
            let stored_text = self.view.cache.get(&Key::new(namespace, name));
            return Ok(stored_text.map(|text| text.json.as_ref().to_owned()));
        }
        match self.connection.ask(Verb::Get, until, api.get(name)).await {
            Ok(item) => Ok(Some(item.into_json(&kind.resource))),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(failure) => Err(self.lookup_error(kind, "`get`, `list` and `watch`", &failure)),
        }
    }

    async fn list(
        &self,
        query: &ClusterQuery,
        selector: &TextSelector,
        deadline: Instant,
    ) -> Result<ClusterPage, ClusterError> {
        let namespace = query.namespace.as_deref();
        let kind = self.discover_for_plugin(deadline).await?;
        let api = self.api(kind, namespace)?;
        let (after, token) = match query.from.as_deref().map(PageStart::parse).transpose()? {
            Some(PageStart::After(key)) => (Some(key), None),
            Some(PageStart::OfServer(token)) => (None, Some(token)),
            None => (None, None),
        };
        // A token means that the API server has sent the previous page. The cache does not know the API server's
        // tokens, so the next page must come from the API server too.
        if token.is_none() && self.view.is_usable() {
            return Ok(PageStart::page_from_cache(
                &self.view.cache,
                query,
                after.as_ref(),
                selector,
            ));
        }
        if after.is_some() {
            return Err(restart_error());
        }
        let mut params = ListParams::default().labels(&query.label_selector);
        params.limit = query.limit.map(NonZeroU32::get);
        params.continue_token = token;
        let page = self.connection.list(&api, params, query.fields.is_metadata(), deadline);
        let (items, rest) = page
            .await
            .map_err(|failure| self.lookup_error(kind, "`list` and `watch`", &failure))?;
        Ok(ClusterPage {
            objects: items
                .into_iter()
                .map(|item| item.into_json(&kind.resource).into())
                .collect(),
            rest: rest.map(|token| PageStart::OfServer(token).to_string()),
        })
    }
}

/// The position at which a page of a list begins. A plugin receives it and sends it back.
#[derive(Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum PageStart {
    /// The previous page came from the cache. Its last object has this key, and the next page begins after it.
    #[display("c{}/{}", _0.namespace, _0.name)]
    After(Key),
    /// The previous page came from the API server, with this token. The API server returns the next page for the token.
    #[display("s{_0}")]
    OfServer(String),
}

/// The maximum length of a page's position as text, in bytes.
const MAX_PAGE_START_LENGTH: usize = 4096;

impl PageStart {
    pub(crate) fn page_from_cache(
        cache: &ObjectCache<StoredText>,
        query: &ClusterQuery,
        previous_key: Option<&Key>,
        selector: &TextSelector,
    ) -> ClusterPage {
        let limit = query.limit.map_or(usize::MAX, |limit| limit.get() as usize);
        let is_selected = |object: &StoredText| selector.matches(&object.labels);
        let (stored_texts, rest) = cache.page(query.namespace.as_deref(), previous_key, limit, is_selected);
        ClusterPage {
            objects: stored_texts.into_iter().map(|text| text.json).collect(),
            rest: rest.map(|key| Self::After(key).to_string()),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, ClusterError> {
        let start = match text.split_at_checked(1) {
            _ if text.len() > MAX_PAGE_START_LENGTH => None,
            Some(("c", key)) => key
                .split_once('/')
                .map(|(namespace, name)| Self::After(Key::new(Some(namespace), name))),
            Some(("s", token)) => Some(Self::OfServer(token.to_owned())),
            _ => None,
        };
        start.ok_or_else(restart_error)
    }
}

pub(crate) fn restart_error() -> ClusterError {
    ClusterError::Refused("the list cannot be continued there: begin with its first page".to_owned())
}

const MAX_NAME_LENGTH: usize = 253;

/// Checks a text from a plugin that becomes one segment of a URL path, so that the path cannot lead to another kind.
fn check_segment(text: &str, noun: &str) -> Result<(), ClusterError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    let is_valid = !matches!(text, "" | "." | "..") && text.len() <= MAX_NAME_LENGTH && text.bytes().all(is_letter);
    if is_valid {
        Ok(())
    } else {
        Err(ClusterError::Refused(format!("{text:?} is not a valid {noun}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_plugins_cannot_add_segments_to_an_api_path() {
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
        assert!(check_segment(&"a".repeat(MAX_NAME_LENGTH + 1), "name").is_err());
    }

    #[test]
    fn the_position_of_a_page_is_written_as_text_and_parsed() {
        for start in [
            PageStart::After(Key::new(Some("shop"), "web")),
            PageStart::After(Key::new(None, "n1")),
            PageStart::OfServer("eyJ2/==".to_owned()),
        ] {
            assert_eq!(PageStart::parse(&start.to_string()), Ok(start));
        }
        let long = format!("s{}", "a".repeat(MAX_PAGE_START_LENGTH));
        for text in ["", "c", "x", "ä", &long] {
            assert_eq!(PageStart::parse(text), Err(restart_error()), "{text}");
        }
    }
}
