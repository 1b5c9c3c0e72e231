use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use metrics::counter;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::activity::Busy;
use crate::telemetry;

/// Replies are sent to the client in chunks of at most this many bytes, so that its rate can be measured.
const PART: usize = 16 * 1024;

/// Idle timeouts of bodies, and the minimum rate of clients.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// Idle timeout for a client to send a request's body, or to read a reply.
    pub client: Duration,
    /// The minimum rate of a client while the server waits for it, in bytes per second, averaged over the time
    /// above; 0 for no minimum.
    pub minimum_rate: u64,
    /// Idle timeout for the upstream to read a request's body, or to send a reply.
    pub upstream: Duration,
    /// Idle timeout of event streams from the upstream, and of tunnels.
    pub stream: Duration,
}

/// An exceeded limit, and which side exceeded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The client sent nothing, or read nothing.
    ClientIdle(Duration),
    /// The client sent or read fewer bytes per second.
    ClientSlow(u64),
    /// The upstream read nothing, or sent nothing.
    UpstreamIdle(Duration),
}

impl Stall {
    /// The labels of the metric: who, and how.
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::ClientIdle(_) => ("client", "idle"),
            Self::ClientSlow(_) => ("client", "slow"),
            Self::UpstreamIdle(_) => ("upstream", "idle"),
        }
    }
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClientIdle(limit) => write!(f, "the client was idle for {limit:?}"),
            Self::ClientSlow(rate) => write!(f, "the client was slower than {rate} bytes per second"),
            Self::UpstreamIdle(limit) => write!(f, "the upstream was idle for {limit:?}"),
        }
    }
}

impl std::error::Error for Stall {}

/// Enforces [`TransferLimits`] on the bodies of a request and its reply, until the reply has been sent
/// completely.
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<Shared>,
    /// While this exists, the connection is not idle.
    _busy: Busy,
    ended: CancellationToken,
}

/// State that the bodies share with the connection that checks them.
#[derive(Debug)]
pub(super) struct Shared {
    client: SocketAddr,
    limits: TransferLimits,
    state: Mutex<State>,
    stalled: Notify,
}

#[derive(Debug)]
struct State {
    request: Flow,
    reply: Flow,
    may_wait: bool,
}

/// One body that is being sent.
#[derive(Debug, Default)]
struct Flow {
    body: Option<Body>,
    /// The waker of the last task that polled it.
    waker: Option<Waker>,
    waits: Option<Wait>,
    /// The bytes that the client transferred, and the time that the server waited for it, since its rate was last
    /// computed.
    bytes: u64,
    waited: Duration,
    /// The reason why it was aborted.
    stall: Option<Stall>,
}

/// The side that a body waits for, and since when.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Client(Instant),
    Upstream(Instant),
}

impl State {
    fn flow(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Reply => &mut self.reply,
        }
    }
}

impl Flow {
    /// Ends the wait: bytes were transferred.
    fn moved(&mut self, now: Instant) {
        if let Some(Wait::Client(since)) = self.waits.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// Whether the client was too slow since the last call, evaluated once the server waited for it as long as
    /// `limits` allow.
    fn is_slow(&mut self, limits: &TransferLimits) -> bool {
        if self.waited < limits.client {
            return false;
        }
        let needed = self.waited.as_secs_f64() * as_float(limits.minimum_rate);
        let is_slow = as_float(self.bytes) < needed;
        (self.bytes, self.waited) = (0, Duration::ZERO);
        is_slow
    }

    fn end(&mut self) -> Option<Body> {
        self.waits = None;
        self.body.take()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

impl Transfer {
    /// `busy` keeps its connection from being idle; `ended` is cancelled when the connection has to end.
    pub(super) fn new(
        client: SocketAddr,
        limits: TransferLimits,
        busy: Busy,
        ended: CancellationToken,
    ) -> Self {
        let state = State {
            request: Flow::default(),
            reply: Flow::default(),
            may_wait: false,
        };
        let shared = Shared {
            client,
            limits,
            state: Mutex::new(state),
            stalled: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            _busy: busy,
            ended,
        }
    }

    /// The state that the connection checks.
    pub(super) fn watched(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The request's body, with limits.
    pub(super) fn receive(&self, body: Body) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        self.shared.state.lock().request.body = Some(body);
        Body::new(LimitedBody {
            shared: self.shared.clone(),
            direction: Direction::Request,
            rest: Bytes::new(),
            transfer: None,
        })
    }

    /// The reply's body, with limits. The connection is busy until this is dropped, or has stalled.
    pub(super) fn send(self, body: Body) -> Body {
        let shared = self.shared.clone();
        {
            let mut state = shared.state.lock();
            state.reply.body = Some(body);
            state.reply.waits = Some(Wait::Client(Instant::now()));
        }
        Body::new(LimitedBody {
            shared,
            direction: Direction::Reply,
            rest: Bytes::new(),
            transfer: Some(self),
        })
    }

    /// The reply is an event stream: the idle timeout of streams applies.
    pub fn may_wait(&self) {
        self.shared.state.lock().may_wait = true;
    }

    /// Cancelled when the connection has to end, also as a tunnel.
    pub fn connection_ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Returns the reason why the request's body was aborted, if it was.
    pub fn stall(&self) -> Option<Stall> {
        self.shared.state.lock().request.stall
    }

    /// Completes when the request's body was aborted.
    pub async fn stalled(&self) -> Stall {
        loop {
            let notified = self.shared.stalled.notified();
            if let Some(stall) = self.stall() {
                return stall;
            }
            notified.await;
        }
    }
}

impl Shared {
    /// Aborts both bodies when one side has been waited for too long. Returns whether the client did not read
    /// its reply.
    pub(super) fn check(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let overdue = |wait: Option<Wait>, upstream: Duration| match wait? {
            Wait::Client(since) if now >= since + self.limits.client => {
                Some(Stall::ClientIdle(self.limits.client))
            }
            Wait::Upstream(since) if now >= since + upstream => Some(Stall::UpstreamIdle(upstream)),
            Wait::Client(_) | Wait::Upstream(_) => None,
        };
        let of_reply = if state.may_wait {
            self.limits.stream
        } else {
            self.limits.upstream
        };
        let reply = overdue(state.reply.waits, of_reply);
        let stall = reply.or_else(|| overdue(state.request.waits, self.limits.upstream));
        let Some(stall) = stall else {
            return false;
        };
        self.end(state, stall);
        matches!(reply, Some(Stall::ClientIdle(_)))
    }

    /// Aborts both bodies, and drops their contents.
    fn end(&self, mut state: MutexGuard<'_, State>, stall: Stall) {
        state.request.stall = Some(stall);
        // A reply that is sent because of this stall has its own limits.
        state.reply.stall = state.reply.body.is_some().then_some(stall);
        let bodies = (state.request.end(), state.reply.end());
        let wakers = [state.request.waker.take(), state.reply.waker.take()];
        drop(state);
        // Dropped outside the lock: the contents may have their own locks.
        drop(bodies);
        self.stalled.notify_one();
        wakers.into_iter().flatten().for_each(Waker::wake);
        let (who, how) = stall.labels();
        counter!(telemetry::STALLED, "who" => who, "how" => how).increment(1);
        tracing::info!(client = %self.client, "the request is aborted: {stall}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

struct LimitedBody {
    shared: Arc<Shared>,
    direction: Direction,
    /// The rest of a frame that was too large to be sent at once.
    rest: Bytes,
    /// Watches a reply until its end.
    transfer: Option<Transfer>,
}

// Nothing in it is pinned.
impl Unpin for LimitedBody {}

impl LimitedBody {
    /// Polls the inner body. `Err` means that a limit was exceeded.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Result<Polled, Stall> {
        let now = Instant::now();
        let shared = &*self.shared;
        let limits = shared.limits;
        let is_reply = self.direction == Direction::Reply;
        let too_slow = |state| {
            let stall = Stall::ClientSlow(limits.minimum_rate);
            shared.end(state, stall);
            Err(stall)
        };
        let mut state = shared.state.lock();
        let flow = state.flow(self.direction);
        if let Some(stall) = flow.stall {
            return Err(stall);
        }
        // A poll means that the last chunk was sent; a side that was already polled is still waited for.
        if is_reply == matches!(flow.waits, Some(Wait::Client(_))) {
            flow.moved(now);
            if flow.is_slow(&limits) {
                return too_slow(state);
            }
        }
        let polled = match &mut flow.body {
            _ if !self.rest.is_empty() => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest))))),
            Some(body) => http_body::Body::poll_frame(Pin::new(body), cx),
            None => Poll::Ready(None),
        };
        let mut frame = match polled {
            Poll::Pending => {
                flow.waits.get_or_insert(if is_reply {
                    Wait::Upstream(now)
                } else {
                    Wait::Client(now)
                });
                match &mut flow.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                return Ok(Poll::Pending);
            }
            Poll::Ready(Some(Ok(frame))) => frame,
            end @ Poll::Ready(None | Some(Err(_))) => {
                let ended = flow.end();
                drop(state);
                drop(ended);
                self.transfer = None;
                return Ok(end);
            }
        };
        flow.moved(now);
        // A complete body may be left unread.
        let is_all = flow.body.as_ref().is_none_or(http_body::Body::is_end_stream);
        if is_reply {
            flow.waits = Some(Wait::Client(now));
            frame = frame.map_data(|mut data| {
                self.rest = data.split_off(PART.min(data.len()));
                data
            });
        } else {
            flow.waits = (!is_all).then_some(Wait::Upstream(now));
        }
        flow.bytes += frame.data_ref().map_or(0, length);
        if !is_reply && flow.is_slow(&limits) {
            return too_slow(state);
        }
        Ok(Poll::Ready(Some(Ok(frame))))
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        match self.poll_inner(cx) {
            Ok(polled) => polled,
            Err(stall) => {
                self.transfer = None;
                Poll::Ready(Some(Err(axum::Error::new(stall))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let mut state = self.shared.state.lock();
        let flow = state.flow(self.direction);
        self.rest.is_empty()
            && flow.stall.is_none()
            && flow.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut state = self.shared.state.lock();
        let inner = state.flow(self.direction).body.as_ref();
        let mut hint = inner
            .map(http_body::Body::size_hint)
            .unwrap_or(SizeHint::with_exact(0));
        let rest = length(&self.rest);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        let ended = self.shared.state.lock().flow(self.direction).end();
        drop(ended);
    }
}

#[cfg(test)]
mod tests;
