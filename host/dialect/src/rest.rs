//! The dialect of JSON APIs whose requests are described by routes in the configuration.

mod document;
mod matching;
mod patch;
mod route;
mod stored;
mod written;

use std::{borrow::Cow, sync::Arc};

use admittance_admission::{
    EnforcedSpelling, IdentityFields, Object, Patch, Pointer, ReachedResource, RefusalCause, Request,
};
use bytes::Bytes;
use http::{Response, request::Parts};
use matchit::Router;
use serde_json::json;

pub use self::route::{KindSource, PatchType, RestConfig, RestRoute, StoredRoute, UnmatchedWrites, ValueSource};
use self::{document::BodyDocument, matching::template_in_one_case, stored::StoredPath};
use crate::{
    BodyReading, Class, Dialect, EndReason, Inspection, Rejection, RejectionKind, StoredQuery, StoredState, json_reply,
    override_rejection, template::wrap_at,
};

/// The dialect of a JSON API whose requests are described by routes.
///
/// A request belongs to the first route that matches its method and path. If no route matches, a read passes unchanged.
/// [`UnmatchedWrites`] says whether a write passes.
///
/// Servers read paths in different ways. A path is therefore matched in all of these ways, so that nobody can bypass a
/// route with encoded letters, dot segments or doubled slashes. A request is refused if some lenient server could match
/// it to another route, or to any route although none matches here. For example, a server may ignore letter case,
/// accept backslashes, parameters in segments, a NUL, double encoding or a method in lower case, or obey a header that
/// overrides the method or path.
#[derive(Debug)]
pub struct Rest {
    routes: Vec<Arc<PreparedRoute>>,
    unmatched_writes: UnmatchedWrites,
}

/// A mistake in a route of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routes[{route_index}].{field}: {problem}")]
#[non_exhaustive]
pub struct RouteError {
    /// The index of the route in the list of routes.
    pub route_index: usize,
    /// The name of the field of the route that has the mistake.
    pub field: &'static str,
    /// The mistake in this field.
    pub problem: RouteProblem,
}

/// A mistake in the configuration of a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteProblem {
    /// The path template is invalid.
    #[error("`{path}` is not a valid path template: {reason}; write `/v1/job/{{id}}`")]
    Path {
        /// The path template of the route.
        path: String,
        /// The error of the router that parses path templates.
        reason: String,
    },
    /// A name or namespace is to be read from a path parameter, but the route's path has no such parameter.
    #[error("the path has no parameter `{0}`; write {{{0}}} into it")]
    Parameter(String),
    /// A placeholder in the stored object's path is neither a parameter of the route's path nor `name` or `namespace`.
    #[error(
        "{{{0}}} in `path` has no value: write {{{0}}} into the path of the route{how}",
        how = match .0.as_str() {
            "name" | "namespace" => format!(", or `{}` with its source beside `get`", .0),
            _ => String::new(),
        }
    )]
    Placeholder(String),
    /// A field that no stage may change (`identity`) is outside the object.
    #[error("`{pointer}` is not in the object at `{object}`")]
    Identity {
        /// The pointer to the field.
        pointer: String,
        /// The pointer to the object.
        object: String,
    },
    /// The route lists no method.
    #[error("name at least one method, such as PUT")]
    NoMethod,
    /// The route accepts PATCH, but does not configure how chains see a patch.
    #[error(
        "the body of a PATCH is only a part of the object, and chains would judge it as the whole: write `get: {{}}` if a \
         GET of the same path returns the stored object, or `get: {{ path: /v1/job/{{id}} }}`; or `partial: true` if \
         stages are to see the part"
    )]
    Partial,
    /// A field of the route has no effect, for the reason in this text.
    #[error("it has no effect here: {0}")]
    NoEffect(&'static str),
    /// The path of the stored object is invalid.
    #[error("`{0}` is not a path with parameters; write `/v1/job/{{id}}`")]
    StoredPath(String),
}

/// A route, with data that is derived when the configuration is read.
#[derive(Debug)]
struct PreparedRoute {
    config: RestRoute,
    template: Router<()>,
    /// The path template in lower case, except for the names of its parameters. It shows whether a server that ignores
    /// case could match a path to this route.
    lenient_template: Router<()>,
    resource: Arc<admittance_admission::GroupVersionResource>,
    kind: Option<Arc<str>>,
    identity: IdentityFields,
    /// The path from which the stored object is fetched; `None` if it is the path of the client's request.
    stored_path: Option<StoredPath>,
    spelling: EnforcedSpelling,
    object_spelling: EnforcedSpelling,
}

#[derive(Clone, Debug)]
struct MatchedRoute {
    route: Arc<PreparedRoute>,
    parameters: Vec<(String, String)>,
}

impl Rest {
    /// Checks the routes of the configuration, and creates the dialect.
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
                unmatched_writes: config.unmatched_writes,
            })
        } else {
            Err(errors)
        }
    }
}

impl PreparedRoute {
    fn new(index: usize, route: RestRoute) -> Result<Self, Vec<RouteError>> {
        let mut errors = Vec::new();
        let mut add_error = |field, problem| {
            errors.push(RouteError {
                route_index: index,
                field,
                problem,
            });
        };
        if route.methods.is_empty() {
            add_error("method", RouteProblem::NoMethod);
        }
        for (field, problem) in stored::route_mistakes(&route) {
            add_error(field, problem);
        }
        let stored_path = StoredPath::new(&route).unwrap_or_else(|problem| {
            add_error("get", problem);
            None
        });
        let (mut template, mut lenient_template) = (Router::new(), Router::new());
        let reason = if route.path.starts_with('/') {
            template
                .insert(&route.path, ())
                .and_then(|()| lenient_template.insert(template_in_one_case(&route.path), ()))
                .err()
                .map(|error| error.to_string())
        } else {
            Some("it does not start with `/`".to_owned())
        };
        if let Some(reason) = reason {
            let path = route.path.clone();
            add_error("path", RouteProblem::Path { path, reason });
        }
        for (field, sources) in [("namespace", &route.namespace), ("name", &route.name)] {
            for source in sources {
                if let ValueSource::Path(parameter) = source
                    && !route.has_parameter(parameter)
                {
                    add_error(field, RouteProblem::Parameter(parameter.clone()));
                }
            }
        }
        let identity = identity(&route).unwrap_or_else(|problem| {
            add_error("identity", problem);
            IdentityFields::kubernetes()
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let pointers = route
            .body_pointers()
            .chain([&route.object])
            .chain(route.identity.iter().flatten());
        let spelling = EnforcedSpelling::new(pointers, route.spellings.iter().cloned());
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
            object_spelling: spelling.spelling_below(&route.object),
            spelling,
            config: route,
        })
    }
}

/// Returns the identity fields. The default is the fields from which name, namespace and kind are read.
fn identity(route: &RestRoute) -> Result<IdentityFields, RouteProblem> {
    let outside = |pointer: &str| RouteProblem::Identity {
        pointer: pointer.to_owned(),
        object: route.object.to_string(),
    };
    let pointer_in_object = |pointer: &Pointer| {
        pointer
            .relative_to(&route.object)
            .filter(|relative_path| !relative_path.is_empty())
            .and_then(|relative_path| relative_path.parse::<Pointer>().ok())
    };
    let pointers: Vec<Pointer> = match &route.identity {
        Some(pointers) => pointers
            .iter()
            .map(|pointer| pointer_in_object(pointer).ok_or_else(|| outside(pointer.as_str())))
            .collect::<Result<_, _>>()?,
        None => route.body_pointers().filter_map(pointer_in_object).collect(),
    };
    Ok(IdentityFields::new(pointers))
}

impl Dialect for Rest {
    fn name(&self) -> &str {
        "rest"
    }

    fn resources(&self) -> Option<Vec<ReachedResource>> {
        let resource = |prepared: &Arc<PreparedRoute>| ReachedResource {
            resource: prepared.resource.resource.clone(),
            subresource: prepared.config.subresource.clone(),
            kind: prepared.kind.as_deref().map(str::to_owned),
        };
        Some(self.routes.iter().map(resource).collect())
    }

    fn classify(&self, head: &Parts) -> Class {
        let matched = match self.match_route(head) {
            Ok(matched) => matched,
            Err(rejection) => return Class::Refuse(rejection),
        };
        let may_matter = || {
            matched.is_some() || self.unmatched_writes == UnmatchedWrites::Refuse || self.may_be_routed(head.uri.path())
        };
        if let Some(rejection) = override_rejection(head)
            && may_matter()
        {
            return Class::Refuse(rejection);
        }
        let Some(matched) = matched else {
            return self.classify_unmatched(head);
        };
        let mut inspection = Inspection::new(matched.route.config.operation);
        inspection.resource = Some(matched.route.resource.clone());
        inspection.kind = matched.route.kind.clone();
        inspection.detail.insert(matched);
        Class::Inspect(inspection)
    }

    fn stored_query(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
    ) -> Result<Option<StoredQuery>, Rejection> {
        let matched = inspection.detail.get::<MatchedRoute>();
        matched.map_or(Ok(None), |matched| matched.stored_query(head, body))
    }

    fn read_body(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<BodyReading, Rejection> {
        let Some(matched) = inspection.detail.get::<MatchedRoute>() else {
            return Ok(BodyReading::Nothing);
        };
        if matched.applies_patch(head) {
            return matched.read_patch(head, body);
        }
        let state = head.extensions.get::<StoredState>();
        let old_object = state.and_then(|stored| stored.object.clone());
        let (mut request, canonical) = match matched.read_document(head, body)? {
            BodyDocument::Nothing => return Ok(BodyReading::Nothing),
            BodyDocument::Empty => {
                let text = old_object
                    .as_ref()
                    .map(|stored| wrap_at(stored.text(), &matched.route.config.object));
                (
                    matched.build_request(head, text.as_deref().unwrap_or_default(), None)?,
                    None,
                )
            }
            BodyDocument::Whole { text, object } => {
                let request = matched.build_request(head, &text, Some(object))?;
                let canonical = match text {
                    Cow::Owned(canonical) => Some(Bytes::from(canonical)),
                    Cow::Borrowed(_) => None,
                };
                (request, canonical)
            }
        };
        request.old_object = old_object;
        Ok(BodyReading::Admit {
            request: Box::new(request),
            canonical,
        })
    }

    fn changed_body(
        &self,
        head: &Parts,
        inspection: &Inspection,
        body: &Bytes,
        object: &Object,
        patch: &Patch,
    ) -> Result<Bytes, Rejection> {
        let matched = inspection.detail.get::<MatchedRoute>();
        if let Some(matched) = matched.filter(|matched| matched.applies_patch(head)) {
            return matched.changed_patch(head, body, object, patch);
        }
        let pointer = matched.map(|matched| &matched.route.config.object);
        let body = std::str::from_utf8(body).unwrap_or_default();
        let replaced_body = pointer.and_then(|pointer| replace_at(body, pointer, object));
        // `replaced_body` is `None` only if the request has no route; the text of the object is then the whole body. If
        // there is a route, `read_body` has already found an object at this pointer, so replacing it succeeds.
        Ok(replaced_body.map_or_else(|| Bytes::copy_from_slice(object.text().as_bytes()), Bytes::from))
    }

    fn http_request(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        self.routes.iter().find_map(|route| route.http_request(request))
    }

    fn reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        let reason = match end {
            EndReason::Refused(refusal) => match &refusal.cause {
                RefusalCause::Denied(denial) if !denial.reason.is_empty() => &*denial.reason,
                RefusalCause::Denied(_) => "Denied",
                RefusalCause::Failed(_) => "AdmissionFailed",
                RefusalCause::DeadlinePassed => "DeadlinePassed",
                RefusalCause::DryRunUnsupported => "DryRunUnsupported",
                _ => "Refused",
            },
            EndReason::Rejected(rejection) => match rejection.kind {
                RejectionKind::WrongCluster => "WrongCluster",
                RejectionKind::Malformed => "Malformed",
                RejectionKind::Ambiguous => "Ambiguous",
                RejectionKind::Unmatched => "Unmatched",
                RejectionKind::MediaType => "MediaType",
                RejectionKind::Unchangeable => "Unchangeable",
                RejectionKind::PatchFailed => "PatchFailed",
                RejectionKind::Precondition => "PreconditionFailed",
            },
            EndReason::BodyTooLarge { .. } => "BodyTooLarge",
            EndReason::BodyTimeout { .. } | EndReason::BodyStalled { .. } => "BodyTimeout",
            EndReason::BodyUnreadable { .. } => "BodyUnreadable",
            EndReason::BodyEncoded { .. } => "BodyEncoded",
            EndReason::NoRoute => "NoRoute",
            EndReason::Overloaded { .. } => "Overloaded",
            EndReason::StoredUnknown { .. } => "StoredUnknown",
            EndReason::UpstreamUnreachable { .. } => "UpstreamUnreachable",
            EndReason::UpstreamTimeout { .. } => "UpstreamTimeout",
        };
        let status = end.status();
        let body = json!({"error": {"code": status.as_u16(), "reason": reason, "message": end.to_string()}});
        end.with_retry_after(json_reply(status, body.to_string()))
    }
}

/// Returns `None` if the body has no such path.
fn replace_at(body: &str, pointer: &Pointer, object: &Object) -> Option<String> {
    let range = pointer.locate(body)?;
    let (before, after) = (body.get(..range.start)?, body.get(range.end..)?);
    Some([before, object.text(), after].concat())
}

#[cfg(test)]
mod tests;
