use admittance_net::client::ClientResponse;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_RANGE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE},
};

use super::{Fetch, failure, partial_download::PartialDownload};
use crate::{Digest, Error, FetchProgress, catalog::run_on_disk};

pub(super) struct Download<'a> {
    pub(super) location: &'a str,
    pub(super) name: &'a str,
    /// The digest that the module must have. With it, a download can be resumed without a validator.
    pub(super) digest: Option<Digest>,
    pub(super) size: Option<u64>,
    /// The validator (`ETag`) of the stored version. If the server still has this version, nothing is downloaded.
    pub(super) known_validator: Option<&'a str>,
}

pub(super) struct DownloadedModule {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
    /// The validator (`ETag`) that the server sent for the downloaded version.
    pub(super) validator: Option<String>,
}

enum DownloadAttempt {
    Complete { validator: Option<String> },
    NotModified,
}

/// An attempt that receives this many bytes does not count towards the maximum number of attempts.
const MIN_PROGRESS_SIZE: usize = 64 << 10;

/// The number of received bytes that are buffered before they are written to disk together.
const WRITE_BUFFER_SIZE: usize = 256 << 10;

impl Fetch<'_> {
    /// Downloads and stores a module if `check` accepts it. Returns `None` if the server still has the known version.
    pub(super) async fn download<F: Future<Output = Result<ClientResponse, Error>>>(
        &self,
        download: &Download<'_>,
        request: impl Fn(HeaderMap) -> F,
        check: impl Fn(&[u8], Digest) -> Result<(), Error>,
    ) -> Result<Option<DownloadedModule>, Error> {
        let mut buffer = self.open_download(download.name).await?;
        loop {
            let is_resumed = !buffer.bytes.is_empty();
            let validator = match self.download_with_retries(download, &mut buffer, &request).await {
                Ok(DownloadAttempt::Complete { validator }) => validator,
                Ok(DownloadAttempt::NotModified) => {
                    buffer.discard().await?;
                    return Ok(None);
                }
                Err(error) => {
                    if buffer.bytes.is_empty() || matches!(error, Error::ModuleTooLarge { .. }) {
                        buffer.discard().await?;
                    }
                    return Err(error);
                }
            };
            let digest = Digest::of_bytes(&buffer.bytes);
            if is_resumed && download.digest.is_some_and(|expected| expected != digest) {
                // The digest of the resumed download is wrong: the partial download was damaged or of another version.
                buffer.restart(None).await;
                continue;
            }
            if let Err(error) = check(&buffer.bytes, digest) {
                buffer.discard().await?;
                return Err(error);
            }
            let bytes = self.store_module(buffer, digest).await?;
            (self.progress)(FetchProgress::Finished);
            return Ok(Some(DownloadedModule {
                bytes,
                digest,
                validator,
            }));
        }
    }

    /// Opens the partial download with this name. If another task or process uses its file, downloads into memory.
    async fn open_download(&self, name: &str) -> Result<DownloadedBytes, Error> {
        let name = Digest::of_bytes(name);
        let partial = self.inner.run_in_store(move |store| PartialDownload::open(store, name));
        let limit = self.inner.size_limit;
        Ok(match partial.await?.transpose()?.flatten() {
            Some(partial) => DownloadedBytes::resume(partial, limit).await,
            None => DownloadedBytes::default(),
        })
    }

    async fn store_module(&self, buffer: DownloadedBytes, digest: Digest) -> Result<Bytes, Error> {
        let bytes = Bytes::from(buffer.bytes);
        match buffer.partial {
            Some(partial) => run_on_disk(move || partial.become_module(digest)).await??,
            None => {
                let bytes = bytes.clone();
                let insertion = self.inner.run_in_store(move |store| store.insert_bytes(digest, &bytes));
                insertion.await?.transpose()?;
            }
        }
        Ok(bytes)
    }

    async fn download_with_retries<F: Future<Output = Result<ClientResponse, Error>>>(
        &self,
        download: &Download<'_>,
        buffer: &mut DownloadedBytes,
        request: impl Fn(HeaderMap) -> F,
    ) -> Result<DownloadAttempt, Error> {
        let mut pauses = self.inner.remote.network.new_pauses();
        loop {
            let previous_length = buffer.bytes.len();
            let headers = download.headers(buffer);
            let attempt = async {
                // The previous attempt received all bytes, and then the connection broke. Nothing is missing, so no
                // further request is sent.
                if download.digest.is_some() && download.size == Some(previous_length as u64) {
                    return Ok(DownloadAttempt::Complete { validator: None });
                }
                self.receive(request(headers).await?, download, buffer).await
            }
            .await;
            buffer.write().await;
            let error = match attempt {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            if buffer.bytes.len() >= previous_length.saturating_add(MIN_PROGRESS_SIZE) {
                pauses.reset();
            }
            pauses.wait_after(error, self.progress).await?;
        }
    }

    async fn receive(
        &self,
        mut response: ClientResponse,
        download: &Download<'_>,
        buffer: &mut DownloadedBytes,
    ) -> Result<DownloadAttempt, Error> {
        let (location, limit) = (download.location, self.inner.size_limit);
        let offset = buffer.bytes.len() as u64;
        let validator = strong_validator(&response.headers);
        match response.status {
            StatusCode::NOT_MODIFIED if download.known_validator.is_some() => {
                return Ok(DownloadAttempt::NotModified);
            }
            StatusCode::PARTIAL_CONTENT if resumes_at(&response.headers, offset) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                buffer.restart(None).await;
                return Err(Error::Unreachable {
                    location: location.to_owned(),
                    problem: "the server does not resume the interrupted download".to_owned(),
                });
            }
            _ => {
                response = failure::check_success(response, location).await?;
                buffer.restart(validator.as_deref()).await;
            }
        }
        let offset = buffer.bytes.len() as u64;
        let total = response
            .content_length()
            .map(|length| offset.saturating_add(length))
            .or(download.size);
        if let Some(size) = total {
            download.check_size(size, limit)?;
        }
        (self.progress)(FetchProgress::Started {
            reference: location.to_owned(),
            total,
        });
        (self.progress)(FetchProgress::Received { bytes: offset });
        let network = &self.inner.remote.network;
        while let Some(chunk) = network.read_chunk(&mut response, location).await? {
            let size = (buffer.bytes.len() as u64).saturating_add(chunk.len() as u64);
            download.check_size(size, limit)?;
            buffer.append(&chunk).await;
            (self.progress)(FetchProgress::Received { bytes: size });
        }
        Ok(DownloadAttempt::Complete { validator })
    }
}

impl Download<'_> {
    fn check_size(&self, size: u64, limit: u64) -> Result<(), Error> {
        if size > limit {
            let location = self.location.to_owned();
            return Err(Error::ModuleTooLarge { location, size, limit });
        }
        match self.size {
            Some(expected) if size > expected => Err(Error::bad_answer(
                self.location,
                format!("more than the {expected} bytes that its manifest declares"),
            )),
            _ => Ok(()),
        }
    }

    fn headers(&self, buffer: &DownloadedBytes) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).ok();
        let validator = buffer.validator.as_deref().and_then(value);
        let offset = buffer.bytes.len();
        if offset > 0 && (self.digest.is_some() || validator.is_some()) {
            headers.extend(value(&format!("bytes={offset}-")).map(|range| (RANGE, range)));
            headers.extend(validator.map(|validator| (IF_RANGE, validator)));
        } else {
            let known_validator = self.known_validator.and_then(value);
            headers.extend(known_validator.map(|tag| (IF_NONE_MATCH, tag)));
        }
        headers
    }

    pub(super) fn not_modified_error(&self) -> Error {
        let problem = "the server answered 304 Not Modified to an unconditional request";
        Error::bad_answer(self.location, problem)
    }
}

/// The bytes of a module received so far. With a store, a file contains them too.
#[derive(Default)]
struct DownloadedBytes {
    bytes: Vec<u8>,
    validator: Option<String>,
    written_length: usize,
    partial: Option<PartialDownload>,
}

impl DownloadedBytes {
    async fn resume(partial: PartialDownload, limit: u64) -> Self {
        match run_on_partial(partial, move |partial| partial.read_content(limit)).await {
            Some((partial, (bytes, validator))) => Self {
                written_length: bytes.len(),
                bytes,
                validator,
                partial: Some(partial),
            },
            None => Self::default(),
        }
    }

    async fn restart(&mut self, validator: Option<&str>) {
        self.bytes.clear();
        self.written_length = 0;
        self.validator = validator.map(str::to_owned);
        if let Some(partial) = self.partial.take() {
            let validator = self.validator.clone();
            self.partial = run_on_partial(partial, move |partial| partial.restart(validator.as_deref()))
                .await
                .map(|(partial, ())| partial);
        }
    }

    async fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.written_length >= WRITE_BUFFER_SIZE {
            self.write().await;
        }
    }

    async fn write(&mut self) {
        let rest = self.bytes.get(self.written_length..).unwrap_or_default();
        if !rest.is_empty()
            && let Some(partial) = self.partial.take()
        {
            let (rest, offset) = (rest.to_vec(), self.written_length as u64);
            self.partial = run_on_partial(partial, move |partial| partial.write_at(&rest, offset))
                .await
                .map(|(partial, ())| partial);
        }
        self.written_length = self.bytes.len();
    }

    async fn discard(self) -> Result<(), Error> {
        match self.partial {
            Some(partial) => run_on_disk(move || partial.discard()).await,
            None => Ok(()),
        }
    }
}

/// Runs `work` on the file of a partial download. If `work` fails, the file is removed and `None` is returned; the
/// download then continues in memory.
async fn run_on_partial<T: Send + 'static>(
    mut partial: PartialDownload,
    work: impl FnOnce(&mut PartialDownload) -> Result<T, Error> + Send + 'static,
) -> Option<(PartialDownload, T)> {
    let work = move || match work(&mut partial) {
        Ok(value) => Some((partial, value)),
        Err(error) => {
            tracing::warn!(%error, "a download could not be saved to disk; if it is interrupted, it starts over");
            partial.discard();
            None
        }
    };
    run_on_disk(work).await.ok().flatten()
}

/// Returns the entity tag of a response if it is strong. A weak tag does not guarantee identical bytes.
fn strong_validator(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    tag.starts_with('"').then(|| tag.to_owned())
}

fn resumes_at(headers: &HeaderMap, offset: u64) -> bool {
    headers
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok())
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split_once('-'))
        .is_some_and(|(start, _)| start.trim().parse() == Ok(offset))
}

/// Returns an error unless the bytes are WebAssembly. Servers often send an error page with status 200.
pub(super) fn check_magic(location: &str, bytes: &[u8]) -> Result<(), Error> {
    if bytes.starts_with(b"\0asm") {
        return Ok(());
    }
    let start: Vec<u8> = bytes.iter().copied().take(16).collect();
    Err(Error::NotWebAssembly {
        location: location.to_owned(),
        beginning: match std::str::from_utf8(&start) {
            Ok("") => "nothing".to_owned(),
            Ok(text) if !text.contains(char::is_control) => format!("`{text}`"),
            _ => format!("the bytes {}", hex::encode(&start)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_is_not_webassembly_is_reported() {
        check_magic("a", b"\0asm\x0d\0\x01\0").unwrap();
        for (bytes, expected) in [
            (b"<!doctype html><html>".as_slice(), "`<!doctype html><`"),
            (b"", "nothing"),
            (b"\x1f\x8b\x08", "the bytes 1f8b08"),
            (b"line\nbreak", "the bytes 6c696e650a627265616b"),
        ] {
            let error = check_magic("https://a/b", bytes).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
