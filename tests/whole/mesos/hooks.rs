//! A webhook server with TLS that records the calls of its webhooks.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tempfile::TempDir;

use crate::webhooks::{issue_certificate, start_tls_server};

/// A webhook server named `hook.hooks`, which stops with the test. The end of a path selects the answer.
pub(super) struct MesosHooks {
    _directory: TempDir,
    pub(super) address: SocketAddr,
    pub(super) bundle: String,
    calls: Arc<Mutex<Vec<MesosHookCall>>>,
}

#[derive(Clone, Debug)]
pub(super) struct MesosHookCall {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) request_body: Bytes,
    pub(super) reply_body: Bytes,
    status: u16,
}

impl MesosHookCall {
    pub(super) fn is_good(&self) -> bool {
        self.status == 200
    }
}

impl MesosHooks {
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bundle = issue_certificate(directory.path(), "--service", "hook.hooks").await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let shared_calls = calls.clone();
        let listening = start_tls_server(directory.path(), "hook.hooks", &[], move |_, request| {
            let handler_calls = shared_calls.clone();
            async move {
                let (head, body) = request.into_parts();
                let sent_body = body.collect().await.unwrap().to_bytes();
                let (status, reply) = answer_request(head.uri.path(), &sent_body);
                handler_calls.lock().unwrap().push(MesosHookCall {
                    path: head.uri.path().to_owned(),
                    headers: head.headers,
                    request_body: sent_body,
                    reply_body: reply.clone(),
                    status,
                });
                Ok(Response::builder().status(status).body(Full::new(reply)).unwrap())
            }
        });
        let address = listening.await;
        Self {
            _directory: directory,
            address,
            bundle,
            calls,
        }
    }

    /// Returns the calls about objects in this namespace, or without one (`None`), in the order of their arrival.
    pub(super) fn calls(&self, namespace: Option<&str>) -> Vec<MesosHookCall> {
        let calls = self.calls.lock().unwrap();
        let is_in_namespace = |call: &&MesosHookCall| {
            let object: Value = serde_json::from_slice(&call.request_body).unwrap_or_default();
            object["metadata"]["namespace"].as_str() == namespace
        };
        calls.iter().filter(is_in_namespace).cloned().collect()
    }
}

fn answer_request(path: &str, request_body: &Bytes) -> (u16, Bytes) {
    let annotated = |name: &str| {
        let mut object: Value = serde_json::from_slice(request_body).unwrap();
        object["metadata"]["annotations"][name] = "seen".into();
        object
    };
    match path.rsplit('/').next().unwrap_or_default() {
        "passes" => (200, request_body.clone()),
        "first" | "annotates" => (200, annotated("first").to_string().into()),
        // No serializer writes JSON with such spaces, line breaks and escapes. So they show whether the driver passes
        // on the bytes of this answer unchanged.
        "odd" => {
            let text = format!("{:#}", annotated("odd")).replace("\"instance\": ", "\"instance\" :\t");
            (200, text.replace("\"seen\"", "\"\\u0073een\"").into())
        }
        version if version.starts_with("version-") => (200, annotated(version).to_string().into()),
        "created" => (201, annotated("created").to_string().into()),
        "moved" => (302, Bytes::new()),
        "broken" => (500, Bytes::from_static(b"100% out of order")),
        "empty" => (200, Bytes::new()),
        "garbage" => (200, Bytes::from_static(b"all is well")),
        "renames" => {
            let mut object = annotated("renames");
            object["metadata"]["name"] = "another".into();
            (200, object.to_string().into())
        }
        other => (404, format!("no hook {other}").into()),
    }
}
