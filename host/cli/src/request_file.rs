//! Requests in files, for `admittance run`: an AdmissionReview, a bare object, or an HTTP request.

use std::{
    fmt::Display,
    fs,
    io::{self, Read},
    path::Path,
};

use admittance::admission::{GroupVersionKind, Object, Operation, Request};
use admittance_bcs::{Bcs, ClusterId};
use admittance_definitions::document;
use admittance_dialect::{Class, Dialect, Reading, read_review};
use bytes::Bytes;
use clap::Args;
use http::request::Parts;
use serde_json::value::RawValue;

use crate::files;

/// The properties of a request that a bare object does not contain.
#[derive(Debug, Args)]
pub(crate) struct ObjectArguments {
    /// The operation on a bare object [default: CREATE].
    #[arg(long)]
    operation: Option<Operation>,
    /// The resource of a bare object, as in a chain's rules [default: guessed from its kind].
    #[arg(long)]
    resource: Option<String>,
    /// The namespace of a bare object that does not name one.
    #[arg(long)]
    namespace: Option<String>,
}

/// Reads the request in a file; `-` is standard input.
pub(crate) fn read(
    path: &Path,
    arguments: &ObjectArguments,
    dialect: Option<&dyn Dialect>,
) -> Result<Request, String> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    let bytes = bytes.map_err(files::at(path))?;
    let request = if is_http(&bytes) {
        from_http(&bytes, dialect)
    } else {
        from_document(path, &bytes, arguments)
    };
    request.map_err(files::at(path))
}

/// `METHOD target HTTP/...` in the first line.
fn is_http(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    matches!(line.split_whitespace().collect::<Vec<_>>()[..], [_, _, version] if version.starts_with("HTTP/"))
}

fn from_document(path: &Path, bytes: &[u8], arguments: &ObjectArguments) -> Result<Request, String> {
    let is_json = serde_json::from_slice::<&RawValue>(bytes).is_ok();
    // A text that begins like JSON is parsed as JSON, for a helpful error message.
    let json = if is_json || bytes.trim_ascii_start().starts_with(b"{") {
        bytes.to_vec()
    } else {
        let text = str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
        let value =
            document::to_json(&path.display().to_string(), text).map_err(|mistakes| mistakes.to_string())?;
        value.to_string().into_bytes()
    };
    let object = Object::parse(&json).map_err(|error| {
        format!(
            "{error}; write an AdmissionReview, an object (JSON or YAML), or an HTTP request with its head"
        )
    })?;
    match object.head().kind.as_deref().unwrap_or_default() {
        "AdmissionReview" => match read_review(&json) {
            Ok(review) => Ok(review.request),
            Err(error) => Err(error.to_string()),
        },
        "" => Err(
            "the object has no `kind`; write its `apiVersion` and `kind`, which rules and plugins need"
                .into(),
        ),
        _ => Ok(from_object(object, arguments)),
    }
}

fn from_object(object: Object, arguments: &ObjectArguments) -> Request {
    let head = object.head();
    let kind = GroupVersionKind::from_api_version(
        head.api_version.as_deref().unwrap_or_default(),
        head.kind.clone().unwrap_or_default(),
    );
    let mut resource = kind.guess_resource();
    let mut subresource = None;
    if let Some(hint) = &arguments.resource {
        match hint.split_once('/') {
            Some((name, sub)) => {
                resource.resource = name.to_owned();
                subresource = Some(sub.to_owned());
            }
            None => resource.resource = hint.clone(),
        }
    }
    let operation = arguments.operation.unwrap_or(Operation::Create);
    let mut request = Request::new(operation, kind, resource).with_object(object);
    request.subresource = subresource;
    if request.namespace.is_none() {
        request.namespace = arguments.namespace.clone();
    }
    if operation == Operation::Delete {
        request.old_object = request.object.take();
    }
    request
}

fn from_http(bytes: &[u8], dialect: Option<&dyn Dialect>) -> Result<Request, String> {
    let (head, body) = parse_http(bytes).map_err(|error| format!("not an HTTP request: {error}"))?;
    if let Ok(review) = read_review(&body) {
        return Ok(review.request);
    }
    let target = head.uri.path();
    let bcs;
    let dialect: &dyn Dialect = match dialect {
        Some(dialect) => dialect,
        None if target.starts_with("/mesosdriver/v4/") => {
            bcs = bcs_for(&head).map_err(rejected)?;
            &bcs
        }
        None => {
            return Err(format!(
                "{target} is not a path of the BCS driver (/mesosdriver/v4/...): give a configuration whose dialect \
                 reads it with --config"
            ));
        }
    };
    let reading = match dialect.classify(&head) {
        Class::Pass => Reading::Nothing,
        Class::Refuse(rejection) => return Err(rejected(rejection)),
        Class::Inspect(inspection) => dialect.read(&head, &inspection, &body).map_err(rejected)?,
    };
    match reading {
        Reading::Admit { request, .. } => Ok(*request),
        Reading::Nothing => Err(format!(
            "no hook applies to this request: {} {target} is passed to the upstream unchanged",
            head.method
        )),
    }
}

fn rejected(reason: impl Display) -> String {
    format!("the driver would reject the request: {reason}")
}

/// The BCS dialect for the cluster that the request names.
fn bcs_for(head: &Parts) -> Result<Bcs, String> {
    let cluster = head.headers.get("BCS-ClusterID");
    let cluster = cluster.ok_or("the header BCS-ClusterID is missing")?;
    let cluster = cluster
        .to_str()
        .map_err(|error| format!("BCS-ClusterID: {error}"))?;
    let cluster: ClusterId = cluster.parse().map_err(|error| format!("{error}"))?;
    Ok(Bcs::new(cluster))
}

/// Head and body of an HTTP/1.1 request as text. The body is all that follows the empty line: an edited file
/// rarely has a correct Content-Length.
fn parse_http(bytes: &[u8]) -> Result<(Parts, Bytes), String> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut headers);
    let end = match parsed.parse(bytes).map_err(|error| error.to_string())? {
        httparse::Status::Complete(end) => end,
        httparse::Status::Partial => return Err("its head does not end with an empty line".into()),
    };
    let mut builder = http::Request::builder()
        .method(parsed.method.unwrap_or_default())
        .uri(parsed.path.unwrap_or_default());
    for header in parsed.headers {
        builder = builder.header(header.name, header.value);
    }
    let (head, ()) = builder.body(()).map_err(|error| error.to_string())?.into_parts();
    Ok((head, Bytes::copy_from_slice(bytes.get(end..).unwrap_or_default())))
}
