use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    ConnectionLimits,
    transfer::{BodyTransfer, TransferState},
};

/// The time for which a connection may have no request. Most clients close idle connections earlier.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);

/// The state of a connection, from which its timeouts follow. hyper has a timeout for the head of a request, too, but
/// hyper closes the connection without a reply.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: ConnectionLimits,
    state: Mutex<ActivityState>,
    earlier_wake: Notify,
}

#[derive(Debug)]
struct ActivityState {
    requests_in_flight: usize,
    transfers: Vec<Weak<TransferState>>,
    next_check: Instant,
    last_bytes_at: Instant,
    has_received: bool,
    has_served: bool,
    is_http2: bool,
    /// The time at which the first byte of a request's head arrived; `None` if no head is incomplete.
    head_since: Option<Instant>,
    idle_since: Instant,
    wakes_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionExpiry {
    Head,
    Idle,
    Stalled,
    Revoked,
}

/// The next check of a connection, which is due at the time `due_at`. If `expiry` has a value, the connection is closed
/// by this check. If `expiry` is `None`, the bodies of its requests are checked for stalls, and the connection stays
/// open.
struct NextStep {
    due_at: Instant,
    expiry: Option<ConnectionExpiry>,
}

/// Counts a request as in flight until this value is dropped.
#[derive(Debug)]
pub(super) struct RequestInFlight(Activity);

impl Inner {
    /// Returns the interval for checking whether bodies stall. It is an eighth of the shortest timeout, so a stall is
    /// noticed at most that much late.
    fn check_interval(&self) -> Duration {
        let limits = &self.limits.transfer;
        let shortest = limits
            .client_timeout
            .min(limits.upstream_timeout)
            .min(limits.stream_timeout);
        (shortest / 8).max(Duration::from_millis(1))
    }
}

impl ActivityState {
    fn next_step(&self, head_timeout: Duration) -> NextStep {
        if self.requests_in_flight > 0 {
            return NextStep {
                due_at: self.next_check,
                expiry: None,
            };
        }
        let (since, limit, expiry) = match self.head_since {
            Some(since) => (since, head_timeout, ConnectionExpiry::Head),
            None if self.has_served => (self.idle_since, KEEP_ALIVE_TIMEOUT, ConnectionExpiry::Idle),
            None => (self.idle_since, head_timeout, ConnectionExpiry::Idle),
        };
        NextStep {
            due_at: since + limit,
            expiry: Some(expiry),
        }
    }
}

impl Activity {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Inner {
            limits,
            state: Mutex::new(ActivityState {
                requests_in_flight: 0,
                transfers: Vec::new(),
                next_check: Instant::now(),
                last_bytes_at: Instant::now(),
                has_received: false,
                has_served: false,
                is_http2: false,
                head_since: None,
                idle_since: Instant::now(),
                wakes_at: Instant::now(),
            }),
            earlier_wake: Notify::new(),
        }))
    }

    pub(super) fn record_received(&self, bytes: &[u8]) {
        let mut state = self.0.state.lock();
        state.last_bytes_at = Instant::now();
        if !state.has_received {
            state.has_received = true;
            // The preface of an HTTP/2 connection begins with `PRI`, and no HTTP/1 request does.
            state.is_http2 = bytes.starts_with(b"PRI");
        }
        if state.requests_in_flight == 0 && !state.is_http2 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            self.reschedule(state);
        }
    }

    pub(super) fn record_sent(&self) {
        self.0.state.lock().last_bytes_at = Instant::now();
    }

    /// Records that the head of a request is complete. `end_token` is cancelled when the connection must end.
    pub(super) fn begin_request(
        &self,
        client: SocketAddr,
        is_http2: bool,
        end_token: CancellationToken,
    ) -> BodyTransfer {
        let mut state = self.0.state.lock();
        if state.requests_in_flight == 0 {
            state.next_check = Instant::now() + self.0.check_interval();
        }
        state.requests_in_flight += 1;
        state.has_served = true;
        state.is_http2 = is_http2;
        state.head_since = None;
        let transfer = BodyTransfer::new(client, self.0.limits.transfer, RequestInFlight(self.clone()), end_token);
        state.transfers.retain(|transfer| transfer.strong_count() > 0);
        state.transfers.push(transfer.downgrade());
        self.reschedule(state);
        transfer
    }

    pub(super) async fn wait_until_silent_for(&self, limit: Duration) {
        loop {
            let silent_at = self.0.state.lock().last_bytes_at + limit;
            if silent_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(silent_at).await;
        }
    }

    /// Waits until the connection must be closed, and returns the reason. Meanwhile, aborts bodies that stall.
    pub(super) async fn wait_until_expired(&self) -> ConnectionExpiry {
        loop {
            let earlier_wake = self.0.earlier_wake.notified();
            let step = self.next_step();
            if step.due_at > Instant::now() {
                tokio::select! {
                    () = earlier_wake => {}
                    () = tokio::time::sleep_until(step.due_at) => {}
                }
            } else if let Some(expiry) = step.expiry {
                return expiry;
            } else if self.check_transfers() {
                return ConnectionExpiry::Stalled;
            }
        }
    }

    fn next_step(&self) -> NextStep {
        let mut state = self.0.state.lock();
        let step = state.next_step(self.0.limits.header_timeout);
        state.wakes_at = step.due_at;
        step
    }

    /// The task of a connection sleeps until the next deadline. If this deadline has become earlier, wakes the
    /// task. Otherwise, the task is left alone, because waking it costs time.
    fn reschedule(&self, state: MutexGuard<'_, ActivityState>) {
        let is_earlier = state.next_step(self.0.limits.header_timeout).due_at < state.wakes_at;
        drop(state);
        if is_earlier {
            self.0.earlier_wake.notify_one();
        }
    }

    /// Aborts the bodies that stall. Returns whether the connection must be closed.
    fn check_transfers(&self) -> bool {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        state.next_check = now + self.0.check_interval();
        let transfers: Vec<_> = state.transfers.iter().filter_map(Weak::upgrade).collect();
        let is_http2 = state.is_http2;
        // The lock on the state is released before the transfers are checked: an aborted transfer drops its
        // `RequestInFlight`, which takes the same lock.
        drop(state);
        let mut is_reply_unread = false;
        for transfer in transfers {
            is_reply_unread |= transfer.abort_if_stalled(now);
        }
        // If the client does not read the reply, an HTTP/1 connection has to be closed. An HTTP/2 connection stays open
        // for its other requests.
        is_reply_unread && !is_http2
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.requests_in_flight = state.requests_in_flight.saturating_sub(1);
        state.idle_since = Instant::now();
        self.0.reschedule(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::TransferLimits;

    const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
    const LIMITS: TransferLimits = TransferLimits {
        client_timeout: Duration::from_secs(60),
        minimum_rate: 512,
        upstream_timeout: Duration::from_secs(60),
        stream_timeout: Duration::from_secs(3600),
    };

    fn new_activity() -> Activity {
        Activity::new(ConnectionLimits {
            max_connections: 1,
            header_timeout: HEAD_TIMEOUT,
            transfer: LIMITS,
        })
    }

    fn begin_request(activity: &Activity, is_http2: bool) -> BodyTransfer {
        activity.begin_request(([127, 0, 0, 1], 1).into(), is_http2, CancellationToken::new())
    }

    async fn expiry_after(activity: &Activity) -> (ConnectionExpiry, Duration) {
        let started = Instant::now();
        (activity.wait_until_expired().await, started.elapsed())
    }

    fn is_about(duration: Duration, expected: Duration) -> bool {
        duration >= expected && duration < expected + Duration::from_millis(5)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_expires_after_the_header_timeout() {
        let (expiry, elapsed) = expiry_after(&new_activity()).await;
        assert_eq!(expiry, ConnectionExpiry::Idle);
        assert!(is_about(elapsed, HEAD_TIMEOUT), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_request_head_expires_even_if_bytes_arrive() {
        let activity = new_activity();
        let drip = async {
            loop {
                activity.record_received(b"G");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let (expiry, elapsed) = tokio::select! {
            result = expiry_after(&activity) => result,
            () = drip => unreachable!("it drips for ever"),
        };
        assert_eq!(expiry, ConnectionExpiry::Head);
        assert!(is_about(elapsed, HEAD_TIMEOUT), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_flight_does_not_expire() {
        let activity = new_activity();
        activity.record_received(b"GET / HTTP/1.1\r\n\r\n");
        let transfer = begin_request(&activity, false);
        let work = async {
            tokio::time::sleep(10 * KEEP_ALIVE_TIMEOUT).await;
            activity.record_received(b"its body");
            drop(transfer);
        };
        let ((expiry, elapsed), ()) = tokio::join!(expiry_after(&activity), work);
        assert_eq!(expiry, ConnectionExpiry::Idle);
        assert!(is_about(elapsed, 11 * KEEP_ALIVE_TIMEOUT), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_head_has_its_own_timeout() {
        let activity = new_activity();
        drop(begin_request(&activity, false));
        tokio::time::sleep(HEAD_TIMEOUT * 2).await;
        activity.record_received(b"G");
        let (expiry, elapsed) = expiry_after(&activity).await;
        assert_eq!(expiry, ConnectionExpiry::Head);
        assert!(is_about(elapsed, HEAD_TIMEOUT), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn http2_frames_do_not_start_the_header_timeout() {
        let activity = new_activity();
        activity.record_received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        drop(begin_request(&activity, true));
        activity.record_received(b"a ping");
        let (expiry, elapsed) = expiry_after(&activity).await;
        assert_eq!(expiry, ConnectionExpiry::Idle);
        assert!(is_about(elapsed, KEEP_ALIVE_TIMEOUT), "{elapsed:?}");
    }
}
