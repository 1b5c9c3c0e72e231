//! Bodies of messages that keep or give back something.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// A body that keeps something until it has been sent to its end, or given up.
#[derive(Debug)]
pub struct GuardedBody<G> {
    body: Body,
    guard: Option<G>,
}

impl<G> GuardedBody<G> {
    pub fn new(body: Body, guard: G) -> Self {
        Self {
            body,
            guard: Some(guard),
        }
    }
}

// Nothing in it is pinned.
impl<G> Unpin for GuardedBody<G> {}

impl<G: Send + 'static> http_body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
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
