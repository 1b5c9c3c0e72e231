//! A webhook server whose answers a test chooses, and webhook configurations that refer to it.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::webhooks::{issue_certificate, start_tls_server};

/// The two host names of the webhook server: for webhook configurations that name the server as a `service`, and for
/// those that name it by a URL.
const HOST_NAMES: [&str; 2] = ["hook.hooks.svc", "hook.hooks"];

#[derive(Clone, Debug)]
pub(crate) struct HookCall {
    pub(crate) path: String,
    /// The webhook's timeout in seconds, which the caller sends in the query.
    pub(crate) timeout: u64,
    pub(crate) connection: usize,
    pub(crate) review: Value,
}

impl HookCall {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.review["request"]["object"]["metadata"]["labels"][name].as_str()
    }
}

pub(crate) enum HookAnswer {
    /// The webhook answers with this `response`, to which the server adds the `uid` of the request.
    Review(Value),
    Text(u16, String),
    /// The webhook server closes the connection without a reply.
    HangUp,
    /// The webhook server never replies, and keeps the connection open.
    Silence,
}

impl HookAnswer {
    /// Returns an answer that allows the request and changes the object by this patch.
    pub(crate) fn patch(patch: &Value) -> Self {
        Self::raw_patch(&patch.to_string())
    }

    /// Returns an answer that allows the request. Its patch is this text, which may be invalid.
    pub(crate) fn raw_patch(text: &str) -> Self {
        let patch = BASE64_STANDARD.encode(text);
        Self::Review(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }

    pub(crate) fn allow() -> Self {
        Self::Review(json!({"allowed": true}))
    }

    pub(crate) fn add_label(name: &str, value: &str) -> Self {
        Self::patch(&json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": value}]))
    }
}

/// The calls that the webhook server has received. A test can wait for further calls.
pub(crate) struct Arrivals(watch::Receiver<Vec<HookCall>>);

impl Arrivals {
    /// Waits until the webhook server has received `count` calls whose path begins with `path`.
    pub(crate) async fn wait_for(&mut self, path: &str, count: usize) {
        self.0
            .wait_for(|calls| calls_to(calls, path).count() >= count)
            .await
            .unwrap();
    }

    /// Returns how many calls, with a path that begins with `path`, the webhook server has received.
    pub(crate) fn count(&self, path: &str) -> usize {
        calls_to(&self.0.borrow(), path).count()
    }
}

fn calls_to<'a>(calls: &'a [HookCall], path: &'a str) -> impl Iterator<Item = &'a HookCall> {
    calls.iter().filter(move |call| call.path.starts_with(path))
}

/// A running webhook server, which stops when the test ends.
#[derive(Clone)]
pub(crate) struct Hooks {
    address: SocketAddr,
    pub(crate) bundle: String,
    calls: watch::Sender<Vec<HookCall>>,
}

impl Hooks {
    pub(crate) async fn start<A>(
        directory: &Path,
        answer: impl Fn(HookCall, Arrivals) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = HookAnswer> + Send,
    {
        Self::start_with_protocols(&["http/1.1"], directory, answer).await
    }

    pub(crate) async fn start_with_protocols<A>(
        protocols: &[&str],
        directory: &Path,
        answer: impl Fn(HookCall, Arrivals) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = HookAnswer> + Send,
    {
        let directory = directory.join("hooks");
        let bundle = issue_certificate(&directory, "--service", "hook.hooks").await;
        let calls = watch::Sender::new(Vec::new());
        let answer = Arc::new(answer);
        let address = start_tls_server(&directory, "hook.hooks", protocols, {
            let calls = calls.clone();
            move |connection, request| {
                let (calls, answer) = (calls.clone(), answer.clone());
                async move {
                    let call = read_call(connection, request).await;
                    calls.send_modify(|all| all.push(call.clone()));
                    let review = call.review.clone();
                    response_to(&review, answer(call, Arrivals(calls.subscribe())).await).await
                }
            }
        })
        .await;
        Self { address, bundle, calls }
    }

    /// Returns the part of Admittance's configuration that resolves the names of the webhook server to its address.
    pub(crate) fn resolve_config(&self) -> String {
        let [service, url] = HOST_NAMES;
        let address = self.address;
        format!("webhooks: {{ resolve: {{ {service}: \"{address}\", {url}: \"{address}\" }} }}\n")
    }

    pub(crate) fn calls(&self, path: &str) -> Vec<HookCall> {
        calls_to(&self.calls.borrow(), path).cloned().collect()
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        Arrivals(self.calls.subscribe())
    }

    pub(crate) fn client_by_url(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", HOST_NAMES[1]), "caBundle": self.bundle})
    }

    /// Returns a webhook for a webhook configuration. By default, the webhook matches all requests and has the failure
    /// policy `Fail`. The fields in `with` replace these defaults or are added to them.
    pub(crate) fn webhook(&self, name: &str, path: &str, with: &Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.hooks.example"),
            "clientConfig": {
                "service": {"namespace": "hooks", "name": "hook", "path": path},
                "caBundle": self.bundle,
            },
            "rules": [match_all_rule()],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        let fields = webhook.as_object_mut().unwrap();
        fields.extend(with.as_object().unwrap().clone());
        webhook
    }
}

/// Returns a rule for a webhook configuration that matches every request.
pub(crate) fn match_all_rule() -> Value {
    rule(&["*"], &["*"], &["*"], &["*/*"])
}

pub(crate) fn rule(operations: &[&str], groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!({"operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources})
}

/// Returns a YAML document, which begins with `---`, with a webhook configuration for this phase.
pub(crate) fn configuration(phase: &str, name: &str, webhooks: &[Value]) -> String {
    let document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{phase}WebhookConfiguration"),
        "metadata": {"name": name},
        "webhooks": webhooks,
    });
    format!("---\n{document}\n")
}

async fn read_call(connection: usize, request: Request<Incoming>) -> HookCall {
    let uri = request.uri().clone();
    let query = uri.query().unwrap_or_default();
    let timeout = query.strip_prefix("timeout=").and_then(|text| text.strip_suffix('s'));
    let body = request.into_body().collect().await.unwrap().to_bytes();
    HookCall {
        path: uri.path().to_owned(),
        timeout: timeout.unwrap().parse().unwrap(),
        connection,
        review: serde_json::from_slice(&body).unwrap(),
    }
}

async fn response_to(review: &Value, answer: HookAnswer) -> io::Result<Response<Full<Bytes>>> {
    let (status, text) = match answer {
        HookAnswer::Text(status, text) => (status, text),
        HookAnswer::HangUp => return Err(io::Error::other("as the test wants it")),
        HookAnswer::Silence => std::future::pending().await,
        HookAnswer::Review(mut response) => {
            response["uid"] = review["request"]["uid"].clone();
            let answer = json!({
                "apiVersion": review["apiVersion"],
                "kind": "AdmissionReview",
                "response": response,
            });
            (200, answer.to_string())
        }
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(text))).unwrap())
}
