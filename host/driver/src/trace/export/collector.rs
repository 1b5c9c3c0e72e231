use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use admittance_net::{
    bearer::read_header,
    causes::chain,
    upstream::{UpstreamConnector, new_connector},
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::{runtime::Handle, time::timeout};

use crate::config::TracingConfig;

const REPLY_LIMIT: usize = 64 << 10;
const HEADER_LIMIT: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Client<UpstreamConnector, Full<Bytes>>,
    /// The tokio runtime on which requests are sent. The exporter's own thread has no runtime.
    runtime: Handle,
    headers: Vec<(HeaderName, PathBuf)>,
    timeout: Duration,
    is_failing: AtomicBool,
}

impl CollectorClient {
    /// Returns a client that connects when it sends its first request. Must be called within a tokio runtime.
    pub(super) fn new(config: TracingConfig, timeout: Duration) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build(new_connector(config.tls, timeout)),
            runtime: Handle::current(),
            headers: config.headers,
            timeout,
            is_failing: AtomicBool::new(false),
        }
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        for (name, file) in &self.headers {
            let value =
                read_header(file, HEADER_LIMIT, "").map_err(|reason| format!("{}: {reason}", file.display()))?;
            request.headers_mut().insert(name.clone(), value);
        }
        let sending = self.client.request(request.map(Full::new));
        let exchange = async {
            let response = sending.await.map_err(|error| chain(&error))?;
            let (head, body) = response.into_parts();
            let collected_body = Limited::new(body, REPLY_LIMIT).collect().await;
            let body = collected_body.map_err(|error| error.to_string())?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        let limit = self.timeout;
        // A timer needs a tokio runtime too, and this thread has none. So the timeout is a part of the task.
        let task = self.runtime.spawn(async move { timeout(limit, exchange).await });
        let exchanged = task.await.map_err(|error| error.to_string())?;
        exchanged.map_err(|_| format!("no reply within {limit:?}"))?
    }

    /// Logs when requests to the collector begin to fail, and when they succeed again.
    fn report_failure(&self, failure: Option<String>) {
        match (failure, self.is_failing.load(Ordering::Relaxed)) {
            (Some(reason), false) => {
                tracing::warn!("the collector of traces does not accept spans: {reason}");
                self.is_failing.store(true, Ordering::Relaxed);
            }
            (None, true) => {
                tracing::info!("the collector of traces accepts spans again");
                self.is_failing.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.send(request).await;
        self.report_failure(match &response {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(reason) => Some(reason.clone()),
        });
        Ok(response?)
    }
}
