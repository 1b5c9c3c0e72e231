//! Builds the query that fetches from the upstream the object that it has stored.

use admittance_admission::Operation;
use bytes::Bytes;
use http::{
    Method, Uri,
    header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, COOKIE, HOST},
    request::Parts,
};

use super::{
    MatchedRoute, PatchType, RestRoute, RouteProblem, ValueSource,
    document::{BodyDocument, malformed_rejection},
};
use crate::{
    Rejection, StoredQuery, ambiguous_rejection,
    template::{PathTemplate, encode_segment, is_segment},
};

#[derive(Clone, Debug)]
pub(super) struct StoredPath(PathTemplate<Placeholder>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Placeholder {
    Name,
    Namespace,
    Parameter(String),
    /// The rest of the path, written `{*id}` in the template. Its value may contain slashes.
    Rest(String),
}

impl StoredPath {
    /// Returns `None` if the route configures no path.
    pub(super) fn new(route: &RestRoute) -> Result<Option<Self>, RouteProblem> {
        let Some(text) = route.get.as_ref().and_then(|get| get.path.as_ref()) else {
            return Ok(None);
        };
        let placeholder = |name: &str| match name {
            "name" if !route.name.is_empty() => Placeholder::Name,
            "namespace" if !route.namespace.is_empty() => Placeholder::Namespace,
            name if route.path.contains(&format!("{{*{name}}}")) => Placeholder::Rest(name.to_owned()),
            name => Placeholder::Parameter(name.to_owned()),
        };
        let invalid_path = || RouteProblem::StoredPath(text.clone());
        let template = PathTemplate::parse(text, |name| Some(placeholder(name))).ok_or_else(invalid_path)?;
        for placeholder in template.placeholders() {
            if let Placeholder::Parameter(name) = placeholder
                && !route.has_parameter(name)
            {
                return Err(RouteProblem::Placeholder(name.clone()));
            }
        }
        let sample = template.fill(|_| Ok::<_, RouteProblem>("x".to_owned()))?;
        match sample.parse::<Uri>() {
            Ok(_) => Ok(Some(Self(template))),
            Err(_) => Err(invalid_path()),
        }
    }
}

pub(super) fn route_mistakes(route: &RestRoute) -> Vec<(&'static str, RouteProblem)> {
    let changes = matches!(route.operation, Operation::Create | Operation::Update);
    let patches = changes && route.methods.contains(&Method::PATCH);
    let is_fetched = route.get.is_some();
    let no_effect = |field, reason| (field, RouteProblem::NoEffect(reason));
    [
        (patches && !is_fetched && !route.partial).then_some(("method", RouteProblem::Partial)),
        (route.partial && !patches).then(|| no_effect("partial", "the route has no PATCH that creates or updates")),
        (route.partial && is_fetched).then(|| no_effect("partial", "with `get`, stages see the result of a PATCH")),
        (is_fetched && route.operation == Operation::Connect)
            .then(|| no_effect("get", "a CONNECT has no stored object")),
        (route.default_patch_type != PatchType::Merge && !(patches && is_fetched))
            .then(|| no_effect("patch", "the route has no `get`, or no PATCH that creates or updates")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl MatchedRoute {
    pub(super) fn stored_query(&self, head: &Parts, body: &Bytes) -> Result<Option<StoredQuery>, Rejection> {
        let Some(get) = &self.route.config.get else {
            return Ok(None);
        };
        let is_patch = self.applies_patch(head);
        let uri = if is_patch {
            if self.parse_patch(head, body)?.is_none() {
                return Ok(None);
            }
            self.stored_uri(head, "")?
        } else {
            match self.read_document(head, body)? {
                BodyDocument::Nothing => return Ok(None),
                BodyDocument::Empty => self.stored_uri(head, "")?,
                BodyDocument::Whole { text, .. } => self.stored_uri(head, &text)?,
            }
        };
        let mut request = http::Request::new(());
        *request.uri_mut() = uri;
        for name in [AUTHORIZATION, COOKIE, HOST].iter().chain(&get.headers) {
            for value in head.headers.get_all(name) {
                request.headers_mut().append(name, value.clone());
            }
        }
        let headers = request.headers_mut();
        headers.insert(ACCEPT, http::HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
        Ok(Some(StoredQuery {
            request,
            pointer: get.pointer.clone(),
            spelling: self.route.object_spelling.clone(),
            may_be_absent: !is_patch,
        }))
    }

    pub(super) fn stored_uri(&self, head: &Parts, body: &str) -> Result<Uri, Rejection> {
        let Some(StoredPath(template)) = &self.route.stored_path else {
            // The path of the client's request leads to the stored object. The query of the request is left out,
            // because it may select only a part of the object, or another version of it.
            return head.uri.path().parse().map_err(malformed_rejection);
        };
        let route = &self.route.config;
        let segment = |part_name: &str, value: &str| match value {
            value if is_segment(value) => Ok(encode_segment(value)),
            "" => Err(ambiguous_rejection(&format!(
                "the path of the stored object has the {part_name}, and the request has none: add it to the request"
            ))),
            dots => Err(ambiguous_rejection(&format!(
                "the {part_name} is `{dots}`, which is not a segment of the path of the stored object"
            ))),
        };
        let first = |sources: &[ValueSource]| {
            Ok::<_, Rejection>(self.first_text(sources, head, body, None)?.unwrap_or_default())
        };
        let text = template.fill(|placeholder| match placeholder {
            Placeholder::Name => segment("name", &first(&route.name)?),
            Placeholder::Namespace => segment("namespace", &first(&route.namespace)?),
            Placeholder::Parameter(name) => segment(name, self.parameter(name).unwrap_or_default()),
            Placeholder::Rest(name) => {
                let values = self.parameter(name).unwrap_or_default().split('/');
                let segments = values.map(|value| segment(name, value));
                Ok(segments.collect::<Result<Vec<_>, _>>()?.join("/"))
            }
        })?;
        text.parse().map_err(malformed_rejection)
    }
}
