//! An API server that keeps objects in memory, and lets tests simulate outages, refusals and delays.

#[path = "api_server/writing.rs"]
mod writing;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header::ACCEPT};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// The key of an object: the plural of its kind, its namespace (empty without one) and its name.
type ServedObjectKey = (String, String, String);

pub(crate) struct ScriptedApiServer {
    pub(crate) address: SocketAddr,
    shared: Arc<SharedServer>,
    task: JoinHandle<()>,
}

struct SharedServer {
    token: &'static str,
    data: Mutex<ServerData>,
    /// Signals every change of `data`, so that watches and delayed replies look at it again.
    change_signal: watch::Sender<()>,
    /// The number of times that the test broke all connections.
    connection_generation: watch::Sender<u64>,
}

#[derive(Default)]
struct ServerData {
    is_unavailable: bool,
    version: u64,
    objects: BTreeMap<ServedObjectKey, Value>,
    changes: Vec<WatchChange>,
    compacted_version: u64,
    /// The requests that the server refuses: their verb and the plural of their kind.
    forbidden_requests: BTreeSet<(String, String)>,
    delayed_requests: BTreeSet<(String, String)>,
    /// The verb, and the path with its query, of each request so far.
    requests: Vec<(String, String)>,
    open_watches: usize,
    page_size: usize,
    /// The plurals of kinds, and the names of groups, that the server does not serve.
    absent_names: BTreeSet<String>,
    kinds: Vec<DefinedKind>,
    /// The field of webhooks that the server drops, like a server of a version that does not have the field yet.
    unknown_field: Option<&'static str>,
    /// The actions that a test has planned, by verb. They run right before the next write with this verb. An action is,
    /// for example, a write by another client.
    actions_before_write: BTreeMap<String, Vec<Event>>,
    access: Value,
    reviews: Vec<Value>,
}

#[derive(Clone)]
struct DefinedKind {
    api_version: String,
    plural: String,
    kind: String,
    is_namespaced: bool,
}

type Event = Box<dyn FnOnce(&mut ServerData) + Send>;

struct WatchChange {
    version: u64,
    kind: &'static str,
    object_key: ServedObjectKey,
    object: Value,
}

/// The kinds of `v1` that the server serves: kind, plural, whether it is namespaced, and the verbs.
const CORE_KINDS: [(&str, &str, bool, &[&str]); 4] = [
    ("Namespace", "namespaces", false, &["get", "list", "watch"]),
    ("Node", "nodes", false, &["get", "list", "watch"]),
    ("Pod", "pods", true, &["get", "list", "watch"]),
    ("Secret", "secrets", true, &["get"]),
];

/// The kinds of reports that the server serves: kind, plural and version.
const REPORT_KINDS: [(&str, &str, &str); 6] = [
    ("Report", "reports", "openreports.io/v1alpha1"),
    ("ClusterReport", "clusterreports", "openreports.io/v1alpha1"),
    ("Report", "reports", "reports.x-k8s.io/v1beta2"),
    ("ClusterReport", "clusterreports", "reports.x-k8s.io/v1beta2"),
    ("PolicyReport", "policyreports", "wgpolicyk8s.io/v1alpha2"),
    ("ClusterPolicyReport", "clusterpolicyreports", "wgpolicyk8s.io/v1alpha2"),
];

impl ScriptedApiServer {
    pub(crate) fn start(tls: ServerConfig, token: &'static str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(SharedServer {
            token,
            data: Mutex::new(ServerData {
                page_size: usize::MAX,
                ..ServerData::default()
            }),
            change_signal: watch::Sender::new(()),
            connection_generation: watch::Sender::new(0),
        });
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let served = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if served.lock_data().is_unavailable {
                    continue;
                }
                let (shared, acceptor) = (served.clone(), acceptor.clone());
                let mut connection_generation = shared.connection_generation.subscribe();
                tokio::spawn(async move {
                    let connection = async {
                        let Ok(stream) = acceptor.accept(stream).await else {
                            return;
                        };
                        let service = service_fn(move |request| {
                            let shared = shared.clone();
                            async move { Ok::<_, Infallible>(shared.answer(request).await) }
                        });
                        // Serving a connection fails only if the client has disconnected.
                        let _ = auto::Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    };
                    tokio::select! {
                        () = connection => {}
                        _ = connection_generation.changed() => {}
                    }
                });
            }
        });
        Self { address, shared, task }
    }

    fn change_data<T>(&self, apply_change: impl FnOnce(&mut ServerData) -> T) -> T {
        let result = apply_change(&mut self.shared.lock_data());
        self.shared.change_signal.send_replace(());
        result
    }

    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.change_data(|data| data.put(plural, object));
    }

    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.change_data(|data| data.delete((plural.into(), namespace.into(), name.into())));
    }

    pub(crate) fn break_connections(&self) {
        self.shared
            .connection_generation
            .send_modify(|connection_generation| *connection_generation += 1);
    }

    pub(crate) fn become_unavailable(&self) {
        self.change_data(|data| data.is_unavailable = true);
        self.break_connections();
    }

    pub(crate) fn become_available(&self) {
        self.change_data(|data| data.is_unavailable = false);
    }

    /// Deletes all changes so far, like a compaction of etcd, so that earlier watches expire.
    pub(crate) fn compact(&self) {
        self.change_data(|data| {
            data.version += 1;
            data.compacted_version = data.version;
            data.changes.clear();
        });
    }

    pub(crate) fn forbid(&self, verb: &str, plural: &str) {
        self.change_data(|data| data.forbidden_requests.insert((verb.into(), plural.into())));
    }

    pub(crate) fn allow(&self, verb: &str, plural: &str) {
        self.change_data(|data| data.forbidden_requests.remove(&(verb.into(), plural.into())));
    }

    pub(crate) fn hold(&self, verb: &str, plural: &str) {
        self.change_data(|data| data.delayed_requests.insert((verb.into(), plural.into())));
    }

    pub(crate) fn release(&self, verb: &str, plural: &str) {
        self.change_data(|data| data.delayed_requests.remove(&(verb.into(), plural.into())));
    }

    pub(crate) fn set_page_size(&self, page: usize) {
        self.change_data(|data| data.page_size = page);
    }

    pub(crate) fn set_access(&self, status: Value) {
        self.change_data(|data| data.access = status);
    }

    pub(crate) fn reviews(&self) -> Vec<Value> {
        self.shared.lock_data().reviews.clone()
    }

    pub(crate) fn count_requests(&self, verb: &str, part: &str) -> usize {
        let data = self.shared.lock_data();
        let is_counted = |(method, path): &&(String, String)| method == verb && path.contains(part);
        data.requests.iter().filter(is_counted).count()
    }

    pub(crate) fn open_watches(&self) -> usize {
        self.shared.lock_data().open_watches
    }
}

impl Drop for ScriptedApiServer {
    fn drop(&mut self) {
        self.task.abort();
        self.break_connections();
    }
}

impl ServerData {
    fn put(&mut self, plural: &str, mut object: Value) {
        self.version += 1;
        if let Some(field) = self.unknown_field
            && let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut)
        {
            for webhook in webhooks.iter_mut().filter_map(Value::as_object_mut) {
                webhook.remove(field);
            }
        }
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let object_key = (plural.to_owned(), text("namespace"), text("name"));
        let before = self.objects.get(&object_key);
        if writing::has_status(plural) {
            if let Some(status) = before.and_then(|before| before.get("status"))
                && object.get("status").is_none()
            {
                object["status"] = status.clone();
            }
            object["metadata"]["generation"] = writing::next_generation(before, &object).into();
        }
        let kind = match self.objects.insert(object_key.clone(), object.clone()) {
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        self.record(kind, object_key, object);
    }

    fn delete(&mut self, object_key: ServedObjectKey) {
        let mut object = self.objects.remove(&object_key).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.record("DELETED", object_key, object);
    }

    fn record(&mut self, kind: &'static str, object_key: ServedObjectKey, object: Value) {
        self.changes.push(WatchChange {
            version: self.version,
            kind,
            object_key,
            object,
        });
    }
}

struct ServedTarget {
    kind: String,
    api_version: String,
    plural: String,
    namespace: String,
    name: Option<String>,
    is_status: bool,
    /// The name that the field selector of a list or a watch requires.
    required_name: Option<String>,
    /// The label and the value that the label selector of a list or a watch requires.
    required_label: Option<(String, String)>,
}

impl ServedTarget {
    fn parse(path: &str, defined: &[DefinedKind]) -> Option<Self> {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let defined_kind = defined.iter().find_map(|kind| {
            let rest = path.strip_prefix("/apis/")?.strip_prefix(&kind.api_version)?;
            let has_plural = rest.split('/').any(|part| part == kind.plural);
            has_plural.then_some(kind)
        });
        let (api_version, rest) = match parts.as_slice() {
            [_, _, _, rest @ ..] if let Some(kind) = defined_kind => (kind.api_version.as_str(), rest),
            ["api", "v1", rest @ ..] => ("v1", rest),
            ["apis", "apps", "v1", rest @ ..] => ("apps/v1", rest),
            ["apis", "bkbcs.tencent.com", "v2", rest @ ..] => ("bkbcs.tencent.com/v2", rest),
            ["apis", "admittance.dev", "v1alpha1", rest @ ..] => ("admittance.dev/v1alpha1", rest),
            ["apis", "openreports.io", "v1alpha1", rest @ ..] => ("openreports.io/v1alpha1", rest),
            ["apis", "reports.x-k8s.io", "v1beta2", rest @ ..] => ("reports.x-k8s.io/v1beta2", rest),
            ["apis", "wgpolicyk8s.io", "v1alpha2", rest @ ..] => ("wgpolicyk8s.io/v1alpha2", rest),
            ["apis", "events.k8s.io", "v1", rest @ ..] => ("events.k8s.io/v1", rest),
            ["apis", "coordination.k8s.io", "v1", rest @ ..] => ("coordination.k8s.io/v1", rest),
            ["apis", "admissionregistration.k8s.io", "v1", rest @ ..] => ("admissionregistration.k8s.io/v1", rest),
            _ => return None,
        };
        let (rest, is_status) = match rest {
            [rest @ .., "status"] => (rest, true),
            _ => (rest, false),
        };
        let (namespace, plural, name) = match rest {
            [plural] => ("", plural, None),
            ["namespaces", name] => ("", &"namespaces", Some(*name)),
            ["namespaces", namespace, plural] => (*namespace, plural, None),
            ["namespaces", namespace, plural, name] => (*namespace, plural, Some(*name)),
            [plural, name] => ("", plural, Some(*name)),
            _ => return None,
        };
        let kind = match api_version {
            _ if let Some(kind) = defined_kind => Some(kind.kind.as_str()),
            "apps/v1" => (*plural == "deployments").then_some("Deployment"),
            "bkbcs.tencent.com/v2" => {
                (*plural == "admissionwebhookconfigurations").then_some("AdmissionWebhookConfiguration")
            }
            "admittance.dev/v1alpha1" => match *plural {
                "admissionchains" => Some("AdmissionChain"),
                "namespacedadmissionchains" => Some("NamespacedAdmissionChain"),
                "admissionexceptions" => Some("AdmissionException"),
                _ => None,
            },
            "openreports.io/v1alpha1" | "reports.x-k8s.io/v1beta2" | "wgpolicyk8s.io/v1alpha2" => REPORT_KINDS
                .iter()
                .find(|(_, known, version)| known == plural && *version == api_version)
                .map(|(kind, ..)| *kind),
            "events.k8s.io/v1" => (*plural == "events").then_some("Event"),
            "coordination.k8s.io/v1" => (*plural == "leases").then_some("Lease"),
            "admissionregistration.k8s.io/v1" => match *plural {
                "mutatingwebhookconfigurations" => Some("MutatingWebhookConfiguration"),
                "validatingwebhookconfigurations" => Some("ValidatingWebhookConfiguration"),
                _ => None,
            },
            _ => CORE_KINDS
                .iter()
                .find(|(_, known, _, _)| known == plural)
                .map(|(kind, ..)| *kind),
        };
        Some(Self {
            kind: kind?.to_owned(),
            api_version: api_version.to_owned(),
            plural: (*plural).to_owned(),
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            is_status,
            required_name: None,
            required_label: None,
        })
    }

    fn has_key(&self, (plural, namespace, name): &ServedObjectKey) -> bool {
        *plural == self.plural
            && (self.namespace.is_empty() || *namespace == self.namespace)
            && self.required_name.as_ref().is_none_or(|only| only == name)
    }

    fn is_selected(&self, object: &Value) -> bool {
        let has_label = |(key, value): &(String, String)| object["metadata"]["labels"][key].as_str() == Some(value);
        self.required_label.as_ref().is_none_or(has_label)
    }
}

impl SharedServer {
    fn lock_data(&self) -> MutexGuard<'_, ServerData> {
        self.data.lock().unwrap()
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return status_reply(400, "BadRequest", "no body");
        };
        let body = body.to_bytes();
        let path = head.uri.path().to_owned();
        let query: BTreeMap<_, _> = head
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let target = ServedTarget::parse(&path, &self.lock_data().kinds);
        let verb = match (&head.method, &target) {
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "replace",
            (&Method::DELETE, _) => "delete",
            (&Method::PATCH, _) => "patch",
            (_, None) => "discover",
            (_, Some(target)) if target.name.is_some() => "get",
            _ if query.get("watch").is_some_and(|watch| watch == "true") => "watch",
            _ => "list",
        };
        self.lock_data().requests.push((verb.to_owned(), head.uri.to_string()));
        let expected = format!("Bearer {}", self.token);
        let has_token = head
            .headers
            .get("authorization")
            .is_some_and(|value| value.as_bytes() == expected.as_bytes());
        if !self.token.is_empty() && !has_token {
            return status_reply(401, "Unauthorized", "Unauthorized");
        }
        let Some(mut target) = target else {
            return self.answer_discovery_or_review(&path, &body);
        };
        let selector = query.get("fieldSelector");
        target.required_name = selector.and_then(|text| Some(text.strip_prefix("metadata.name%3D")?.to_owned()));
        let label = query.get("labelSelector").and_then(|text| text.split_once("%3D"));
        target.required_label = label.map(|(key, value)| (key.replace("%2F", "/"), value.to_owned()));
        self.wait_until_released(verb, &target.plural).await;
        let group = target.api_version.split('/').next().unwrap_or_default();
        if [&*target.plural, group]
            .into_iter()
            .any(|name| self.lock_data().absent_names.contains(name))
        {
            return not_served();
        }
        let request_key = (verb.to_owned(), target.plural.clone());
        if self.lock_data().forbidden_requests.contains(&request_key) {
            let message = format!(
                "{} is forbidden: User \"tester\" cannot {verb} resource \"{}\"",
                target.plural, target.plural
            );
            return status_reply(403, "Forbidden", &message);
        }
        let is_partial = head
            .headers
            .get(ACCEPT)
            .is_some_and(|accept| accept.to_str().unwrap().contains("as=PartialObjectMetadata"));
        match verb {
            "create" => self.create(&target, &body),
            "replace" => self.replace(&target, &body),
            "delete" => self.delete(&target, &body),
            "patch" => self.patch(&target, &head, &body),
            "get" => self.get(&target, is_partial),
            "watch" => {
                let from_version = query["resourceVersion"].parse().unwrap();
                self.watch(target, from_version, is_partial)
            }
            _ => self.list(&target, &query, is_partial),
        }
    }

    async fn wait_until_released(&self, verb: &str, plural: &str) {
        let request_key = (verb.to_owned(), plural.to_owned());
        let mut changed = self.change_signal.subscribe();
        while self.lock_data().delayed_requests.contains(&request_key) {
            changed.changed().await.unwrap();
        }
    }

    fn answer_discovery_or_review(&self, path: &str, body: &Bytes) -> Reply {
        let list = |version: &str, resources: Vec<Value>| {
            json_reply(
                200,
                &json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources}),
            )
        };
        match path {
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => self.answer_review(body),
            "/api/v1" => list(
                "v1",
                CORE_KINDS
                    .iter()
                    .map(|(kind, plural, namespaced, verbs)| {
                        json!({"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind,
                               "verbs": verbs})
                    })
                    .collect(),
            ),
            "/apis/apps/v1" => list(
                "apps/v1",
                vec![
                    json!({"name": "deployments", "singularName": "", "namespaced": true, "kind": "Deployment",
                           "verbs": ["get", "list", "watch"]}),
                ],
            ),
            "/apis" => json_reply(200, &self.api_group_list()),
            "/apis/openreports.io/v1alpha1" | "/apis/reports.x-k8s.io/v1beta2" | "/apis/wgpolicyk8s.io/v1alpha2" => {
                let version = path.trim_start_matches("/apis/");
                let absent = &self.lock_data().absent_names;
                if absent.iter().any(|name| version.starts_with(name)) {
                    return not_served();
                }
                let kinds = REPORT_KINDS
                    .iter()
                    .filter(|(_, plural, group_version)| *group_version == version && !absent.contains(*plural))
                    .map(|(kind, plural, _)| {
                        json!({"name": plural, "singularName": "", "namespaced": !plural.starts_with("cluster"),
                           "kind": kind, "verbs": ["get", "list", "watch", "patch", "delete"]})
                    });
                list(version, kinds.collect())
            }
            _ => {
                let data = self.lock_data();
                let kinds: Vec<_> = data
                    .kinds
                    .iter()
                    .filter(|kind| {
                        path.strip_prefix("/apis/") == Some(&*kind.api_version)
                            && !data.absent_names.contains(&kind.plural)
                    })
                    .map(|kind| {
                        json!({"name": kind.plural, "singularName": "", "namespaced": kind.is_namespaced,
                               "kind": kind.kind, "verbs": ["get", "list", "watch"]})
                    })
                    .collect();
                if kinds.is_empty() {
                    not_served()
                } else {
                    list(path.trim_start_matches("/apis/"), kinds)
                }
            }
        }
    }

    fn api_group_list(&self) -> Value {
        let absent = &self.lock_data().absent_names;
        let group = |name: &str, version: &str| {
            let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let mut groups = vec![group("apps", "v1")];
        for (plural, name, version) in [
            ("reports", "openreports.io", "v1alpha1"),
            ("reports", "reports.x-k8s.io", "v1beta2"),
            ("policyreports", "wgpolicyk8s.io", "v1alpha2"),
        ] {
            if !absent.contains(plural) && !absent.contains(name) {
                groups.push(group(name, version));
            }
        }
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    fn answer_review(&self, body: &Bytes) -> Reply {
        let mut review: Value = serde_json::from_slice(body).unwrap();
        let mut data = self.lock_data();
        data.reviews.push(review["spec"].clone());
        if data
            .forbidden_requests
            .contains(&("create".to_owned(), "subjectaccessreviews".to_owned()))
        {
            return status_reply(403, "Forbidden", "subjectaccessreviews is forbidden");
        }
        review["status"] = data.access.clone();
        json_reply(201, &review)
    }

    fn get(&self, target: &ServedTarget, is_partial: bool) -> Reply {
        let name = target.name.clone().unwrap_or_default();
        let object_key = (target.plural.clone(), target.namespace.clone(), name);
        match self.lock_data().objects.get(&object_key) {
            Some(object) => json_reply(200, &with_type_fields(object, target, is_partial)),
            None => {
                let message = format!("{} \"{}\" not found", target.plural, object_key.2);
                status_reply(404, "NotFound", &message)
            }
        }
    }

    fn list(&self, target: &ServedTarget, query: &BTreeMap<String, String>, is_partial: bool) -> Reply {
        let data = self.lock_data();
        let start_index: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
        let matching_objects: Vec<_> = data
            .objects
            .iter()
            .filter(|(object_key, object)| target.has_key(object_key) && target.is_selected(object))
            .collect();
        let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let selected = matching_objects
            .iter()
            .skip(start_index)
            .take(limit.min(data.page_size));
        let page: Vec<_> = selected
            .map(|(_, object)| response_object(object, is_partial))
            .collect();
        let next_index = start_index + page.len();
        let token = if next_index < matching_objects.len() {
            next_index.to_string()
        } else {
            String::new()
        };
        json_reply(
            200,
            &json!({
                "kind": format!("{}List", target.kind),
                "apiVersion": target.api_version,
                "metadata": {"resourceVersion": data.version.to_string(), "continue": token},
                "items": page,
            }),
        )
    }

    fn watch(self: Arc<Self>, target: ServedTarget, from_version: u64, is_partial: bool) -> Reply {
        let changed = self.change_signal.subscribe();
        let open_watch = OpenWatch::new(self);
        let state = (open_watch, changed, from_version, target, false);
        let lines = stream::unfold(state, move |(open, mut changed, seen, target, is_over)| async move {
            if is_over {
                return None;
            }
            loop {
                changed.mark_unchanged();
                let line = open.0.next_line(&target, seen, is_partial);
                if let Some((line, seen, is_over)) = line {
                    let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(line)));
                    return Some((frame, (open, changed, seen, target, is_over)));
                }
                changed.changed().await.ok()?;
            }
        });
        Response::new(StreamBody::new(Box::pin(lines)).boxed())
    }

    /// Returns (the next line of a watch, the new value of `seen`, whether the watch ends with this line). `seen` is
    /// the version up to which the watch has sent all changes. Returns `None` if there is nothing to send.
    fn next_line(&self, target: &ServedTarget, seen: u64, is_partial: bool) -> Option<(String, u64, bool)> {
        let data = self.lock_data();
        if seen < data.compacted_version {
            let object = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired",
                                "message": "too old resource version"});
            return Some((watch_line("ERROR", &object), seen, true));
        }
        if let Some(change) = data.changes.iter().find(|change| {
            change.version > seen && target.has_key(&change.object_key) && target.is_selected(&change.object)
        }) {
            let object = with_type_fields(&change.object, target, is_partial);
            return Some((watch_line(change.kind, &object), change.version, false));
        }
        if data.version > seen {
            let object = json!({"kind": target.kind, "apiVersion": target.api_version,
                                "metadata": {"resourceVersion": data.version.to_string()}});
            return Some((watch_line("BOOKMARK", &object), data.version, false));
        }
        None
    }
}

struct OpenWatch(Arc<SharedServer>);

impl OpenWatch {
    fn new(shared: Arc<SharedServer>) -> Self {
        shared.lock_data().open_watches += 1;
        Self(shared)
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.lock_data().open_watches -= 1;
    }
}

fn watch_line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn response_object(object: &Value, is_partial: bool) -> Value {
    if is_partial {
        json!({"metadata": object["metadata"]})
    } else {
        object.clone()
    }
}

fn with_type_fields(object: &Value, target: &ServedTarget, is_partial: bool) -> Value {
    let mut typed_object = if is_partial {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"})
    } else {
        json!({"kind": target.kind, "apiVersion": target.api_version})
    };
    let fields = response_object(object, is_partial);
    for (key, value) in fields.as_object().unwrap() {
        typed_object[key] = value.clone();
    }
    typed_object
}

fn not_served() -> Reply {
    let body = Full::new(Bytes::from("404 page not found\n")).boxed();
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::NOT_FOUND;
    reply
}

fn status_reply(code: u16, reason: &str, message: &str) -> Reply {
    json_reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": reason, "code": code}),
    )
}

fn json_reply(code: u16, value: &Value) -> Reply {
    let body = Full::new(Bytes::from(value.to_string())).boxed();
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap();
    reply
}
