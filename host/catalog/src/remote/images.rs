//! Fetches manifests, configurations and signatures of container images for plugins. Results are cached for a minute.

use std::{
    collections::{BTreeMap, HashMap},
    env::consts,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_admission::{
    ImageError, ImageManifest, ImageReader, Signer, Signers, async_trait, offload_without_deadline,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{RegistryAccess, Repository, artifact::fetch_existing_manifest, registry::TagOrDigest};
use crate::{
    Catalog, Digest, Error, ModuleReference, OciReference,
    manifest::Descriptor,
    module::FetchedModule,
    signature::{
        CertificateRequirement, FoundSignature, IdentityPattern, IssuerUrl, Keyless, Material, PublicKey, PublicKeys,
        Requirement, SigningCertificate, TrustRoot, find_valid_signature,
    },
};

/// The time for which results about images are cached. Kubewarden uses the same time.
const CACHE_TIME: Duration = Duration::from_secs(60);
const MAX_CACHED_RESULTS: usize = 256;
const MAX_CACHED_RESULT_SIZE: usize = 64 << 10;

/// The maximum size of an image's configuration, in bytes.
const CONFIGURATION_LIMIT: u64 = 4 << 20;

/// Reads container images with the registries, credentials and trust root of a catalog.
#[derive(Debug)]
pub struct RegistryImages {
    catalog: Catalog,
    manifests: RecentResults<OciReference, Bytes>,
    configurations: RecentResults<(OciReference, Digest), Bytes>,
    verifications: RecentResults<(Digest, OciReference, Signers), ()>,
}

impl RegistryImages {
    pub fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            manifests: RecentResults::default(),
            configurations: RecentResults::default(),
            verifications: RecentResults::default(),
        }
    }

    fn repository<'a>(&'a self, image: &'a OciReference) -> Repository<'a> {
        self.catalog
            .inner
            .remote
            .repository(image, RegistryAccess::Pull, &|_| {})
    }

    async fn fetch_manifest(&self, image: &OciReference, version: &TagOrDigest) -> Result<Bytes, ImageError> {
        let manifest = fetch_existing_manifest(&self.repository(image), version).await;
        manifest.map_err(image_error)
    }

    async fn manifest_bytes(&self, image: &OciReference) -> Result<Bytes, ImageError> {
        if let Some(manifest) = self.manifests.get(image) {
            return Ok(manifest);
        }
        let manifest = self.fetch_manifest(image, &TagOrDigest::from_reference(image)).await?;
        self.manifests.insert(image.clone(), manifest.clone(), manifest.len());
        Ok(manifest)
    }

    /// Returns the trust root of the signature policy for modules, with which images are verified too.
    fn trust_root(&self) -> Result<&TrustRoot, ImageError> {
        let rules = self.catalog.inner.signatures.rules().iter();
        let mut roots = rules.filter_map(|rule| match &rule.requirement {
            Requirement::Keyless(keyless) => Some(&keyless.trust_root),
            Requirement::Keys(_) | Requirement::Certified(_) | Requirement::Unsigned => None,
        });
        roots.next().ok_or_else(|| {
            ImageError(
                "a signature of an identity, or in a log, is checked with a trust root, and no rule of `signatures` \
                 names one"
                    .to_owned(),
            )
        })
    }

    fn requirement(&self, signer: &Signer) -> Result<Requirement, ImageError> {
        let invalid = |error: &dyn std::fmt::Display| ImageError(error.to_string());
        match signer {
            Signer::Key(pem) => {
                let key = PublicKey::from_pem(pem).map_err(|error| invalid(&error))?;
                let keys = PublicKeys::new(vec![key]).map_err(|error| invalid(&error))?;
                Ok(Requirement::Keys(keys))
            }
            Signer::Identity {
                issuer,
                subject,
                is_prefix,
            } => {
                if subject.contains('*') {
                    return Err(ImageError(format!("the subject `{subject}` has a `*`")));
                }
                let pattern = if *is_prefix {
                    format!("{}/**", subject.trim_end_matches('/'))
                } else {
                    subject.clone()
                };
                Ok(Requirement::Keyless(Keyless {
                    trust_root: self.trust_root()?.clone(),
                    identity: pattern.parse::<IdentityPattern>().map_err(|error| invalid(&error))?,
                    issuer: issuer.parse::<IssuerUrl>().map_err(|error| invalid(&error))?,
                }))
            }
            Signer::Certificate {
                certificate,
                chain,
                must_be_logged,
            } => {
                let certificate = SigningCertificate::new(certificate, chain.as_deref());
                let trust_root = if *must_be_logged {
                    Some(self.trust_root()?.clone())
                } else {
                    self.trust_root().ok().cloned()
                };
                Ok(Requirement::Certified(CertificateRequirement {
                    certificate: certificate.map_err(|error| invalid(&error))?,
                    trust_root,
                    must_be_logged: *must_be_logged,
                }))
            }
        }
    }

    async fn fetch_material(&self, image: &OciReference, manifest: &Bytes) -> Result<Material, ImageError> {
        let fetched_module = FetchedModule {
            bytes: Bytes::new(),
            digest: Digest::of_bytes(manifest),
            manifest: Some(manifest.clone()),
        };
        let reference = ModuleReference::Oci(image.clone());
        let material = self
            .catalog
            .inner
            .remote
            .signatures(&reference, &fetched_module, &|_| {});
        material.await.map_err(image_error)
    }
}

#[async_trait]
impl ImageReader for RegistryImages {
    async fn manifest(&self, image: &OciReference) -> Result<ImageManifest, ImageError> {
        parse_manifest(&self.manifest_bytes(image).await?)
    }

    async fn configuration(&self, image: &OciReference) -> Result<(ImageManifest, Arc<RawValue>), ImageError> {
        let mut manifest = self.manifest_bytes(image).await?;
        if let Some(digest) = digest_for_this_machine(&manifest)? {
            manifest = self.fetch_manifest(image, &TagOrDigest::Digest(digest)).await?;
        }
        let manifest_or_index: ManifestOrIndex = parse(&manifest)?;
        let digest_text = manifest_or_index.config.map(|config| config.digest).unwrap_or_default();
        let digest: Digest = digest_text
            .parse()
            .map_err(|_| ImageError(format!("its configuration has the digest `{digest_text}`")))?;
        let key = (image.clone(), digest);
        let configuration = match self.configurations.get(&key) {
            Some(configuration) => configuration,
            None => {
                let blob = self
                    .repository(image)
                    .fetch_small_blob(digest, CONFIGURATION_LIMIT)
                    .await
                    .map_err(image_error)?
                    .ok_or_else(|| ImageError("its configuration is not there".to_owned()))?;
                self.configurations.insert(key, blob.clone(), blob.len());
                blob
            }
        };
        Ok((parse_manifest(&manifest)?, parse_raw(&configuration)?))
    }

    async fn verify_signatures(&self, image: &OciReference, signers: &Signers) -> Result<Digest, ImageError> {
        if signers.all.is_empty() {
            return Err(ImageError("no signer is named".to_owned()));
        }
        let parsed = signers.all.iter().map(|signer| self.requirement(signer));
        let requirements: Vec<Requirement> = parsed.collect::<Result<_, _>>()?;
        let manifest = self.manifest_bytes(image).await?;
        let digest = Digest::of_bytes(&manifest);
        let key = (digest, image.clone(), signers.clone());
        if self.verifications.get(&key).is_some() {
            return Ok(digest);
        }
        let mut material = self.fetch_material(image, &manifest).await?;
        material
            .signatures
            .retain(|signature| has_annotations(signature, &signers.annotations));
        let material = Arc::new(material);
        for requirement in requirements {
            let requirement_text = requirement.to_string();
            let (manifest, material) = (manifest.clone(), Arc::clone(&material));
            // Verifying a signature takes up to 1 ms, too long for an async thread.
            let verify = move || find_valid_signature(&requirement, &manifest, &material);
            offload_without_deadline(usize::MAX, verify).await.map_err(|findings| {
                let reasons = findings.iter().map(ToString::to_string).collect::<Vec<_>>();
                ImageError(format!(
                    "{image} has no valid signature: it needs {requirement_text}; found: {}",
                    if reasons.is_empty() {
                        "none".to_owned()
                    } else {
                        reasons.join("; ")
                    }
                ))
            })?;
        }
        self.verifications.insert(key, (), 0);
        Ok(digest)
    }
}

fn image_error(error: Error) -> ImageError {
    ImageError(error.to_string())
}

fn parse_manifest(bytes: &Bytes) -> Result<ImageManifest, ImageError> {
    Ok(ImageManifest {
        digest: Digest::of_bytes(bytes),
        json: parse_raw(bytes)?,
    })
}

fn parse_raw(bytes: &Bytes) -> Result<Arc<RawValue>, ImageError> {
    let value: Box<RawValue> = parse(bytes)?;
    Ok(value.into())
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a Bytes) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError(format!("the registry's answer is not valid: {error}")))
}

#[derive(Deserialize)]
struct ManifestOrIndex {
    config: Option<Descriptor>,
    /// If the manifest is an index, the images for the different platforms; otherwise `None`.
    manifests: Option<Vec<PlatformEntry>>,
}

#[derive(Deserialize)]
struct PlatformEntry {
    digest: String,
    platform: Option<ImagePlatform>,
}

#[derive(Deserialize)]
struct ImagePlatform {
    os: String,
    architecture: String,
}

fn digest_for_this_machine(manifest: &Bytes) -> Result<Option<Digest>, ImageError> {
    let Some(images) = parse::<ManifestOrIndex>(manifest)?.manifests else {
        return Ok(None);
    };
    let architecture = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let is_this_machine = |platform: &ImagePlatform| platform.os == "linux" && platform.architecture == architecture;
    let matching_image = images
        .iter()
        .find(|image| image.platform.as_ref().is_some_and(is_this_machine));
    let digest = matching_image.and_then(|image| image.digest.parse().ok());
    digest.map(Some).ok_or_else(|| {
        ImageError(format!(
            "it is an index of {} images, none of them for linux/{architecture}",
            images.len()
        ))
    })
}

#[derive(Debug)]
struct RecentResults<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for RecentResults<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> RecentResults<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let results = self.0.lock();
        let (cached_at, value) = results.get(key)?;
        (cached_at.elapsed() < CACHE_TIME).then(|| value.clone())
    }

    fn insert(&self, key: K, value: V, size: usize) {
        if size > MAX_CACHED_RESULT_SIZE {
            return;
        }
        let mut results = self.0.lock();
        if results.len() >= MAX_CACHED_RESULTS {
            results.retain(|_, (cached_at, _)| cached_at.elapsed() < CACHE_TIME);
        }
        if results.len() >= MAX_CACHED_RESULTS {
            let oldest = results.iter().min_by_key(|(_, (cached_at, _))| *cached_at);
            let key = oldest.map(|(key, _)| key.clone());
            key.and_then(|key| results.remove(&key));
        }
        results.insert(key, (Instant::now(), value));
    }
}

/// Returns whether the signature was made with these annotations. `cosign sign` writes them into the field `optional`
/// of the signed payload.
fn has_annotations(signature: &FoundSignature, annotations: &BTreeMap<String, String>) -> bool {
    #[derive(Deserialize)]
    struct SignedPayload {
        optional: Option<BTreeMap<String, serde_json::Value>>,
    }
    if annotations.is_empty() {
        return true;
    }
    let FoundSignature::SimpleSigning { payload, .. } = signature else {
        return false;
    };
    let payload = serde_json::from_slice::<SignedPayload>(&payload.0).ok();
    let signed_annotations = payload.and_then(|payload| payload.optional).unwrap_or_default();
    annotations.iter().all(|(key, value)| {
        signed_annotations
            .get(key)
            .is_some_and(|signed_value| signed_value == value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_size_of_cached_results_are_limited() {
        let recent = RecentResults::default();
        for number in 0..MAX_CACHED_RESULTS + 10 {
            recent.insert(number, number, 1);
        }
        assert_eq!(recent.0.lock().len(), MAX_CACHED_RESULTS);
        assert_eq!(recent.get(&(MAX_CACHED_RESULTS + 9)), Some(MAX_CACHED_RESULTS + 9));
        recent.insert(0, 0, MAX_CACHED_RESULT_SIZE + 1);
        assert_eq!(recent.get(&0), None);
    }
}
