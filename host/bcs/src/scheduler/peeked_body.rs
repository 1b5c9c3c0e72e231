use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

#[derive(Debug)]
pub(super) struct PeekedBody {
    pub(super) start: Bytes,
    trailers: Option<HeaderMap>,
    remaining_body: Body,
    keeps_trailers: bool,
}

impl PeekedBody {
    /// Reads at least the first `enough` bytes of the body, or all of it if it is shorter.
    pub(super) async fn read(mut body: Body, enough: usize) -> Result<Self, axum::Error> {
        let mut start = BytesMut::new();
        let mut trailers = None;
        while start.len() < enough
            && trailers.is_none()
            && let Some(frame) = body.frame().await.transpose()?
        {
            match frame.into_data() {
                Ok(data) => start.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Ok(Self {
            start: start.freeze(),
            trailers,
            remaining_body: body,
            keeps_trailers: true,
        })
    }

    pub(super) fn drop_trailers(&mut self) {
        self.keeps_trailers = false;
        self.trailers = None;
    }
}

impl http_body::Body for PeekedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.start.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.start)))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let polled = Pin::new(&mut self.remaining_body).poll_frame(cx);
        match polled {
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() && !self.keeps_trailers => Poll::Ready(None),
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty() && self.trailers.is_none() && self.remaining_body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let start_size = u64::try_from(self.start.len()).unwrap_or(u64::MAX);
        let rest = self.remaining_body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(start_size));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(start_size));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::StreamBody;

    use super::*;

    fn body(chunks: &[&'static str], trailer: Option<&'static str>) -> Body {
        let mut frames: Vec<Result<Frame<Bytes>, std::io::Error>> = chunks
            .iter()
            .map(|chunk| Ok(Frame::data(Bytes::from(*chunk))))
            .collect();
        frames.extend(trailer.map(|value| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", value.parse().unwrap());
            Ok(Frame::trailers(trailers))
        }));
        Body::new(StreamBody::new(futures_util::stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_peeked_body_is_still_sent_completely() {
        // (chunks of the body, trailer, expected beginning of the body that is read in advance)
        for (chunks, trailer, start) in [
            (&[][..], None, ""),
            (&[""][..], Some("1"), ""),
            (&["ab"], None, "ab"),
            (&["ab"], Some("1"), "ab"),
            (&["ab", "", "cd", "ef"], Some("1"), "abcd"),
            (&["abcdef", "gh"], None, "abcdef"),
        ] {
            for keeps_trailers in [true, false] {
                let mut peeked = PeekedBody::read(body(chunks, trailer), 4).await.unwrap();
                assert_eq!(peeked.start, start.as_bytes(), "{chunks:?}");
                if !keeps_trailers {
                    peeked.drop_trailers();
                }
                let collected = peeked.collect().await.unwrap();
                let trailer = trailer.filter(|_| keeps_trailers);
                assert_eq!(
                    collected.trailers().map(|all| all["x-sum"].to_str().unwrap()),
                    trailer,
                    "{chunks:?}"
                );
                assert_eq!(collected.to_bytes(), chunks.concat(), "{chunks:?}");
            }
        }
    }

    #[tokio::test]
    async fn the_size_hint_includes_the_peeked_part() {
        let peeked = PeekedBody::read(Body::from("abcdefgh"), 4).await.unwrap();
        assert_eq!(peeked.size_hint().exact(), Some(8));
        let peeked = PeekedBody::read(body(&["abcd", "ef"], None), 4).await.unwrap();
        assert_eq!((peeked.size_hint().lower(), peeked.size_hint().upper()), (4, None));
        assert!(!peeked.is_end_stream());
        assert!(PeekedBody::read(Body::empty(), 4).await.unwrap().is_end_stream());
    }

    #[tokio::test]
    async fn reading_an_interrupted_body_fails() {
        let frames = [
            Ok(Frame::data(Bytes::from("{"))),
            Err(std::io::Error::other("it broke")),
        ];
        let body = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
        assert!(PeekedBody::read(body, 4).await.is_err());
    }
}
