//! Limits how many bytes a connection reads or writes before the other connections of its thread get their turn.
//!
//! A connection to a fast peer never waits. Without a limit, a body of 16 MiB would occupy the thread for some ms.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    task::coop,
};

/// The number of bytes that cost one unit of tokio's cooperative budget. A task yields after 128 units.
const BYTES_PER_UNIT: usize = 1 << 10;

/// The largest number of bytes that one system call reads. Without this limit, the buffer of the reader would grow with
/// the size of the body.
const LARGEST_READ: u64 = 64 << 10;

/// The largest number of bytes that one system call writes. Without this limit, the kernel might accept several MiB at
/// once, and other connections would wait meanwhile.
const LARGEST_WRITE: usize = 128 << 10;

const MAX_SLICES: usize = 16;

/// An observer of the bytes that pass through a [`TurnTakingStream`].
pub trait StreamObserver<S> {
    /// Handles bytes that were received. Returns how many extra units of tokio's cooperative budget they cost, for
    /// example because they contain many small frames. The stream itself already spends units for the number of bytes.
    fn observe_received(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Handles bytes that were sent: the first `written` bytes of `slices`.
    fn observe_sent(&mut self, slices: &[IoSlice<'_>], written: usize);

    /// Takes the inner stream when the [`TurnTakingStream`] is dropped.
    fn observe_release(&mut self, _stream: S) {}
}

/// A stream that uses tokio's cooperative budget. The more bytes it moves, the sooner its task yields to other tasks.
#[derive(Debug)]
pub struct TurnTakingStream<S, O: StreamObserver<S>> {
    /// The inner stream; `None` only while this value is dropped.
    stream: Option<S>,
    observer: O,
}

impl<S, O: StreamObserver<S>> TurnTakingStream<S, O> {
    pub(crate) fn new(stream: S, observer: O) -> Self {
        Self {
            stream: Some(stream),
            observer,
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(stream))
    }
}

impl<S, O: StreamObserver<S>> Drop for TurnTakingStream<S, O> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.observer.observe_release(stream);
        }
    }
}

fn spend_budget(cx: &mut Context<'_>, units: usize) {
    for _ in 0..units {
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            Poll::Pending => break,
        }
    }
}

impl<S: AsyncRead + Unpin, O: StreamObserver<S> + Unpin> AsyncRead for TurnTakingStream<S, O> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let unit = ready!(coop::poll_proceed(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream()?.take(LARGEST_READ)).poll_read(cx, buffer))?;
        unit.made_progress();
        let received_bytes = buffer.filled().get(before..).unwrap_or_default();
        let units = self.observer.observe_received(received_bytes);
        spend_budget(cx, received_bytes.len() / BYTES_PER_UNIT);
        spend_budget(cx, units?);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, O: StreamObserver<S> + Unpin> AsyncWrite for TurnTakingStream<S, O> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        let part = bytes.get(..LARGEST_WRITE).unwrap_or(bytes);
        let written = ready!(self.stream()?.poll_write(cx, part))?;
        unit.made_progress();
        spend_budget(cx, written / BYTES_PER_UNIT);
        self.observer.observe_sent(&[IoSlice::new(part)], written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        let (parts, part_count) = one_vectored_write(slices);
        let parts = parts.get(..part_count).unwrap_or_default();
        let written = ready!(self.stream()?.poll_write_vectored(cx, parts))?;
        unit.made_progress();
        spend_budget(cx, written / BYTES_PER_UNIT);
        self.observer.observe_sent(parts, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

impl<S: Connection, O: StreamObserver<S>> Connection for TurnTakingStream<S, O> {
    fn connected(&self) -> Connected {
        self.stream.as_ref().map_or_else(Connected::new, Connection::connected)
    }
}

fn one_vectored_write<'a>(slices: &'a [IoSlice<'_>]) -> ([IoSlice<'a>; MAX_SLICES], usize) {
    let mut limited = [IoSlice::new(&[]); MAX_SLICES];
    let (mut part_count, mut rest) = (0, LARGEST_WRITE);
    for (to, from) in limited.iter_mut().zip(slices) {
        if rest == 0 {
            break;
        }
        let part = from.get(..rest).unwrap_or(from);
        rest -= part.len();
        *to = IoSlice::new(part);
        part_count += 1;
    }
    (limited, part_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unobserved;

    impl<S> StreamObserver<S> for Unobserved {
        fn observe_received(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn observe_sent(&mut self, _slices: &[IoSlice<'_>], _written: usize) {}
    }

    #[tokio::test]
    async fn one_read_of_a_stream_returns_at_most_64_kib() {
        let content = vec![7; 1 << 20];
        let mut stream = TurnTakingStream::new(&*content, Unobserved);
        let mut buffer = vec![0; content.len()];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 64 << 10);
        stream.read_exact(&mut buffer[64 << 10..]).await.unwrap();
        assert!(buffer[64 << 10..].iter().all(|byte| *byte == 7));
    }
}
