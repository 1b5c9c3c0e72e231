//! Requests in files, for `admittance run`: an AdmissionReview, a bare object, or an HTTP request.

use std::path::{Path, PathBuf};

use admittance::admission::{GroupVersionKind, Object, ObjectError, Operation, Request};
use admittance_bcs::{Bcs, ClusterId};
use admittance_dialect::{Class, Dialect, Reading, Review, ReviewError, read_review};
use bytes::Bytes;

/// Why a file does not contain a request that can be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// Invalid YAML.
    #[error("{}: {message}", path.display())]
    Document { path: PathBuf, message: String },
    /// An invalid AdmissionReview.
    #[error("{}: {source}", path.display())]
    Review { path: PathBuf, source: ReviewError },
    /// An object without a kind.
    #[error(
        "{}: the object has no `kind`; write its `apiVersion` and `kind`, which rules and plugins need",
        path.display()
    )]
    NoKind { path: PathBuf },
    /// It is neither HTTP nor a JSON or YAML object.
    #[error(
        "{}: {source}; write an AdmissionReview, an object (JSON or YAML), or an HTTP request with its head",
        path.display()
    )]
    Object { path: PathBuf, source: ObjectError },
    /// The head of the HTTP request is invalid.
    #[error("{}: not an HTTP request: {message}", path.display())]
    Http { path: PathBuf, message: String },
    /// The driver would refuse it.
    #[error("{}: the front door refuses the request: {message}", path.display())]
    Rejected { path: PathBuf, message: String },
    /// The driver would pass it through without calling hooks.
    #[error(
        "{}: no hook applies to this request: {method} {target} is passed to the upstream unchanged",
        path.display()
    )]
    PassedBy {
        path: PathBuf,
        method: String,
        target: String,
    },
    /// No dialect for this path.
    #[error(
        "{}: {target} is not a path of the BCS driver (/mesosdriver/v4/...): give a configuration whose \
         dialect reads it with --config",
        path.display()
    )]
    NoDialect { path: PathBuf, target: String },
}

/// Command line arguments for a bare object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// `--operation`; default CREATE.
    pub(crate) operation: Option<Operation>,
    /// `--resource`; default guessed from the kind.
    pub(crate) resource: Option<String>,
    /// `--namespace`, for an object that does not name one.
    pub(crate) namespace: Option<String>,
}

/// Reads the request in a file; `-` is standard input.
pub(crate) fn read(path: &Path, hints: &Hints, dialect: Option<&dyn Dialect>) -> Result<Request, Error> {
    let unreadable = |source| Error::Unreadable {
        path: path.to_owned(),
        source,
    };
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map_err(unreadable)?;
        bytes
    } else {
        std::fs::read(path).map_err(unreadable)?
    };
    if is_http(&bytes) {
        return from_http(path, &bytes, dialect);
    }
    from_document(path, &bytes, hints)
}

/// `METHOD target HTTP/...` in the first line.
fn is_http(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    matches!(line.split_whitespace().collect::<Vec<_>>()[..], [_, _, version] if version.starts_with("HTTP/"))
}

fn from_document(path: &Path, bytes: &[u8], hints: &Hints) -> Result<Request, Error> {
    let json = match serde_json::from_slice::<&serde_json::value::RawValue>(bytes) {
        Ok(_) => bytes.to_vec(),
        // A text that begins like JSON is parsed as JSON, for a helpful error message.
        Err(_) if bytes.trim_ascii_start().starts_with(b"{") => bytes.to_vec(),
        Err(_) => from_yaml(path, bytes)?,
    };
    let object = Object::parse(&json).map_err(|source| Error::Object {
        path: path.to_owned(),
        source,
    })?;
    if object.head().kind.as_deref() == Some("AdmissionReview") {
        return read_review(&json)
            .map(|review| review.request)
            .map_err(|source| Error::Review {
                path: path.to_owned(),
                source,
            });
    }
    if object.head().kind.as_deref().unwrap_or_default().is_empty() {
        return Err(Error::NoKind {
            path: path.to_owned(),
        });
    }
    Ok(from_object(object, hints))
}

fn from_yaml(path: &Path, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let wrong = |message: String| Error::Document {
        path: path.to_owned(),
        message,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(format!("not UTF-8: {error}")))?;
    let value =
        admittance_definitions::document::to_json(&path.display().to_string(), text).map_err(|mistakes| {
            Error::Document {
                path: path.to_owned(),
                message: mistakes.to_string(),
            }
        })?;
    Ok(value.to_string().into_bytes())
}

fn from_object(object: Object, hints: &Hints) -> Request {
    let head = object.head();
    let kind = GroupVersionKind::from_api_version(
        head.api_version.as_deref().unwrap_or_default(),
        head.kind.clone().unwrap_or_default(),
    );
    let mut resource = kind.guess_resource();
    let mut subresource = None;
    if let Some(hint) = &hints.resource {
        match hint.split_once('/') {
            Some((name, sub)) => {
                resource.resource = name.to_owned();
                subresource = Some(sub.to_owned());
            }
            None => resource.resource = hint.clone(),
        }
    }
    let operation = hints.operation.unwrap_or(Operation::Create);
    let mut request = Request::new(operation, kind, resource).with_object(object);
    request.subresource = subresource;
    if request.namespace.is_none() {
        request.namespace = hints.namespace.clone();
    }
    if operation == Operation::Delete {
        request.old_object = request.object.take();
    }
    request
}

fn from_http(path: &Path, bytes: &[u8], dialect: Option<&dyn Dialect>) -> Result<Request, Error> {
    let (head, body) = parse_http(bytes).map_err(|message| Error::Http {
        path: path.to_owned(),
        message,
    })?;
    if let Ok(Review { request, .. }) = read_review(&body) {
        return Ok(request);
    }
    let target = head.uri.path().to_owned();
    let bcs;
    let dialect: &dyn Dialect = match dialect {
        Some(dialect) => dialect,
        None if target.starts_with("/mesosdriver/v4/") => {
            bcs = bcs_for(path, &head)?;
            &bcs
        }
        None => {
            return Err(Error::NoDialect {
                path: path.to_owned(),
                target,
            });
        }
    };
    let rejected = |rejection: admittance::dialect::Rejection| Error::Rejected {
        path: path.to_owned(),
        message: rejection.to_string(),
    };
    let passed = || Error::PassedBy {
        path: path.to_owned(),
        method: head.method.to_string(),
        target: target.clone(),
    };
    match dialect.classify(&head) {
        Class::Pass => Err(passed()),
        Class::Refuse(rejection) => Err(rejected(rejection)),
        Class::Inspect(inspection) => match dialect.read(&head, &inspection, &body).map_err(rejected)? {
            Reading::Admit { request, .. } => Ok(*request),
            Reading::Nothing => Err(passed()),
        },
    }
}

/// The BCS dialect for the cluster that the request names.
fn bcs_for(path: &Path, head: &http::request::Parts) -> Result<Bcs, Error> {
    let rejected = |message: String| Error::Rejected {
        path: path.to_owned(),
        message,
    };
    let cluster = head
        .headers
        .get("BCS-ClusterID")
        .ok_or_else(|| rejected("the header BCS-ClusterID is missing".into()))?
        .to_str()
        .map_err(|error| rejected(format!("BCS-ClusterID: {error}")))?;
    let cluster = cluster
        .parse::<ClusterId>()
        .map_err(|error| rejected(error.to_string()))?;
    Ok(Bcs::new(cluster))
}

/// Head and body of an HTTP/1.1 request as text. The body is all that follows the empty line: an edited file
/// rarely has a correct Content-Length.
fn parse_http(bytes: &[u8]) -> Result<(http::request::Parts, Bytes), String> {
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
