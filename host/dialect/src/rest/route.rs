use admittance_admission::{GroupVersionResource, Operation};
use http::{HeaderName, Method};

use crate::{Pattern, Pointer};

/// The routes of a JSON API that the chains may be for, in order: the first that matches decides.
#[derive(Clone, Debug, Default)]
pub struct RestConfig {
    /// In order.
    pub routes: Vec<Route>,
    /// What becomes of a write that none of them matches.
    pub unmatched: Unmatched,
}

/// What becomes of a request that no route matches and that is no GET, HEAD, OPTIONS or TRACE; those pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is refused: every write goes through the chains or nowhere.
    #[default]
    Refuse,
    /// It passes untouched, unless a lenient server could take it for one that a route matches.
    Pass,
}

impl Unmatched {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Refuse, Self::Pass];

    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Pass => "pass",
        }
    }
}

/// Which requests these are, and where the parts of the admission request stand in them.
#[derive(Clone, Debug)]
pub struct Route {
    /// Any of these.
    pub methods: Vec<Method>,
    /// A path with parameters: `/v1/job/{id}`; `{*id}` takes the rest of the path.
    pub path: String,
    /// What such a request does.
    pub operation: Operation,
    /// The collection that rules know it by.
    pub resource: GroupVersionResource,
    /// `scale` and so on; none for the resource itself.
    pub subresource: Option<String>,
    /// Where the kind comes from.
    pub kind: KindSource,
    /// Where the namespace comes from: the first of these that has a text. Their order must be the
    /// control plane's own, or a client could name one namespace to the chains and another to it.
    pub namespace: Vec<ValueSource>,
    /// Where the name comes from, likewise.
    pub name: Vec<ValueSource>,
    /// The part of the body that is the object; by default the whole body.
    pub object: Pointer,
    /// A body without the object passes; otherwise it is refused.
    pub optional: bool,
    /// The parts of the body that no stage may change, all in the object. By default those that name,
    /// namespace and kind are taken from, as far as they are in it.
    pub identity: Option<Vec<Pointer>>,
    /// More keys of the body that are brought into this spelling, as servers written in Go read keys
    /// whatever their case. The keys on the way of every other pointer of the route always are.
    pub spellings: Vec<Pattern>,
    /// The control plane will not store the result.
    pub dry_run: bool,
}

/// Where the kind of an object comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindSource {
    /// Every object of the route is of this kind.
    Fixed(String),
    /// It stands in the body.
    Pointer(Pointer),
}

/// Where a name or namespace comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// It is always this.
    Fixed(String),
    /// A parameter of the path template.
    Path(String),
    /// A query parameter.
    Query(String),
    /// A header.
    Header(HeaderName),
    /// A place in the body.
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
        }
    }

    /// The places in the body that name, namespace and kind come from.
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
