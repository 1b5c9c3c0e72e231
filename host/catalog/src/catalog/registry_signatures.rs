use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Found, Inner};
use crate::{
    Digest, Error, ModuleReference, OciReference, OnProgress,
    fetch::Version,
    signature::{
        Blob, FoundSignature, Material, SIGNATURE_COUNT_LIMIT, SIGNATURE_SIZE_LIMIT, SIGNATURE_STATEMENT,
    },
};

/// The media type of what `cosign sign` signs, and the artifact type that newer versions use.
const SIMPLE_SIGNING_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE_ARTIFACT_TYPE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
/// The media type of a sigstore bundle, without the version.
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle";

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG: &str = "dev.sigstore.cosign/bundle";
/// A referrer of a manifest.
const STATEMENT: &str = "dev.sigstore.bundle.predicateType";

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    artifact_type: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Referrer {
    /// Whether it may hold signatures; without a type it may. For a bundle with a statement, cosign annotates
    /// the kind of statement, such as provenance.
    fn may_sign(&self) -> bool {
        let statement = self
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(STATEMENT));
        self.artifact_type
            .as_deref()
            .is_none_or(|kind| kind == SIGNATURE_ARTIFACT_TYPE || kind.starts_with(BUNDLE_TYPE))
            && statement.is_none_or(|statement| statement == SIGNATURE_STATEMENT)
    }
}

impl Inner {
    /// Finds the signatures of an artifact in its registry: under the tag that cosign derives from its
    /// digest, and in its referrers.
    pub(super) async fn in_registry(
        &self,
        artifact: &OciReference,
        found: &Found,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        let Some(manifest) = &found.manifest else {
            return Ok(Material::default());
        };
        let signed = Digest::of(manifest);
        let mut material = Material {
            manifest: Some(Blob(manifest.to_vec())),
            ..Material::default()
        };
        let tag = Version::Tag(format!("sha256-{}.sig", signed.to_hex()));
        if let Some(signatures) = self.network.manifest(artifact, &tag, progress).await? {
            self.add_layers(&mut material, artifact, &signatures, progress)
                .await?;
        }
        let Some(index) = self.network.referrers(artifact, signed, progress).await? else {
            return Ok(material);
        };
        let referrers = serde_json::from_slice::<Index>(&index).map_err(|error| Error::BadAnswer {
            place: format!("oci://{artifact}"),
            problem: format!("the index of its signatures cannot be read: {error}"),
        })?;
        let signatures = referrers.manifests.iter().filter(|referrer| referrer.may_sign());
        for referrer in signatures.take(SIGNATURE_COUNT_LIMIT) {
            let Ok(digest) = referrer.digest.parse() else {
                continue;
            };
            let version = Version::Digest(digest);
            if let Some(signatures) = self.network.manifest(artifact, &version, progress).await? {
                self.add_layers(&mut material, artifact, &signatures, progress)
                    .await?;
            }
        }
        Ok(material)
    }

    /// Adds the signatures that a manifest lists. Layers that cannot be read are ignored.
    async fn add_layers(
        &self,
        material: &mut Material,
        artifact: &OciReference,
        manifest: &[u8],
        progress: OnProgress<'_>,
    ) -> Result<(), Error> {
        let manifest: Manifest = serde_json::from_slice(manifest).unwrap_or(Manifest { layers: Vec::new() });
        let reference = ModuleReference::Oci(artifact.clone());
        for mut layer in manifest.layers {
            let is_simple = layer.media_type == SIMPLE_SIGNING_TYPE;
            let (true, Ok(digest)) = (
                is_simple || layer.media_type.starts_with(BUNDLE_TYPE),
                layer.digest.parse::<Digest>(),
            ) else {
                continue;
            };
            let blob = self
                .network
                .small_blob(artifact, digest, SIGNATURE_SIZE_LIMIT, progress)
                .await?;
            let Some(content) = blob.map(|blob| Blob(blob.into())) else {
                continue;
            };
            let name = format!("{}/{}@{digest}", artifact.registry(), artifact.repository());
            let signature = if is_simple {
                FoundSignature::SimpleSigning {
                    name,
                    payload: content,
                    signature: layer.annotations.remove(SIGNATURE).unwrap_or_default(),
                    certificate: layer.annotations.remove(CERTIFICATE),
                    chain: layer.annotations.remove(CHAIN),
                    log: layer.annotations.remove(LOG),
                }
            } else {
                FoundSignature::Bundle { name, content }
            };
            material.add(&reference, signature)?;
        }
        Ok(())
    }
}
