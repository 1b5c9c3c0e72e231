use std::time::Duration;

use tokio::time::Instant;

/// The time by which a request must have a response, or by which a stage's call must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline `duration` from now.
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        // A duration that exceeds the clock's range means "no limit", so the deadline is set to a century from now.
        Self(
            now.checked_add(duration)
                .unwrap_or(now + Duration::from_secs(3_155_760_000)),
        )
    }

    /// Returns the earlier of this deadline and `duration` from now.
    pub fn within(self, duration: Duration) -> Self {
        self.min(Self::after(duration))
    }

    /// Returns the time until the deadline; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the deadline as a time of tokio's clock.
    pub fn instant(self) -> Instant {
        self.0
    }
}
