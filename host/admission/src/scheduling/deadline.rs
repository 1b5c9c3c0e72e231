use std::time::Duration;

use tokio::time::Instant;

/// The time by which a response must be available. Lives as long as one request or one call of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline `duration` from now.
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        // A duration beyond the clock's range means "no limit", so a century is used instead.
        Self(
            now.checked_add(duration)
                .unwrap_or(now + Duration::from_secs(3_155_760_000)),
        )
    }

    /// Returns the earlier of this deadline and `duration` from now.
    pub fn within(self, duration: Duration) -> Self {
        self.min(Self::after(duration))
    }

    /// Returns the time left; zero when the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the deadline on tokio's clock.
    pub fn instant(self) -> Instant {
        self.0
    }
}
