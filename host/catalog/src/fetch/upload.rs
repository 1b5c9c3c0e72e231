use bytes::Bytes;
use futures_util::stream;
use reqwest::{
    Body, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
};
use url::Url;

use super::{
    MANIFEST_TYPE, Network,
    authorization::Access,
    client::is_absent,
    registry::{Version, content_digest, place},
};
use crate::{Digest, Error, OciReference, OnProgress};

/// How many bytes are sent between two progress reports.
const PIECE: usize = 64 << 10;

impl Network {
    /// Uploads a blob to the artifact's repository, unless it exists.
    pub(crate) async fn push_blob(
        &self,
        artifact: &OciReference,
        bytes: &Bytes,
        on_sent: &(impl Fn(u64) + Clone + Send + Sync + 'static),
        progress: OnProgress<'_>,
    ) -> Result<(), Error> {
        let digest = Digest::of(bytes);
        let place = place(artifact, &Version::Digest(digest));
        self.retrying(progress, || async {
            let url = self.url(artifact, &format!("blobs/{digest}"), &place).await?;
            let asked = self.push_request(artifact, (Method::HEAD, &url), &place).await?;
            if asked.status().is_success() {
                on_sent(bytes.len() as u64);
                return Ok(());
            }
            if !is_absent(asked.status()) {
                self.allowed(artifact, asked, &place).await?;
            }
            let url = self.url(artifact, "blobs/uploads/", &place).await?;
            let begun = self.push_request(artifact, (Method::POST, &url), &place).await?;
            let begun = self.allowed(artifact, begun, &place).await?;
            let mut url = location(&begun, &place)?;
            url.query_pairs_mut().append_pair("digest", &digest.to_string());
            let sent = self
                .send_to_registry(artifact, Access::Push, (Method::PUT, &url), &place, |request| {
                    request
                        .header(CONTENT_TYPE, "application/octet-stream")
                        .header(CONTENT_LENGTH, bytes.len())
                        .body(body(bytes, on_sent.clone()))
                })
                .await?;
            self.allowed(artifact, sent, &place).await?;
            Ok(())
        })
        .await
    }

    /// Uploads a manifest to the artifact's repository, under its tag.
    pub(crate) async fn push_manifest(
        &self,
        artifact: &OciReference,
        tag: &str,
        bytes: &Bytes,
        progress: OnProgress<'_>,
    ) -> Result<(), Error> {
        let digest = Digest::of(bytes);
        let place = place(artifact, &Version::Tag(tag.to_owned()));
        self.retrying(progress, || async {
            let url = self.url(artifact, &format!("manifests/{tag}"), &place).await?;
            let response = self
                .send_to_registry(artifact, Access::Push, (Method::PUT, &url), &place, |request| {
                    request.header(CONTENT_TYPE, MANIFEST_TYPE).body(bytes.clone())
                })
                .await?;
            let response = self.allowed(artifact, response, &place).await?;
            match content_digest(response.headers()) {
                Some(actual) if actual != digest => Err(Error::ContentMismatch {
                    place: format!("{place} (the manifest {digest})"),
                    actual,
                }),
                _ => Ok(()),
            }
        })
        .await
    }

    async fn push_request(
        &self,
        artifact: &OciReference,
        (method, url): (Method, &Url),
        place: &str,
    ) -> Result<Response, Error> {
        self.send_to_registry(artifact, Access::Push, (method, url), place, |request| {
            request.header(CONTENT_LENGTH, 0)
        })
        .await
    }
}

/// A body that reports its progress.
fn body(bytes: &Bytes, on_sent: impl Fn(u64) + Send + Sync + 'static) -> Body {
    let total = bytes.len();
    let pieces = stream::unfold(bytes.clone(), move |mut rest| {
        on_sent((total - rest.len()) as u64);
        let piece = rest.split_to(PIECE.min(rest.len()));
        std::future::ready((!piece.is_empty()).then_some((Ok::<_, std::convert::Infallible>(piece), rest)))
    });
    Body::wrap_stream(pieces)
}

/// The URL that the registry assigns to an upload.
fn location(response: &Response, place: &str) -> Result<Url, Error> {
    let wrong = |problem: &str| Error::BadAnswer {
        place: place.to_owned(),
        problem: problem.to_owned(),
    };
    if response.status() != StatusCode::ACCEPTED && response.status() != StatusCode::CREATED {
        return Err(wrong("the registry does not start an upload"));
    }
    let url = response
        .headers()
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| response.url().join(location).ok())
        .ok_or_else(|| wrong("the registry does not say where the upload goes"))?;
    if response.url().scheme() == "https" && url.scheme() != "https" {
        return Err(wrong("the registry asks for an upload without TLS"));
    }
    Ok(url)
}
