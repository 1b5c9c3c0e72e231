use reqwest::{
    Method, RequestBuilder, Response, StatusCode,
    header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, IF_RANGE, RANGE},
};
use url::Url;

use super::{
    Network,
    authorization::Access,
    failure,
    landing::Landing,
    registry::{Version, place},
};
use crate::{Digest, Error, FetchProgress, OciReference, OnProgress};

/// A download request.
#[derive(Clone, Debug)]
pub(crate) struct Download {
    /// As the operator wrote it.
    pub(crate) place: String,
    /// The size limit in bytes.
    pub(crate) limit: u64,
    /// The required digest, if known: a partial download of any version can then be resumed.
    pub(crate) digest: Option<Digest>,
    /// Its size in bytes, if that is known.
    pub(crate) size: Option<u64>,
    /// The version that need not be downloaded again.
    pub(crate) unless: Option<String>,
}

/// The result of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Downloaded {
    /// The download is complete. With the server's validator of this version.
    Whole(Option<String>),
    /// The server still has the given version.
    Unchanged,
}

/// An attempt that received less than this counts as no progress.
const SOME_PROGRESS: usize = 64 << 10;

impl Network {
    /// Downloads from a URL.
    pub(crate) async fn download(
        &self,
        url: &Url,
        download: &Download,
        landing: &mut Landing,
        progress: OnProgress<'_>,
    ) -> Result<Downloaded, Error> {
        self.attempts(download, landing, progress, |headers| {
            let request = self.client.get(url.clone()).headers(headers);
            self.send(request, &download.place)
        })
        .await
    }

    /// Download a blob of the artifact's repository.
    pub(crate) async fn download_blob(
        &self,
        artifact: &OciReference,
        digest: Digest,
        download: &Download,
        landing: &mut Landing,
        progress: OnProgress<'_>,
    ) -> Result<Downloaded, Error> {
        let place = place(artifact, &Version::Digest(digest));
        let place = place.as_str();
        self.attempts(download, landing, progress, |headers| async move {
            let url = self.url(artifact, &format!("blobs/{digest}"), place).await?;
            let finish = |request: RequestBuilder| request.headers(headers.clone());
            let response = self
                .send_to_registry(artifact, Access::Pull, (Method::GET, &url), place, finish)
                .await?;
            match response.status() {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(self.refusal(artifact, response, place).await)
                }
                _ => Ok(response),
            }
        })
        .await
    }

    async fn attempts<F: Future<Output = Result<Response, Error>>>(
        &self,
        download: &Download,
        landing: &mut Landing,
        progress: OnProgress<'_>,
        ask: impl Fn(HeaderMap) -> F,
    ) -> Result<Downloaded, Error> {
        let mut pauses = self.pauses();
        loop {
            let before = landing.bytes().len();
            let headers = headers(download, landing);
            let attempt = async {
                // The download was interrupted at its very end.
                if download.digest.is_some() && download.size == Some(before as u64) {
                    return Ok(Downloaded::Whole(None));
                }
                let response = ask(headers).await?;
                self.take(response, download, landing, progress).await
            }
            .await;
            let error = match attempt {
                Ok(done) => {
                    landing.write().await;
                    return Ok(done);
                }
                Err(error) => error,
            };
            landing.write().await;
            if landing.bytes().len() >= before.saturating_add(SOME_PROGRESS) {
                pauses.reset();
            }
            pauses.wait_after(error, progress).await?;
        }
    }

    /// Receives the body of a response.
    async fn take(
        &self,
        mut response: Response,
        download: &Download,
        landing: &mut Landing,
        progress: OnProgress<'_>,
    ) -> Result<Downloaded, Error> {
        let place = &download.place;
        let offset = landing.bytes().len() as u64;
        let validator = validator(response.headers());
        match response.status() {
            StatusCode::NOT_MODIFIED if download.unless.is_some() => return Ok(Downloaded::Unchanged),
            StatusCode::PARTIAL_CONTENT if resumes_at(response.headers(), offset) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                landing.restart(None).await;
                return Err(Error::Unreachable {
                    place: place.clone(),
                    problem: "the server does not resume the interrupted download".to_owned(),
                });
            }
            _ => {
                response = failure::success(response, place).await?;
                landing.restart(validator.as_deref()).await;
            }
        }
        let there = landing.bytes().len() as u64;
        let total = response
            .content_length()
            .map(|length| there.saturating_add(length))
            .or(download.size);
        if let Some(size) = total {
            self.check_size(size, download)?;
        }
        progress(FetchProgress::Started {
            reference: place.clone(),
            total,
        });
        progress(FetchProgress::Received { bytes: there });
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| failure::of_transport(&error, place, &self.config))?
        {
            let size = (landing.bytes().len() as u64).saturating_add(chunk.len() as u64);
            self.check_size(size, download)?;
            landing.append(&chunk).await;
            progress(FetchProgress::Received { bytes: size });
        }
        Ok(Downloaded::Whole(validator))
    }

    fn check_size(&self, size: u64, download: &Download) -> Result<(), Error> {
        let (place, limit) = (download.place.clone(), download.limit);
        if size > limit {
            return Err(Error::ModuleTooLarge { place, size, limit });
        }
        match download.size {
            Some(expected) if size > expected => Err(Error::BadAnswer {
                place,
                problem: format!("more than the {expected} bytes that its manifest declares"),
            }),
            _ => Ok(()),
        }
    }
}

/// Requests the rest of a partial download.
fn headers(download: &Download, landing: &Landing) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let offset = landing.bytes().len();
    let validator = landing
        .validator()
        .and_then(|validator| HeaderValue::from_str(validator).ok());
    if offset > 0 && (download.digest.is_some() || validator.is_some()) {
        if let Ok(range) = HeaderValue::from_str(&format!("bytes={offset}-")) {
            headers.insert(RANGE, range);
        }
        if let Some(validator) = validator {
            headers.insert(IF_RANGE, validator);
        }
    } else if let Some(known) = download
        .unless
        .as_deref()
        .and_then(|known| HeaderValue::from_str(known).ok())
    {
        headers.insert(IF_NONE_MATCH, known);
    }
    headers
}

/// The entity tag, if it is strong: a weak one does not guarantee the same bytes.
fn validator(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    tag.starts_with('"').then(|| tag.to_owned())
}

/// Whether a partial response begins where the partial download ends.
fn resumes_at(headers: &HeaderMap, offset: u64) -> bool {
    headers
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok())
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split_once('-'))
        .is_some_and(|(start, _)| start.trim().parse() == Ok(offset))
}
