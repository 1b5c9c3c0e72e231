use std::{
    sync::{Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use admittance_net::causes;
use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior};

use super::{Lent, Pool, Server, roster::Roster};
use crate::config::HealthCheck;

/// How long a server to which no connection could be made is passed over.
const PAUSE: Duration = Duration::from_secs(2);

/// How one server is, from what requests saw and what checks said.
#[derive(Debug, Default)]
pub(super) struct Health {
    paused_until: Mutex<Option<Instant>>,
    failed_check: AtomicBool,
}

/// Whether a server is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerHealth {
    /// Its URL.
    pub server: String,
    /// Whether its last health check and connection succeeded, so that requests go to it first.
    #[serde(rename = "up")]
    pub is_up: bool,
}

impl Health {
    pub(super) fn is_up(&self) -> bool {
        let paused = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        !self.failed_check.load(Ordering::Relaxed) && paused.is_none_or(|until| until <= Instant::now())
    }

    /// A request found no connection.
    pub(super) fn refused(&self) {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
    }

    /// A request was answered.
    pub(super) fn connected(&self) {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Check every server that there is at each interval, for ever.
pub(super) async fn check(roster: &Roster, pool: &Pool, check: &HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let targets = roster.targets();
        join_all(targets.iter().map(|target| async {
            let (server, health) = (&target.server, &target.health);
            let reason = ask(server, pool, check).await.err();
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

async fn ask(server: &Server, pool: &Pool, check: &HealthCheck) -> Result<(), String> {
    let mut request = Request::new(Lent::new(Body::empty()).0);
    *request.uri_mut() = server.uri(check.path.clone());
    *request.version_mut() = Version::HTTP_11;
    match tokio::time::timeout(check.timeout, pool.request(request)).await {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("{} replied {}", check.path, response.status())),
        Ok(Err(error)) => Err(causes::chain(&error)),
        Err(_) => Err(format!("{} did not reply within {:?}", check.path, check.timeout)),
    }
}
