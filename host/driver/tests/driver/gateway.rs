//! Tests a gateway between clients and the drivers of clusters.

mod accounts;
mod bodies;
mod discovery;
mod replies;
mod routing;
mod tokens;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use admittance_gateway::{GatewayConfig, PlainGroups, Statuses};
use admittance_net::upstream::UpstreamConfig;
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::harness::*;

pub(crate) const GATEWAY_PREFIX: &str = "/bcsapi/v4/scheduler/mesos";

pub(crate) fn gateway_setup(clusters: &[(&str, &[SocketAddr])], change: impl FnOnce(&mut GatewayConfig)) -> Setup {
    let mut setup = Setup::new(&[]);
    let servers = |addresses: &[SocketAddr]| {
        let servers = addresses
            .iter()
            .map(|address| format!("http://{address}").parse().unwrap());
        servers.collect()
    };
    let clusters = clusters
        .iter()
        .map(|(id, addresses)| (id.parse().unwrap(), servers(addresses)));
    let mut config = GatewayConfig {
        clusters: clusters.collect(),
        discovery: None,
        drivers: UpstreamConfig {
            tls: client_without_tls(),
            connect_timeout: UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
            health: None,
        },
        services: false,
        tokens: None,
        accounts: None,
        registration: None,
        peers: None,
        roles: None,
        plain_groups: PlainGroups::default(),
        forward_token: false,
        statuses: Statuses::default(),
    };
    change(&mut config);
    setup.config.front = Box::new(config);
    setup
}

#[derive(Clone, Debug)]
pub(crate) struct DriverRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct SimulatedDriver {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<DriverRequest>>>,
}

impl SimulatedDriver {
    pub(crate) async fn start() -> Self {
        Self::start_with_reply(200, r#"{"result":true,"code":0,"message":"success","data":null}"#).await
    }

    pub(crate) async fn start_with_reply(status: u16, text: &'static str) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let routes = {
            let request_log = requests.clone();
            Router::new().fallback(async move |request: Request<Body>| {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                request_log.lock().unwrap().push(DriverRequest {
                    method: head.method,
                    uri: head.uri,
                    headers: head.headers,
                    body,
                });
                (StatusCode::from_u16(status).unwrap(), text)
            })
        };
        Self {
            address: serve(routes).await,
            requests,
        }
    }

    /// Returns the requests that the driver received since the last call.
    pub(crate) fn take_requests(&self) -> Vec<DriverRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

pub(crate) async fn status_and_json(response: Response<hyper::body::Incoming>) -> (u16, Value) {
    let (status, body) = status_and_text(response).await;
    (
        status,
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")),
    )
}
