//! The demo's example requests and their expected results.

use std::{collections::HashMap, fs};

use admittance_tests::{Error, Reply, UpstreamReplyForm, UpstreamRequest, repository};
use http::{Method, Request};
use serde_json::Value;

pub(crate) struct DemoApi {
    /// The directory of the driver's configuration, relative to the repository's root.
    pub(crate) directory: &'static str,
    pub(crate) form: UpstreamReplyForm,
    pub(crate) examples: [ExampleRequest; 3],
    pub(crate) chain: &'static str,
    pub(crate) change: &'static str,
}

pub(crate) struct ExampleRequest {
    pub(crate) title: &'static str,
    method: Method,
    path: &'static str,
    body: ExampleBody,
    expected: ExpectedReply,
}

enum ExampleBody {
    /// The body is this file of the repository. The request has the header that the BCS driver requires.
    File(&'static str),
    Text(&'static str),
}

enum ExpectedReply {
    /// The driver changes the object: the upstream server gets it with these strings at these JSON Pointers.
    Changed(&'static [(&'static str, &'static str)]),
    /// The driver refuses the request. The upstream server gets nothing, and the client gets a reply that has this
    /// status and contains these words.
    Refused(u16, &'static [&'static str]),
    /// The driver allows the request: the upstream server gets the body unchanged.
    Unchanged,
}

pub(crate) const SERVICES: DemoApi = DemoApi {
    directory: "docs/examples/services",
    form: UpstreamReplyForm::Plain,
    examples: [
        ExampleRequest {
            title: "A change: a service without a team gets one",
            method: Method::PUT,
            path: "/v1/services/web",
            body: ExampleBody::Text(r#"{"image": "nginx:1.29", "replicas": 2}"#),
            expected: ExpectedReply::Changed(&[("/team", "everyone"), ("/image", "nginx:1.29")]),
        },
        ExampleRequest {
            title: "A refusal: a service with too many replicas",
            method: Method::PUT,
            path: "/v1/services/web",
            body: ExampleBody::Text(r#"{"image": "nginx:1.29", "replicas": 8}"#),
            expected: ExpectedReply::Refused(422, &["a service has at most 5 replicas"]),
        },
        ExampleRequest {
            title: "A service that needs no change",
            method: Method::PUT,
            path: "/v1/services/web",
            body: ExampleBody::Text(r#"{"image": "nginx:1.29", "replicas": 2, "team": "shop"}"#),
            expected: ExpectedReply::Unchanged,
        },
    ],
    chain: "chains/services.yaml",
    change: "allow 10 replicas instead of 5",
};

pub(crate) const BCS: DemoApi = DemoApi {
    directory: "docs/examples/demo",
    form: UpstreamReplyForm::Envelope,
    examples: [
        ExampleRequest {
            title: "A change: an application gets a sidecar, and its images are rewritten to the mirror",
            method: Method::POST,
            path: "/mesosdriver/v4/namespaces/shop/applications",
            body: ExampleBody::File("docs/examples/demo/web.json"),
            expected: ExpectedReply::Changed(&[
                (
                    "/spec/template/spec/containers/0/image",
                    "mirror.example.com/library/nginx:1.29",
                ),
                (
                    "/spec/template/spec/containers/1/image",
                    "mirror.example.com/ops/log-agent:2.4",
                ),
            ]),
        },
        ExampleRequest {
            title: "A refusal: an image tagged `latest`",
            method: Method::POST,
            path: "/mesosdriver/v4/namespaces/shop/applications",
            body: ExampleBody::File("docs/examples/demo/latest.json"),
            expected: ExpectedReply::Refused(400, &["stage images of chain applications", "latest"]),
        },
        ExampleRequest {
            title: "The same application in an excluded namespace passes unchanged",
            method: Method::POST,
            path: "/mesosdriver/v4/namespaces/bcs-system/applications",
            body: ExampleBody::File("docs/examples/demo/system.json"),
            expected: ExpectedReply::Unchanged,
        },
    ],
    chain: "chains/applications.yaml",
    change: "set `refuseLatest: false`",
};

const CLUSTER: (&str, &str) = ("BCS-ClusterID", "BCS-MESOS-10001");

impl ExampleRequest {
    pub(crate) fn curl(&self, driver: &str) -> String {
        let url = format!("{driver}{}", self.path);
        match self.body {
            ExampleBody::File(path) => format!("curl -s {url} -H '{}: {}' -d @{path}", CLUSTER.0, CLUSTER.1),
            ExampleBody::Text(body) => format!("curl -s -X {} {url} -d '{body}'", self.method),
        }
    }

    pub(crate) fn request(&self, driver: &str) -> Result<Request<Vec<u8>>, Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(format!("{driver}{}", self.path))
            .header("content-type", "application/json");
        if let ExampleBody::File(_) = self.body {
            request = request.header(CLUSTER.0, CLUSTER.1);
        }
        let invalid = |error: http::Error| Error::Invalid(format!("{}: {error}", self.path));
        request.body(self.body()?).map_err(invalid)
    }

    fn body(&self) -> Result<Vec<u8>, Error> {
        match self.body {
            ExampleBody::Text(body) => Ok(body.into()),
            ExampleBody::File(path) => fs::read(repository().join(path)).map_err(|source| Error::Io {
                operation: path.to_owned(),
                source,
            }),
        }
    }

    pub(crate) fn check(&self, reply: &Reply, upstream_requests: &[UpstreamRequest]) -> Result<(), String> {
        let status = reply.status.as_u16();
        match (&self.expected, upstream_requests) {
            (ExpectedReply::Refused(expected, words), []) => {
                let body = reply.text();
                match words.iter().find(|words| !body.contains(**words)) {
                    None if status == *expected => Ok(()),
                    None => Err(format!("the status is {status}")),
                    Some(words) => Err(format!("`{words}` is not in `{body}`")),
                }
            }
            (ExpectedReply::Changed(expected), [request]) => {
                let object = request.json().map_err(|error| error.to_string())?;
                let text_at = |pointer| object.pointer(pointer).and_then(Value::as_str);
                let actual_texts: HashMap<_, _> = expected
                    .iter()
                    .map(|(pointer, _)| (*pointer, text_at(pointer)))
                    .collect();
                let is_expected = expected.iter().all(|(pointer, text)| text_at(pointer) == Some(*text));
                if is_expected && status == 200 {
                    Ok(())
                } else {
                    Err(format!("the upstream got {actual_texts:?}, the status is {status}"))
                }
            }
            (ExpectedReply::Unchanged, [request]) => {
                let sent_body = self.body().map_err(|error| error.to_string())?;
                if request.body != sent_body || status != 200 {
                    return Err("the body was changed".into());
                }
                // This API replies with the stored object and nothing else, so the reply must equal the object that the
                // client sent.
                match self.body {
                    ExampleBody::Text(body) if reply.json().ok() != serde_json::from_str(body).ok() => {
                        Err(format!("the reply is {}", reply.text()))
                    }
                    _ => Ok(()),
                }
            }
            (_, requests) => Err(format!("the upstream got {} requests", requests.len())),
        }
    }
}
