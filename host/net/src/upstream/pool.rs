//! The pool of connections to upstream servers.
//!
//! A connection has no task of its own. It is polled by the task of the request that uses it, first for the head of the
//! reply and then for the body. So bytes from the server wake the task of the request directly.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, uri::PathAndQuery};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{SendRequest, handshake},
    },
};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    task::{JoinHandle, coop::unconstrained},
    time::{Instant, sleep_until},
};
use tower::{BoxError, ServiceExt};

use super::{UpstreamConnector, UpstreamServer};
use crate::{body::ReplayBody, workers};

/// The time after which this program closes an idle connection to a server. Otherwise, the server might close the
/// connection just when a request is sent on it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// No connection to the server could be made, so no byte of the request was sent.
    #[error("no connection")]
    Connect(#[source] BoxError),
    #[error("the connection failed")]
    Broken(#[source] hyper::Error),
}

/// The pool of connections to the servers of an upstream. Each worker has its own part, so no thread waits for a lock.
pub(super) struct ConnectionPool {
    connector: UpstreamConnector,
    idle_of_workers: Vec<Arc<IdleConnections>>,
    idle_of_others: Arc<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections(Mutex<IdleList>);

#[derive(Default)]
struct IdleList {
    connections: VecDeque<IdleConnection>,
    close_task: Option<JoinHandle<()>>,
}

struct IdleConnection {
    since: Instant,
    connection: UpstreamConnection,
}

struct UpstreamConnection {
    server: UpstreamServer,
    sender: SendRequest<ReplayBody>,
    /// The future that drives this connection: polling it sends requests and receives replies. It is `None` after the
    /// connection was closed.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// The right of a reply to use a connection. When this value is dropped, the connection returns to the pool.
struct Lease {
    connection: Option<UpstreamConnection>,
    pool: Arc<IdleConnections>,
}

/// The body of a reply. Polling the body also sends and receives the bytes of its connection.
pub(super) struct ReplyBody {
    incoming: Incoming,
    /// The right to use the connection of the reply. It is declared after `incoming`, and so dropped after it. When the
    /// connection returns to the pool, it then knows that nobody will read the rest of the body, and does not wait for
    /// a reader.
    lease: Option<Lease>,
    /// An error of the body that has not been returned yet. The next poll returns it, so that the bytes before the
    /// error are sent first.
    failure: Option<hyper::Error>,
}

impl ConnectionPool {
    pub(super) fn new(connector: UpstreamConnector) -> Self {
        Self {
            connector,
            idle_of_workers: (0..workers::count()).map(|_| Arc::default()).collect(),
            idle_of_others: Arc::default(),
        }
    }

    /// Sends a request to a server. If the server has closed an idle connection, another connection is tried.
    pub(super) async fn request(
        &self,
        server: &UpstreamServer,
        mut request: Request<ReplayBody>,
    ) -> Result<Response<ReplyBody>, ExchangeError> {
        let pool = workers::index()
            .and_then(|index| self.idle_of_workers.get(index))
            .unwrap_or(&self.idle_of_others);
        while let Some(connection) = pool.take(server) {
            match connection.exchange(request, pool).await {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ExchangeError::Broken(error.into_error())),
                },
            }
        }
        let address = server.uri(PathAndQuery::from_static("/"));
        let connecting = self.connector.clone().oneshot(address);
        let stream = connecting.await.map_err(ExchangeError::Connect)?;
        let (sender, driver) = handshake(stream).await.map_err(ExchangeError::Broken)?;
        let connection = UpstreamConnection {
            server: server.clone(),
            sender,
            driver: Some(Box::pin(driver.with_upgrades())),
        };
        let replied = connection.exchange(request, pool).await;
        replied.map_err(|error| ExchangeError::Broken(error.into_error()))
    }
}

impl IdleConnections {
    fn take(&self, server: &UpstreamServer) -> Option<UpstreamConnection> {
        let mut idle = self.0.lock();
        let is_to_server = |idle: &IdleConnection| idle.connection.server == *server;
        let latest = idle.connections.iter().rposition(is_to_server)?;
        Some(idle.connections.remove(latest)?.connection)
    }

    fn put(self: &Arc<Self>, connection: UpstreamConnection) {
        // A task has to close idle connections later. No task can be started without a runtime, so the connection is
        // dropped now.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let since = Instant::now();
        let mut idle = self.0.lock();
        idle.connections.push_back(IdleConnection { since, connection });
        if idle.close_task.as_ref().is_none_or(JoinHandle::is_finished) {
            idle.close_task = Some(runtime.spawn(close_idle(Arc::downgrade(self), since + IDLE_TIMEOUT)));
        }
    }

    fn close_expired(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut idle = self.0.lock();
        while let Some(oldest) = idle.connections.front() {
            let expiry = oldest.since + IDLE_TIMEOUT;
            if expiry > now {
                return Some(expiry);
            }
            idle.connections.pop_front();
        }
        idle.close_task = None;
        None
    }
}

async fn close_idle(idle: Weak<IdleConnections>, first: Instant) {
    let mut next = Some(first);
    while let Some(expiry) = next {
        sleep_until(expiry).await;
        next = idle.upgrade().and_then(|idle| idle.close_expired());
    }
}

/// Polls a future without a waker. The task that drives the connection polls the future again after each progress, so
/// no waker is needed. The poll is exempt from tokio's cooperative budget: a poll that the budget stops would wait for
/// a wake, which never comes.
fn poll_unwoken<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    pin!(unconstrained(poll_fn(poll))).poll(&mut Context::from_waker(Waker::noop()))
}

impl UpstreamConnection {
    /// Sends and receives what is possible now. Is ready when the connection has closed.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.driver {
            // An error of the connection can be ignored here. If a request is in flight, hyper reports the error to
            // this request as well.
            let _ = ready!(driver.as_mut().poll(cx));
            self.driver = None;
        }
        Poll::Ready(())
    }

    async fn exchange(
        mut self,
        request: Request<ReplayBody>,
        pool: &Arc<IdleConnections>,
    ) -> Result<Response<ReplyBody>, TrySendError<Request<ReplayBody>>> {
        let mut replying = pin!(self.sender.try_send_request(request));
        let replied = poll_fn(|cx| {
            let _ = self.drive(cx);
            poll_unwoken(|cx| replying.as_mut().poll(cx))
        });
        Ok(replied.await?.map(|incoming| ReplyBody {
            incoming,
            lease: Some(Lease {
                connection: Some(self),
                pool: pool.clone(),
            }),
            failure: None,
        }))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        // The connection still has the waker of the task that has used it. A poll without a waker replaces this waker,
        // so that the idle connection no longer wakes the task.
        let is_open = poll_unwoken(|cx| connection.drive(cx)).is_pending();
        if is_open && connection.sender.is_ready() {
            self.pool.put(connection);
        }
    }
}

impl ReplyBody {
    /// Moves the connection to a task of its own. The task polls the connection until the rest of the request has been
    /// sent, or, if the connection has become a tunnel, until the tunnel ends.
    pub(super) fn detach(&mut self) {
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        tokio::spawn(poll_fn(move |cx| {
            let Some(connection) = &mut lease.connection else {
                return Poll::Ready(());
            };
            if connection.drive(cx).is_ready() {
                return Poll::Ready(());
            }
            connection.sender.poll_ready(cx).map(|_| ())
        }));
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Self { incoming, lease, .. } = &mut *self;
        let mut incoming = Pin::new(incoming);
        let polled = match lease.as_mut().and_then(|lease| lease.connection.as_mut()) {
            None => incoming.as_mut().poll_frame(cx),
            Some(connection) => {
                let arrived = poll_unwoken(|cx| incoming.as_mut().poll_frame(cx));
                if arrived.is_pending() {
                    let _ = connection.drive(cx);
                    poll_unwoken(|cx| incoming.as_mut().poll_frame(cx))
                } else {
                    arrived
                }
            }
        };
        let has_ended = match &polled {
            Poll::Ready(Some(Ok(_))) => incoming.is_end_stream(),
            Poll::Ready(None | Some(Err(_))) => true,
            Poll::Pending => false,
        };
        if has_ended {
            *lease = None;
        }
        if let Poll::Ready(Some(Err(failure))) = polled {
            // If a body returns an error, hyper's server discards the data of the body that it has not sent yet. So the
            // error is kept until the next poll. By then, the data were sent.
            self.failure = Some(failure);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
