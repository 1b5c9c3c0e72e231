use admittance_admission::{GroupVersionResource, Operation, keywords};
use http::{HeaderName, Method};

use crate::{Pointer, PointerPattern};

/// The routes of a JSON API. Chains see the requests that match a route.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RestConfig {
    /// The routes. Each request belongs to the first of them that matches.
    pub routes: Vec<RestRoute>,
    /// The handling of writes that no route matches.
    pub unmatched_writes: UnmatchedWrites,
}

impl RestConfig {
    /// Returns a configuration with these routes, which refuses writes that match no route.
    pub fn new(routes: Vec<RestRoute>) -> Self {
        Self {
            routes,
            unmatched_writes: UnmatchedWrites::Refuse,
        }
    }
}

/// The handling of writes that no route matches. Every method except GET, HEAD, OPTIONS and TRACE is a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnmatchedWrites {
    /// Refuses the request, so that no write bypasses the chains.
    #[default]
    Refuse,
    /// Forwards the request unchanged. A request is still refused if a server that reads paths leniently could match it
    /// to a route.
    Pass,
}

keywords!(UnmatchedWrites, "value of `unmatched`": Refuse = "refuse", Pass = "pass");

/// Describes the HTTP requests to which the route applies, and where they contain the parts of the admission request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestRoute {
    /// The methods of the requests to which the route applies.
    pub methods: Vec<Method>,
    /// The path of the requests, with parameters, such as `/v1/job/{id}`. `{*id}` matches the rest of the path.
    pub path: String,
    /// The operation of the admission request.
    pub operation: Operation,
    /// The resource of the admission request, which the rules of chains match.
    pub resource: GroupVersionResource,
    /// The subresource of the admission request, such as `scale`; `None` for the resource itself.
    pub subresource: Option<String>,
    /// The part of a request from which the kind of the object is read.
    pub kind: KindSource,
    /// The parts of a request from which the namespace is read: the first value that is not empty is used. Their order
    /// must be that of the control plane, because otherwise a client could show one namespace to the chains and another
    /// to the control plane.
    pub namespace: Vec<ValueSource>,
    /// The parts of a request from which the name is read: the first value that is not empty is used. Their order must
    /// be the order in which the control plane looks for the name.
    pub name: Vec<ValueSource>,
    /// The path of the object in the body. Default: the whole body.
    pub object: Pointer,
    /// Whether a body without an object is forwarded; if false, it is refused. Default: false.
    pub optional: bool,
    /// The fields of the object that no stage may change. Default: those from which name, namespace and kind are read.
    pub identity: Option<Vec<Pointer>>,
    /// The correct spelling of keys in the body. Servers written in Go ignore the case of keys, so the keys of the body
    /// are rewritten to this spelling. Keys that are in one of the route's pointers, such as that of the name, are
    /// always rewritten and need not be listed.
    pub spellings: Vec<PointerPattern>,
    /// Whether the route's requests are dry runs, whose result the control plane does not store.
    pub dry_run: bool,
    /// The query that fetches the stored object; `None` if the stored object is not fetched. Stages see the fetched
    /// object as the old object. The stages of a PATCH also see the object that results from the patch.
    pub get: Option<StoredRoute>,
    /// Whether stages see the body of a PATCH, although it contains only a part of the object. A route with PATCH and
    /// the operation CREATE or UPDATE needs either `partial` or `get`.
    pub partial: bool,
    /// The type of a patch whose media type is `application/json` or missing.
    pub default_patch_type: PatchType,
}

/// Describes the query that fetches the object that the upstream has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRoute {
    /// The path and query of the stored object, with placeholders: `/v1/job/{id}?namespace={namespace}`. `{name}` and
    /// `{namespace}` stand for the name and namespace of the admission request, if the route says where to read them;
    /// other placeholders are parameters of the route's path. Default: the path of the client's request, without its
    /// query.
    pub path: Option<String>,
    /// The path of the object in the body of the reply. Default: the whole body.
    pub pointer: Pointer,
    /// The headers of the client's request that are copied to the query, besides `Authorization`, `Cookie` and `Host`.
    /// They must not select a part or a version of the object.
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

/// The part of a request from which the kind of the object is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindSource {
    /// Every object of the route is of this kind.
    Fixed(String),
    /// The string at this path in the body is the kind.
    Pointer(Pointer),
}

/// The part of a request from which a name or namespace is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The value is this text for every request of the route.
    Fixed(String),
    /// The path parameter with this name contains the value.
    Path(String),
    /// The query parameter with this name contains the value.
    Query(String),
    /// The header with this name contains the value.
    Header(HeaderName),
    /// The string at this path in the body is the value.
    Pointer(Pointer),
}

impl RestRoute {
    /// Returns a route whose object is the whole body, and whose requests have no name and namespace.
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

    pub(super) fn applies_patches(&self) -> bool {
        self.get.is_some() && !matches!(self.operation, Operation::Delete | Operation::Connect)
    }

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
