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
    /// Returns a configuration with these routes, which refuses a write that matches none of them.
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
    /// The operation that a request to this route is.
    pub operation: Operation,
    /// The resource that rules match.
    pub resource: GroupVersionResource,
    /// The subresource, such as `scale`; `None` for the resource itself.
    pub subresource: Option<String>,
    /// The source of the kind.
    pub kind: KindSource,
    /// The sources of the namespace, of which the first that is not empty counts. The order must be that of the control
    /// plane. Otherwise a client could name one namespace to the chains and another to the control plane.
    pub namespace: Vec<ValueSource>,
    /// The sources of the name, in the order of the control plane too.
    pub name: Vec<ValueSource>,
    /// The part of the body that is the object; by default the whole body.
    pub object: Pointer,
    /// Whether a body without the object passes. If not, it is refused.
    pub optional: bool,
    /// The fields of the body that no stage may change. All are in the object. By default they are the fields of the
    /// object from which name, namespace and kind are read.
    pub identity: Option<Vec<Pointer>>,
    /// Further keys of the body that are rewritten in this spelling, because servers written in Go read keys in any
    /// case. The keys in the pointers of the route are always rewritten.
    pub spellings: Vec<Pattern>,
    /// Whether the request is a dry run: the control plane stores no result.
    pub dry_run: bool,
    /// The request for the stored object. With it, stages see the old object, and the result of a PATCH instead of its
    /// body.
    pub get: Option<StoredRoute>,
    /// Whether stages see the body of a PATCH, which is only a part of the object. A route for creations and updates
    /// that has PATCH needs either this or `get`.
    pub partial: bool,
    /// The kind of patch in a PATCH with the type `application/json`, or without a type.
    pub plain_patch: PlainPatch,
}

/// The request with which the upstream sends the stored object of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRoute {
    /// The path and query, with placeholders: `/v1/job/{id}?namespace={namespace}`. `{name}` and `{namespace}` are the
    /// name and namespace of the admission request if the route has sources for them; any other placeholder is a
    /// parameter of the route's path. The default is the path of the client's request, without the query.
    pub path: Option<String>,
    /// The place of the object in the reply; by default the whole body.
    pub pointer: Pointer,
    /// The headers that are copied from the client's request, in addition to `Authorization`, `Cookie` and `Host`. None
    /// of them may select a part or a version of the object.
    pub headers: Vec<HeaderName>,
}

/// A kind of patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainPatch {
    /// A merge patch of RFC 7386.
    #[default]
    Merge,
    /// A JSON patch of RFC 6902.
    Json,
}

words!(PlainPatch, "value of `patch`": Merge = "merge", Json = "json");

/// The source of the kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindSource {
    /// Every object of the route is of this kind.
    Fixed(String),
    /// The kind is in this field of the body.
    Pointer(Pointer),
}

/// The source of a name or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Every request has this value.
    Fixed(String),
    /// A parameter of the path template has the value.
    Path(String),
    /// A query parameter has the value.
    Query(String),
    /// The header with this name has the value.
    Header(HeaderName),
    /// This field of the body has the value.
    Pointer(Pointer),
}

impl Route {
    /// Returns a route whose object is the whole body, without a namespace and a name.
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

    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.path.contains(&format!("{{{name}}}")) || self.path.contains(&format!("{{*{name}}}"))
    }

    /// Returns whether stages see the result of a PATCH instead of its body.
    pub(super) fn applies_patches(&self) -> bool {
        self.get.is_some() && !matches!(self.operation, Operation::Delete | Operation::Connect)
    }

    /// Returns the fields of the body from which name, namespace and kind are read.
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
