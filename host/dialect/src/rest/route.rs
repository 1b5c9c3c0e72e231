use admittance_admission::{GroupVersionResource, Operation, words};
use http::{HeaderName, Method};

use crate::{Pattern, Pointer};

/// The routes of a JSON API that chains may apply to, in order: the first match decides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RestConfig {
    /// The routes in the order in which they are tried.
    pub routes: Vec<Route>,
    /// The handling of writes that match no route.
    pub unmatched: Unmatched,
}

impl RestConfig {
    /// These routes; a write that matches none of them is refused.
    pub fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            unmatched: Unmatched::Refuse,
        }
    }
}

/// The handling of a request that matches no route and is not a GET, HEAD, OPTIONS or TRACE; those methods pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// Refuses the request, so that no write bypasses the chains.
    #[default]
    Refuse,
    /// Forwards the request unchanged, unless a lenient server could match it to a route.
    Pass,
}

words!(Unmatched, "value of `unmatched`": Refuse = "refuse", Pass = "pass");

/// The requests that a route matches, and where they hold the parts of the admission request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// The methods, any of which matches.
    pub methods: Vec<Method>,
    /// A path with parameters: `/v1/job/{id}`; `{*id}` takes the rest of the path.
    pub path: String,
    /// The operation of such a request.
    pub operation: Operation,
    /// The resource that rules match.
    pub resource: GroupVersionResource,
    /// The subresource, such as `scale`; none for the resource itself.
    pub subresource: Option<String>,
    /// The source of the kind.
    pub kind: KindSource,
    /// The sources of the namespace: the first that is not empty. Their order must be the
    /// control plane's own, or a client could name one namespace to the chains and another to it.
    pub namespace: Vec<ValueSource>,
    /// The sources of the name, likewise.
    pub name: Vec<ValueSource>,
    /// The part of the body that is the object; by default the whole body.
    pub object: Pointer,
    /// A body without the object passes; otherwise it is refused.
    pub optional: bool,
    /// The fields of the body that no stage may change, all in the object. By default those that name,
    /// namespace and kind are read from, as far as they are in it.
    pub identity: Option<Vec<Pointer>>,
    /// More keys of the body to normalize to this spelling, because servers written in Go read keys
    /// in any case. The keys of all other pointers of the route are always normalized.
    pub spellings: Vec<Pattern>,
    /// The control plane will not store the result.
    pub dry_run: bool,
    /// The request for the stored object. With it, stages see the old object, and the result of a PATCH instead of its
    /// body.
    pub get: Option<StoredRoute>,
    /// Stages see the body of a PATCH, which is only a part of the object. Without it and `get`, a route for creations
    /// and updates cannot have this method.
    pub partial: bool,
    /// The kind of patch that a PATCH with the type `application/json`, or without a type, is.
    pub plain_patch: PlainPatch,
}

/// The request with which the upstream sends the stored object of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRoute {
    /// Its path and query, with placeholders: `/v1/job/{id}?namespace={namespace}`. `{name}` and `{namespace}` are those
    /// of the admission request if the route has sources for them; any other is a parameter of the route's path. By
    /// default the path of the client's request, without its query.
    pub path: Option<String>,
    /// The place of the object in the reply; by default the whole body.
    pub pointer: Pointer,
    /// Headers of the client's request that it also has, in addition to `Authorization`, `Cookie` and `Host`. No header
    /// that selects a part or a version of the object may be among them.
    pub headers: Vec<HeaderName>,
}

/// A kind of patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainPatch {
    /// RFC 7386.
    #[default]
    Merge,
    /// RFC 6902.
    Json,
}

words!(PlainPatch, "value of `patch`": Merge = "merge", Json = "json");

/// The source of the kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindSource {
    /// Every object of the route is of this kind.
    Fixed(String),
    /// A field of the body.
    Pointer(Pointer),
}

/// The source of a name or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A text that is the same for every request.
    Fixed(String),
    /// A parameter of the path template.
    Path(String),
    /// A query parameter.
    Query(String),
    /// The header with this name.
    Header(HeaderName),
    /// A field of the body.
    Pointer(Pointer),
}

impl Route {
    /// A route whose object is the whole body, in no namespace and without a name.
    pub fn new(
        methods: impl IntoIterator<Item = Method>,
        path: impl Into<String>,
        operation: Operation,
        resource: GroupVersionResource,
        kind: KindSource,
    ) -> Self {
        Self {
            methods: methods.into_iter().collect(),
            path: path.into(),
            operation,
            resource,
            subresource: None,
            kind,
            namespace: Vec::new(),
            name: Vec::new(),
            object: Pointer::default(),
            optional: false,
            identity: None,
            spellings: Vec::new(),
            dry_run: false,
            get: None,
            partial: false,
            plain_patch: PlainPatch::Merge,
        }
    }

    /// Whether the path has this parameter.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.path.contains(&format!("{{{name}}}")) || self.path.contains(&format!("{{*{name}}}"))
    }

    /// Whether stages see the result of a PATCH, and not its body.
    pub(super) fn applies_patches(&self) -> bool {
        self.get.is_some() && !matches!(self.operation, Operation::Delete | Operation::Connect)
    }

    /// The fields of the body that name, namespace and kind are read from.
    pub(super) fn body_pointers(&self) -> impl Iterator<Item = &Pointer> {
        let kind = match &self.kind {
            KindSource::Pointer(pointer) => Some(pointer),
            KindSource::Fixed(_) => None,
        };
        self.namespace
            .iter()
            .chain(&self.name)
            .filter_map(|source| match source {
                ValueSource::Pointer(pointer) => Some(pointer),
                _ => None,
            })
            .chain(kind)
    }
}
