//! The dialect of the Kubernetes API, for a front end that forwards requests to API servers.

mod options;
mod target;

use admittance_admission::{GroupVersionKind, Object, Operation, Request, SpellingError, UserInfo};
use bytes::Bytes;
use http::{
    Method, Response,
    header::{CONTENT_TYPE, UPGRADE},
    request::Parts,
};

pub use self::target::{ApiTarget, ResourceTarget};
use crate::{
    BodyReading, Class, Dialect, EndReason, Inspection, Rejection, RejectionKind, review::refusal_reply, status_reply,
};

/// The dialect of the Kubernetes API.
///
/// The method and the path of a request determine its operation and target. Created and updated objects are read from
/// the body. The caller puts the user ([`UserInfo`]) into the extensions of the HTTP request, and for updates, patches
/// and deletions the object that the API server has stored ([`StoredState`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct KubernetesApi;

/// The object that the upstream has stored. The caller puts it into the extensions of the HTTP request.
#[derive(Clone, Debug, Default)]
pub struct StoredState {
    /// The object as it is before the request; `None` if it does not exist.
    pub object: Option<Object>,
    /// The object that would result from a patch; `None` if the request is not a patch.
    pub patched_object: Option<Object>,
}

impl KubernetesApi {
    /// Returns the operation of a request that writes or opens a connection; `None` for a read.
    fn operation(head: &Parts, target: &ResourceTarget) -> Result<Option<Operation>, Rejection> {
        if target.is_connect() {
            return Ok(Some(Operation::Connect));
        }
        let is_upgrade = head.headers.contains_key(UPGRADE) && target.subresource.is_some();
        Ok(Some(match head.method {
            Method::GET | Method::HEAD | Method::OPTIONS => {
                return Ok(is_upgrade.then_some(Operation::Connect));
            }
            // The header `Upgrade` asks for a change of protocol, such as to WebSocket. The API server may pass the
            // request on to another server, and that server could open a connection. The chains would have seen only a
            // write, so the request is refused.
            _ if is_upgrade => {
                let message = "a write to a subresource must not ask to switch protocols";
                return Err(Rejection::new(RejectionKind::Ambiguous, message));
            }
            Method::POST => Operation::Create,
            Method::DELETE => Operation::Delete,
            Method::PUT | Method::PATCH => match head.extensions.get::<StoredState>() {
                Some(StoredState { object: None, .. }) => Operation::Create,
                _ => Operation::Update,
            },
            _ => {
                let message = format!("the Kubernetes API has no method {}", head.method);
                return Err(Rejection::new(RejectionKind::Malformed, message));
            }
        }))
    }
}

impl Dialect for KubernetesApi {
    fn name(&self) -> &str {
        "kubernetes"
    }

    fn classify(&self, head: &Parts) -> Class {
        let target = match ApiTarget::parse(head.uri.path()) {
            Ok(ApiTarget::Resource(target)) => target,
            Ok(ApiTarget::Other) => return Class::Pass,
            Err(rejection) => return Class::Refuse(rejection),
        };
        match Self::operation(head, &target) {
            Err(rejection) => Class::Refuse(rejection),
            Ok(Some(operation)) if !target.resource.is_never_hooked() => {
                let mut inspection = Inspection::new(operation);
                inspection.resource = Some(target.resource.clone().into());
                inspection.detail.insert(target);
                Class::Inspect(inspection)
            }
            Ok(_) => Class::Pass,
        }
    }

    fn read_body(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<BodyReading, Rejection> {
        let resource_target = inspection.detail.get::<ResourceTarget>();
        // `classify` has stored the target of the request in this inspection, so the target is never missing.
        let target = resource_target.ok_or_else(|| unknown_part_rejection("its target"))?;
        let query = head.uri.query().unwrap_or_default();
        let is_patch = head.method == Method::PATCH;
        if inspection.operation == Operation::Delete && target.name.is_none() {
            let message = format!(
                "chains inspect deletions of {}, so they cannot be deleted all at once: delete each by its name",
                target.resource.resource
            );
            return Err(Rejection::new(RejectionKind::Unmatched, message));
        }
        let mut stored = StoredState::default();
        if inspection.operation != Operation::Connect && head.method != Method::POST {
            let state = head.extensions.get::<StoredState>();
            stored = state
                .cloned()
                .ok_or_else(|| unknown_part_rejection("the stored object"))?;
        }
        let (kind, object, options) = match inspection.operation {
            Operation::Connect => {
                let (kind, options) = options::connect_options(target, head.uri.path(), query);
                (kind, options, None)
            }
            Operation::Delete => {
                let options = delete_options(head, body);
                let stored_object = stored
                    .object
                    .as_ref()
                    .ok_or_else(|| unknown_part_rejection("the stored object"))?;
                (kind_of(stored_object)?, None, options)
            }
            Operation::Create | Operation::Update => {
                let object = match stored.patched_object.take() {
                    Some(patched) => patched,
                    None if is_patch => return Err(unknown_part_rejection("the result of the patch")),
                    None => read_object(head, body)?,
                };
                let kind = match inspection.operation {
                    Operation::Create => "CreateOptions",
                    _ => "UpdateOptions",
                };
                (kind_of(&object)?, Some(object), options::query_options(kind, query))
            }
        };
        let mut request = Request::new(inspection.operation, kind, target.resource.clone());
        request.dry_run = match inspection.operation {
            Operation::Connect => false,
            // If a DELETE has a body, the API server reads `dryRun` from the body and ignores the query.
            Operation::Delete if !body.is_empty() => options.as_ref().is_some_and(|options| {
                let dry_run = options.value().pointer("/dryRun/0");
                dry_run.is_some_and(|value| value == "All")
            }),
            _ => options::is_dry_run(query),
        };
        request.subresource = target.subresource.clone();
        let name_source = object.as_ref().filter(|_| target.name.is_none());
        let object_name = name_source.and_then(|object| object.head().name.clone());
        request.name = target.name.clone().or(object_name).unwrap_or_default();
        request.namespace = target.namespace.clone();
        request.user = head.extensions.get::<UserInfo>().cloned().unwrap_or_default();
        request.object = object;
        request.old_object = stored.object;
        request.options = options;
        let request = Box::new(request);
        Ok(match inspection.operation {
            Operation::Create | Operation::Update if !is_patch => BodyReading::Admit {
                request,
                canonical: None,
            },
            _ => BodyReading::Fixed {
                request,
                rejection: unchangeable_rejection(is_patch),
            },
        })
    }

    fn reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        end.with_retry_after(match end {
            EndReason::Refused(refusal) => refusal_reply(refusal),
            end => status_reply(end.status(), &end.to_string()),
        })
    }
}

fn read_object(head: &Parts, body: &Bytes) -> Result<Object, Rejection> {
    if !is_json(head) {
        let content_type = head.headers.get(CONTENT_TYPE);
        let media_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let message = format!(
            "chains inspect this request, and read JSON; its Content-Type is `{}`: send application/json",
            media_type.unwrap_or_default()
        );
        return Err(Rejection::new(RejectionKind::MediaType, message));
    }
    let malformed = |error: &dyn std::fmt::Display| {
        Rejection::new(RejectionKind::Malformed, format!("the body of the request: {error}"))
    };
    let object = Object::parse_unique(body).map_err(|error| malformed(&error))?;
    // An object with a key such as `Kind` is refused. The API server ignores that key, because only `kind` is spelled
    // correctly, but a hook may read it.
    match admittance_admission::EnforcedSpelling::kubernetes().canonical_text(object.text()) {
        Ok(None) => Ok(object),
        Ok(Some(_)) => {
            let message = "a key of the object's identity is not spelled as documented";
            Err(Rejection::new(RejectionKind::Ambiguous, message))
        }
        Err(SpellingError::Json(error) | SpellingError::Ambiguous(error)) => Err(malformed(&error)),
    }
}

/// Returns the kind of the object, or refuses an object without a kind. The API server accepts such an object, and
/// takes the kind from the path, but hooks do not see the path.
fn kind_of(object: &Object) -> Result<GroupVersionKind, Rejection> {
    let head = object.head();
    match (&head.api_version, &head.kind) {
        (Some(version), Some(kind)) if !version.is_empty() && !kind.is_empty() => {
            Ok(GroupVersionKind::from_api_version(version, kind.clone()))
        }
        _ => {
            let message = "chains inspect this request, and need `apiVersion` and `kind` in its object";
            Err(Rejection::new(RejectionKind::Malformed, message))
        }
    }
}

/// Returns `None` if the body is not JSON: Go clients may send Protocol Buffers, which hooks cannot read.
fn delete_options(head: &Parts, body: &Bytes) -> Option<Object> {
    let readable = is_json(head) && !body.is_empty();
    readable.then(|| Object::parse(body).ok()).flatten()
}

/// A body without a content type is assumed to be JSON, as the API server does.
fn is_json(head: &Parts) -> bool {
    let mut values = head.headers.get_all(CONTENT_TYPE).iter();
    let Some(value) = values.next() else { return true };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    values.next().is_none() && essence.trim().eq_ignore_ascii_case("application/json")
}

/// Rejects a request because `missing_part`, such as the stored object, is not known. When its head was read, no
/// chain applied, so the stored object was not fetched. A chain that does apply was added before the body was read. The
/// client therefore has to send the request again.
fn unknown_part_rejection(missing_part: &str) -> Rejection {
    let message = format!("chains inspect this request, and {missing_part} is not known: send the request again");
    Rejection::new(RejectionKind::Malformed, message)
}

fn unchangeable_rejection(is_patch: bool) -> Rejection {
    let message = if is_patch {
        "a chain would change the result of this patch, which only an update can carry: send the whole object with \
         an update (PUT, `kubectl replace`)"
    } else {
        "a chain would change this request, which cannot be changed"
    };
    Rejection::new(RejectionKind::Unchangeable, message)
}

#[cfg(test)]
mod tests;
