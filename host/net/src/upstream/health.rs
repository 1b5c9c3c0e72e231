use std::{
    sync::{atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Version, header::AUTHORIZATION};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use super::{HealthCheck, Pool, Server, ServerSet};
use crate::{body::ReplayBody, causes};

/// The time for which a server is considered down after a failed connection.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether one server is up, by its last connection and its last health check.
#[derive(Debug, Default)]
pub(super) struct Health {
    paused_until: Mutex<Option<Instant>>,
    failed_check: AtomicBool,
}

impl Health {
    pub(super) fn is_up(&self) -> bool {
        let paused = *self.paused_until.lock();
        !self.failed_check.load(Ordering::Relaxed) && paused.is_none_or(|until| until <= Instant::now())
    }

    /// Records that a request could not connect.
    pub(super) fn record_refused(&self) {
        *self.paused_until.lock() = Some(Instant::now() + PAUSE);
    }

    /// Records that a request got a reply.
    pub(super) fn record_connected(&self) {
        *self.paused_until.lock() = None;
    }
}

/// Checks every server at each interval, forever.
pub(super) async fn check(servers: &ServerSet, pool: &Pool, check: &HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let targets = servers.targets();
        join_all(targets.iter().map(|target| async {
            let (server, health) = (&target.server, &target.health);
            let reason = probe(server, pool, check).await.err();
            let was_failed = health.failed_check.swap(reason.is_some(), Ordering::Relaxed);
            match (was_failed, reason) {
                (false, Some(reason)) => tracing::warn!(%server, reason, "a server of the upstream is down"),
                (true, None) => tracing::info!(%server, "a server of the upstream is up again"),
                _ => {}
            }
        }))
        .await;
    }
}

async fn probe(server: &Server, pool: &Pool, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(ReplayBody::new(Body::empty()).0);
    *request.uri_mut() = server.uri(check.path.clone());
    *request.version_mut() = Version::HTTP_11;
    if let Some(value) = &check.authorization {
        request.headers_mut().insert(AUTHORIZATION, value.clone());
    }
    match tokio::time::timeout(check.timeout, pool.request(request)).await {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("{} replied {}", check.path, response.status())),
        Ok(Err(error)) => Err(causes::chain(&error)),
        Err(_) => Err(format!("{} did not reply within {:?}", check.path, check.timeout)),
    }
}
