use std::time::Duration;

use admittance_net::Backoff;

use super::FetchClient;
use crate::{Error, FetchProgress, OnProgress};

/// The maximum pause between two attempts. If a server requests a longer one, the request is not retried.
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl FetchClient {
    /// Runs attempts until one of them succeeds or fails permanently, or until their maximum number is reached.
    pub(super) async fn with_retries<T, F: Future<Output = Result<T, Error>>>(
        &self,
        progress: OnProgress<'_>,
        attempt: impl Fn() -> F,
    ) -> Result<T, Error> {
        let mut pauses = self.new_pauses();
        loop {
            match attempt().await {
                Err(error) => pauses.wait_after(error, progress).await?,
                outcome => return outcome,
            }
        }
    }

    pub(super) fn new_pauses(&self) -> Pauses {
        let retries = self.config.attempts.saturating_sub(1);
        Pauses {
            backoff: Backoff::new(self.config.first_pause, MAX_PAUSE),
            retries_left: retries,
            retries,
        }
    }
}

#[derive(Debug)]
pub(super) struct Pauses {
    backoff: Backoff,
    retries_left: usize,
    retries: usize,
}

impl Pauses {
    /// Starts to count attempts from zero again, because the last one made progress.
    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        self.retries_left = self.retries;
    }

    pub(super) async fn wait_after(&mut self, error: Error, progress: OnProgress<'_>) -> Result<(), Error> {
        if !error.is_transient() {
            return Err(error);
        }
        let requested_pause = error.retry_after().unwrap_or_default();
        if requested_pause > MAX_PAUSE {
            return Err(error);
        }
        let Some(retries_left) = self.retries_left.checked_sub(1) else {
            return Err(error);
        };
        self.retries_left = retries_left;
        let after = self.backoff.pause_after_failure().min(MAX_PAUSE).max(requested_pause);
        tracing::debug!(%error, ?after, "a request failed and is retried");
        progress(FetchProgress::Retrying { after, error });
        tokio::time::sleep(after).await;
        Ok(())
    }
}
