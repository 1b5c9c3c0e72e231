use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

/// A request's body, lent to the client for one attempt. When the client drops it before reading any of
/// it, it goes back, and the next attempt has it.
#[derive(Debug)]
pub(super) struct Lent {
    body: Option<Body>,
    is_touched: bool,
    loan: Loan,
}

/// What is left behind for a body that is lent.
#[derive(Clone, Debug, Default)]
pub(super) struct Loan(Arc<State>);

#[derive(Debug, Default)]
struct State {
    untouched: Mutex<Option<Body>>,
    ended: Notify,
}

impl Lent {
    pub(super) fn new(body: Body) -> (Self, Loan) {
        let loan = Loan::default();
        let lent = Self {
            body: Some(body),
            is_touched: false,
            loan: loan.clone(),
        };
        (lent, loan)
    }

    fn has_ended(&self) {
        self.loan.0.ended.notify_one();
    }
}

impl Loan {
    /// The body for another attempt, when nobody has read any of it.
    pub(super) fn take_back(&self) -> Option<(Lent, Loan)> {
        let body = self
            .0
            .untouched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        body.map(Lent::new)
    }

    /// When the client has read the body to its end, or dropped it.
    pub(super) async fn given_back(&self) {
        self.0.ended.notified().await;
    }
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_touched = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.has_ended();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map(http_body::Body::size_hint)
            .unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.is_touched {
            *self
                .loan
                .0
                .untouched
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
        self.has_ended();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn only_an_untouched_body_comes_back() {
        let (lent, loan) = Lent::new(Body::from("abc"));
        drop(lent);
        let (mut lent, second) = loan.take_back().unwrap();
        assert!(loan.take_back().is_none());
        assert_eq!(lent.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        drop(lent);
        assert!(second.take_back().is_none());
        second.given_back().await;
    }
}
