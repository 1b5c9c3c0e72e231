//! Limits the informational responses (status 1xx) of servers.
//!
//! hyper skips informational responses in a loop that does not yield while they arrive. A server that sends them
//! endlessly would block a thread, and with HTTP/2 also fill the memory.

use std::io;

use hyper_util::rt::TokioIo;

use crate::turns::{StreamObserver, TurnTakingStream};

/// The bytes with which each HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of an informational response of HTTP/1. Only the minor version may differ.
const INFORMATIONAL_STATUS_START: &[u8] = b"HTTP/1.1 1";

/// The type of HTTP/2 frames with a response's head, which `CONTINUATION` frames may continue (RFC 9113, section 6).
const HEADERS_FRAME: u8 = 1;
const CONTINUATION_FRAME: u8 = 9;

/// The number of HTTP/2 frames that cost one unit of tokio's cooperative budget. A single read may receive thousands.
const FRAMES_PER_UNIT: usize = 32;

/// A connection for hyper's HTTP clients. It fails if the server sends too many informational responses to a request.
pub type LimitedStream<S> = TokioIo<TurnTakingStream<TokioIo<S>, InformationalLimit>>;

/// Returns a connection that limits the informational responses in `stream`. With TLS, pass the decrypted stream.
pub fn limit_informational<S>(stream: S) -> LimitedStream<S> {
    TokioIo::new(TurnTakingStream::new(
        TokioIo::new(stream),
        InformationalLimit(ConnectionState::Idle),
    ))
}

/// The error if a server sends more informational responses to a request than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sent more than {heads} informational responses (status 100 to 199), or more than {bytes} bytes of \
     them, for one request",
    heads = Credit::PER_REQUEST.heads,
    bytes = Credit::PER_REQUEST.bytes
)]
pub struct TooManyInformational;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Credit {
    heads: usize,
    bytes: usize,
}

impl Credit {
    /// The informational responses that a server may send for one request: 64 heads, and 64 KiB. A slow server can use
    /// them to report its progress every few seconds.
    const PER_REQUEST: Self = Self {
        heads: 64,
        bytes: 64 << 10,
    };
    /// The most credit for informational responses that an HTTP/2 connection can save, as a number of requests. Each
    /// request adds the credit for one request. Credit that is not used is saved for later responses.
    const MAX_REQUESTS: usize = 64;

    fn grant(&mut self) {
        let Self { heads, bytes } = Self::PER_REQUEST;
        self.heads = (self.heads + heads).min(heads * Self::MAX_REQUESTS);
        self.bytes = (self.bytes + bytes).min(bytes * Self::MAX_REQUESTS);
    }

    fn charge(&mut self, heads: usize, bytes: usize) -> Result<(), TooManyInformational> {
        let deduct = |balance: usize, spent| balance.checked_sub(spent).ok_or(TooManyInformational);
        self.heads = deduct(self.heads, heads)?;
        self.bytes = deduct(self.bytes, bytes)?;
        Ok(())
    }
}

/// Counts the informational responses on a connection, and fails when there are too many.
#[derive(Debug)]
pub struct InformationalLimit(ConnectionState);

#[derive(Debug)]
enum ConnectionState {
    /// The connection uses HTTP/1 and waits for a request.
    Idle,
    /// The connection uses HTTP/1. A request was sent, and the final response to it has not begun.
    Heads {
        credit: Credit,
        position: HeadPosition,
    },
    /// The connection uses HTTP/2. All streams of the connection share one credit for informational responses.
    Frames {
        credit: Credit,
        outgoing: Frames,
        incoming: Frames,
    },
    Switched,
}

#[derive(Clone, Copy, Debug)]
enum HeadPosition {
    /// The position is in the status line: `read` bytes of `HTTP/1.1 1xx` have arrived, and `last` is the last of them.
    Status { read: usize, last: u8 },
    /// The status of an informational response has arrived. The next byte belongs to the rest of this response's head.
    Rest { is_line_empty: bool },
}

impl HeadPosition {
    const START: Self = Self::Status { read: 0, last: 0 };
}

#[derive(Debug, Default)]
struct Frames {
    header: [u8; 9],
    read: usize,
    /// The number of bytes of the current frame, or of the preface, that are still to arrive.
    rest: usize,
}

impl Frames {
    fn after_preface() -> Self {
        Self {
            rest: PREFACE.len(),
            ..Self::default()
        }
    }

    fn read_frames(&mut self, mut bytes: &[u8], mut begin: impl FnMut(u8, usize)) {
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

impl ConnectionState {
    fn count_sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Idle if bytes.starts_with(b"PRI * ") => {
                *self = Self::Frames {
                    credit: Credit::PER_REQUEST,
                    outgoing: Frames::after_preface(),
                    incoming: Frames::default(),
                };
                self.count_sent(bytes);
            }
            // Bytes that this program sends on an idle connection usually begin a new request, which gets new credit.
            // Sometimes they are the rest of an earlier request, because the server replied before it had the whole
            // request. Then the additional credit does no harm.
            Self::Idle if !bytes.is_empty() => {
                *self = Self::Heads {
                    credit: Credit::PER_REQUEST,
                    position: HeadPosition::START,
                }
            }
            Self::Frames { credit, outgoing, .. } => outgoing.read_frames(bytes, |kind, _| {
                if kind == HEADERS_FRAME {
                    credit.grant();
                }
            }),
            Self::Idle | Self::Heads { .. } | Self::Switched => {}
        }
    }

    /// Counts the informational responses. Returns the units of tokio's cooperative budget that the bytes cost.
    fn count_received(&mut self, bytes: &[u8]) -> Result<usize, TooManyInformational> {
        match self {
            Self::Idle | Self::Switched => Ok(0),
            Self::Heads { credit, position } => {
                if let Some(next) = count_heads(credit, position, bytes)? {
                    *self = next;
                }
                Ok(0)
            }
            Self::Frames { credit, incoming, .. } => {
                let (mut frames, mut spent) = (0, Ok(()));
                incoming.read_frames(bytes, |kind, length| {
                    frames += 1;
                    if spent.is_ok() && matches!(kind, HEADERS_FRAME | CONTINUATION_FRAME) {
                        spent = credit.charge(1, length);
                    }
                });
                spent.map(|()| frames / FRAMES_PER_UNIT)
            }
        }
    }
}

/// Counts the heads of informational responses that arrive on an HTTP/1 connection. If `bytes` contain something else
/// after these heads, such as the final response, returns the new state of the connection.
fn count_heads(
    credit: &mut Credit,
    position: &mut HeadPosition,
    bytes: &[u8],
) -> Result<Option<ConnectionState>, TooManyInformational> {
    for &byte in bytes {
        *position = match (*position, byte) {
            // Empty lines before a response are skipped, as in hyper.
            (HeadPosition::Status { read: 0, .. }, b'\r' | b'\n') => *position,
            // Byte 7 of the status line is the minor version of HTTP. It is not compared, because any is accepted.
            (HeadPosition::Status { read, .. }, byte)
                if read != 7
                    && INFORMATIONAL_STATUS_START
                        .get(read)
                        .is_some_and(|&expected| expected != byte) =>
            {
                return Ok(Some(ConnectionState::Idle));
            }
            (HeadPosition::Status { read: 11, last: b'0' }, b'1') => {
                return Ok(Some(ConnectionState::Switched));
            }
            (HeadPosition::Status { read: 11, .. }, _) => HeadPosition::Rest { is_line_empty: false },
            (HeadPosition::Status { read, .. }, byte) => HeadPosition::Status {
                read: read + 1,
                last: byte,
            },
            (HeadPosition::Rest { is_line_empty: true }, b'\n') => {
                credit.charge(1, 0)?;
                HeadPosition::START
            }
            (HeadPosition::Rest { .. }, b'\n') => HeadPosition::Rest { is_line_empty: true },
            (HeadPosition::Rest { .. }, b'\r') => *position,
            (HeadPosition::Rest { .. }, _) => HeadPosition::Rest { is_line_empty: false },
        };
        credit.charge(0, 1)?;
    }
    Ok(None)
}

impl<S> StreamObserver<S> for InformationalLimit {
    fn observe_received(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .count_received(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn observe_sent(&mut self, slices: &[io::IoSlice<'_>], mut written: usize) {
        for slice in slices {
            let sent_part = slice.get(..written).unwrap_or(slice);
            self.0.count_sent(sent_part);
            written -= sent_part.len();
        }
    }
}

#[cfg(test)]
mod tests;
