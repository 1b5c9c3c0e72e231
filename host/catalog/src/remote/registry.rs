use admittance_net::{
    client::{ClientRequest, ClientResponse},
    listener::host_address,
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use url::Url;

use super::{FetchClient, client::is_absent, failure, index::MANIFEST_TYPES};
use crate::{
    Digest, Error, OciReference, OnProgress,
    signature::source::{self, registry_host, repository_path},
};

/// The host name of Docker Hub's registry.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

/// The maximum size of a manifest, in bytes, as the OCI distribution specification recommends it.
const MANIFEST_LIMIT: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RegistryAccess {
    Pull,
    Push,
}

#[derive(Clone, Copy)]
pub(super) struct Repository<'a> {
    pub(super) network: &'a FetchClient,
    pub(super) artifact: &'a OciReference,
    pub(super) access: RegistryAccess,
    pub(super) progress: OnProgress<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub(super) enum TagOrDigest {
    /// The artifact that currently has this tag.
    Tag(String),
    /// The artifact whose manifest has this digest.
    Digest(Digest),
}

impl TagOrDigest {
    /// A digest takes precedence over a tag.
    pub(super) fn from_reference(reference: &OciReference) -> Self {
        match (reference.digest(), reference.tag()) {
            (Some(digest), _) => Self::Digest(digest),
            (None, tag) => Self::Tag(tag.unwrap_or(OciReference::DEFAULT_TAG).to_owned()),
        }
    }
}

impl Repository<'_> {
    /// Fetches a manifest, and checks it if `version` is a digest; returns `None` if the registry does not have it.
    pub(super) async fn fetch_manifest(&self, version: &TagOrDigest) -> Result<Option<Bytes>, Error> {
        let location = self.image_location(version);
        let path = format!("manifests/{version}");
        let bytes = self.get(&path, &location, MANIFEST_LIMIT).await?;
        match (version, bytes) {
            (TagOrDigest::Digest(digest), Some(bytes)) => check_digest(bytes, *digest, location).map(Some),
            (_, bytes) => Ok(bytes),
        }
    }

    /// Requests the digest of the manifest that has a tag; returns `None` if the registry does not send it.
    pub(super) async fn fetch_manifest_digest(&self, version: &TagOrDigest) -> Result<Option<Digest>, Error> {
        let location = &self.image_location(version);
        self.with_retries(|| async move {
            let url = self.url(&format!("manifests/{version}"), location).await?;
            let request = ClientRequest::new(Method::HEAD, url).header(ACCEPT, MANIFEST_TYPES);
            Ok(content_digest(&self.send_and_check(request, location).await?.headers))
        })
        .await
    }

    pub(super) async fn fetch_small_blob(&self, digest: Digest, limit: u64) -> Result<Option<Bytes>, Error> {
        let location = self.image_location(&TagOrDigest::Digest(digest));
        let blob = self.get(&format!("blobs/{digest}"), &location, limit).await?;
        blob.map(|bytes| check_digest(bytes, digest, location)).transpose()
    }

    pub(super) async fn request_blob(&self, digest: Digest, headers: HeaderMap) -> Result<ClientResponse, Error> {
        let location = self.image_location(&TagOrDigest::Digest(digest));
        let url = self.url(&format!("blobs/{digest}"), &location).await?;
        let mut request = ClientRequest::new(Method::GET, url);
        request.headers = headers;
        let response = self.send(request, &location).await?;
        self.check_access(response, &location).await
    }

    /// Fetches the index of the artifacts that refer to this manifest, such as its signatures. If the registry has no
    /// referrers API, the index is stored under a tag that contains the digest of the manifest.
    pub(super) async fn fetch_referrers(&self, subject: Digest) -> Result<Option<Bytes>, Error> {
        let location = self.image_location(&TagOrDigest::Digest(subject));
        let path = format!("referrers/{subject}");
        match self.get(&path, &location, MANIFEST_LIMIT).await? {
            Some(index) => Ok(Some(index)),
            None => {
                let tag = format!("sha256-{}", subject.to_hex());
                self.fetch_manifest(&TagOrDigest::Tag(tag)).await
            }
        }
    }

    async fn get(&self, path: &str, location: &str, limit: u64) -> Result<Option<Bytes>, Error> {
        self.with_retries(|| async move {
            let url = self.url(path, location).await?;
            let request = ClientRequest::new(Method::GET, url).header(ACCEPT, MANIFEST_TYPES);
            let response = self.send(request, location).await?;
            if is_absent(response.status) {
                return Ok(None);
            }
            let response = self.check_response(response, location).await?;
            self.network.read_body(response, location, limit).await.map(Some)
        })
        .await
    }

    pub(super) async fn with_retries<T, F: Future<Output = Result<T, Error>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<T, Error> {
        self.network.with_retries(self.progress, attempt).await
    }

    /// Sends a request to the registry, with credentials if it requires them. An error status becomes an error.
    pub(super) async fn send_and_check(&self, request: ClientRequest, location: &str) -> Result<ClientResponse, Error> {
        self.check_response(self.send(request, location).await?, location).await
    }

    /// Sends a request to the registry, with credentials if it requires them. A response with any status is returned.
    pub(super) async fn send(&self, request: ClientRequest, location: &str) -> Result<ClientResponse, Error> {
        let base = self.base_url(location).await?;
        let (registry, repository) = (self.artifact.registry(), self.artifact.repository());
        let key = (registry.to_owned(), repository.to_owned(), self.access);
        let send = async |authorization: Option<HeaderValue>| {
            let mut request = request.clone();
            // The registry may direct an upload to another origin, which must not get the registry's credentials.
            if let Some(authorization) = authorization.filter(|_| request.url.origin() == base.origin()) {
                request = request.header(AUTHORIZATION, authorization);
            }
            self.network.send(request, location).await
        };
        let cached_authorization = self.network.authorizations.lock().get(&key).cloned();
        let response = send(cached_authorization).await?;
        // A redirect may have led to another origin, and the challenge may come from there. That origin must not get
        // the registry's credentials.
        if response.status != StatusCode::UNAUTHORIZED || response.url.origin() != base.origin() {
            return Ok(response);
        }
        match self.authorize(&response, location).await? {
            Some(authorization) => {
                self.network.authorizations.lock().insert(key, authorization.clone());
                send(Some(authorization)).await
            }
            None => Ok(response),
        }
    }

    pub(super) async fn check_response(
        &self,
        response: ClientResponse,
        location: &str,
    ) -> Result<ClientResponse, Error> {
        failure::check_success(self.check_access(response, location).await?, location).await
    }

    async fn check_access(&self, response: ClientResponse, location: &str) -> Result<ClientResponse, Error> {
        match response.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refusal_error(response, location).await),
            _ => Ok(response),
        }
    }

    pub(super) fn image_location(&self, version: &TagOrDigest) -> String {
        let separator = match version {
            TagOrDigest::Tag(_) => ':',
            TagOrDigest::Digest(_) => '@',
        };
        format!("oci://{}{separator}{version}", self.artifact.name())
    }

    pub(super) async fn url(&self, path: &str, location: &str) -> Result<Url, Error> {
        let (host, port) = registry_host(self.artifact.registry());
        let repository = repository_path(&host, port, self.artifact);
        let base = self.base_url(location).await?;
        base.join(&format!("{repository}/{path}"))
            .map_err(|error| Error::bad_answer(location, error.to_string()))
    }

    async fn base_url(&self, location: &str) -> Result<Url, Error> {
        let registry = self.artifact.registry();
        let host = if is_docker_hub(registry) {
            DOCKER_HUB_HOST
        } else {
            registry
        };
        let scheme = self.network.find_scheme(host, location).await?;
        Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| Error::bad_answer(location, error.to_string()))
    }
}

impl FetchClient {
    /// Returns the scheme for a registry, `https` or `http`. If a registry uses `https` with an invalid certificate,
    /// this is an error: the program does not fall back to `http`.
    async fn find_scheme(&self, registry: &str, location: &str) -> Result<&'static str, Error> {
        let insecure = &self.config.insecure_registries;
        if !is_loopback(registry) && !insecure.iter().any(|insecure| insecure == registry) {
            return Ok("https");
        }
        if let Some(scheme) = self.schemes.lock().get(registry).copied() {
            return Ok(scheme);
        }
        let url = Url::parse(&format!("https://{registry}/v2/"))
            .map_err(|error| Error::bad_answer(location, error.to_string()))?;
        let host = url.host_str().map(str::to_owned);
        let scheme = match self.client.send(ClientRequest::new(Method::GET, url)).await {
            Ok(_) => "https",
            Err(error) if failure::is_without_tls(&error) => "http",
            Err(error) => {
                return Err(failure::transport_error(
                    &error,
                    host.as_deref(),
                    location,
                    &self.config,
                ));
            }
        };
        self.schemes.lock().insert(registry.to_owned(), scheme);
        Ok(scheme)
    }
}

pub(super) fn is_docker_hub(registry: &str) -> bool {
    let (host, port) = registry_host(registry);
    source::is_docker_hub(&host, port)
}

fn is_loopback(registry: &str) -> bool {
    let (host, _) = registry_host(registry);
    host == "localhost" || host_address(&host).is_some_and(|address| address.is_loopback())
}

fn check_digest(bytes: Bytes, digest: Digest, location: String) -> Result<Bytes, Error> {
    let actual = Digest::of_bytes(&bytes);
    if actual == digest {
        Ok(bytes)
    } else {
        Err(Error::ContentMismatch { location, actual })
    }
}

pub(super) fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_on_loopback_is_recognised_by_its_name_or_address() {
        for (registry, expected) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.8.0.1", true),
            ("[::1]:5000", true),
            ("[::1]", true),
            ("localhost.example.com", false),
            ("10.0.0.1:5000", false),
            ("[fe80::1]:5000", false),
        ] {
            assert_eq!(is_loopback(registry), expected, "{registry}");
        }
    }
}
