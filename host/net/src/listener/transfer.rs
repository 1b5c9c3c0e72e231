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

/// The largest part of a reply that is sent at once, in bytes. It is small, so that the client's rate can be measured.
const LARGEST_CHUNK: usize = 16 * 1024;

/// The timeouts for idle bodies, and the minimum rate of clients.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// The longest time for which a client may send nothing of a request's body, or read nothing of a reply.
    pub client_timeout: Duration,
    /// The minimum rate of a client in bytes per second, or 0 for no minimum. The times for which a body waits for the
    /// client are added up. When the sum reaches the timeout `client_timeout`, the rate of the client is computed, and
    /// the sum begins at 0 again.
    pub minimum_rate: u64,
    /// The longest time for which an upstream may read nothing of a request's body, or send nothing of a reply.
    pub upstream_timeout: Duration,
    /// The longest time for which a tunnel, or an event stream of the upstream, may be idle.
    pub stream_timeout: Duration,
}

/// The limit of [`TransferLimits`] that a client or an upstream exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Stall {
    /// The client sent or read nothing for this long.
    #[display("the client was idle for {_0:?}")]
    ClientIdle(Duration),
    /// The client sent or read fewer bytes per second than this number.
    #[display("the client was slower than {_0} bytes per second")]
    ClientSlow(u64),
    /// The upstream sent or read nothing for this long.
    #[display("the upstream was idle for {_0:?}")]
    UpstreamIdle(Duration),
}

impl Stall {
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::ClientIdle(_) => ("client", "idle"),
            Self::ClientSlow(_) => ("client", "slow"),
            Self::UpstreamIdle(_) => ("upstream", "idle"),
        }
    }
}

impl std::error::Error for Stall {}

/// Applies [`TransferLimits`] to the bodies of a request and its reply, until the reply has been sent completely.
#[derive(Debug)]
pub struct BodyTransfer {
    shared: Arc<TransferState>,
    _in_flight: RequestInFlight,
    end_token: CancellationToken,
}

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
    is_stream: bool,
}

#[derive(Debug, Default)]
struct Flow {
    body: Option<Body>,
    waker: Option<Waker>,
    waits: Option<Wait>,
    /// The bytes that the client sent or read since its rate was last computed.
    bytes: u64,
    /// The time that was spent waiting for the client since its rate was last computed.
    client_wait: Duration,
    /// The reason why the body was aborted; `None` if it was not.
    stall: Option<Stall>,
}

/// The side for which a body waits, and the time at which the wait began.
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
    fn end_wait(&mut self, now: Instant) {
        if let Some(Wait::Client(since)) = self.waits.take() {
            self.client_wait += now.saturating_duration_since(since);
        }
    }

    /// Returns whether the client was too slow. The client's rate is known only after the body has waited for the
    /// client for `limits.client` in total. Before that, this returns `false`.
    fn is_slow(&mut self, limits: &TransferLimits) -> bool {
        if self.client_wait < limits.client_timeout {
            return false;
        }
        let minimum_bytes = self.client_wait.as_secs_f64() * as_float(limits.minimum_rate);
        let is_slow = as_float(self.bytes) < minimum_bytes;
        (self.bytes, self.client_wait) = (0, Duration::ZERO);
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

impl BodyTransfer {
    /// Creates the transfer of a request's bodies. The connection does not count as idle as long as the transfer
    /// exists, because the transfer owns `in_flight`.
    pub(super) fn new(
        client: SocketAddr,
        limits: TransferLimits,
        in_flight: RequestInFlight,
        end_token: CancellationToken,
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
            end_token,
        }
    }

    pub(super) fn downgrade(&self) -> Weak<TransferState> {
        Arc::downgrade(&self.shared)
    }

    pub(super) fn limit_request_body(&self, body: Body) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        self.shared.flows.lock().request.body = Some(body);
        Body::new(LimitedBody {
            shared: self.shared.clone(),
            direction: Direction::Request,
            chunk_rest: Bytes::new(),
            transfer: None,
        })
    }

    /// Returns the reply's body with the limits applied. The request is in flight until this body is dropped or stalls.
    pub(super) fn limit_reply_body(self, body: Body) -> Body {
        let shared = self.shared.clone();
        {
            let mut flows = shared.flows.lock();
            flows.reply.body = Some(body);
            flows.reply.waits = Some(Wait::Client(Instant::now()));
        }
        Body::new(LimitedBody {
            shared,
            direction: Direction::Reply,
            chunk_rest: Bytes::new(),
            transfer: Some(self),
        })
    }

    /// Makes the reply an event stream, which has its own timeout.
    pub fn mark_as_stream(&self) {
        self.shared.flows.lock().is_stream = true;
    }

    /// Returns a token that is cancelled when the client's connection, or the tunnel that it has become, must end.
    pub fn connection_end_token(&self) -> CancellationToken {
        self.end_token.clone()
    }

    /// Returns the reason why the request's body was aborted, or `None` if it was not.
    pub fn stall(&self) -> Option<Stall> {
        self.shared.flows.lock().request.stall
    }

    /// Waits until the request's body is aborted, and returns the reason.
    pub async fn wait_until_stalled(&self) -> Stall {
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
    /// Aborts the bodies of the request and the reply if the client or the upstream was idle for too long. Returns
    /// whether the client did not read the reply in time.
    pub(super) fn abort_if_stalled(&self, now: Instant) -> bool {
        let flows = self.flows.lock();
        let overdue_stall = |wait: Option<Wait>, upstream: Duration| match wait? {
            Wait::Client(since) if now >= since + self.limits.client_timeout => {
                Some(Stall::ClientIdle(self.limits.client_timeout))
            }
            Wait::Upstream(since) if now >= since + upstream => Some(Stall::UpstreamIdle(upstream)),
            Wait::Client(_) | Wait::Upstream(_) => None,
        };
        let reply_timeout = if flows.is_stream {
            self.limits.stream_timeout
        } else {
            self.limits.upstream_timeout
        };
        let reply_stall = overdue_stall(flows.reply.waits, reply_timeout);
        let stall = reply_stall.or_else(|| overdue_stall(flows.request.waits, self.limits.upstream_timeout));
        let Some(stall) = stall else {
            return false;
        };
        self.abort(flows, stall);
        matches!(reply_stall, Some(Stall::ClientIdle(_)))
    }

    fn abort(&self, mut flows: MutexGuard<'_, Flows>, stall: Stall) {
        flows.request.stall = Some(stall);
        // If the reply has not begun, only the body of the request is aborted. The client then gets a reply that
        // reports the error. The stall is not recorded for this reply, because it would be aborted, too.
        flows.reply.stall = flows.reply.body.is_some().then_some(stall);
        let bodies = (flows.request.end(), flows.reply.end());
        let wakers = [flows.request.waker.take(), flows.reply.waker.take()];
        drop(flows);
        // `flows` is unlocked before the bodies are dropped, because dropping a body may take other locks.
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

type PolledFrame = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

struct LimitedBody {
    shared: Arc<TransferState>,
    direction: Direction,
    /// The bytes of a reply that were received, but not passed on yet. A frame that is larger than [`LARGEST_CHUNK`] is
    /// passed on in several parts.
    chunk_rest: Bytes,
    /// The transfer of the request, if this is the body of a reply. The body keeps the transfer until the reply ends,
    /// so the request counts as in flight until then.
    transfer: Option<BodyTransfer>,
}

// Polling pins no field of this type, so a value may be moved between two polls.
impl Unpin for LimitedBody {}

impl LimitedBody {
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Result<PolledFrame, Stall> {
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
        // hyper polls for the next part of a body only after it has sent the previous part. So the receiver has read
        // the previous part, and the time for which the body waits for the receiver ends. The receiver of a reply is
        // the client, and the receiver of a request is the upstream.
        if is_reply == matches!(flow.waits, Some(Wait::Client(_))) {
            flow.end_wait(now);
            if flow.is_slow(&limits) {
                return abort_slow(flows);
            }
        }
        let polled = match &mut flow.body {
            _ if !self.chunk_rest.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.chunk_rest)))))
            }
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
                let released_body = flow.end();
                drop(flows);
                drop(released_body);
                self.transfer = None;
                return Ok(end);
            }
        };
        flow.end_wait(now);
        let is_complete = flow.body.as_ref().is_none_or(http_body::Body::is_end_stream);
        if is_reply {
            flow.waits = Some(Wait::Client(now));
            frame = frame.map_data(|mut data| {
                self.chunk_rest = data.split_off(LARGEST_CHUNK.min(data.len()));
                data
            });
        } else {
            // While the client is still sending the body, the upstream has to read each part in time. After the client
            // has sent everything, the upstream may leave the rest of the body unread.
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
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
        self.chunk_rest.is_empty()
            && flow.stall.is_none()
            && flow.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut flows = self.shared.flows.lock();
        let inner = flows.flow(self.direction).body.as_ref();
        let mut hint = inner.map(http_body::Body::size_hint).unwrap_or(SizeHint::with_exact(0));
        let rest = length(&self.chunk_rest);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        // `flows` is unlocked before the body is dropped, because dropping it may take other locks.
        let released_body = self.shared.flows.lock().flow(self.direction).end();
        drop(released_body);
    }
}

#[cfg(test)]
mod tests;
