//! Shuts the driver down. Requests in flight may finish until a timeout.

use std::sync::atomic::{AtomicBool, Ordering};

use admittance_bcs::Registrations;
use admittance_net::listener::StopSignals;
use tokio_util::sync::CancellationToken;

use crate::Limits;

/// Stops the driver. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    graceful: CancellationToken,
    immediate: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownResult {
    Cleanly,
    /// Some requests were aborted at the shutdown timeout or by a second signal.
    Cut,
}

impl Shutdown {
    /// Asks the driver to stop. The first call lets requests in flight finish, and the second aborts them.
    pub fn signal(&self) {
        if self.graceful.is_cancelled() {
            self.immediate.cancel();
        } else {
            self.graceful.cancel();
        }
    }

    /// Waits for the first signal, then shuts down gracefully.
    pub(crate) async fn carry_out(
        &self,
        stop: &StopSignals,
        is_stopping: &AtomicBool,
        registrations: &Registrations,
        limits: &Limits,
    ) {
        let (delay, timeout) = (limits.shutdown_delay, limits.shutdown_timeout);
        self.graceful.cancelled().await;
        is_stopping.store(true, Ordering::Relaxed);
        self.run_until_second_signal(registrations.withdraw()).await;
        if !delay.is_zero() {
            tracing::info!(?delay, "stopping: connections are still accepted for a while");
            self.run_until_second_signal(tokio::time::sleep(delay)).await;
        }
        tracing::info!(?timeout, "stopping: requests in flight are finished first");
        stop.graceful_token.cancel();
        match self.run_until_second_signal(tokio::time::sleep(timeout)).await {
            None => tracing::warn!("second stop signal: aborting requests in flight"),
            Some(()) => tracing::warn!(?timeout, "requests in flight took too long: aborting them"),
        }
    }

    /// Waits for `work`; returns `None` if the second stop signal comes first.
    async fn run_until_second_signal(&self, work: impl Future<Output = ()>) -> Option<()> {
        self.immediate.run_until_cancelled(work).await
    }
}
