//! Simulates a scheduler that records requests and gives configured replies, with a driver in front of it.

use std::sync::{Arc, Mutex};

use admittance_bcs::UpstreamKind;
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::harness::*;

pub(super) const SUCCESS: &str = r#"{"result":true,"code":0,"message":"success","data":null}"#;

#[derive(Clone, Debug)]
pub(super) struct RelayedRequest {
    pub(super) line: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RelayedRequest {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .headers
            .iter()
            .filter(|(name, _)| *name != http::header::HOST)
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }
}

pub(super) struct SchedulerScene {
    pub(super) driver: RunningDriver,
    requests: Arc<Mutex<Vec<RelayedRequest>>>,
}

impl SchedulerScene {
    pub(super) async fn start() -> Self {
        Self::start_with_reply(|| Response::new(Body::from(SUCCESS))).await
    }

    pub(super) async fn start_with_reply(reply: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static) -> Self {
        Self::start_with(reply, |setup| setup).await
    }

    pub(super) async fn start_with_setup(change: impl FnOnce(Setup) -> Setup) -> Self {
        Self::start_with(|| Response::new(Body::from(SUCCESS)), change).await
    }

    pub(super) async fn start_with(
        reply: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
        change: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let requests: Arc<Mutex<Vec<RelayedRequest>>> = Arc::default();
        let request_log = requests.clone();
        let routes = Router::new().fallback(async move |request: Request<Body>| {
            let (head, body) = request.into_parts();
            // A request whose body ends early is not recorded.
            if let Ok(body) = body.collect().await {
                request_log.lock().unwrap().push(RelayedRequest {
                    line: format!("{} {}", head.method, head.uri),
                    headers: head.headers,
                    body: body.to_bytes(),
                });
            }
            reply()
        });
        let setup = in_front_of_schedulers(Setup::new(&[serve(routes).await]));
        Self {
            driver: change(setup).start().await,
            requests,
        }
    }

    /// Returns the requests that the scheduler received since the last call.
    pub(super) fn take_requests(&self) -> Vec<RelayedRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// Sends a request; returns the request that the scheduler received, and the status and body of the reply.
    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> (Option<RelayedRequest>, u16, String) {
        let request = request(method, &mesos_path(path), Body::from(body.to_owned()));
        let (status, text) = status_and_text(self.driver.send(request).await).await;
        let mut requests = self.take_requests();
        assert!(requests.len() < 2, "{method} {path} was asked twice: {requests:?}");
        (requests.pop(), status, text)
    }
}

pub(super) fn in_front_of_schedulers(setup: Setup) -> Setup {
    setup.bcs(|bcs| bcs.upstream_kind = UpstreamKind::Scheduler)
}

pub(super) fn mesos_path(path: &str) -> String {
    format!("/mesosdriver/v4{path}")
}

pub(super) fn runnable_json(kind: &str, name: &str) -> String {
    let template = match kind {
        "process" => json!({"processes": [{"procName": "p"}]}),
        _ => json!({"containers": [{"type": "MESOS", "image": "i:1"}]}),
    };
    json!({
        "apiVersion": "v4", "kind": kind, "metadata": {"name": name, "namespace": "n"},
        "spec": {"instance": 2, "template": {"spec": template}},
    })
    .to_string()
}
