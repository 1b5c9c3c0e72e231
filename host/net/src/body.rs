//! Bodies that own a value until they have been sent, and bodies that can be sent again.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A body with a value that is dropped as soon as the body has been sent completely, fails or is dropped.
#[derive(Debug)]
pub struct GuardedBody<G, B = Body> {
    body: B,
    guard: Option<G>,
}

impl<G, B> GuardedBody<G, B> {
    pub fn new(body: B, guard: G) -> Self {
        Self {
            body,
            guard: Some(guard),
        }
    }
}

// Polling pins no field of this type, so a value may be moved between two polls.
impl<G, B> Unpin for GuardedBody<G, B> {}

impl<G, B: http_body::Body + Unpin> http_body::Body for GuardedBody<G, B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.guard = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request's body during one attempt to send it. If it is dropped unread, the next attempt can send it.
#[derive(Debug)]
pub(crate) struct ReplayBody {
    body: Option<Body>,
    is_touched: bool,
    replay: Replay,
}

/// Keeps the body of a request for the next attempt to send the request. If an attempt fails before it has read
/// anything of the body, the body is put here again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay(Arc<ReplayState>);

#[derive(Debug, Default)]
struct ReplayState {
    untouched: Mutex<Option<Body>>,
    body_end: Notify,
}

impl ReplayBody {
    pub(crate) fn new(body: Body) -> (Self, Replay) {
        let replay = Replay::default();
        let body = Self {
            body: Some(body),
            is_touched: false,
            replay: replay.clone(),
        };
        (body, replay)
    }

    fn notify_end(&self) {
        self.replay.0.body_end.notify_one();
    }
}

impl Replay {
    pub(crate) fn take_untouched_body(&self) -> Option<(ReplayBody, Replay)> {
        let body = self.0.untouched.lock().take();
        body.map(ReplayBody::new)
    }

    /// Returns whether the connection has dropped the request's body, for example because it has sent the whole body.
    pub(crate) fn is_body_gone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) async fn wait_until_body_ends(&self) {
        self.0.body_end.notified().await;
    }
}

impl http_body::Body for ReplayBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_touched = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.notify_end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

impl Drop for ReplayBody {
    fn drop(&mut self) {
        if !self.is_touched {
            *self.replay.0.untouched.lock() = self.body.take();
        }
        self.notify_end();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn only_an_unread_body_can_be_sent_again() {
        let (body, replay) = ReplayBody::new(Body::from("abc"));
        drop(body);
        let (mut body, second) = replay.take_untouched_body().unwrap();
        assert!(replay.take_untouched_body().is_none());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        drop(body);
        assert!(second.take_untouched_body().is_none());
        second.wait_until_body_ends().await;
    }
}
