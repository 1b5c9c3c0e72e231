use bytes::Bytes;

use super::{
    Access, Fetch, Recorded, Repository,
    download::{Download, check_magic},
    index::entry_of_index,
    registry::Version,
};
use crate::{
    Error, OciReference,
    manifest::Layer,
    module::{Found, check_pin},
};

impl Fetch<'_> {
    /// Obtains the module of an artifact from the registry; only the manifest when the store has the module.
    pub(super) async fn oci(&self, artifact: &OciReference, recorded: Recorded) -> Result<Found, Error> {
        let repository = self
            .inner
            .remote
            .repository(artifact, Access::Pull, self.progress);
        let version = Version::of(artifact);
        if let Some((found, resolution)) = recorded
            && let Some((digest, _)) = resolution.manifest
            && repository.manifest_digest(&version).await? == Some(digest)
        {
            self.record_again(resolution).await;
            return Ok(found);
        }
        let mut manifest = existing_manifest(&repository, &version).await?;
        if let Some(entry) = entry_of_index(artifact, &manifest)? {
            manifest = existing_manifest(&repository, &Version::Digest(entry)).await?;
        }
        let layer = Layer::of_manifest(artifact, &manifest)?;
        check_pin(&self.reference.to_string(), self.pinned, layer.digest)?;
        let bytes = match self.kept(layer.digest).await? {
            Some(bytes) => bytes,
            None => self.layer(&repository, layer).await?,
        };
        let found = Found {
            bytes,
            digest: layer.digest,
            manifest: Some(manifest),
        };
        self.record(&found, None).await?;
        Ok(found)
    }

    async fn layer(&self, repository: &Repository<'_>, layer: Layer) -> Result<Bytes, Error> {
        let (place, name) = (self.reference.to_string(), layer.digest.to_string());
        let download = Download {
            place: &place,
            name: &name,
            digest: Some(layer.digest),
            size: Some(layer.size),
            unless: None,
        };
        let downloaded = self.download(
            &download,
            |headers| repository.blob(layer.digest, headers),
            |bytes, actual| {
                if actual == layer.digest {
                    check_magic(&place, bytes)
                } else {
                    let place = format!("{place} (the layer {name})");
                    Err(Error::ContentMismatch { place, actual })
                }
            },
        );
        let downloaded = downloaded.await?.ok_or_else(|| download.not_modified())?;
        Ok(downloaded.bytes)
    }
}

/// A manifest that must exist.
pub(super) async fn existing_manifest(
    repository: &Repository<'_>,
    version: &Version,
) -> Result<Bytes, Error> {
    let manifest = repository.manifest(version).await?;
    manifest.ok_or_else(|| Error::NotFound {
        place: repository.place(version),
        message: "the registry has no such artifact".to_owned(),
    })
}
