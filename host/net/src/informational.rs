//! Limits the informational responses (status 1xx) of servers.
//!
//! hyper skips informational responses in a loop that neither ends nor yields while they arrive. A server that sends
//! them for ever would keep a thread from everything else, and HTTP/2 would also keep them in memory.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop,
};

use crate::turns;

/// The beginning of each HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of an informational response of HTTP/1.
const INFORMATIONAL: &[u8] = b"HTTP/1.1 1";

/// Frames of HTTP/2 with the head of a response (RFC 9113, section 6).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The number of HTTP/2 frames that cost a unit of tokio's cooperative budget. A read may bring thousands.
const FRAMES_PER_UNIT: usize = 32;

/// A connection that fails when its server sends more informational responses for a request than it may.
///
/// The bytes pass unchanged. Each read and write takes part in tokio's cooperative budget, whatever the connection
/// is made of, and costs more of it the more bytes it moves.
#[derive(Debug)]
pub struct InformationalLimit<S> {
    stream: S,
    watch: Watch,
}

/// A limited connection, as clients of hyper use it.
pub type LimitedStream<S> = TokioIo<InformationalLimit<TokioIo<S>>>;

/// Limits the connection of a connector: to be applied above TLS.
pub fn limited<S>(stream: S) -> LimitedStream<S> {
    TokioIo::new(InformationalLimit {
        stream: TokioIo::new(stream),
        watch: Watch::Idle,
    })
}

/// A server sent more informational responses than a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sent more than {heads} informational responses (status 100 to 199), or more than {bytes} bytes of \
     them, for one request",
    heads = Credit::PER_REQUEST.heads,
    bytes = Credit::PER_REQUEST.bytes
)]
pub struct TooManyInformational;

/// The number of response heads, and of their bytes, that a server may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Credit {
    heads: usize,
    bytes: usize,
}

impl Credit {
    /// Servers send one or two of them; a slow one may report every few seconds that it is still at work.
    const PER_REQUEST: Self = Self {
        heads: 64,
        bytes: 64 << 10,
    };
    /// The requests whose credit an HTTP/2 connection saves up.
    const REQUESTS: usize = 64;

    fn grant(&mut self) {
        let Self { heads, bytes } = Self::PER_REQUEST;
        self.heads = (self.heads + heads).min(heads * Self::REQUESTS);
        self.bytes = (self.bytes + bytes).min(bytes * Self::REQUESTS);
    }

    fn spend(&mut self, heads: usize, bytes: usize) -> Result<(), TooManyInformational> {
        let left = |has: usize, spent| has.checked_sub(spent).ok_or(TooManyInformational);
        self.heads = left(self.heads, heads)?;
        self.bytes = left(self.bytes, bytes)?;
        Ok(())
    }
}

/// The state of a connection: it decides the meaning of the next bytes.
#[derive(Debug)]
enum Watch {
    /// HTTP/1 between the final head of a response and the next request, or before the first bytes of a connection.
    Idle,
    /// HTTP/1 until the final head of a response.
    Heads { credit: Credit, position: Position },
    /// HTTP/2. The frames of both directions are counted: any stream may have informational responses.
    Frames {
        credit: Credit,
        sent: Frames,
        received: Frames,
    },
    /// The connection was switched to another protocol.
    Switched,
}

/// A position in the head of a response.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// `read` bytes of `HTTP/1.1 1xx` have arrived, and `last` is the last one.
    Status { read: usize, last: u8 },
    /// The rest of an informational head follows; the current line may be empty so far.
    Rest { is_line_empty: bool },
}

impl Position {
    const START: Self = Self::Status { read: 0, last: 0 };
}

/// Finds the beginnings of frames in one direction of an HTTP/2 connection.
#[derive(Debug, Default)]
struct Frames {
    /// The beginning of a frame, as far as it was read.
    header: [u8; 9],
    read: usize,
    /// The bytes of the current frame, or of the preface, that have not arrived yet.
    rest: usize,
}

impl Frames {
    fn after_preface() -> Self {
        Self {
            rest: PREFACE.len(),
            ..Self::default()
        }
    }

    /// Calls `begin` with the type and the length of each frame that begins.
    fn read(&mut self, mut bytes: &[u8], mut begin: impl FnMut(u8, usize)) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let missing = self.header.get_mut(self.read..).unwrap_or_default();
            let copied = missing.len().min(bytes.len());
            let (now, later) = bytes.split_at(copied);
            missing.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            bytes = later;
            self.read += copied;
            if self.read == self.header.len() {
                let [a, b, c, kind, ..] = self.header;
                self.rest = u32::from_be_bytes([0, a, b, c]) as usize;
                self.read = 0;
                begin(kind, self.rest);
            }
        }
    }
}

impl Watch {
    /// These bytes were sent.
    fn sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Idle if bytes.starts_with(b"PRI * ") => {
                *self = Self::Frames {
                    credit: Credit::PER_REQUEST,
                    sent: Frames::after_preface(),
                    received: Frames::default(),
                };
                self.sent(bytes);
            }
            // The rest of a request that was answered early is not told from the next request. The body that then
            // follows is taken for informational responses only if it begins like one.
            Self::Idle if !bytes.is_empty() => {
                *self = Self::Heads {
                    credit: Credit::PER_REQUEST,
                    position: Position::START,
                }
            }
            Self::Frames { credit, sent, .. } => sent.read(bytes, |kind, _| {
                if kind == HEADERS {
                    credit.grant();
                }
            }),
            Self::Idle | Self::Heads { .. } | Self::Switched => {}
        }
    }

    /// These bytes were received. Returns how much more of the cooperative budget they cost than a read does.
    fn received(&mut self, bytes: &[u8]) -> Result<usize, TooManyInformational> {
        match self {
            Self::Idle | Self::Switched => Ok(0),
            Self::Heads { credit, position } => {
                if let Some(next) = heads(credit, position, bytes)? {
                    *self = next;
                }
                Ok(0)
            }
            Self::Frames { credit, received, .. } => {
                let (mut frames, mut spent) = (0, Ok(()));
                received.read(bytes, |kind, length| {
                    frames += 1;
                    if spent.is_ok() && matches!(kind, HEADERS | CONTINUATION) {
                        spent = credit.spend(1, length);
                    }
                });
                spent.map(|()| frames / FRAMES_PER_UNIT)
            }
        }
    }
}

/// Reads bytes of HTTP/1 as long as they are heads of informational responses. Returns what follows them.
fn heads(
    credit: &mut Credit,
    position: &mut Position,
    bytes: &[u8],
) -> Result<Option<Watch>, TooManyInformational> {
    for &byte in bytes {
        *position = match (*position, byte) {
            // Empty lines before a response are skipped, also by hyper.
            (Position::Status { read: 0, .. }, b'\r' | b'\n') => *position,
            // The second version number may be any.
            (Position::Status { read, .. }, byte)
                if read != 7 && INFORMATIONAL.get(read).is_some_and(|&expected| expected != byte) =>
            {
                return Ok(Some(Watch::Idle));
            }
            (Position::Status { read: 11, last: b'0' }, b'1') => return Ok(Some(Watch::Switched)),
            (Position::Status { read: 11, .. }, _) => Position::Rest { is_line_empty: false },
            (Position::Status { read, .. }, byte) => Position::Status {
                read: read + 1,
                last: byte,
            },
            (Position::Rest { is_line_empty: true }, b'\n') => {
                credit.spend(1, 0)?;
                Position::START
            }
            (Position::Rest { .. }, b'\n') => Position::Rest { is_line_empty: true },
            (Position::Rest { .. }, b'\r') => *position,
            (Position::Rest { .. }, _) => Position::Rest { is_line_empty: false },
        };
        credit.spend(0, 1)?;
    }
    Ok(None)
}

impl<S: AsyncRead + Unpin> AsyncRead for InformationalLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let unit = ready!(coop::poll_proceed(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        unit.made_progress();
        let received = buffer.filled().get(before..).unwrap_or_default();
        let units = this.watch.received(received);
        turns::spend_bytes(cx, received.len());
        turns::spend(
            cx,
            units.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
        );
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InformationalLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, turns::one_write(bytes)))?;
        unit.made_progress();
        turns::spend_bytes(cx, written);
        self.watch.sent(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        let (limited, used) = turns::one_vectored_write(slices);
        let slices = limited.get(..used).unwrap_or_default();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        unit.made_progress();
        turns::spend_bytes(cx, written);
        let mut rest = written;
        for slice in slices {
            let sent = slice.get(..rest.min(slice.len())).unwrap_or_default();
            self.watch.sent(sent);
            rest -= sent.len();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Connection> Connection for InformationalLimit<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests;
