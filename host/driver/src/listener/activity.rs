use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// What a connection is doing, as far as its time limits care. Cheap to clone; lives as long as the
/// connection. (hyper's own timer for heads also runs between requests, and hangs up without a word.)
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    patience: Patience,
    state: Mutex<State>,
    changed: Notify,
}

/// How long a connection may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a request's head, from its first byte; and for the first byte of all.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
}

#[derive(Debug)]
struct State {
    /// Requests that are being answered.
    busy: usize,
    has_received: bool,
    has_served: bool,
    is_http2: bool,
    /// When the head that is now arriving began to.
    head_since: Option<Instant>,
    idle_since: Instant,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// A head began and did not end.
    Head,
    /// Nothing came.
    Idle,
}

/// A request that is being answered, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn new(patience: Patience) -> Self {
        Self(Arc::new(Inner {
            patience,
            state: Mutex::new(State {
                busy: 0,
                has_received: false,
                has_served: false,
                is_http2: false,
                head_since: None,
                idle_since: Instant::now(),
            }),
            changed: Notify::new(),
        }))
    }

    /// These bytes came in.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if !state.has_received {
            state.has_received = true;
            // HTTP/2 begins with `PRI * HTTP/2.0`; no method of HTTP/1 begins so.
            state.is_http2 = bytes.starts_with(b"PRI");
        }
        // What comes while a request is answered belongs to it, and HTTP/2 sends much that is no head.
        if state.busy == 0 && !state.is_http2 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            self.0.changed.notify_one();
        }
    }

    /// A head is whole, and its request is being answered.
    pub(super) fn request(&self, is_http2: bool) -> Busy {
        let mut state = self.state();
        state.busy += 1;
        state.has_served = true;
        state.is_http2 = is_http2;
        state.head_since = None;
        self.0.changed.notify_one();
        Busy(self.clone())
    }

    /// When the connection has used up its time.
    pub(super) async fn expired(&self) -> Expiry {
        loop {
            let changed = self.0.changed.notified();
            match self.deadline() {
                None => changed.await,
                Some((at, expiry)) if at <= Instant::now() => return expiry,
                Some((at, _)) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }

    fn deadline(&self) -> Option<(Instant, Expiry)> {
        let state = self.state();
        let patience = &self.0.patience;
        if state.busy > 0 {
            return None;
        }
        Some(match state.head_since {
            Some(since) => (since + patience.head, Expiry::Head),
            None if state.has_served => (state.idle_since + patience.idle, Expiry::Idle),
            None => (state.idle_since + patience.head, Expiry::Idle),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy = state.busy.saturating_sub(1);
        state.idle_since = Instant::now();
        drop(state);
        self.0.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    fn activity() -> Activity {
        Activity::new(Patience {
            head: HEAD,
            idle: IDLE,
        })
    }

    async fn expiry_after(activity: &Activity) -> (Expiry, Duration) {
        let started = Instant::now();
        (activity.expired().await, started.elapsed())
    }

    /// tokio's timer is exact to the millisecond.
    fn about(duration: Duration, expected: Duration) -> bool {
        duration >= expected && duration < expected + Duration::from_millis(5)
    }

    #[tokio::test(start_paused = true)]
    async fn silence() {
        let (expiry, after) = expiry_after(&activity()).await;
        assert_eq!(expiry, Expiry::Idle);
        assert!(about(after, HEAD), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_in_drips() {
        let activity = activity();
        let drip = async {
            loop {
                activity.received(b"G");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let (expiry, after) = tokio::select! {
            result = expiry_after(&activity) => result,
            () = drip => unreachable!("it drips for ever"),
        };
        assert_eq!(expiry, Expiry::Head);
        assert!(about(after, HEAD), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_as_long_as_it_takes() {
        let activity = activity();
        activity.received(b"GET / HTTP/1.1\r\n\r\n");
        let busy = activity.request(false);
        let work = async {
            tokio::time::sleep(10 * IDLE).await;
            activity.received(b"its body");
            drop(busy);
        };
        let ((expiry, after), ()) = tokio::join!(expiry_after(&activity), work);
        assert_eq!(expiry, Expiry::Idle);
        assert!(about(after, 11 * IDLE), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_head_has_its_own_time() {
        let activity = activity();
        drop(activity.request(false));
        tokio::time::sleep(HEAD * 2).await;
        activity.received(b"G");
        let (expiry, after) = expiry_after(&activity).await;
        assert_eq!(expiry, Expiry::Head);
        assert!(about(after, HEAD), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_are_no_heads() {
        let activity = activity();
        activity.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        drop(activity.request(true));
        activity.received(b"a ping");
        let (expiry, after) = expiry_after(&activity).await;
        assert_eq!(expiry, Expiry::Idle);
        assert!(about(after, IDLE), "{after:?}");
    }
}
