//! A well-behaved client.

use std::time::{Duration, Instant};

use admittance_tests::{Client, Error};
use http::Method;
use tokio::time::MissedTickBehavior;

/// The minimum time from the start of one request to that of the next.
const PACE: Duration = Duration::from_millis(5);

/// The durations of a client's requests.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    sorted: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

impl Latency {
    /// This percentile of the durations.
    pub(crate) fn at(&self, percent: usize) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted
            .get(last * percent / 100)
            .copied()
            .unwrap_or(Duration::MAX)
    }
}

/// Sends this request repeatedly on one connection.
pub(crate) async fn requests(url: &str, body: &str, time: Duration) -> Result<Latency, Error> {
    let client = Client::new()?;
    let mut latency = Latency::default();
    let mut turns = tokio::time::interval(PACE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    while started.elapsed() < time {
        turns.tick().await;
        let sent = Instant::now();
        match client.bcs(Method::POST, url, body.to_owned()).await {
            Ok(reply) if reply.status == 200 => {}
            Ok(reply) => latency
                .failures
                .push(format!("{}: {}", reply.status, reply.text())),
            Err(error) => latency.failures.push(error.to_string()),
        }
        latency.sorted.push(sent.elapsed());
    }
    latency.sorted.sort_unstable();
    Ok(latency)
}
