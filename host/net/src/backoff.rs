use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Pauses between attempts, which double from the first one up to the longest. A random part is added to each, so that
/// many clients do not retry at the same time.
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

    /// Returns the pause after one more failure.
    pub fn after_failure(&mut self) -> Duration {
        self.pauses.next().unwrap_or(self.longest)
    }

    /// Begins with the first pause again, after an attempt that succeeded.
    pub fn reset(&mut self) {
        self.pauses = self.builder.build();
    }
}
