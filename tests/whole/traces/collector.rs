//! An OpenTelemetry collector that keeps spans in memory.

use std::{net::SocketAddr, sync::Arc};

use admittance_tests::TEST_TIMEOUT;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{net::TcpListener, sync::watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Accepts,
    Refuses,
    Hangs,
}

/// A collector that runs until the test ends.
pub(crate) struct TestCollector {
    pub(crate) address: SocketAddr,
    shared: Arc<SharedCollector>,
}

struct SharedCollector {
    manner: watch::Sender<Manner>,
    exports: watch::Sender<Vec<ExportRequest>>,
}

#[derive(Clone)]
pub(crate) struct ExportRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) resource: Resource,
    pub(crate) spans: Vec<Span>,
}

impl TestCollector {
    pub(crate) async fn start(manner: Manner) -> Self {
        let shared = Arc::new(SharedCollector {
            manner: watch::Sender::new(manner),
            exports: watch::Sender::new(Vec::new()),
        });
        let routes = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, shared }
    }

    pub(crate) fn set_manner(&self, manner: Manner) {
        self.shared.manner.send_replace(manner);
    }

    /// Waits until the spans that the collector received meet the condition. Returns the requests that contained them.
    pub(crate) async fn until_received(&self, is_enough: impl Fn(&[Span]) -> bool) -> Vec<ExportRequest> {
        let mut receiver = self.shared.exports.subscribe();
        let suffices = |exports: &Vec<ExportRequest>| is_enough(&spans(exports));
        let Ok(enough) = tokio::time::timeout(TEST_TIMEOUT, receiver.wait_for(suffices)).await else {
            panic!("the spans did not arrive");
        };
        enough.unwrap().to_vec()
    }
}

pub(crate) fn spans(exports: &[ExportRequest]) -> Vec<Span> {
    exports.iter().flat_map(|request| request.spans.clone()).collect()
}

pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> String {
    let matching_attribute = attributes.iter().find(|attribute| attribute.key == name);
    let value = matching_attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    match value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(truth)) => truth.to_string(),
        _ => String::new(),
    }
}

async fn receive(State(shared): State<Arc<SharedCollector>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let manner = *shared.manner.borrow();
    match manner {
        Manner::Accepts => {}
        Manner::Refuses => return StatusCode::SERVICE_UNAVAILABLE,
        Manner::Hangs => std::future::pending().await,
    }
    let request = match headers["content-type"].to_str().unwrap() {
        "application/x-protobuf" => ExportTraceServiceRequest::decode(body).unwrap(),
        "application/json" => serde_json::from_slice(&body).unwrap(),
        other => panic!("the content type is {other}"),
    };
    for resource_spans in request.resource_spans {
        let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        let export = ExportRequest {
            headers: headers.clone(),
            resource: resource_spans.resource.unwrap(),
            spans: spans.collect(),
        };
        shared.exports.send_modify(|all| all.push(export));
    }
    StatusCode::OK
}
