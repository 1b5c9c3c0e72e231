use admittance_admission::{GroupVersionResource, Operation, keywords};
use http::{HeaderName, Method};

use crate::{Pattern, Pointer};

/// The routes of a JSON API. Chains apply to requests that match a route.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RestConfig {
    /// The routes, in the order in which they are tried.
    pub routes: Vec<Route>,
    /// The handling of writes that match no route.
    pub unmatched: Unmatched,
}

impl RestConfig {
    /// Returns a configuration with these routes, which refuses writes that match no route.
    pub fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            unmatched: Unmatched::Refuse,
        }
    }
}

/// The handling of writes that match no route. Every method except GET, HEAD, OPTIONS and TRACE is a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// Refuses the request, so that no write bypasses the chains.
    #[default]
    Refuse,
    /// Forwards the request unchanged, unless a lenient server could match it to a route.
    Pass,
}

keywords!(Unmatched, "value of `unmatched`": Refuse = "refuse", Pass = "pass");

/// Describes which requests match, and where they contain the parts of the admission request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// The methods that match.
    pub methods: Vec<Method>,
    /// A path with parameters, such as `/v1/job/{id}`. `{*id}` matches the rest of the path.
    pub path: String,
    /// The operation of the admission request.
    pub operation: Operation,
    /// The resource that the rules of chains match.
    pub resource: GroupVersionResource,
    /// The subresource, such as `scale`; `None` for the resource itself.
    pub subresource: Option<String>,
    /// The source of the object's kind.
    pub kind: KindSource,
    /// The sources of the namespace: the first value that is not empty applies. The order must be the control plane's.
    /// Otherwise a client could name one namespace to the chains and another to the control plane.
    pub namespace: Vec<ValueSource>,
    /// The sources of the name, in the control plane's order, as for the namespace.
    pub name: Vec<ValueSource>,
    /// The path of the object in the body. Default: the whole body.
    pub object: Pointer,
    /// Whether a body without an object passes instead of being refused. Default: false.
    pub optional: bool,
    /// The fields of the object that no stage may change. Default: the fields from which name, namespace and kind are
    /// read.
    pub identity: Option<Vec<Pointer>>,
    /// Further keys of the body, in their correct spelling. Other spellings are rewritten, because servers written in
    /// Go ignore the case of keys. The keys in the route's pointers are always rewritten.
    pub spellings: Vec<Pattern>,
    /// Whether the request is a dry run, whose result the control plane does not store.
    pub dry_run: bool,
    /// The query for the stored object, if it is to be fetched. Stages then see the old object, and the result of a
    /// PATCH.
    pub get: Option<StoredRoute>,
    /// Whether stages see the body of a PATCH, although it is only a part of the object. A route that creates or
    /// updates with PATCH needs `partial` or `get`.
    pub partial: bool,
    /// The type of patch in a PATCH with the media type `application/json` or without one.
    pub default_patch_type: PatchType,
}

/// The query with which the stored object of a route is fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRoute {
    /// The path and query, with placeholders: `/v1/job/{id}?namespace={namespace}`. `{name}` and `{namespace}` stand
    /// for the name and namespace of the admission request if the route has sources for them; other placeholders are
    /// parameters of the route's path. Default: the path of the client's request, without its query.
    pub path: Option<String>,
    /// The path of the object in the reply. Default: the whole body.
    pub pointer: Pointer,
    /// The headers that are copied from the client's request, in addition to `Authorization`, `Cookie` and `Host`. They
    /// must not select a part or a version of the object.
    pub headers: Vec<HeaderName>,
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchType {
    /// A merge patch of RFC 7386.
    #[default]
    Merge,
    /// A JSON patch of RFC 6902.
    Json,
}

keywords!(PatchType, "value of `patch`": Merge = "merge", Json = "json");

/// The source of the kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindSource {
    /// Every object of the route is of this kind.
    Fixed(String),
    /// The field of the body at this path has the kind.
    Pointer(Pointer),
}

/// The source of a name or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Every request of the route has this value.
    Fixed(String),
    /// A parameter of the path template has the value.
    Path(String),
    /// A query parameter has the value.
    Query(String),
    /// The header with this name has the value.
    Header(HeaderName),
    /// The field of the body at this path has the value.
    Pointer(Pointer),
}

impl Route {
    /// Returns a route whose object is the whole body, without sources for a namespace and a name.
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
            default_patch_type: PatchType::Merge,
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
