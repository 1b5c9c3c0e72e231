//! The connection to the API server.

use std::{future::Future, sync::Arc, time::Duration};

use admittance_net::{
    informational::limit_informational,
    trace::{SPANS, is_traced},
    upstream::tcp_connector,
};
use http::{Request, Uri};
use hyper_util::{
    client::legacy::Client as HttpClient,
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Api, Client, Config,
    api::ListParams,
    client::{Body, ConfigExt},
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, error::Elapsed, timeout, timeout_at},
};
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};
use tracing::{Instrument, Span, debug_span, field::Empty};

use crate::{
    health::WatchHealth,
    item::CachedObject,
    metrics::{self, Verb},
    request_error::RequestError,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without traffic after which TCP sends a keepalive probe.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The timeout for the head of a reply to a list or a watch.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_SIZE: u32 = 500;
/// The maximum number of concurrent lookups.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// The API server: pooled connections and credentials. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("Connection {{ url: {url:?}, .. }}")]
pub(crate) struct Connection {
    client: Client,
    url: Arc<str>,
    permits: Arc<Semaphore>,
    /// Whether the API server answered the last request that was sent by [`ask`](Self::ask).
    answers: Arc<watch::Sender<bool>>,
}

impl Connection {
    /// Creates a connection, which is opened by the first request. Must be called in a tokio runtime.
    pub(crate) fn new(config: &Config) -> kube::Result<Self> {
        let mut http = tcp_connector();
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE));
        http.set_keepalive_retries(Some(3));
        let https = config.rustls_https_connector_with_connector(http)?;
        let http_client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(https.map_response(limit_informational));
        // The service that kube builds by default would log every failed request as an error.
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http_client);
        Ok(Self {
            client: Client::new(service, config.default_namespace.clone()),
            url: server_url(&config.cluster_url).into(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
            answers: Arc::new(watch::Sender::new(true)),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns a receiver that says whether the API server answers.
    pub(crate) fn answers(&self) -> watch::Receiver<bool> {
        self.answers.subscribe()
    }

    /// Sends a request when fewer than `MAX_CONCURRENT_REQUESTS` are in flight, and counts it in the metrics.
    pub(crate) async fn ask<T>(
        &self,
        verb: Verb,
        deadline: Instant,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        // A request is part of the trace of the client that waits for it. A watch serves the requests of many clients,
        // so the request that starts a watch is part of no trace.
        let span = if is_traced() {
            debug_span!(
                target: SPANS,
                "cluster",
                otel.name = %format_args!("cluster {verb}"),
                otel.kind = "client",
                otel.status_code = Empty,
                server.address = self.url(),
                admittance.result = Empty,
            )
        } else {
            Span::none()
        };
        let answer = timeout_at(deadline, async {
            let _permit = self.permits.acquire().await;
            request.await
        })
        .instrument(span.clone())
        .await;
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| RequestError::from_client(&error)),
            Err(Elapsed { .. }) => Err(RequestError::Timeout),
        };
        let is_away = matches!(answer, Err(RequestError::Unavailable(_) | RequestError::Timeout));
        self.answers
            .send_if_modified(|answers| std::mem::replace(answers, !is_away) == is_away);
        let result = answer.as_ref().map_or_else(RequestError::result_label, |_| "ok");
        metrics::count_request(verb, result);
        span.record("admittance.result", result);
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    /// Returns the matching resources. If the parameters have a limit, returns one page, and the token for the next.
    pub(crate) async fn list(
        &self,
        api: &Api<CachedObject>,
        mut params: ListParams,
        is_metadata_only: bool,
        deadline: Instant,
    ) -> Result<(Vec<CachedObject>, Option<String>), RequestError> {
        let is_page = params.limit.is_some();
        params.limit.get_or_insert(PAGE_SIZE);
        let mut items = Vec::new();
        loop {
            let metadata = if is_metadata_only {
                let page = self.ask(Verb::List, deadline, api.list_metadata(&params)).await?;
                items.extend(
                    page.items
                        .into_iter()
                        .map(|item| CachedObject::from_metadata(item.metadata)),
                );
                page.metadata
            } else {
                let page = self.ask(Verb::List, deadline, api.list(&params)).await?;
                items.extend(page.items);
                page.metadata
            };
            let token = metadata.continue_.filter(|token| !token.is_empty());
            if is_page || token.is_none() {
                return Ok((items, token));
            }
            params.continue_token = token;
        }
    }

    /// Returns a client that lists and watches objects, and records in `health` that the server answered.
    pub(crate) fn observed_client(&self, health: Arc<WatchHealth>) -> Client {
        let client = self.client.clone();
        let namespace = client.default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let client = client.clone();
            let health = health.clone();
            async move {
                let is_watch = request
                    .uri()
                    .query()
                    .is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
                let response = timeout(HEAD_TIMEOUT, client.send(request))
                    .await
                    .map_err(|_| BoxError::from("the API server sends no reply"))??;
                if response.status().is_success() {
                    if is_watch {
                        metrics::count_request(Verb::Watch, "ok");
                        health.record_accepted();
                    } else {
                        metrics::count_request(Verb::List, "ok");
                        health.record_answer();
                    }
                }
                Ok::<_, BoxError>(response)
            }
        });
        Client::new(service, namespace)
    }
}

fn server_url(url: &Uri) -> String {
    match (url.scheme_str(), url.authority()) {
        (Some(scheme), Some(authority)) => {
            // The URL may contain a user and a password before the `@`, which messages must not show.
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}")
        }
        _ => url.to_string(),
    }
}
