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

use super::activity::RequestInFlight;
use crate::telemetry;

/// The largest part of a reply that is sent at once, in bytes. Small parts let the client's rate be measured.
const LARGEST_CHUNK: usize = 16 * 1024;

/// The idle timeouts of bodies, and the minimum rate of clients.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// The idle timeout of a client that sends a request's body or reads a reply.
    pub client: Duration,
    /// The minimum rate of a client in bytes per second; 0 for none. The rate is computed each time the waits for the
    /// client add up to the timeout `client`.
    pub minimum_rate: u64,
    /// The idle timeout of an upstream that reads a request's body or sends a reply.
    pub upstream: Duration,
    /// The idle timeout of tunnels, and of event streams from the upstream.
    pub stream: Duration,
}

/// The limit that a client or an upstream exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Stall {
    /// The client sent or read nothing for this long.
    #[display("the client was idle for {_0:?}")]
    ClientIdle(Duration),
    /// The client sent or read fewer bytes per second than this.
    #[display("the client was slower than {_0} bytes per second")]
    ClientSlow(u64),
    /// The upstream sent or read nothing for this long.
    #[display("the upstream was idle for {_0:?}")]
    UpstreamIdle(Duration),
}

impl Stall {
    /// Returns the metric's labels `who` and `how`.
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::ClientIdle(_) => ("client", "idle"),
            Self::ClientSlow(_) => ("client", "slow"),
            Self::UpstreamIdle(_) => ("upstream", "idle"),
        }
    }
}

impl std::error::Error for Stall {}

/// Enforces [`TransferLimits`] on the bodies of a request and its reply, until the reply was sent completely.
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<TransferState>,
    _in_flight: RequestInFlight,
    ended: CancellationToken,
}

/// The state of the request's body and of the reply's body. The connection checks it.
#[derive(Debug)]
pub(super) struct TransferState {
    client: SocketAddr,
    limits: TransferLimits,
    flows: Mutex<Flows>,
    stalled: Notify,
}

#[derive(Debug)]
struct Flows {
    request: Flow,
    reply: Flow,
    /// Whether the reply is an event stream, with the idle timeout [`TransferLimits::stream`].
    is_stream: bool,
}

/// A body in transfer.
#[derive(Debug, Default)]
struct Flow {
    body: Option<Body>,
    /// The waker of the task that polled the body last.
    waker: Option<Waker>,
    waits: Option<Wait>,
    /// The bytes that the client sent or read since its rate was last computed.
    bytes: u64,
    /// The time spent waiting for the client since its rate was last computed.
    waited: Duration,
    /// The reason why the body was aborted.
    stall: Option<Stall>,
}

/// The side that the body is waiting for, and the beginning of the wait.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Client(Instant),
    Upstream(Instant),
}

impl Flows {
    fn flow(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Reply => &mut self.reply,
        }
    }
}

impl Flow {
    /// Ends a wait for the client, and adds its duration to `waited`.
    fn end_wait(&mut self, now: Instant) {
        if let Some(Wait::Client(since)) = self.waits.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// Returns whether the client was too slow. Its rate is computed each time the waits for it add up to its idle
    /// timeout.
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
    /// The connection does not count as idle until `in_flight` is dropped. `ended` is cancelled when it must end.
    pub(super) fn new(
        client: SocketAddr,
        limits: TransferLimits,
        in_flight: RequestInFlight,
        ended: CancellationToken,
    ) -> Self {
        let flows = Flows {
            request: Flow::default(),
            reply: Flow::default(),
            is_stream: false,
        };
        let shared = TransferState {
            client,
            limits,
            flows: Mutex::new(flows),
            stalled: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            _in_flight: in_flight,
            ended,
        }
    }

    pub(super) fn watched(&self) -> Weak<TransferState> {
        Arc::downgrade(&self.shared)
    }

    /// Applies the limits to the request's body.
    pub(super) fn receive(&self, body: Body) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        self.shared.flows.lock().request.body = Some(body);
        Body::new(LimitedBody {
            shared: self.shared.clone(),
            direction: Direction::Request,
            rest: Bytes::new(),
            transfer: None,
        })
    }

    /// Applies the limits to the reply's body. The request counts as in flight until the returned body is dropped or
    /// stalls.
    pub(super) fn send(self, body: Body) -> Body {
        let shared = self.shared.clone();
        {
            let mut flows = shared.flows.lock();
            flows.reply.body = Some(body);
            flows.reply.waits = Some(Wait::Client(Instant::now()));
        }
        Body::new(LimitedBody {
            shared,
            direction: Direction::Reply,
            rest: Bytes::new(),
            transfer: Some(self),
        })
    }

    /// Applies the idle timeout of event streams to the reply.
    pub fn set_stream(&self) {
        self.shared.flows.lock().is_stream = true;
    }

    /// Returns a token that is cancelled when the connection, or the tunnel that it became, must end.
    pub fn connection_ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Returns the reason why the request's body was aborted; `None` if it was not.
    pub fn stall(&self) -> Option<Stall> {
        self.shared.flows.lock().request.stall
    }

    /// Waits until the request's body is aborted.
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

impl TransferState {
    /// Aborts both bodies if one side exceeded its idle timeout. Returns whether the client did not read the reply.
    pub(super) fn check(&self, now: Instant) -> bool {
        let flows = self.flows.lock();
        let overdue = |wait: Option<Wait>, upstream: Duration| match wait? {
            Wait::Client(since) if now >= since + self.limits.client => {
                Some(Stall::ClientIdle(self.limits.client))
            }
            Wait::Upstream(since) if now >= since + upstream => Some(Stall::UpstreamIdle(upstream)),
            Wait::Client(_) | Wait::Upstream(_) => None,
        };
        let reply_timeout = if flows.is_stream {
            self.limits.stream
        } else {
            self.limits.upstream
        };
        let reply = overdue(flows.reply.waits, reply_timeout);
        let stall = reply.or_else(|| overdue(flows.request.waits, self.limits.upstream));
        let Some(stall) = stall else {
            return false;
        };
        self.abort(flows, stall);
        matches!(reply, Some(Stall::ClientIdle(_)))
    }

    /// Aborts both bodies, and drops the inner bodies.
    fn abort(&self, mut flows: MutexGuard<'_, Flows>, stall: Stall) {
        flows.request.stall = Some(stall);
        // A reply that has not begun is not aborted: it will be an error reply, which has its own limits.
        flows.reply.stall = flows.reply.body.is_some().then_some(stall);
        let bodies = (flows.request.end(), flows.reply.end());
        let wakers = [flows.request.waker.take(), flows.reply.waker.take()];
        drop(flows);
        // Dropping the inner bodies may take other locks, so this lock is released first.
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
    shared: Arc<TransferState>,
    direction: Direction,
    /// The rest of a frame that is larger than [`LARGEST_CHUNK`].
    rest: Bytes,
    /// Keeps the request in flight until the reply ends.
    transfer: Option<Transfer>,
}

// No field is pinned.
impl Unpin for LimitedBody {}

impl LimitedBody {
    /// Polls the inner body. `Err` means that the body was aborted.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Result<Polled, Stall> {
        let now = Instant::now();
        let shared = &*self.shared;
        let limits = shared.limits;
        let is_reply = self.direction == Direction::Reply;
        let abort_slow = |flows| {
            let stall = Stall::ClientSlow(limits.minimum_rate);
            shared.abort(flows, stall);
            Err(stall)
        };
        let mut flows = shared.flows.lock();
        let flow = flows.flow(self.direction);
        if let Some(stall) = flow.stall {
            return Err(stall);
        }
        // A poll ends a wait for the body's reader: hyper polls a body again only once the previous part was sent.
        if is_reply == matches!(flow.waits, Some(Wait::Client(_))) {
            flow.end_wait(now);
            if flow.is_slow(&limits) {
                return abort_slow(flows);
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
                drop(flows);
                drop(ended);
                self.transfer = None;
                return Ok(end);
            }
        };
        flow.end_wait(now);
        let is_complete = flow.body.as_ref().is_none_or(http_body::Body::is_end_stream);
        if is_reply {
            flow.waits = Some(Wait::Client(now));
            frame = frame.map_data(|mut data| {
                self.rest = data.split_off(LARGEST_CHUNK.min(data.len()));
                data
            });
        } else {
            // Once the whole body has arrived from the client, the upstream need not read the rest of it.
            flow.waits = (!is_complete).then_some(Wait::Upstream(now));
        }
        flow.bytes += frame.data_ref().map_or(0, length);
        if !is_reply && flow.is_slow(&limits) {
            return abort_slow(flows);
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
        let mut flows = self.shared.flows.lock();
        let flow = flows.flow(self.direction);
        self.rest.is_empty()
            && flow.stall.is_none()
            && flow.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut flows = self.shared.flows.lock();
        let inner = flows.flow(self.direction).body.as_ref();
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
        // Dropping the inner bodies may take other locks, so this lock is released first.
        let ended = self.shared.flows.lock().flow(self.direction).end();
        drop(ended);
    }
}

#[cfg(test)]
mod tests;
