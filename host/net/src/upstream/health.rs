use std::{
    sync::{atomic::AtomicBool, atomic::Ordering},
    time::{Duration, SystemTime},
};

use axum::body::Body;
use futures_util::future::join_all;
use http::{
    Request, Version,
    header::{AUTHORIZATION, HOST},
};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use super::{ConnectionPool, Downtime, HealthCheck, ServerSet, UpstreamServer};
use crate::{body::ReplayBody, causes};

/// The time for which a server counts as down after a connection to it failed.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct UpstreamHealth {
    /// Whether `paused_until` has a value. While it has none, requests need not lock it.
    is_paused: AtomicBool,
    paused_until: Mutex<Option<Instant>>,
    failed_check: AtomicBool,
    /// The latest downtime of the server, which may have ended.
    last_downtime: Mutex<Option<Downtime>>,
}

impl UpstreamHealth {
    pub(super) fn is_up(&self) -> bool {
        !self.failed_check.load(Ordering::Relaxed)
            && (!self.is_paused.load(Ordering::Acquire)
                || self.paused_until.lock().is_none_or(|until| until <= Instant::now()))
    }

    pub(super) fn downtime(&self) -> Option<Downtime> {
        let last = self.last_downtime.lock().clone();
        last.filter(|_| !self.is_up())
    }

    #[allow(clippy::disallowed_methods, reason = "this crate knows no `Moment`")]
    fn record_down(&self, reason: String) {
        let is_new = self.is_up();
        let mut last = self.last_downtime.lock();
        let ongoing_downtime = last.take().filter(|_| !is_new);
        let since = ongoing_downtime.map_or_else(SystemTime::now, |ongoing_downtime| ongoing_downtime.since);
        *last = Some(Downtime { since, reason });
    }

    pub(super) fn record_refused(&self, reason: String) {
        self.record_down(reason);
        let mut paused = self.paused_until.lock();
        *paused = Some(Instant::now() + REFUSED_PAUSE);
        self.is_paused.store(true, Ordering::Release);
    }

    pub(super) fn record_connected(&self) {
        if self.is_paused.load(Ordering::Acquire) {
            let mut paused = self.paused_until.lock();
            *paused = None;
            self.is_paused.store(false, Ordering::Release);
        }
    }
}

pub(super) async fn check_periodically(servers: &ServerSet, pool: &ConnectionPool, check: &HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        join_all(servers.targets().iter().map(|target| async {
            let (server, health) = (&target.server, &target.health);
            let reason = probe(server, pool, check).await.err();
            if let Some(reason) = &reason {
                health.record_down(reason.clone());
            }
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

async fn probe(server: &UpstreamServer, pool: &ConnectionPool, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(ReplayBody::new(Body::empty()).0);
    *request.uri_mut() = check.path.clone().into();
    request.headers_mut().insert(HOST, server.host().clone());
    *request.version_mut() = Version::HTTP_11;
    if let Some(value) = &check.authorization {
        request.headers_mut().insert(AUTHORIZATION, value.clone());
    }
    match tokio::time::timeout(check.timeout, pool.request(server, request)).await {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("{} replied {}", check.path, response.status())),
        Ok(Err(error)) => Err(causes::chain(&error)),
        Err(_) => Err(format!("{} did not reply within {:?}", check.path, check.timeout)),
    }
}
