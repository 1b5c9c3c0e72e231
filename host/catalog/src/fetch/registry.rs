use bytes::Bytes;
use reqwest::{
    Method, Response, StatusCode,
    header::{ACCEPT, HeaderMap},
};
use url::Url;

use super::{
    Network, authorization::Access, client::is_absent, credentials::api_host, failure,
    manifest::MANIFEST_TYPES,
};
use crate::{Digest, Error, OciReference, OnProgress};

/// A tag or a digest in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The artifact that the tag currently names.
    Tag(String),
    /// The one whose manifest has this digest.
    Digest(Digest),
}

impl Version {
    /// The version that a reference names; a digest takes precedence over a tag.
    pub(crate) fn of(reference: &OciReference) -> Self {
        match (reference.digest(), reference.tag()) {
            (Some(digest), _) => Self::Digest(digest),
            (None, tag) => Self::Tag(tag.unwrap_or(OciReference::DEFAULT_TAG).to_owned()),
        }
    }

    fn in_path(&self) -> String {
        match self {
            Self::Tag(tag) => tag.clone(),
            Self::Digest(digest) => digest.to_string(),
        }
    }
}

/// The limit for manifests in the OCI distribution specification.
const MANIFEST_LIMIT: u64 = 4 << 20;

impl Network {
    /// A manifest of the artifact's repository, as the registry sent it; `None` when it is not found. A
    /// requested digest is verified.
    pub(crate) async fn manifest(
        &self,
        artifact: &OciReference,
        version: &Version,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let place = place(artifact, version);
        let path = format!("manifests/{}", version.in_path());
        let Some(bytes) = self
            .get_from_registry(artifact, &path, &place, MANIFEST_LIMIT, progress)
            .await?
        else {
            return Ok(None);
        };
        let digest = Digest::of(&bytes);
        match version {
            Version::Digest(expected) if *expected != digest => Err(Error::ContentMismatch {
                place,
                actual: digest,
            }),
            _ => Ok(Some(bytes)),
        }
    }

    /// The digest of the manifest that a tag names, from a HEAD request, if the registry sends it.
    pub(crate) async fn manifest_digest(
        &self,
        artifact: &OciReference,
        version: &Version,
        progress: OnProgress<'_>,
    ) -> Result<Option<Digest>, Error> {
        let place = place(artifact, version);
        self.retrying(progress, || async {
            let url = self
                .url(artifact, &format!("manifests/{}", version.in_path()), &place)
                .await?;
            let accept = MANIFEST_TYPES.join(", ");
            let response = self
                .send_to_registry(artifact, Access::Pull, (Method::HEAD, &url), &place, |request| {
                    request.header(ACCEPT, &accept)
                })
                .await?;
            let digest = content_digest(response.headers());
            self.allowed(artifact, response, &place).await?;
            Ok(digest)
        })
        .await
    }

    /// A small blob of the artifact's repository, with a verified digest; `None` when it is not found.
    pub(crate) async fn small_blob(
        &self,
        artifact: &OciReference,
        digest: Digest,
        limit: u64,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let place = place(artifact, &Version::Digest(digest));
        let Some(bytes) = self
            .get_from_registry(artifact, &format!("blobs/{digest}"), &place, limit, progress)
            .await?
        else {
            return Ok(None);
        };
        let actual = Digest::of(&bytes);
        if actual == digest {
            Ok(Some(bytes))
        } else {
            Err(Error::ContentMismatch { place, actual })
        }
    }

    /// The index of the referrers of this manifest, as it was sent; `None` when the registry has none.
    /// Without the referrers API, the fallback tag of the OCI distribution specification is used.
    pub(crate) async fn referrers(
        &self,
        artifact: &OciReference,
        subject: Digest,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let place = place(artifact, &Version::Digest(subject));
        let path = format!("referrers/{subject}");
        if let Some(index) = self
            .get_from_registry(artifact, &path, &place, MANIFEST_LIMIT, progress)
            .await?
        {
            return Ok(Some(index));
        }
        let tag = Version::Tag(format!("sha256-{}", subject.to_hex()));
        self.manifest(artifact, &tag, progress).await
    }

    /// Gets a path of the repository, up to a size limit.
    async fn get_from_registry(
        &self,
        artifact: &OciReference,
        path: &str,
        place: &str,
        limit: u64,
        progress: OnProgress<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let accept = MANIFEST_TYPES.join(", ");
        self.retrying(progress, || async {
            let url = self.url(artifact, path, place).await?;
            let response = self
                .send_to_registry(artifact, Access::Pull, (Method::GET, &url), place, |request| {
                    request.header(ACCEPT, format!("{accept}, */*"))
                })
                .await?;
            if is_absent(response.status()) {
                return Ok(None);
            }
            let response = self.allowed(artifact, response, place).await?;
            self.body(response, place, limit).await.map(Some)
        })
        .await
    }

    /// The response, unless it is a refusal or an error.
    pub(super) async fn allowed(
        &self,
        artifact: &OciReference,
        response: Response,
        place: &str,
    ) -> Result<Response, Error> {
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(self.refusal(artifact, response, place).await)
            }
            _ => failure::success(response, place).await,
        }
    }

    /// The URL of a path below the artifact's repository.
    pub(super) async fn url(&self, artifact: &OciReference, path: &str, place: &str) -> Result<Url, Error> {
        let home = self.registry_url(artifact, place).await?;
        let repository = match (
            api_host(artifact.registry()) == artifact.registry(),
            artifact.repository(),
        ) {
            // Docker Hub's name for a repository without a user.
            (false, repository) if !repository.contains('/') => format!("library/{repository}"),
            (_, repository) => repository.to_owned(),
        };
        home.join(&format!("{repository}/{path}"))
            .map_err(|error| not_a_url(place, &error))
    }

    /// The base URL of a registry.
    pub(super) async fn registry_url(&self, artifact: &OciReference, place: &str) -> Result<Url, Error> {
        let host = api_host(artifact.registry());
        let scheme = self.scheme(host, place).await?.as_str();
        Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| not_a_url(place, &error))
    }
}

/// How messages name something in a registry.
pub(crate) fn place(artifact: &OciReference, version: &Version) -> String {
    let (registry, repository) = (artifact.registry(), artifact.repository());
    match version {
        Version::Tag(tag) => format!("oci://{registry}/{repository}:{tag}"),
        Version::Digest(digest) => format!("oci://{registry}/{repository}@{digest}"),
    }
}

/// The digest in the registry's response headers.
pub(super) fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

fn not_a_url(place: &str, error: &url::ParseError) -> Error {
    Error::BadAnswer {
        place: place.to_owned(),
        problem: error.to_string(),
    }
}
