use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use super::activity::Activity;
use crate::turns;

/// A stream that records when bytes are received and sent, and that is returned when hyper, or a tunnel,
/// drops it.
pub(super) struct TrackedStream<S> {
    /// Some until it is dropped.
    stream: Option<S>,
    activity: Activity,
    /// Gets the stream when this is dropped.
    released: Option<oneshot::Sender<S>>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, activity: Activity) -> (Self, oneshot::Receiver<S>) {
        let (sender, receiver) = oneshot::channel();
        let tracked = Self {
            stream: Some(stream),
            activity,
            released: Some(sender),
        };
        (tracked, receiver)
    }

    fn record_write(&self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = &polled {
            self.activity.sent();
            turns::spend_bytes(cx, *written.as_ref().unwrap_or(&0));
        }
        polled
    }
}

impl<S> Drop for TrackedStream<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(released)) = (self.stream.take(), self.released.take()) {
            // An error means that the receiver is gone.
            let _ = released.send(stream);
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Err(gone()));
        };
        let before = buffer.filled().len();
        let polled = Pin::new(stream).poll_read(cx, buffer);
        if let Some(arrived) = buffer
            .filled()
            .get(before..)
            .filter(|arrived| !arrived.is_empty())
        {
            this.activity.received(arrived);
            turns::spend_bytes(cx, arrived.len());
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_write(cx, turns::one_write(bytes)),
            None => Poll::Ready(Err(gone())),
        };
        self.record_write(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (limited, used) = turns::one_vectored_write(slices);
        let slices = limited.get(..used).unwrap_or_default();
        let polled = match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            None => Poll::Ready(Err(gone())),
        };
        self.record_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_flush(cx),
            None => Poll::Ready(Err(gone())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Err(gone())),
        }
    }
}
