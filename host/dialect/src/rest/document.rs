//! Reads the parts of an admission request from the body, path, query and headers of an HTTP request.

use std::borrow::Cow;

use admittance_admission::{GroupVersionKind, Object, Operation, Pointer, Request, SpellingError};
use bytes::Bytes;
use http::{Method, request::Parts};

use super::{KindSource, MatchedRoute, ValueSource};
use crate::{Rejection, RejectionKind};

/// The body of a request that is not a patch.
pub(super) enum BodyDocument<'b> {
    /// The body contains no object.
    Nothing,
    Empty,
    Whole {
        /// The text of the body, with its keys in the spelling that the route configures.
        text: Cow<'b, str>,
        object: Object,
    },
}

impl MatchedRoute {
    pub(super) fn read_document<'b>(&self, head: &Parts, body: &'b Bytes) -> Result<BodyDocument<'b>, Rejection> {
        let route = &self.route.config;
        let text = std::str::from_utf8(body).map_err(malformed_rejection)?;
        if text.trim().is_empty() {
            return match (route.operation, route.optional) {
                (Operation::Delete | Operation::Connect, _) => Ok(BodyDocument::Empty),
                (_, true) => Ok(BodyDocument::Nothing),
                (operation, false) if head.method == Method::DELETE => Err(malformed_rejection(format!(
                    "it is empty, and the route's operation is {operation}, which has an object: a route of its own for \
                     DELETE, with `operation: DELETE`, accepts it"
                ))),
                (_, false) => Err(malformed_rejection("it is empty, expected a JSON object")),
            };
        }
        let text = self.canonical_text(text)?;
        // Some servers use the first value of a repeated key, others the last. So a body with such a key is refused.
        let body_object = Object::parse_unique(&*text).map_err(malformed_rejection)?;
        let part = match self.object_text(&text)? {
            None => return Ok(BodyDocument::Nothing),
            Some(part) => part,
        };
        let object = if route.object.segments().is_empty() {
            body_object
        } else {
            Object::parse(part).map_err(|error| malformed_rejection(format!("at `{}`: {error}", route.object)))?
        };
        Ok(BodyDocument::Whole { text, object })
    }

    pub(super) fn canonical_text<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, Rejection> {
        match self.route.spelling.canonical_text(text) {
            Ok(canonical) => Ok(canonical.map_or(Cow::Borrowed(text), Cow::Owned)),
            Err(SpellingError::Json(error)) => Err(malformed_rejection(error)),
            Err(SpellingError::Ambiguous(error)) => Err(Rejection::new(
                RejectionKind::Ambiguous,
                format!("the body is ambiguous: {error}"),
            )),
        }
    }

    /// Returns `None` if there is no object and the route does not require one.
    pub(super) fn object_text<'t>(&self, text: &'t str) -> Result<Option<&'t str>, Rejection> {
        let route = &self.route.config;
        match route.object.locate(text).and_then(|range| text.get(range)) {
            Some("null") | None if route.optional => Ok(None),
            None => Err(malformed_rejection(format!("there is nothing at {}", route.object))),
            part => Ok(part),
        }
    }

    /// `body` is empty if the HTTP request has no body.
    pub(super) fn build_request(&self, head: &Parts, body: &str, object: Option<Object>) -> Result<Request, Rejection> {
        let route = &self.route.config;
        let resource = (*self.route.resource).clone();
        let kind = match &route.kind {
            KindSource::Fixed(kind) => kind.clone(),
            KindSource::Pointer(pointer) => {
                let kind = self.text_at(body, object.as_ref(), pointer)?;
                kind.ok_or_else(|| malformed_rejection(format!("there is no kind at {pointer}")))?
            }
        };
        let kind = GroupVersionKind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind,
        };
        let mut request = Request::new(route.operation, kind, resource);
        request.subresource.clone_from(&route.subresource);
        let source_object = object.as_ref();
        request.namespace = self.first_text(&route.namespace, head, body, source_object)?;
        request.name = self
            .first_text(&route.name, head, body, source_object)?
            .unwrap_or_default();
        request.dry_run = route.dry_run;
        request.identity = self.route.identity.clone();
        request.spelling = self.route.object_spelling.clone();
        request.object = object;
        Ok(request)
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn first_text(
        &self,
        sources: &[ValueSource],
        head: &Parts,
        body: &str,
        object: Option<&Object>,
    ) -> Result<Option<String>, Rejection> {
        for source in sources {
            let value = match source {
                ValueSource::Fixed(value) => Some(value.clone()),
                ValueSource::Path(name) => self.parameter(name).map(str::to_owned),
                ValueSource::Query(name) => query_value(head.uri.query().unwrap_or_default(), name)?,
                ValueSource::Header(name) => header_value(head, name)?,
                ValueSource::Pointer(pointer) => self.text_at(body, object, pointer)?,
            };
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn text_at(&self, body: &str, object: Option<&Object>, pointer: &Pointer) -> Result<Option<String>, Rejection> {
        let is_body = self.route.config.object.segments().is_empty();
        let head = object.filter(|_| is_body).map(Object::head);
        let head_text = head.and_then(|head| match pointer.as_str() {
            "/kind" => head.kind.as_ref(),
            "/metadata/name" => head.name.as_ref(),
            "/metadata/namespace" => head.namespace.as_ref(),
            _ => None,
        });
        head_text.map_or_else(|| text_at(body, pointer), |text| Ok(Some(text.clone())))
    }
}

/// Returns the value of a query parameter. Refuses a query that servers could read in different ways, such as one in
/// which the parameter is repeated.
fn query_value(query: &str, name: &str) -> Result<Option<String>, Rejection> {
    let broken_escape = query.split('%').skip(1).any(|rest| {
        !rest
            .as_bytes()
            .get(..2)
            .is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    });
    if query.contains(';') || broken_escape {
        return Err(Rejection::new(
            RejectionKind::Ambiguous,
            "the query has a semicolon or an invalid escape, which servers parse differently; encode it",
        ));
    }
    let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    let value = values.next().map(|(_, value)| value.into_owned());
    if values.next().is_some() {
        return Err(Rejection::new(
            RejectionKind::Ambiguous,
            format!("the query has `{name}` more than once; keep one"),
        ));
    }
    Ok(value)
}

fn header_value(head: &Parts, name: &http::HeaderName) -> Result<Option<String>, Rejection> {
    let mut values = head.headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Rejection::new(
            RejectionKind::Ambiguous,
            format!("the header {name} is set more than once; keep one"),
        ));
    }
    value
        .map(|value| value.to_str().map(str::to_owned))
        .transpose()
        .map_err(|_| malformed_rejection(format!("the header {name} is not plain text")))
}

/// Returns `None` if the string is absent or null.
fn text_at(body: &str, pointer: &Pointer) -> Result<Option<String>, Rejection> {
    let value = pointer.locate(body).and_then(|range| body.get(range));
    match value {
        None | Some("" | "null") => Ok(None),
        Some(text) => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| malformed_rejection(format!("the value at {pointer} is not a string"))),
    }
}

pub(super) fn malformed_rejection(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(
        RejectionKind::Malformed,
        format!("the body is not valid for this route: {error}"),
    )
}
