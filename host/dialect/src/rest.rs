//! Any JSON API, described by rules in the configuration.

mod matching;
mod patch;
mod route;
mod stored;
mod written;

use std::{borrow::Cow, sync::Arc};

use admittance_admission::{
    GroupVersionKind, IdentityFields, Object, Operation, Patch, Pointer, RefusalCause, Request, Spelling,
    SpellingError,
};
use bytes::Bytes;
use http::{Method, Response, request::Parts};
use matchit::Router;
use serde_json::json;

pub use self::route::{KindSource, PlainPatch, RestConfig, Route, StoredRoute, Unmatched, ValueSource};
use self::{matching::in_one_case, stored::StoredPath};
use crate::{
    Class, Dialect, End, Inspection, Reading, Rejection, RejectionKind, StoredQuery, StoredState, json_reply,
    overridden, template::enclosed,
};

/// The dialect of a JSON API that rules describe.
///
/// The first route whose method and path match decides. Reads without a route pass unchanged, and [`Unmatched`]
/// configures how writes without a route are handled.
///
/// A path is matched in every way in which a server may read it: encoded letters, dot segments and doubled
/// slashes do not bypass a route. A request that a lenient server could match to another route, or to a route
/// although there is none, is refused: segment parameters, another case, backslashes, NUL, double encoding, a
/// method in lower case, and headers that override the method or path.
#[derive(Debug)]
pub struct Rest {
    routes: Vec<Arc<PreparedRoute>>,
    unmatched: Unmatched,
}

/// A mistake in a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routes[{route}].{field}: {problem}")]
#[non_exhaustive]
pub struct RouteError {
    /// The index of the route in the list.
    pub route: usize,
    /// The name in the configuration.
    pub field: &'static str,
    /// The mistake in the route.
    pub problem: RouteProblem,
}

/// A mistake in a part of a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteProblem {
    /// The path template is invalid.
    #[error("`{path}` is not a valid path template: {reason}; write `/v1/job/{{id}}`")]
    Path {
        /// The path template of the route.
        path: String,
        /// The error of the router.
        reason: String,
    },
    /// A name or namespace is read from a parameter that the path does not have.
    #[error("the path has no parameter `{0}`; write {{{0}}} into it")]
    Parameter(String),
    /// A placeholder in the path of the stored object is neither a parameter of the route's path, nor its name or
    /// namespace.
    #[error(
        "{{{0}}} in `path` has no value: write {{{0}}} into the path of the route{how}",
        how = match .0.as_str() {
            "name" | "namespace" => format!(", or `{}` with its source beside `get`", .0),
            _ => String::new(),
        }
    )]
    Placeholder(String),
    /// A field of the identity is outside of the object.
    #[error("`{pointer}` is not in the object at `{object}`")]
    Identity {
        /// The pointer to the field.
        pointer: String,
        /// The pointer to the object.
        object: String,
    },
    /// No method is given.
    #[error("name at least one method, such as PUT")]
    NoMethod,
    /// The route has PATCH, and nothing says how to get the result of the patch.
    #[error(
        "the body of a PATCH is only a part of the object, and chains would judge it as the whole: write `get: {{}}` if a \
         GET of the same path returns the stored object, or `get: {{ path: /v1/job/{{id}} }}`; or `partial: true` if \
         stages are to see the part"
    )]
    Partial,
    /// A setting has no effect on this route.
    #[error("it has no effect here: {0}")]
    NoEffect(&'static str),
    /// The path of the stored object is invalid.
    #[error("`{0}` is not a path with parameters; write `/v1/job/{{id}}`")]
    StoredPath(String),
}

/// A route with the data that are derived from it when the configuration is read.
#[derive(Debug)]
struct PreparedRoute {
    route: Route,
    template: Router<()>,
    /// The templates in lower case, except for the names of parameters.
    lenient_template: Router<()>,
    resource: Arc<admittance_admission::GroupVersionResource>,
    kind: Option<Arc<str>>,
    identity: IdentityFields,
    /// The path of the stored object; `None` if it is the path of the request.
    stored_path: Option<StoredPath>,
    spelling: Spelling,
    object_spelling: Spelling,
}

/// The data of a request's head that is kept until its body is read.
#[derive(Clone, Debug)]
struct Matched {
    route: Arc<PreparedRoute>,
    parameters: Vec<(String, String)>,
}

impl Rest {
    /// Checks the routes, and returns the dialect.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the routes.
    pub fn new(config: RestConfig) -> Result<Self, Vec<RouteError>> {
        let mut errors = Vec::new();
        let mut routes = Vec::new();
        for (index, route) in config.routes.into_iter().enumerate() {
            match PreparedRoute::new(index, route) {
                Ok(route) => routes.push(Arc::new(route)),
                Err(mistakes) => errors.extend(mistakes),
            }
        }
        if errors.is_empty() {
            Ok(Self {
                routes,
                unmatched: config.unmatched,
            })
        } else {
            Err(errors)
        }
    }
}

impl PreparedRoute {
    fn new(index: usize, route: Route) -> Result<Self, Vec<RouteError>> {
        let mut errors = Vec::new();
        let mut wrong = |field, problem| {
            errors.push(RouteError {
                route: index,
                field,
                problem,
            });
        };
        if route.methods.is_empty() {
            wrong("method", RouteProblem::NoMethod);
        }
        for (field, problem) in stored::mistakes(&route) {
            wrong(field, problem);
        }
        let stored_path = StoredPath::new(&route).unwrap_or_else(|problem| {
            wrong("get", problem);
            None
        });
        let (mut template, mut lenient_template) = (Router::new(), Router::new());
        let reason = if route.path.starts_with('/') {
            template
                .insert(&route.path, ())
                .and_then(|()| lenient_template.insert(in_one_case(&route.path), ()))
                .err()
                .map(|error| error.to_string())
        } else {
            Some("it does not start with `/`".to_owned())
        };
        if let Some(reason) = reason {
            let path = route.path.clone();
            wrong("path", RouteProblem::Path { path, reason });
        }
        for (field, sources) in [("namespace", &route.namespace), ("name", &route.name)] {
            for source in sources {
                if let ValueSource::Path(parameter) = source
                    && !route.has_parameter(parameter)
                {
                    wrong(field, RouteProblem::Parameter(parameter.clone()));
                }
            }
        }
        let identity = identity(&route).unwrap_or_else(|problem| {
            wrong("identity", problem);
            IdentityFields::kubernetes()
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let pointers = route
            .body_pointers()
            .chain([&route.object])
            .chain(route.identity.iter().flatten());
        let spelling = Spelling::new(pointers, route.spellings.iter().cloned());
        Ok(Self {
            template,
            lenient_template,
            resource: Arc::new(route.resource.clone()),
            kind: match &route.kind {
                KindSource::Fixed(kind) => Some(Arc::from(kind.as_str())),
                KindSource::Pointer(_) => None,
            },
            identity,
            stored_path,
            object_spelling: spelling.below(&route.object),
            spelling,
            route,
        })
    }
}

/// Returns the fields that no stage may change, as pointers into the object: the configured ones, or else the fields
/// from which name, namespace and kind are read.
fn identity(route: &Route) -> Result<IdentityFields, RouteProblem> {
    let outside = |pointer: &str| RouteProblem::Identity {
        pointer: pointer.to_owned(),
        object: route.object.to_string(),
    };
    let within = |pointer: &Pointer| {
        pointer
            .relative_to(&route.object)
            .filter(|place| !place.is_empty())
            .and_then(|place| place.parse::<Pointer>().ok())
    };
    let pointers: Vec<Pointer> = match &route.identity {
        Some(pointers) => pointers
            .iter()
            .map(|pointer| within(pointer).ok_or_else(|| outside(pointer.as_str())))
            .collect::<Result<_, _>>()?,
        None => route.body_pointers().filter_map(within).collect(),
    };
    Ok(IdentityFields::new(pointers))
}

impl Dialect for Rest {
    fn name(&self) -> &str {
        "rest"
    }

    fn classify(&self, head: &Parts) -> Class {
        let matched = match self.route(head) {
            Ok(matched) => matched,
            Err(rejection) => return Class::Refuse(rejection),
        };
        let may_matter = || {
            matched.is_some() || self.unmatched == Unmatched::Refuse || self.may_be_routed(head.uri.path())
        };
        if let Some(rejection) = overridden(head)
            && may_matter()
        {
            return Class::Refuse(rejection);
        }
        let Some(matched) = matched else {
            return self.unmatched(head);
        };
        let mut inspection = Inspection::new(matched.route.route.operation);
        inspection.resource = Some(matched.route.resource.clone());
        inspection.kind = matched.route.kind.clone();
        inspection.detail.insert(matched);
        Class::Inspect(inspection)
    }

    fn stored(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
    ) -> Result<Option<StoredQuery>, Rejection> {
        let matched = inspection.detail.get::<Matched>();
        matched.map_or(Ok(None), |matched| matched.stored_query(head, body))
    }

    fn read(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection> {
        let Some(matched) = inspection.detail.get::<Matched>() else {
            return Ok(Reading::Nothing);
        };
        if matched.is_applied(head) {
            return matched.read_patch(head, body);
        }
        let old_object = head.extensions.get::<StoredState>();
        let old_object = old_object.and_then(|stored| stored.object.clone());
        let (mut request, canonical) = match matched.document(head, body)? {
            Document::Nothing => return Ok(Reading::Nothing),
            Document::Empty => {
                // Without a body, only the stored object has the name and the namespace.
                let text = old_object
                    .as_ref()
                    .map(|stored| enclosed(stored.text(), &matched.route.route.object));
                (
                    matched.request(head, text.as_deref().unwrap_or_default(), None)?,
                    None,
                )
            }
            Document::Whole { text, object } => {
                let request = matched.request(head, &text, Some(object))?;
                let canonical = match text {
                    Cow::Owned(canonical) => Some(Bytes::from(canonical)),
                    Cow::Borrowed(_) => None,
                };
                (request, canonical)
            }
        };
        request.old_object = old_object;
        Ok(Reading::Admit {
            request: Box::new(request),
            canonical,
        })
    }

    fn write(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
        object: &Object,
        patch: &Patch,
    ) -> Result<Bytes, Rejection> {
        let matched = inspection.detail.get::<Matched>();
        if let Some(matched) = matched.filter(|matched| matched.is_applied(head)) {
            return matched.write_patch(head, body, object, patch);
        }
        let pointer = matched.map(|matched| &matched.route.route.object);
        let body = std::str::from_utf8(body).unwrap_or_default();
        let spliced = pointer.and_then(|pointer| spliced(body, pointer, object));
        // `read` has already found the object in the body, so the fallback is never used.
        Ok(spliced.map_or_else(|| Bytes::copy_from_slice(object.text().as_bytes()), Bytes::from))
    }

    fn written(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        self.routes.iter().find_map(|route| route.written(request))
    }

    fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        let reason = match end {
            End::Refused(refusal) => match &refusal.cause {
                RefusalCause::Denied(denial) if !denial.reason.is_empty() => &*denial.reason,
                RefusalCause::Denied(_) => "Denied",
                RefusalCause::Failed(_) => "AdmissionFailed",
                RefusalCause::DeadlinePassed => "DeadlinePassed",
                RefusalCause::DryRunUnsupported => "DryRunUnsupported",
                _ => "Refused",
            },
            End::Rejected(rejection) => match rejection.kind {
                RejectionKind::WrongCluster => "WrongCluster",
                RejectionKind::Malformed => "Malformed",
                RejectionKind::Ambiguous => "Ambiguous",
                RejectionKind::Unmatched => "Unmatched",
                RejectionKind::MediaType => "MediaType",
                RejectionKind::Unchangeable => "Unchangeable",
                RejectionKind::PatchFailed => "PatchFailed",
                RejectionKind::Precondition => "PreconditionFailed",
            },
            End::BodyTooLarge { .. } => "BodyTooLarge",
            End::BodyTimeout { .. } | End::BodyStalled { .. } => "BodyTimeout",
            End::BodyUnreadable { .. } => "BodyUnreadable",
            End::BodyEncoded { .. } => "BodyEncoded",
            End::NoRoute => "NoRoute",
            End::Overloaded { .. } => "Overloaded",
            End::StoredUnknown { .. } => "StoredUnknown",
            End::UpstreamUnreachable { .. } => "UpstreamUnreachable",
            End::UpstreamTimeout { .. } => "UpstreamTimeout",
        };
        let status = end.status();
        let body = json!({"error": {"code": status.as_u16(), "reason": reason, "message": end.to_string()}});
        end.with_retry_after(json_reply(status, body.to_string()))
    }
}

/// The body of a request that is not a patch.
enum Document<'b> {
    /// The body has no object for the chains.
    Nothing,
    /// There is no body, and the operation needs none.
    Empty,
    Whole {
        /// The body in the spelling of the route.
        text: Cow<'b, str>,
        object: Object,
    },
}

impl Matched {
    /// Reads the body of a request that is not a patch.
    fn document<'b>(&self, head: &Parts, body: &'b Bytes) -> Result<Document<'b>, Rejection> {
        let route = &self.route.route;
        let text = std::str::from_utf8(body).map_err(malformed)?;
        if text.trim().is_empty() {
            return match (route.operation, route.optional) {
                (Operation::Delete | Operation::Connect, _) => Ok(Document::Empty),
                (_, true) => Ok(Document::Nothing),
                (operation, false) if head.method == Method::DELETE => Err(malformed(format!(
                    "it is empty, and the route's operation is {operation}, which has an object: a route of its own for \
                     DELETE, with `operation: DELETE`, accepts it"
                ))),
                (_, false) => Err(malformed("it is empty, expected a JSON object")),
            };
        }
        let text = self.canonical(text)?;
        let whole = Object::parse(&*text).map_err(malformed)?;
        let part = match self.part(&text)? {
            None => return Ok(Document::Nothing),
            Some(part) => part,
        };
        let object = if route.object.segments().is_empty() {
            whole
        } else {
            Object::parse(part).map_err(|error| malformed(format!("at `{}`: {error}", route.object)))?
        };
        Ok(Document::Whole { text, object })
    }

    /// Returns a document in the spelling of the route.
    fn canonical<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, Rejection> {
        match self.route.spelling.canonical(text) {
            Ok(canonical) => Ok(canonical.map_or(Cow::Borrowed(text), Cow::Owned)),
            Err(SpellingError::Json(error)) => Err(malformed(error)),
            Err(SpellingError::Ambiguous(error)) => Err(Rejection::new(
                RejectionKind::Ambiguous,
                format!("the body is ambiguous: {error}"),
            )),
        }
    }

    /// Returns the text of the object in a body; `None` if the body has no object and needs none.
    fn part<'t>(&self, text: &'t str) -> Result<Option<&'t str>, Rejection> {
        let route = &self.route.route;
        match route.object.locate(text).and_then(|place| text.get(place)) {
            Some("null") | None if route.optional => Ok(None),
            None => Err(malformed(format!("there is nothing at {}", route.object))),
            part => Ok(part),
        }
    }

    /// Builds the admission request. `body` is empty if the request has none.
    fn request(&self, head: &Parts, body: &str, object: Option<Object>) -> Result<Request, Rejection> {
        let route = &self.route.route;
        let resource = (*self.route.resource).clone();
        let kind = match &route.kind {
            KindSource::Fixed(kind) => kind.clone(),
            KindSource::Pointer(pointer) => {
                let kind = self.text_at(body, object.as_ref(), pointer)?;
                kind.ok_or_else(|| malformed(format!("there is no kind at {pointer}")))?
            }
        };
        let kind = GroupVersionKind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind,
        };
        let mut request = Request::new(route.operation, kind, resource);
        request.subresource.clone_from(&route.subresource);
        let whole = object.as_ref();
        request.namespace = self.first(&route.namespace, head, body, whole)?;
        request.name = self.first(&route.name, head, body, whole)?.unwrap_or_default();
        request.dry_run = route.dry_run;
        request.identity = self.route.identity.clone();
        request.spelling = self.route.object_spelling.clone();
        request.object = object;
        Ok(request)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the first source with a non-empty value.
    fn first(
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
                ValueSource::Query(name) => from_query(head.uri.query().unwrap_or_default(), name)?,
                ValueSource::Header(name) => from_header(head, name)?,
                ValueSource::Pointer(pointer) => self.text_at(body, object, pointer)?,
            };
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the string at a pointer into the body. If the body is the object, its head may already have the string.
    fn text_at(
        &self,
        body: &str,
        object: Option<&Object>,
        pointer: &Pointer,
    ) -> Result<Option<String>, Rejection> {
        let is_body = self.route.route.object.segments().is_empty();
        let head = object.filter(|_| is_body).map(Object::head);
        let known = head.and_then(|head| match pointer.as_str() {
            "/kind" => head.kind.as_ref(),
            "/metadata/name" => head.name.as_ref(),
            "/metadata/namespace" => head.namespace.as_ref(),
            _ => None,
        });
        known.map_or_else(|| text_at(body, pointer), |text| Ok(Some(text.clone())))
    }
}

/// Returns the value of a query parameter. Servers disagree about which of two values counts, and about semicolons and
/// invalid escapes, so all of these are refused.
fn from_query(query: &str, name: &str) -> Result<Option<String>, Rejection> {
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

fn from_header(head: &Parts, name: &http::HeaderName) -> Result<Option<String>, Rejection> {
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
        .map_err(|_| malformed(format!("the header {name} is not plain text")))
}

/// Replaces the object at this place in a body; returns `None` if the body has no such place.
fn spliced(body: &str, pointer: &Pointer, object: &Object) -> Option<String> {
    let place = pointer.locate(body)?;
    let (before, after) = (body.get(..place.start)?, body.get(place.end..)?);
    Some([before, object.text(), after].concat())
}

/// Returns the string at a pointer; `None` if it is absent or null.
fn text_at(body: &str, pointer: &Pointer) -> Result<Option<String>, Rejection> {
    let value = pointer.locate(body).and_then(|place| body.get(place));
    match value {
        None | Some("" | "null") => Ok(None),
        Some(text) => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| malformed(format!("the value at {pointer} is not a string"))),
    }
}

fn malformed(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(
        RejectionKind::Malformed,
        format!("the body is not valid for this route: {error}"),
    )
}

#[cfg(test)]
mod tests;
