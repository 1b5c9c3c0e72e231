//! The way of the BCS Mesos driver: `/mesosdriver/v4`, and the envelope `result, code, message, data`.

use admittance_admission::{GroupVersionKind, Object, Operation, Request};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};
use serde::{Deserialize, Serialize};
use serde_json::{Serializer, json, ser::PrettyFormatter};

use crate::{
    Class, Dialect, End, Inspection, Reading, Rejection, RejectionKind,
    path::Readings,
    spelling::{Pattern, Shape, Unreadable},
};

const PREFIX: &str = "/mesosdriver/v4/";
/// What the driver only hands on: consoles, and the custom resources of a kube-apiserver.
const HANDED_ON: [&str; 2] = ["/mesosdriver/v4/webconsole/", "/mesosdriver/v4/customresource"];
const CLUSTER_HEADER: &str = "BCS-ClusterID";

/// The driver's codes (bcs-common's error codes).
mod code {
    /// The upstream could not be asked.
    pub(super) const HTTP_DO: u32 = 1_405_009;
    /// The body is not the JSON that is wanted.
    pub(super) const JSON_DECODE: u32 = 1_405_010;
    /// The body could not be read.
    pub(super) const READ_BODY: u32 = 1_405_012;
    /// The driver itself cannot serve.
    pub(super) const DRIVER: u32 = 1_405_230;
    /// A filter refused the request.
    pub(super) const FILTER: u32 = 1_405_234;
}

/// The keys that hooks look at, in the spelling of the BCS documents.
const KEYS: [&str; 38] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/instance",
    "/spec/template/metadata/name",
    "/spec/template/metadata/namespace",
    "/spec/template/metadata/labels",
    "/spec/template/metadata/annotations",
    "/spec/template/spec/networkMode",
    "/spec/template/spec/volumes/*/name",
    "/spec/template/spec/volumes/*/volume/hostPath",
    "/spec/template/spec/volumes/*/volume/mountPath",
    "/spec/template/spec/containers/*/name",
    "/spec/template/spec/containers/*/type",
    "/spec/template/spec/containers/*/image",
    "/spec/template/spec/containers/*/imagePullUser",
    "/spec/template/spec/containers/*/imagePullPasswd",
    "/spec/template/spec/containers/*/imagePullPolicy",
    "/spec/template/spec/containers/*/hostname",
    "/spec/template/spec/containers/*/command",
    "/spec/template/spec/containers/*/args",
    "/spec/template/spec/containers/*/parameters/*/key",
    "/spec/template/spec/containers/*/parameters/*/value",
    "/spec/template/spec/containers/*/privileged",
    "/spec/template/spec/containers/*/env/*/name",
    "/spec/template/spec/containers/*/env/*/value",
    "/spec/template/spec/containers/*/ports/*/hostPort",
    "/spec/template/spec/containers/*/resources/limits",
    "/spec/template/spec/containers/*/resources/requests",
    "/spec/template/spec/containers/*/volumes/*/name",
    "/spec/template/spec/containers/*/volumes/*/volume/hostPath",
    "/spec/template/spec/containers/*/volumes/*/volume/mountPath",
    "/spec/template/spec/containers/*/volumes/*/volume/readOnly",
    "/spec/template/spec/processes/*/procName",
    "/spec/template/spec/processes/*/uris/*/value",
];

/// The dialect of the BCS Mesos driver. Lives as long as the front door.
///
/// The request is known by its method (POST creates, PUT updates; nothing else is for chains) and by
/// `kind`, `metadata.namespace` and `metadata.name` of its body, whatever its path says, as the driver
/// has it. A body without a namespace is in no namespace: selectors see the empty name, although the
/// scheduler files such an application under `defaultGroup`.
///
/// Where it differs from the driver: the header `BCS-ClusterID` is checked before any hook runs, a body
/// that cannot be read is refused instead of passed around the hooks, and keys in another case are
/// brought into the documented one first.
#[derive(Clone, Debug)]
pub struct Bcs {
    cluster: Cluster,
    shape: Shape,
}

/// The id of a BCS cluster, such as `BCS-MESOS-10001`: what `BCS-ClusterID` must say, to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster(HeaderValue);

/// A text that cannot be the value of `BCS-ClusterID`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no cluster id: write visible ASCII characters without spaces, such as BCS-MESOS-10001")]
pub struct InvalidCluster(pub String);

impl Cluster {
    /// Read a cluster id.
    ///
    /// # Errors
    ///
    /// When it is empty or could not stand in a header.
    pub fn new(id: &str) -> Result<Self, InvalidCluster> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidCluster(id.to_owned()));
        }
        HeaderValue::from_str(id)
            .map(Self)
            .map_err(|_| InvalidCluster(id.to_owned()))
    }
}

impl Bcs {
    /// The dialect in front of one cluster.
    pub fn new(cluster: Cluster) -> Self {
        let mut shape = Shape::default();
        let patterns: Vec<Pattern> = KEYS.iter().filter_map(|key| key.parse().ok()).collect();
        shape.add_patterns(&patterns);
        Self { cluster, shape }
    }

    fn check_cluster(&self, head: &Parts) -> Result<(), Rejection> {
        // Every value, so that a second one cannot say something else to whoever reads it.
        let mut values = head.headers.get_all(CLUSTER_HEADER).iter().peekable();
        if values.peek().is_some() && values.all(|value| *value == self.cluster.0) {
            return Ok(());
        }
        let value = head
            .headers
            .get_all(CLUSTER_HEADER)
            .iter()
            .find(|value| **value != self.cluster.0)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .unwrap_or_default();
        Err(Rejection::new(
            RejectionKind::WrongCluster,
            format!("http header {CLUSTER_HEADER} {value} don't exist"),
        ))
    }
}

impl Dialect for Bcs {
    fn classify(&self, head: &Parts) -> Class {
        let raw = head.uri.path();
        let readings = Readings::of(raw);
        if !readings
            .iter()
            .any(|path| path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/'))
        {
            return Class::Pass;
        }
        if let Err(rejection) = self.check_cluster(head) {
            return Class::Refuse(rejection);
        }
        // Only when the path says so in every way of reading it.
        let handed_on = |path: &str| HANDED_ON.iter().any(|prefix| path.starts_with(prefix));
        if handed_on(raw) && readings.iter().all(handed_on) {
            return Class::Pass;
        }
        match head.method {
            Method::POST => Class::Inspect(Inspection::new(Operation::Create)),
            Method::PUT => Class::Inspect(Inspection::new(Operation::Update)),
            _ => Class::Pass,
        }
    }

    fn read(&self, _head: &Parts, inspection: &Inspection, body: &Bytes) -> Result<Reading, Rejection> {
        if body.is_empty() {
            return Ok(Reading::Nothing);
        }
        let text = std::str::from_utf8(body).map_err(malformed)?;
        let canonical = self.shape.canonical(text).map_err(|error| match error {
            Unreadable::Json(error) => malformed(error),
            Unreadable::Ambiguous(error) => {
                Rejection::new(RejectionKind::Ambiguous, format!("json decode failed!{error}"))
            }
        })?;
        let text = canonical.as_deref().unwrap_or(text);
        // Lists, such as those of /agentsettings, are nothing that hooks know.
        if text.trim_start().starts_with('[') {
            return Ok(Reading::Nothing);
        }
        let object = Object::parse(text).map_err(malformed)?;
        let Some(kind) = kind_of(&object)? else {
            return Ok(Reading::Nothing);
        };
        let resource = kind.guess_resource();
        let request = Request::new(inspection.operation, kind, resource).with_object(object);
        Ok(Reading::Admit {
            request: Box::new(request),
            canonical: canonical.map(Bytes::from),
        })
    }

    fn write(&self, _inspection: &Inspection, _body: &Bytes, object: &Object) -> Bytes {
        Bytes::copy_from_slice(object.text().as_bytes())
    }

    fn reply(&self, end: &End<'_>) -> Response<Bytes> {
        match end {
            // The driver has one status for every refusal, whatever code a denial carries.
            End::Refused(_) => filtered(StatusCode::BAD_REQUEST, code::FILTER, end),
            End::Rejected(rejection) => match rejection.kind {
                RejectionKind::WrongCluster => filtered(StatusCode::BAD_REQUEST, code::FILTER, end),
                RejectionKind::Malformed | RejectionKind::Ambiguous => {
                    filtered(StatusCode::BAD_REQUEST, code::JSON_DECODE, end)
                }
            },
            End::BodyTooLarge { .. } => filtered(StatusCode::PAYLOAD_TOO_LARGE, code::READ_BODY, end),
            End::BodyTimeout { .. } => filtered(StatusCode::REQUEST_TIMEOUT, code::READ_BODY, end),
            End::BodyUnreadable { .. } => filtered(StatusCode::BAD_REQUEST, code::READ_BODY, end),
            End::BodyEncoded { .. } => filtered(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::READ_BODY, end),
            End::Overloaded { retry_after } => {
                let mut response = filtered(StatusCode::SERVICE_UNAVAILABLE, code::DRIVER, end);
                response
                    .headers_mut()
                    .insert(RETRY_AFTER, retry_after.as_secs().max(1).into());
                response
            }
            // Whatever came of asking the scheduler, the driver answers 200.
            End::UpstreamUnreachable { .. } | End::UpstreamTimeout { .. } => envelope(
                StatusCode::OK,
                json!({
                    "result": false,
                    "code": code::HTTP_DO,
                    "message": format!("do http request failed!{end}"),
                    "data": {},
                })
                .to_string(),
            ),
        }
    }
}

/// The kind of the object, if it says one.
///
/// # Errors
///
/// When a part of its head is of another type than the scheduler wants. The scheduler refuses such a
/// body too; a lenient reading here could disagree with what it does instead.
fn kind_of(object: &Object) -> Result<Option<GroupVersionKind>, Rejection> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "apiVersion")]
        api_version: Option<String>,
        kind: Option<String>,
        #[expect(dead_code, reason = "only its type is checked")]
        metadata: Option<Metadata>,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[expect(dead_code, reason = "only its type is checked")]
        name: Option<String>,
        #[expect(dead_code, reason = "only its type is checked")]
        namespace: Option<String>,
    }
    match serde_json::from_str::<Typed>(object.text()) {
        Ok(Typed {
            kind: Some(kind),
            api_version,
            ..
        }) if !kind.is_empty() => Ok(Some(GroupVersionKind::from_api_version(
            &api_version.unwrap_or_default(),
            kind,
        ))),
        Err(error) if object.value().get("kind").is_some() => Err(malformed(error)),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn malformed(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(RejectionKind::Malformed, format!("json decode failed!{error}"))
}

/// The envelope as the driver's filters write it: indented by one space.
fn filtered(status: StatusCode, code: u32, end: &End<'_>) -> Response<Bytes> {
    let value = json!({"result": false, "code": code, "message": end.to_string(), "data": null});
    let mut text = Vec::new();
    let mut writer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    // Writing a value to memory does not fail.
    let _ = value.serialize(&mut writer);
    envelope(status, text)
}

fn envelope(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
