use bytes::Bytes;

use super::{
    Found, Inner,
    remote::{Recorded, begun, discard},
};
use crate::{
    Digest, Error, FetchProgress, ModuleReference, OciReference, OnProgress,
    fetch::{self, Download, Layer, Version, entry_of_index},
    module::{check_magic, check_pin},
};

impl Inner {
    /// Obtains the module of an artifact from the registry; only the manifest when the store has the module.
    pub(super) async fn oci(
        &self,
        reference: &ModuleReference,
        artifact: &OciReference,
        pinned: Option<Digest>,
        recorded: Recorded,
        progress: OnProgress<'_>,
    ) -> Result<Found, Error> {
        let place = reference.to_string();
        let version = Version::of(artifact);
        if let Some((found, resolution)) = &recorded
            && let Some((digest, _)) = &resolution.manifest
        {
            let now = self.network.manifest_digest(artifact, &version, progress);
            if now.await? == Some(*digest) {
                self.record_again(reference, resolution).await;
                return Ok(found.clone());
            }
        }
        let mut manifest = self.existing_manifest(artifact, &version, progress).await?;
        if let Some(entry) = entry_of_index(artifact, &manifest)? {
            manifest = self
                .existing_manifest(artifact, &Version::Digest(entry), progress)
                .await?;
        }
        let layer = Layer::of_manifest(artifact, &manifest)?;
        check_pin(&place, pinned, layer.digest)?;
        let found = match self.kept(layer.digest).await? {
            Some(bytes) => Found {
                bytes,
                digest: layer.digest,
                manifest: Some(manifest),
            },
            None => self.blob(artifact, place, layer, manifest, progress).await?,
        };
        self.record(reference, &found, None).await?;
        Ok(found)
    }

    async fn existing_manifest(
        &self,
        artifact: &OciReference,
        version: &Version,
        progress: OnProgress<'_>,
    ) -> Result<Bytes, Error> {
        let manifest = self.network.manifest(artifact, version, progress).await?;
        manifest.ok_or_else(|| Error::NotFound {
            place: fetch::place(artifact, version),
            message: "the registry has no such artifact".to_owned(),
        })
    }

    async fn blob(
        &self,
        artifact: &OciReference,
        place: String,
        layer: Layer,
        manifest: Bytes,
        progress: OnProgress<'_>,
    ) -> Result<Found, Error> {
        let digest = layer.digest;
        let download = Download {
            place: place.clone(),
            limit: self.size_limit,
            digest: Some(digest),
            size: Some(layer.size),
            unless: None,
        };
        let mut landing = self.landing(&digest.to_string()).await?;
        loop {
            let has_begun = !landing.bytes().is_empty();
            let downloaded = self
                .network
                .download_blob(artifact, digest, &download, &mut landing, progress)
                .await;
            (landing, _) = begun(landing, downloaded).await?;
            let actual = Digest::of(landing.bytes());
            if actual == digest {
                break;
            }
            if !has_begun {
                discard(landing).await?;
                let place = format!("{place} (the layer {digest})");
                return Err(Error::ContentMismatch { place, actual });
            }
            // The partial download may be damaged.
            landing.restart(None).await;
        }
        if let Err(error) = check_magic(&place, landing.bytes()) {
            discard(landing).await?;
            return Err(error);
        }
        let found = self.keep(landing, digest, Some(manifest)).await?;
        progress(FetchProgress::Finished);
        Ok(found)
    }
}
