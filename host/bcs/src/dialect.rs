//! The dialect of the BCS Mesos driver: `/mesosdriver/v4`, and the envelope `result, code, message, data`.

use admittance_admission::{
    EnforcedSpelling, GroupVersionKind, Object, Operation, PointerPattern, RefusalCause, Request, SpellingError,
    keywords,
    path::{PathReadings, fold_case, lenient_readings},
};
use admittance_dialect::{
    BodyReading, Class, Dialect, EndReason, Inspection, Rejection, RejectionKind, ambiguous_rejection,
    override_rejection,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, request::Parts};
use serde::Deserialize;

use crate::{
    ClusterId,
    reply::{Code, DRIVER_NAME, filter_error, handler_error},
    routes::{PREFIX, needs_kind},
    translation::{self, types},
};

/// The paths that bcs-mesos-driver forwards without calling hooks: to consoles, and to a kube-apiserver.
const FORWARDED_PREFIXES: [&str; 2] = ["/mesosdriver/v4/webconsole/", "/mesosdriver/v4/customresource"];
pub const CLUSTER_HEADER: &str = "BCS-ClusterID";

/// Keys that hooks read and that bcs-mesos-driver does not read, in the spelling that BCS documents. The keys that
/// bcs-mesos-driver reads are in [`types`].
const HOOK_KEYS: [&str; 3] = [
    "/spec/template/spec/volumes/*/name",
    "/spec/template/spec/volumes/*/volume/hostPath",
    "/spec/template/spec/volumes/*/volume/mountPath",
];

/// The dialect of the BCS Mesos driver. Lives as long as the front end.
///
/// Chains see the POST and PUT requests: POST creates an object, and PUT updates one. The object is identified by
/// `kind`, `metadata.namespace` and `metadata.name` in the body. The path of the request does not matter for this, as
/// in bcs-mesos-driver.
///
/// This dialect differs from bcs-mesos-driver in three ways. It checks the header `BCS-ClusterID` before any hook runs.
/// It refuses a body that cannot be parsed, for which bcs-mesos-driver would skip the hooks. It changes keys in another
/// case, such as `Kind`, to the documented case first.
///
/// [`Bcs::with_upstream_kind`] sets the upstream. If it is the scheduler, requests that have passed the chains are
/// [translated](crate::forwarding) as in bcs-mesos-driver.
#[derive(Clone, Debug)]
pub struct Bcs {
    cluster: ClusterId,
    upstream_kind: UpstreamKind,
    spelling: EnforcedSpelling,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamKind {
    /// A bcs-mesos-driver, which gets requests unchanged and whose replies are passed on unchanged.
    #[default]
    Driver,
    /// The Mesos scheduler. Requests are translated to its API, and its replies to the replies of bcs-mesos-driver.
    Scheduler,
}

keywords!(UpstreamKind, "value of `behind`": Scheduler = "scheduler", Driver = "driver");

impl Bcs {
    /// Returns the dialect for the requests of one cluster, whose upstream is a bcs-mesos-driver.
    pub fn new(cluster: ClusterId) -> Self {
        let keys = HOOK_KEYS.iter().filter_map(|key| key.parse::<PointerPattern>().ok());
        let kinds = [types::REPLICA_CONTROLLER, types::DEPLOYMENT, types::DAEMONSET];
        let patterns = keys.chain(kinds.iter().flat_map(|kind| kind.patterns()));
        Self {
            cluster,
            upstream_kind: UpstreamKind::default(),
            spelling: EnforcedSpelling::new([], patterns),
        }
    }

    /// Sets whether the upstream is a bcs-mesos-driver or the scheduler.
    #[must_use]
    pub fn with_upstream_kind(mut self, upstream_kind: UpstreamKind) -> Self {
        self.upstream_kind = upstream_kind;
        self
    }

    pub fn upstream_kind(&self) -> UpstreamKind {
        self.upstream_kind
    }

    /// Returns the headers that every request to this cluster must have.
    pub fn headers(&self) -> HeaderMap {
        let cluster = HeaderValue::from_str(self.cluster.as_str()).ok();
        let name = HeaderName::from_static("bcs-clusterid");
        cluster.map(|cluster| (name, cluster)).into_iter().collect()
    }

    fn check_cluster(&self, head: &Parts) -> Result<(), Rejection> {
        // If the header `BCS-ClusterID` is repeated, every value is checked, because the upstream may use any of them.
        let mut values = head.headers.get_all(CLUSTER_HEADER).iter().peekable();
        if values.peek().is_some() && values.all(|value| value == self.cluster.as_str()) {
            return Ok(());
        }
        let value = head
            .headers
            .get_all(CLUSTER_HEADER)
            .iter()
            .find(|value| *value != self.cluster.as_str())
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .unwrap_or_default();
        Err(Rejection::new(
            RejectionKind::WrongCluster,
            format!("http header {CLUSTER_HEADER} {value} don't exist"),
        ))
    }

    /// Refuses a request if no hooks are called for it only because its path is spelled unusually. A server that
    /// ignores case, for example, could still understand the path, and handle a request for which hooks must be called.
    fn check_spelling(&self, head: &Parts, is_read: bool) -> Result<(), Rejection> {
        // A scheduler cannot be deceived by an unusual path: it never gets the client's request, only requests that
        // this program has written itself.
        if self.upstream_kind == UpstreamKind::Scheduler {
            return Ok(());
        }
        let is_hooked = |path: &String| {
            let path = fold_case(path);
            is_driver_path(&path) && !is_forwarded_path(&path)
        };
        let readings = lenient_readings(head.uri.path());
        if readings
            .as_ref()
            .is_some_and(|readings| !readings.iter().any(is_hooked))
        {
            return Ok(());
        }
        if let Some(rejection) = override_rejection(head) {
            return Err(rejection);
        }
        match head.method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::DELETE => Ok(()),
            Method::POST | Method::PUT if is_read => Ok(()),
            Method::POST | Method::PUT => Err(ambiguous_rejection(
                "some servers would read its path as one with hooks; write it as the API does, without `;`, `\\`, \
                 control characters, and encoded or doubled slashes and dots",
            )),
            _ => Err(ambiguous_rejection(
                "its method is none of the driver's: write GET, POST, PUT or DELETE",
            )),
        }
    }

    /// Decides about a request whose body has no kind. No hooks are called for such a request. If the upstream is a
    /// bcs-mesos-driver, and could take the path for a route that requires a kind, the request is refused.
    fn read_without_kind(&self, head: &Parts) -> Result<BodyReading, Rejection> {
        let may_have_kind = || match lenient_readings(head.uri.path()) {
            Some(readings) => readings.iter().any(|path| needs_kind(&head.method, &fold_case(path))),
            None => true,
        };
        match self.upstream_kind {
            UpstreamKind::Driver if may_have_kind() => Err(malformed_body("the object has no `kind`")),
            UpstreamKind::Driver | UpstreamKind::Scheduler => Ok(BodyReading::Nothing),
        }
    }
}

fn is_driver_path(path: &str) -> bool {
    let rest = path.strip_prefix(PREFIX);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_forwarded_path(path: &str) -> bool {
    FORWARDED_PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

impl Dialect for Bcs {
    fn name(&self) -> &str {
        "bcs"
    }

    fn classify(&self, head: &Parts) -> Class {
        let raw = head.uri.path();
        let readings = PathReadings::new(raw);
        let is_own = readings.iter().any(is_driver_path);
        // Servers can read a path in several ways, such as before and after decoding it. Hooks are skipped only if
        // bcs-mesos-driver would skip them in all of these ways.
        let is_forwarded = is_own && is_forwarded_path(raw) && readings.iter().all(is_forwarded_path);
        if is_own && let Err(rejection) = self.check_cluster(head) {
            return Class::Refuse(rejection);
        }
        if let Err(rejection) = self.check_spelling(head, is_own && !is_forwarded) {
            return Class::Refuse(rejection);
        }
        if !is_own || is_forwarded {
            return Class::Pass;
        }
        match head.method {
            Method::POST => Class::Inspect(Inspection::new(Operation::Create)),
            Method::PUT => Class::Inspect(Inspection::new(Operation::Update)),
            _ => Class::Pass,
        }
    }

    fn read_body(&self, head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<BodyReading, Rejection> {
        if body.is_empty() {
            return Ok(BodyReading::Nothing);
        }
        let text = std::str::from_utf8(body).map_err(malformed_body)?;
        let canonical = self.spelling.canonical_text(text).map_err(|error| match error {
            SpellingError::Json(error) => malformed_body(error),
            SpellingError::Ambiguous(error) => {
                Rejection::new(RejectionKind::Ambiguous, format!("json decode failed!{error}"))
            }
        })?;
        let text = canonical.as_deref().unwrap_or(text);
        if text.trim_start().starts_with('[') {
            return self.read_without_kind(head);
        }
        let object = Object::parse(text).map_err(malformed_body)?;
        let Some(kind) = kind_of(&object)? else {
            return self.read_without_kind(head);
        };
        let resource = kind.guess_resource();
        let mut request = Request::new(inspection.operation, kind, resource).with_object(object);
        request.spelling = self.spelling.clone();
        Ok(BodyReading::Admit {
            request: Box::new(request),
            canonical: canonical.map(Bytes::from),
        })
    }

    fn reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        let code = match end {
            EndReason::NoRoute => return translation::no_route_reply(StatusCode::NOT_FOUND, &[]),
            EndReason::Refused(_) => Code::Filter,
            EndReason::Rejected(rejection) => match rejection.kind {
                RejectionKind::WrongCluster => Code::Filter,
                RejectionKind::Malformed
                | RejectionKind::Ambiguous
                | RejectionKind::Unmatched
                | RejectionKind::MediaType
                | RejectionKind::Unchangeable
                | RejectionKind::PatchFailed
                | RejectionKind::Precondition => Code::JsonDecode,
            },
            EndReason::BodyTooLarge { .. }
            | EndReason::BodyTimeout { .. }
            | EndReason::BodyStalled { .. }
            | EndReason::BodyUnreadable { .. }
            | EndReason::BodyEncoded { .. } => Code::ReadBody,
            EndReason::Overloaded { .. } => Code::Driver,
            // Any other reason means that the request to the scheduler has failed, for example because the scheduler
            // did not reply. bcs-mesos-driver reports such a failure with status 200, so this program does too.
            _ => {
                let program = (self.upstream_kind == UpstreamKind::Scheduler).then_some(DRIVER_NAME);
                let message = format!("do http request failed!{end}");
                return handler_error(program, StatusCode::OK, Code::HttpDo, &message);
            }
        };
        let status = match end {
            // bcs-mesos-driver uses 400 for every refusal, so the code that a hook chooses is not used.
            EndReason::Refused(_) | EndReason::Rejected(_) => StatusCode::BAD_REQUEST,
            end => end.status(),
        };
        let message = match end {
            // This message repeats a misspelling of bcs-mesos-driver, so that searches for the message find it.
            EndReason::Refused(refusal) if matches!(refusal.cause, RefusalCause::Failed(_)) => {
                format!("request webhoook {} error {refusal}", refusal.stage)
            }
            end => end.to_string(),
        };
        end.with_retry_after(filter_error(status, code, &message))
    }
}

/// Returns the kind of the object; `None` if the object has no kind. Fails if the object has a kind, but one of the
/// fields in `TypedHead` has a wrong type, such as a number as `metadata`. The scheduler refuses such an object too,
/// but another program might still read the kind.
fn kind_of(object: &Object) -> Result<Option<GroupVersionKind>, Rejection> {
    #[derive(Deserialize)]
    struct TypedHead {
        #[serde(rename = "apiVersion")]
        api_version: Option<String>,
        kind: Option<String>,
        #[expect(dead_code, reason = "only its type is checked")]
        metadata: Option<BcsMetadata>,
    }
    #[derive(Deserialize)]
    struct BcsMetadata {
        #[expect(dead_code, reason = "only its type is checked")]
        name: Option<String>,
        #[expect(dead_code, reason = "only its type is checked")]
        namespace: Option<String>,
    }
    match serde_json::from_str::<TypedHead>(object.text()) {
        Ok(TypedHead {
            kind: Some(kind),
            api_version,
            ..
        }) if !kind.is_empty() => Ok(Some(GroupVersionKind::from_api_version(
            &api_version.unwrap_or_default(),
            kind,
        ))),
        Err(error) if object.value().get("kind").is_some() => Err(malformed_body(error)),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn malformed_body(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(RejectionKind::Malformed, format!("json decode failed!{error}"))
}

#[cfg(test)]
mod tests;
