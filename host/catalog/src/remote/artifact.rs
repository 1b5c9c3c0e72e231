use std::io::{self, Read as _};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use super::{
    Fetch, RecordedModule, RegistryAccess, Repository,
    download::{Download, check_magic},
    index::find_wasm_entry,
    registry::TagOrDigest,
};
use crate::{
    Digest, Error, OciReference,
    catalog::run_on_disk,
    manifest::{ModuleLayer, not_an_artifact_error},
    module::{FetchedModule, check_pin},
};

/// The file name of the module in an image of the compat variant.
const ARCHIVED_MODULE_NAME: &str = "plugin.wasm";

impl Fetch<'_> {
    /// Obtains the module of an artifact in a registry. If the store has the module, only the manifest is fetched.
    pub(super) async fn fetch_oci(
        &self,
        artifact: &OciReference,
        recorded_module: RecordedModule,
    ) -> Result<FetchedModule, Error> {
        let repository = self
            .inner
            .remote
            .repository(artifact, RegistryAccess::Pull, self.progress);
        let version = TagOrDigest::from_reference(artifact);
        if let Some((fetched_module, resolution)) = recorded_module
            && let Some((digest, _)) = resolution.manifest
            && repository.fetch_manifest_digest(&version).await? == Some(digest)
        {
            self.record_again(resolution).await;
            return Ok(fetched_module);
        }
        let mut manifest = fetch_existing_manifest(&repository, &version).await?;
        if let Some(entry) = find_wasm_entry(artifact, &manifest)? {
            manifest = fetch_existing_manifest(&repository, &TagOrDigest::Digest(entry)).await?;
        }
        let layer = ModuleLayer::find_in_manifest(artifact, &manifest)?;
        let (bytes, digest) = if layer.is_archive {
            let bytes = Box::pin(self.unpack_module(&repository, layer)).await?;
            let digest = Digest::of_bytes(&bytes);
            check_pin(&self.reference.to_string(), self.pinned, digest)?;
            let bytes_copy = bytes.clone();
            let insertion = self
                .inner
                .run_in_store(move |store| store.insert_bytes(digest, &bytes_copy));
            insertion.await?.transpose()?;
            (bytes, digest)
        } else {
            check_pin(&self.reference.to_string(), self.pinned, layer.digest)?;
            let bytes = match self.stored_bytes(layer.digest).await? {
                Some(bytes) => bytes,
                None => self.download_layer(&repository, layer).await?,
            };
            (bytes, layer.digest)
        };
        let fetched_module = FetchedModule {
            bytes,
            digest,
            manifest: Some(manifest),
        };
        self.record(&fetched_module, None).await?;
        Ok(fetched_module)
    }

    async fn download_layer(&self, repository: &Repository<'_>, layer: ModuleLayer) -> Result<Bytes, Error> {
        let (location, name) = (self.reference.to_string(), layer.digest.to_string());
        let download = Download {
            location: &location,
            name: &name,
            digest: Some(layer.digest),
            size: Some(layer.size),
            known_validator: None,
        };
        let downloaded = self.download(
            &download,
            |headers| repository.request_blob(layer.digest, headers),
            |bytes, actual| {
                if actual == layer.digest {
                    check_magic(&location, bytes)
                } else {
                    let location = format!("{location} (the layer {name})");
                    Err(Error::ContentMismatch { location, actual })
                }
            },
        );
        Ok(downloaded.await?.ok_or_else(|| download.not_modified_error())?.bytes)
    }
}

impl Fetch<'_> {
    /// Downloads and unpacks a layer that is an archive with the module in it. Such images are small, so a download
    /// that breaks is not resumed; it starts again from the first byte.
    async fn unpack_module(&self, repository: &Repository<'_>, layer: ModuleLayer) -> Result<Bytes, Error> {
        let location = self.reference.to_string();
        let limit = self.inner.size_limit;
        let too_large = |size| Error::ModuleTooLarge {
            location: location.clone(),
            size,
            limit,
        };
        if layer.size > limit {
            return Err(too_large(layer.size));
        }
        let blob = repository.fetch_small_blob(layer.digest, limit).await?;
        let archive = blob.ok_or_else(|| Error::NotFound {
            location: location.clone(),
            message: "the registry has no such layer".to_owned(),
        })?;
        let extracted_module = run_on_disk(move || extract_module(&archive, limit)).await?;
        match extracted_module
            .map_err(|error| Error::bad_answer(&location, format!("its layer cannot be unpacked: {error}")))?
        {
            Some(Ok(module)) => {
                check_magic(&location, &module)?;
                Ok(module)
            }
            Some(Err(size)) => Err(too_large(size)),
            None => {
                let content = format!("an image whose last layer has no file `{ARCHIVED_MODULE_NAME}`");
                Err(not_an_artifact_error(repository.artifact, content))
            }
        }
    }
}

/// Extracts the module from an archive; returns `None` if the archive has none. If the module is larger than `limit`,
/// the inner error is the size of the module.
fn extract_module(archive: &[u8], limit: u64) -> io::Result<Option<Result<Bytes, u64>>> {
    let decoder = MultiGzDecoder::new(archive).take(limit.saturating_mul(3));
    for entry in tar::Archive::new(decoder).entries()? {
        let mut entry = entry?;
        let is_module = entry
            .path()?
            .file_name()
            .is_some_and(|name| name == ARCHIVED_MODULE_NAME);
        if !is_module || !entry.header().entry_type().is_file() {
            continue;
        }
        if entry.size() > limit {
            return Ok(Some(Err(entry.size())));
        }
        let mut module = Vec::new();
        entry.read_to_end(&mut module)?;
        return Ok(Some(Ok(module.into())));
    }
    Ok(None)
}

pub(super) async fn fetch_existing_manifest(
    repository: &Repository<'_>,
    version: &TagOrDigest,
) -> Result<Bytes, Error> {
    let manifest = repository.fetch_manifest(version).await?;
    manifest.ok_or_else(|| Error::NotFound {
        location: repository.image_location(version),
        message: "the registry has no such artifact".to_owned(),
    })
}
