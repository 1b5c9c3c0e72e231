//! Consoles through the drivers of Mesos clusters: finds the cluster that a page in a browser names, and checks that
//! the console is on a host of that cluster.

use std::{
    collections::HashSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use admittance::BodyLimits;
use admittance_bcs::{
    CLUSTER_HEADER,
    routes::{PREFIX, RouteAction, RouteLookup, lookup},
    upstream_end,
};
use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, request::Parts};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::{clusters::ClusterDrivers, error::GatewayError};

/// A request for a console names the cluster in a header, or in this query parameter if the header is missing.
const CLUSTER_PARAMETER: &str = "cluster_id";
/// The query parameter that tells a driver on which host the console is.
const HOST_PARAMETER: &str = "host_ip";
/// The time for which the list of a cluster's hosts is cached. If a console is on a host that the list does not
/// contain, the list is read again at once.
const HOSTS_LIFETIME: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<Option<(Instant, HashSet<IpAddr>)>>);

/// A driver's reply to `GET /cluster/resources`.
#[derive(Deserialize)]
struct DriverResources {
    data: ResourceData,
}

#[derive(Deserialize)]
struct ResourceData {
    agents: Vec<ResourceAgent>,
}

#[derive(Deserialize)]
struct ResourceAgent {
    ip: String,
}

pub(super) fn is_console(head: &Parts) -> bool {
    let path = head.uri.path();
    (path.contains("webconsole") || path.contains('%'))
        && matches!(lookup(head), RouteLookup::Found(found) if matches!(found.route.action, RouteAction::Console))
}

fn parameter(head: &Parts, name: &str) -> Option<String> {
    let mut parameters = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let pair = parameters.find(|(key, _)| key == name);
    pair.map(|(_, value)| value.into_owned())
}

pub(super) fn set_cluster_header(head: &mut Parts) {
    if head.headers.contains_key(CLUSTER_HEADER) || !is_console(head) {
        return;
    }
    let cluster = parameter(head, CLUSTER_PARAMETER);
    if let Some(value) = cluster.and_then(|cluster| HeaderValue::from_str(&cluster).ok()) {
        head.headers.insert(HeaderName::from_static("bcs-clusterid"), value);
    }
}

/// Refuses a console if its host does not belong to the cluster. Without this check, a client could make the driver
/// connect to any host.
pub(super) async fn check_host(head: &Parts, drivers: &ClusterDrivers, limits: BodyLimits) -> Result<(), GatewayError> {
    let host = parameter(head, HOST_PARAMETER).unwrap_or_default();
    let Ok(host) = host.parse::<IpAddr>().map(|host| host.to_canonical()) else {
        return Err(GatewayError::Host(format!(
            "{HOST_PARAMETER} {host:?} is not an IP address"
        )));
    };
    let is_known = |hosts: &(Instant, HashSet<IpAddr>)| hosts.0.elapsed() < HOSTS_LIFETIME && hosts.1.contains(&host);
    if drivers.hosts.0.lock().as_ref().is_some_and(is_known) {
        return Ok(());
    }
    let hosts = read_hosts(head, drivers, limits).await?;
    let is_host = hosts.contains(&host);
    *drivers.hosts.0.lock() = Some((Instant::now(), hosts));
    if is_host {
        Ok(())
    } else {
        Err(GatewayError::Host(format!(
            "{HOST_PARAMETER} {host} is not a host of the cluster {}",
            drivers.id
        )))
    }
}

async fn read_hosts(
    head: &Parts,
    drivers: &ClusterDrivers,
    limits: BodyLimits,
) -> Result<HashSet<IpAddr>, GatewayError> {
    let request = Request::get(format!("{PREFIX}/cluster/resources"))
        .header(CLUSTER_HEADER, drivers.id.as_str())
        .body(Body::empty())
        .map_err(|error| GatewayError::Unreachable(error.to_string()))?;
    let outcome = drivers.upstream.send(request).await;
    let reply = outcome.map_err(|error| GatewayError::from(&upstream_end(error)))?;
    let (reply, body) = reply.into_parts();
    let body_outcome = limits.receive(&head.extensions, &reply.headers, body).await;
    let unreadable = |reason: String| {
        let status = reply.status;
        GatewayError::Unreachable(format!(
            "the hosts of the cluster, one of which the console has to be on, cannot be read from the driver's \
             /cluster/resources (HTTP {status}): {reason}"
        ))
    };
    let bytes = body_outcome.map_err(|error| unreadable(error.end_reason().to_string()))?;
    let resources: DriverResources = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let hosts = resources.data.agents.iter().filter_map(|agent| agent.ip.parse().ok());
    Ok(hosts.map(|host: IpAddr| host.to_canonical()).collect())
}
