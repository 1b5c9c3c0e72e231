//! Reads requests from files that contain AdmissionReviews, objects, or an HTTP request.

use std::{
    fmt::Display,
    io::{self, Read},
    path::{Path, PathBuf},
};

use admittance::admission::{Object, Operation, Request, read_review};
use admittance_bcs::Bcs;
use admittance_cluster::ManifestFiles;
use admittance_definitions::{
    Mistakes,
    document::{self, Document},
    files_in,
};
use admittance_dialect::Dialect;
use bytes::Bytes;
use clap::Args;
use http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::files;

/// The facts about a request that its object, or the body of an HTTP request, does not contain.
#[derive(Debug, Args)]
pub(crate) struct ObjectArguments {
    /// Read each file as the body of this HTTP request, such as 'PUT /v1/services/web'. If no file is given, the
    /// request has no body.
    #[arg(long, value_name = "METHOD PATH", value_parser = request_line)]
    pub(crate) request: Option<String>,
    /// A header of the HTTP request in --request, such as 'BCS-ClusterID: BCS-MESOS-10001'. May be given more than
    /// once.
    #[arg(long, value_name = "NAME: VALUE", requires = "request")]
    header: Vec<String>,
    /// The operation, if a file contains only an object [default: CREATE].
    #[arg(long)]
    pub(crate) operation: Option<Operation>,
    /// The resource, as in a chain's rules, if a file contains only an object [default: guessed from the object's
    /// kind].
    #[arg(long)]
    pub(crate) resource: Option<String>,
    /// The namespace of an object in a file, if the object does not name one.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

impl ObjectArguments {
    fn http_head(&self) -> Option<String> {
        let line = self.request.as_ref()?;
        let headers: String = self.header.iter().map(|header| format!("{header}\r\n")).collect();
        Some(format!("{line} HTTP/1.1\r\n{headers}\r\n"))
    }
}

fn request_line(text: &str) -> Result<String, String> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [method, path] if path.starts_with('/') && method.parse::<http::Method>().is_ok() => {
            Ok(format!("{method} {path}"))
        }
        _ => Err("write a method and a path, as in 'PUT /v1/services/web'".into()),
    }
}

#[derive(Debug)]
struct RequestDocument {
    /// The name of the file. If the file contains several documents, the line or the number of this document follows.
    location: String,
    json: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct LocatedRequest {
    pub(crate) location: String,
    pub(crate) request: Request,
}

/// Reads the requests in files and directories, at least one; `-` stands for standard input.
pub(crate) fn read_requests(
    paths: &[PathBuf],
    arguments: &ObjectArguments,
    dialect: Option<&dyn Dialect>,
) -> Result<Vec<LocatedRequest>, String> {
    let head = arguments.http_head();
    let mut requests = Vec::new();
    if let (Some(head), []) = (&head, paths) {
        let location = arguments.request.clone().unwrap_or_default();
        let request = request_from_http(head.as_bytes(), dialect)?;
        requests.push(LocatedRequest { location, request });
    }
    for path in expand_paths(paths)? {
        let mut bytes = read_bytes_or_stdin(&path)?;
        if let Some(head) = &head {
            bytes.splice(0..0, head.bytes());
        }
        if is_http(&bytes) {
            let file_location = path.display().to_string();
            let request = request_from_http(&bytes, dialect).map_err(files::error_at(&path))?;
            requests.push(LocatedRequest {
                location: file_location,
                request,
            });
            continue;
        }
        for input in read_documents(&path, &bytes)? {
            let request = input.to_request(arguments)?;
            requests.push(LocatedRequest {
                location: input.location,
                request,
            });
        }
    }
    if requests.is_empty() {
        Err(format!("there is no request in {}", files::join_paths(paths)))
    } else {
        Ok(requests)
    }
}

pub(crate) fn read_manifests(paths: &[PathBuf]) -> Result<Vec<serde_json::Value>, String> {
    let mut objects = Vec::new();
    for path in expand_paths(paths)? {
        for RequestDocument { location, json } in read_documents(&path, &read_bytes_or_stdin(&path)?)? {
            let value = serde_json::from_slice(&json).map_err(|error| format!("{location}: {error}"))?;
            ManifestFiles::object_kind(&value).map_err(|problem| format!("{location}: {problem}"))?;
            objects.push(value);
        }
    }
    Ok(objects)
}

pub(crate) fn expand_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let file_lists = paths.iter().map(|path| files_in(path).map_err(files::error_at(path)));
    Ok(file_lists.collect::<Result<Vec<_>, _>>()?.concat())
}

fn read_bytes_or_stdin(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        files::read_bytes(path)
    };
    bytes.map_err(|error| files::error_at(path)(files::describe_error(&error)))
}

/// Returns whether the first line has the form `METHOD target HTTP/...`.
pub(crate) fn is_http(bytes: &[u8]) -> bool {
    let line = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default());
    matches!(line.split_whitespace().collect::<Vec<_>>()[..], [_, _, version] if version.starts_with("HTTP/"))
}

fn read_documents(path: &Path, bytes: &[u8]) -> Result<Vec<RequestDocument>, String> {
    let name = path.display().to_string();
    let inputs = if bytes.trim_ascii_start().starts_with(b"{") {
        // A file that begins with `{` is probably JSON. If neither parser can read it, the error of the JSON parser
        // explains the mistake better than the error of the YAML parser.
        json_documents(&name, bytes).or_else(|error| yaml_documents(&name, bytes).map_err(|_| error))
    } else {
        yaml_documents(&name, bytes)
    };
    Ok(inputs?.into_iter().flat_map(RequestDocument::into_items).collect())
}

fn json_documents(name: &str, bytes: &[u8]) -> Result<Vec<RequestDocument>, String> {
    let texts = serde_json::Deserializer::from_slice(bytes)
        .into_iter::<&RawValue>()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("{name}: {error}; {FORMS_ADVICE}"))?;
    let locate = |number: usize| match texts.len() {
        1 => name.to_owned(),
        _ => format!("{name}: document {number}"),
    };
    let inputs = (1..).zip(&texts).map(|(number, text)| RequestDocument {
        location: locate(number),
        json: text.get().into(),
    });
    Ok(inputs.collect())
}

fn yaml_documents(name: &str, bytes: &[u8]) -> Result<Vec<RequestDocument>, String> {
    let text = str::from_utf8(bytes).map_err(|error| format!("{name}: not UTF-8: {error}"))?;
    let mut mistakes = Mistakes::new();
    let documents = document::read_text(name, text, &mut mistakes);
    let documents = mistakes
        .into_result(documents)
        .map_err(|mistakes| mistakes.to_string())?;
    let locate = |document: &Document| match documents.len() {
        1 => name.to_owned(),
        _ => format!("{name}:{}", document.location().line),
    };
    let inputs = documents.iter().map(|document| RequestDocument {
        location: locate(document),
        json: document.root_ignoring_mistakes().json().to_string().into(),
    });
    Ok(inputs.collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubernetesList<'a> {
    api_version: &'a str,
    kind: &'a str,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

impl RequestDocument {
    /// If the document is a `List`, as `kubectl get` prints it, returns its items, and else the document itself.
    fn into_items(self) -> Vec<Self> {
        let parsed = serde_json::from_slice::<KubernetesList<'_>>(&self.json).ok();
        let list = parsed.filter(|list| (list.api_version, list.kind) == ("v1", "List"));
        match list {
            None => vec![self],
            Some(list) => (1..)
                .zip(list.items)
                .map(|(number, item)| Self {
                    location: format!("{}: item {number}", self.location),
                    json: item.get().into(),
                })
                .collect(),
        }
    }

    fn to_request(&self, arguments: &ObjectArguments) -> Result<Request, String> {
        let location = &self.location;
        let object = Object::parse(&self.json).map_err(|error| format!("{location}: {error}; {FORMS_ADVICE}"))?;
        match object.head().kind.as_deref().unwrap_or_default() {
            "AdmissionReview" => match read_review(self.json.clone()) {
                Ok(review) => Ok(review.request),
                Err(error) => Err(format!("{location}: {error}")),
            },
            "" => Err(format!(
                "{location}: {NO_KIND}; if it is the body of an HTTP request, name that: --request 'PUT /v1/services/web'"
            )),
            _ => {
                let (resource, namespace) = (arguments.resource.as_deref(), arguments.namespace.as_deref());
                Request::from_objects(Some(object), None, arguments.operation, resource, namespace)
                    .ok_or_else(|| format!("{location}: {FORMS_ADVICE}"))
            }
        }
    }
}

const FORMS_ADVICE: &str = "write an AdmissionReview, an object (JSON or YAML), or an HTTP request with its head";

pub(crate) const NO_KIND: &str =
    "the object has no `kind`; write its `apiVersion` and `kind`, which rules and plugins need";

pub(crate) fn request_from_http(bytes: &[u8], dialect: Option<&dyn Dialect>) -> Result<Request, String> {
    let (head, body) = parse_http(bytes).map_err(|error| format!("not an HTTP request: {error}"))?;
    if let Ok(review) = read_review(body.clone()) {
        return Ok(review.request);
    }
    let target = head.uri.path();
    let bcs;
    let dialect: &dyn Dialect = match dialect {
        Some(dialect) => dialect,
        None if target.starts_with("/mesosdriver/v4/") => {
            bcs = bcs_dialect_for(&head).map_err(rejection_message)?;
            &bcs
        }
        None => {
            return Err(format!(
                "{target} is not a path of the BCS driver (/mesosdriver/v4/...): give a configuration whose dialect \
                 reads it with `--config FILE`; `admittance init rest` writes one with routes"
            ));
        }
    };
    let request = dialect.admission_request(&head, &body).map_err(rejection_message)?;
    request.ok_or_else(|| {
        format!(
            "no hook applies to this request: {} {target} is passed to the upstream unchanged",
            head.method
        )
    })
}

fn rejection_message(reason: impl Display) -> String {
    format!("the driver would reject the request: {reason}")
}

fn bcs_dialect_for(head: &Parts) -> Result<Bcs, String> {
    let cluster = head.headers.get("BCS-ClusterID");
    let name = cluster
        .ok_or("the header BCS-ClusterID is missing")?
        .to_str()
        .map_err(|error| format!("BCS-ClusterID: {error}"))?;
    Ok(Bcs::new(name.parse().map_err(|error| format!("{error}"))?))
}

/// Parses an HTTP/1.1 request. The body is everything after the empty line, whatever `Content-Length` says.
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
