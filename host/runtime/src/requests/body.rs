//! Reads request bodies that must be read completely.

use std::{pin::Pin, time::Duration};

use admittance_dialect::End;
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

/// When to send a body again for which there was no memory.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits of request bodies that must be read completely.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BodyLimits {
    /// The size limit in bytes.
    pub size: usize,
    /// The timeout for the complete body.
    pub time: Duration,
}

impl Default for BodyLimits {
    /// The defaults of [`AdmissionLayer`](crate::AdmissionLayer).
    fn default() -> Self {
        Self::new(
            crate::AdmissionLayer::DEFAULT_BODY_LIMIT,
            crate::AdmissionLayer::DEFAULT_BODY_TIMEOUT,
        )
    }
}

/// The errors of reading a body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is too large.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body did not arrive in time.
    TooSlow {
        /// The configured timeout.
        limit: Duration,
    },
    /// The client sent nothing for too long, or too slowly.
    Stalled {
        /// The reason in words.
        reason: String,
    },
    /// The memory for bodies is used up.
    NoMemory(NoBodyMemory),
    /// The connection failed, or the body was malformed.
    Broken {
        /// The reason in words.
        reason: String,
    },
    /// The body is compressed.
    Encoded {
        /// The value of `Content-Encoding`.
        encoding: String,
    },
}

impl BodyError {
    /// Returns the end of the request that this error causes.
    pub fn end(&self) -> End<'_> {
        match self {
            Self::TooLarge { limit } => End::BodyTooLarge { limit: *limit },
            Self::TooSlow { limit } => End::BodyTimeout { limit: *limit },
            Self::Stalled { reason } => End::BodyStalled { reason },
            Self::NoMemory(_) => End::Overloaded {
                retry_after: RETRY_AFTER,
                reason: NoBodyMemory::REASON,
            },
            Self::Broken { reason } => End::BodyUnreadable { reason },
            Self::Encoded { encoding } => End::BodyEncoded { encoding },
        }
    }
}

impl BodyLimits {
    /// A body has at most `size` bytes, and arrives within `time`.
    pub const fn new(size: usize, time: Duration) -> Self {
        Self { size, time }
    }

    /// Reads the whole body of the request with this head. The rest of a body that is too large is read and
    /// discarded for a while, so that the client sees the reply.
    ///
    /// # Errors
    ///
    /// When it was not read. A compressed body is refused before any of it is read.
    pub async fn collect<B>(self, head: &Parts, body: B) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.receive(&head.extensions, &head.headers, body).await
    }

    /// Reads a whole body with these headers, of a request or of a reply to it, within the
    /// [`BodyBudget`](admittance_net::budget::BodyBudget) among the extensions of the request.
    ///
    /// # Errors
    ///
    /// See [`collect`](Self::collect).
    pub async fn receive<B>(
        self,
        extensions: &Extensions,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.size;
        if let Some(encoding) = encoding(headers) {
            return Err(BodyError::Encoded { encoding });
        }
        let announced = body.size_hint().lower();
        let mut body = Box::pin(body);
        if usize::try_from(announced).map_or(true, |announced| announced > limit) {
            // A client that sent `Expect: 100-continue` has sent no body yet.
            if !headers.contains_key(EXPECT) {
                drain(body).await;
            }
            return Err(BodyError::TooLarge { limit });
        }
        let arriving = async {
            let mut memory = BodyMemory::begin(extensions)?;
            let content = whole(Limited::new(&mut body, limit), &mut memory).await?;
            Ok(memory.hold(content))
        };
        match tokio::time::timeout(self.time, arriving).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(Interrupted::NoMemory(refused))) => {
                drain(body).await;
                Err(BodyError::NoMemory(refused))
            }
            Ok(Err(Interrupted::Body(error))) if error.is::<LengthLimitError>() => {
                drain(body).await;
                Err(BodyError::TooLarge { limit })
            }
            Ok(Err(Interrupted::Body(error))) => {
                let reason = error.to_string();
                Err(match find::<Stall>(&*error) {
                    Some(_) => BodyError::Stalled { reason },
                    None => BodyError::Broken { reason },
                })
            }
            Err(_) => Err(BodyError::TooSlow { limit: self.time }),
        }
    }
}

/// The error that ended a body early.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    NoMemory(#[from] NoBodyMemory),
    #[error(transparent)]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Up to this size, a body gets the memory for its announced length at once; a larger one twice what has arrived. So a
/// client that announces much and sends little takes little.
const AT_ONCE: usize = 256 << 10;

/// The bytes of a body. Each part is dropped when it was copied, so that the connection can use its memory for the next;
/// a body of one part is not copied.
async fn whole<B>(mut body: B, memory: &mut BodyMemory) -> Result<Bytes, Interrupted>
where
    B: Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Unpin,
{
    let mut first = Bytes::new();
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers are lost.
        let Ok(part) = frame?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            memory.take(part.len())?;
            first = part;
            continue;
        }
        let held = first.len() + all.len();
        if held + part.len() > all.capacity() {
            let rest = body
                .size_hint()
                .exact()
                .map(|rest| usize::try_from(rest).unwrap_or(usize::MAX));
            let ahead = rest.map_or(held, |rest| rest.min(held.max(AT_ONCE)));
            let capacity = held + part.len() + ahead;
            // The memory of the first part is kept for its copy.
            memory.take(capacity - all.capacity().max(first.len()))?;
            all.reserve_exact(capacity - all.len());
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&part);
    }
    Ok(if all.is_empty() { first } else { Bytes::from(all) })
}

/// Discards what a client is still sending, for a while: a client whose connection is closed while it sends
/// often never reads the reply.
async fn drain<B: Body<Data = Bytes>>(mut body: Pin<Box<B>>) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    // The rest is not waited for.
    let _ = tokio::time::timeout(PATIENCE, reading).await;
}

/// The value of `Content-Encoding`, if the body is encoded.
pub fn encoding(headers: &HeaderMap) -> Option<String> {
    let values: Vec<_> = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let encoded = values.iter().any(|value| {
        value
            .split(',')
            .any(|coding| !matches!(coding.trim(), "") && !coding.trim().eq_ignore_ascii_case("identity"))
    });
    encoded.then(|| values.join(", "))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn the_parts_of_a_body_are_joined() {
        for parts in [&[][..], &["a"], &["", "ab", ""], &["abc", "d", "", "ef"]] {
            let frames = parts.iter().map(|part| Frame::data(Bytes::from(*part)));
            let trailers = Frame::trailers(HeaderMap::new());
            let body = StreamBody::new(stream::iter(frames.chain([trailers]).map(Ok::<_, Infallible>)));
            let body = body.map_err(|never| match never {});
            let mut memory = BodyMemory::begin(&Extensions::new()).unwrap();
            assert_eq!(
                whole(body, &mut memory).await.unwrap(),
                parts.concat(),
                "{parts:?}"
            );
        }
    }
}
