//! Reads request bodies that are needed as a whole.

use std::{pin::Pin, time::Duration};

use admittance_admission::offload_without_deadline;
use admittance_dialect::EndReason;
use admittance_net::{
    budget::{BodyMemory, NoBodyMemory},
    causes::find,
    listener::Stall,
};
use bytes::Bytes;
use http::{
    Extensions, HeaderMap,
    header::{CONTENT_ENCODING, EXPECT},
    request::Parts,
};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// The time that a client should wait before it repeats a request for whose body there was no memory.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits for a request body that is read as a whole.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BodyLimits {
    /// The maximum size of the body, in bytes.
    pub size: usize,
    /// The time within which the whole body must arrive.
    pub time: Duration,
}

impl Default for BodyLimits {
    /// Returns the defaults of [`AdmissionLayer`](crate::AdmissionLayer).
    fn default() -> Self {
        Self::new(
            crate::AdmissionLayer::DEFAULT_BODY_LIMIT,
            crate::AdmissionLayer::DEFAULT_BODY_TIMEOUT,
        )
    }
}

/// The reason why a request body could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body has more bytes than this limit.
    TooLarge(usize),
    /// The body did not arrive within this time.
    TooSlow(Duration),
    /// The client stopped sending the body for too long, or sends it too slowly. The text gives the reason.
    Stalled(String),
    /// There is no memory left for the body.
    NoMemory(NoBodyMemory),
    /// The connection broke while the body was read, or the body was malformed. The text gives the reason.
    Broken(String),
    /// The body is compressed, which is not supported. Contains its `Content-Encoding`.
    Encoded(String),
}

impl BodyError {
    /// Returns the reason with which this error ends the request.
    pub fn end_reason(&self) -> EndReason<'_> {
        match self {
            Self::TooLarge(limit) => EndReason::BodyTooLarge { limit: *limit },
            Self::TooSlow(limit) => EndReason::BodyTimeout { limit: *limit },
            Self::Stalled(reason) => EndReason::BodyStalled { reason },
            Self::NoMemory(_) => EndReason::Overloaded {
                retry_after: RETRY_AFTER,
                reason: NoBodyMemory::REASON,
            },
            Self::Broken(reason) => EndReason::BodyUnreadable { reason },
            Self::Encoded(encoding) => EndReason::BodyEncoded { encoding },
        }
    }
}

impl BodyLimits {
    /// Limits a body to `size` bytes, which must arrive within `time`.
    pub const fn new(size: usize, time: Duration) -> Self {
        Self { size, time }
    }

    /// Reads the whole body of a request. If it is too large, reads and discards the rest for a while, because a client
    /// that is still sending may otherwise miss the reply.
    ///
    /// # Errors
    ///
    /// Fails if the body cannot be read completely. A compressed body is refused before any of it is read.
    pub async fn collect<B>(self, head: &Parts, body: B) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.receive(&head.extensions, &head.headers, body).await
    }

    /// Reads the whole body of a request or reply with these headers. Takes the memory for it from the
    /// [`BodyBudget`](admittance_net::budget::BodyBudget) in `extensions`.
    ///
    /// # Errors
    ///
    /// See [`collect`](Self::collect).
    pub async fn receive<B>(self, extensions: &Extensions, headers: &HeaderMap, body: B) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.size;
        if let Some(encoding) = content_encoding(headers) {
            return Err(BodyError::Encoded(encoding));
        }
        let announced_size = body.size_hint().lower();
        let mut body = Box::pin(body);
        if usize::try_from(announced_size).map_or(true, |announced| announced > limit) {
            // A client with `Expect: 100-continue` waits before it sends the body, so there is nothing to discard.
            if !headers.contains_key(EXPECT) {
                drain(body).await;
            }
            return Err(BodyError::TooLarge(limit));
        }
        let arriving = async {
            let mut memory = BodyMemory::begin(extensions)?;
            let content = read_whole(Limited::new(&mut body, limit), &mut memory).await?;
            Ok(memory.hold(content))
        };
        match tokio::time::timeout(self.time, arriving).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(BodyReadError::NoMemory(refused))) => {
                drain(body).await;
                Err(BodyError::NoMemory(refused))
            }
            Ok(Err(BodyReadError::Body(error))) if error.is::<LengthLimitError>() => {
                drain(body).await;
                Err(BodyError::TooLarge(limit))
            }
            Ok(Err(BodyReadError::Body(error))) => {
                let reason = error.to_string();
                Err(match find::<Stall>(&*error) {
                    Some(_) => BodyError::Stalled(reason),
                    None => BodyError::Broken(reason),
                })
            }
            Err(_) => Err(BodyError::TooSlow(self.time)),
        }
    }
}

/// Returns the size of the work of parsing a body, for [`offload_without_deadline`]: a quarter of the body's length.
pub(crate) fn reading_work(body: &Bytes) -> usize {
    body.len() / 4
}

#[derive(Debug, thiserror::Error)]
enum BodyReadError {
    #[error(transparent)]
    NoMemory(#[from] NoBodyMemory),
    #[error(transparent)]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// The size of the pieces of a large body, in bytes. A single buffer would be copied each time it grows.
const PIECE_SIZE: usize = 256 << 10;

#[derive(Default)]
struct PartialBody {
    complete_pieces: Vec<Vec<u8>>,
    last_piece: Vec<u8>,
    length: usize,
}

impl PartialBody {
    /// Appends the next part of a body. `rest` is the number of bytes that follow after this part, if it is known.
    fn append(&mut self, mut part: &[u8], rest: Option<usize>, memory: &mut BodyMemory) -> Result<(), NoBodyMemory> {
        while !part.is_empty() {
            let free = self.last_piece.capacity() - self.last_piece.len();
            if free == 0 {
                // The size is limited, so that a client cannot take much memory by only announcing a large body.
                let size = part.len().saturating_add(rest.unwrap_or(self.length)).min(PIECE_SIZE);
                memory.grow(size)?;
                let complete = std::mem::replace(&mut self.last_piece, Vec::with_capacity(size));
                if !complete.is_empty() {
                    self.complete_pieces.push(complete);
                }
                continue;
            }
            let (now, later) = part.split_at(free.min(part.len()));
            self.last_piece.extend_from_slice(now);
            self.length += now.len();
            part = later;
        }
        Ok(())
    }

    async fn join_parts(self) -> Bytes {
        if self.complete_pieces.is_empty() {
            return self.last_piece.into();
        }
        offload_without_deadline(self.length, move || {
            let mut joined = Vec::with_capacity(self.length);
            // Each piece is freed as soon as it was copied, so that the body is not in memory twice.
            for piece in self.complete_pieces.into_iter().chain([self.last_piece]) {
                joined.extend_from_slice(&piece);
            }
            joined.into()
        })
        .await
    }
}

/// Reads a whole body. A body that consists of one part is returned as it is. Otherwise, each part is copied and then
/// dropped, so that its memory can be reused.
async fn read_whole<B>(mut body: B, memory: &mut BodyMemory) -> Result<Bytes, BodyReadError>
where
    B: Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Unpin,
{
    let mut partial = PartialBody::default();
    while let Some(frame) = body.frame().await {
        // A frame without data contains trailers, which are ignored.
        let Ok(part) = frame?.into_data() else { continue };
        if partial.length == 0 && body.is_end_stream() {
            memory.grow(part.len())?;
            return Ok(part);
        }
        let length = body.size_hint().exact();
        let rest = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        partial.append(&part, rest, memory)?;
    }
    Ok(partial.join_parts().await)
}

/// Reads the rest of a request body and discards it, for at most two seconds. Otherwise, a client that is still sending
/// would often miss the reply.
async fn drain<B: Body<Data = Bytes>>(mut body: Pin<Box<B>>) {
    const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(MAX_DRAIN_TIME, reading).await;
}

/// Returns the value of `Content-Encoding`; `None` if the body is not encoded.
pub fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let values: Vec<_> = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let is_encoded = values.iter().any(|value| {
        value
            .split(',')
            .any(|coding| !matches!(coding.trim(), "") && !coding.trim().eq_ignore_ascii_case("identity"))
    });
    is_encoded.then(|| values.join(", "))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    async fn collect_parts(parts: &[&[u8]], is_announced: bool, memory: &mut BodyMemory) -> Bytes {
        let frames = parts.iter().map(|part| Frame::data(Bytes::copy_from_slice(part)));
        let trailers = Frame::trailers(HeaderMap::new());
        let body = StreamBody::new(stream::iter(frames.chain([trailers]).map(Ok::<_, Infallible>)))
            .map_err(|never| match never {});
        if is_announced {
            return read_whole(AnnouncedLength(body, parts.concat().len()), memory)
                .await
                .unwrap();
        }
        read_whole(body, memory).await.unwrap()
    }

    struct AnnouncedLength<B>(B, usize);

    impl<B: Body<Data = Bytes> + Unpin> Body for AnnouncedLength<B> {
        type Data = Bytes;
        type Error = B::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, B::Error>>> {
            let polled = Pin::new(&mut self.0).poll_frame(cx);
            if let std::task::Poll::Ready(Some(Ok(frame))) = &polled {
                self.1 -= frame.data_ref().map_or(0, Bytes::len);
            }
            polled
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.1 as u64)
        }

        fn is_end_stream(&self) -> bool {
            self.1 == 0
        }
    }

    #[tokio::test]
    async fn the_parts_of_a_body_are_joined() {
        let large: Vec<u8> = (0..3 * PIECE_SIZE + 7).map(|number| number as u8).collect();
        let mut of_large: Vec<&[u8]> = large.chunks(100_000).collect();
        of_large.insert(3, b"");
        let small: [&[&[u8]]; 4] = [&[], &[b"a"], &[b"", b"ab", b""], &[b"abc", b"d", b"", b"ef"]];
        for parts in small.into_iter().chain([&*of_large]) {
            for is_announced in [false, true] {
                let mut memory = BodyMemory::begin(&Extensions::new()).unwrap();
                let joined = collect_parts(parts, is_announced, &mut memory).await;
                assert!(joined == parts.concat(), "{} parts, {is_announced}", parts.len());
            }
        }
    }
}
