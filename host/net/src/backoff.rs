use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The pauses between retries. Each pause is about twice as long as the previous one, up to `longest`. A part of each
/// pause is random, so that many clients do not retry at the same moment.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    pauses: ExponentialBackoff,
    longest: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .with_jitter()
            .without_max_times();
        Self {
            pauses: builder.build(),
            builder,
            longest,
        }
    }

    pub fn pause_after_failure(&mut self) -> Duration {
        self.pauses.next().unwrap_or(self.longest)
    }

    /// Makes the next pause the shortest one again. Call this after a success.
    pub fn reset(&mut self) {
        self.pauses = self.builder.build();
    }
}
