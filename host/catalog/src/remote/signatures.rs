use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Repository,
    index::{BUNDLE_TYPE_PREFIX, ImageIndex},
    registry::TagOrDigest,
};
use crate::{
    Digest, Error, ModuleReference,
    module::FetchedModule,
    signature::{Blob, FoundSignature, Material, SIGNATURE_COUNT_LIMIT, SIGNATURE_SIZE_LIMIT},
};

/// The media type of the payload that `cosign sign` signs.
const SIMPLE_SIGNING_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE_ANNOTATION: &str = "dev.sigstore.cosign/certificate";
const CHAIN_ANNOTATION: &str = "dev.sigstore.cosign/chain";
const LOG_ANNOTATION: &str = "dev.sigstore.cosign/bundle";

#[derive(Default, Deserialize)]
struct SignatureManifest {
    #[serde(default)]
    layers: Vec<SignatureLayer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureLayer {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Repository<'_> {
    /// Finds the signatures under cosign's tag, and among the manifest's referrers.
    pub(super) async fn fetch_signatures(
        &self,
        reference: &ModuleReference,
        fetched_module: &FetchedModule,
    ) -> Result<Material, Error> {
        let Some(manifest) = &fetched_module.manifest else {
            return Ok(Material::default());
        };
        let manifest_digest = Digest::of_bytes(manifest);
        let mut material = Material {
            manifest: Some(Blob(manifest.to_vec())),
            ..Material::default()
        };
        let tag = TagOrDigest::Tag(format!("sha256-{}.sig", manifest_digest.to_hex()));
        self.add_signatures(&mut material, reference, &tag).await?;
        let Some(index) = self.fetch_referrers(manifest_digest).await? else {
            return Ok(material);
        };
        let index = serde_json::from_slice::<ImageIndex>(&index).map_err(|error| {
            let problem = format!("the index of its signatures cannot be read: {error}");
            Error::bad_answer(reference.to_string(), problem)
        })?;
        let referrers = index.manifests.unwrap_or_default();
        let signatures = referrers.iter().filter(|referrer| referrer.may_sign());
        for referrer in signatures.take(SIGNATURE_COUNT_LIMIT) {
            if let Ok(digest) = referrer.digest.parse() {
                self.add_signatures(&mut material, reference, &TagOrDigest::Digest(digest))
                    .await?;
            }
        }
        Ok(material)
    }

    /// Adds the signatures that are layers of a manifest, if the manifest exists. Layers that cannot be read as
    /// signatures are skipped.
    async fn add_signatures(
        &self,
        material: &mut Material,
        reference: &ModuleReference,
        version: &TagOrDigest,
    ) -> Result<(), Error> {
        let Some(manifest) = self.fetch_manifest(version).await? else {
            return Ok(());
        };
        let manifest: SignatureManifest = serde_json::from_slice(&manifest).unwrap_or_default();
        for mut layer in manifest.layers {
            let is_simple = layer.media_type == SIMPLE_SIGNING_TYPE;
            if !is_simple && !layer.media_type.starts_with(BUNDLE_TYPE_PREFIX) {
                continue;
            }
            let Ok(digest) = layer.digest.parse() else {
                continue;
            };
            let Some(blob) = self.fetch_small_blob(digest, SIGNATURE_SIZE_LIMIT).await? else {
                continue;
            };
            let content = Blob(blob.into());
            let name = format!("{}@{digest}", self.artifact.name());
            let signature = if is_simple {
                FoundSignature::SimpleSigning {
                    name,
                    payload: content,
                    signature: layer.annotations.remove(SIGNATURE_ANNOTATION).unwrap_or_default(),
                    certificate: layer.annotations.remove(CERTIFICATE_ANNOTATION),
                    chain: layer.annotations.remove(CHAIN_ANNOTATION),
                    log: layer.annotations.remove(LOG_ANNOTATION),
                }
            } else {
                FoundSignature::Bundle { name, content }
            };
            material.add(reference, signature)?;
        }
        Ok(())
    }
}
