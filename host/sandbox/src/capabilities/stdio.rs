use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    cli::{IsTerminal, StdoutStream},
    p2::{DynOutputStream, OutputStream, Pollable, StreamResult},
};

use super::logging::{CallLog, Stream};

/// The maximum number of bytes that a guest may write to a standard stream at once.
const MAX_WRITE: usize = 64 << 10;

#[derive(Clone)]
pub(crate) struct StandardStream {
    log: CallLog,
    stream: Stream,
}

impl StandardStream {
    pub(crate) fn new(log: CallLog, stream: Stream) -> Self {
        Self { log, stream }
    }
}

impl IsTerminal for StandardStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for StandardStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> DynOutputStream {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for StandardStream {
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for StandardStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_WRITE)
    }
}

impl AsyncWrite for StandardStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.log.write(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
