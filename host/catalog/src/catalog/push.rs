use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use serde::Serialize;

use super::Catalog;
use crate::{
    Digest, Error, FetchProgress, OciReference, OnProgress,
    component::Component,
    fetch::{Descriptor, MANIFEST_TYPE, WASM_CONFIG_TYPE, WASM_TYPE},
};

/// A pushed artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Where it is: with the tag, and the digest of the manifest.
    pub reference: OciReference,
    /// Of the manifest, which is what signatures sign.
    pub manifest: Digest,
    /// Of the module: what a definition pins.
    pub module: Digest,
    /// Of the module, in bytes.
    pub size: u64,
}

/// The configuration blob of a WebAssembly artifact:
/// <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WasmConfig<'a> {
    created: String,
    architecture: &'a str,
    os: &'a str,
    layer_digests: [String; 1],
    component: &'a Component,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'a str,
    config: Descriptor,
    layers: [Descriptor; 1],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

impl Catalog {
    /// Pushes a component to a registry, as the standard artifact for WebAssembly, under the reference's tag.
    ///
    /// `created` becomes the creation time of the artifact: the same component, time and annotations give the
    /// same artifact. Annotations should have the names that the OCI image specification lists.
    ///
    /// # Errors
    ///
    /// When the bytes are not a component, the reference has a digest, or the registry refuses the push.
    pub async fn push(
        &self,
        reference: &OciReference,
        module: Bytes,
        annotations: &BTreeMap<String, String>,
        created: SystemTime,
        progress: OnProgress<'_>,
    ) -> Result<Pushed, Error> {
        let not_pushed = |problem: &str| Error::NotPushed {
            reference: Box::new(reference.clone()),
            problem: problem.to_owned(),
        };
        let tag = match (reference.digest(), reference.tag()) {
            (None, Some(tag)) => tag.to_owned(),
            _ => {
                return Err(not_pushed(
                    "the digest is not known before the push; write a tag in place of the digest",
                ));
            }
        };
        let component = Component::read(&module).map_err(|problem| not_pushed(&problem))?;
        let layer = descriptor(WASM_TYPE, &module);
        let config = json(&WasmConfig {
            created: humantime::format_rfc3339_seconds(created).to_string(),
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [layer.digest.clone()],
            component: &component,
        });
        let manifest = json(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE,
            config: descriptor(WASM_CONFIG_TYPE, &config),
            layers: [layer],
            annotations,
        });
        progress(FetchProgress::Started {
            reference: format!("oci://{reference}"),
            total: Some(module.len() as u64),
        });
        self.push_module(reference, &module, progress).await?;
        let network = &self.inner.network;
        network.push_blob(reference, &config, &|_| {}, progress).await?;
        network
            .push_manifest(reference, &tag, &manifest, progress)
            .await?;
        progress(FetchProgress::Finished);
        let digest = Digest::of(&manifest);
        let (registry, repository) = (reference.registry(), reference.repository());
        let pinned = format!("{registry}/{repository}:{tag}@{digest}");
        Ok(Pushed {
            reference: pinned
                .parse()
                .map_err(|_| not_pushed("it cannot be written as a reference with a digest"))?,
            manifest: digest,
            module: Digest::of(&module),
            size: module.len() as u64,
        })
    }

    /// The upload, reporting its progress.
    async fn push_module(
        &self,
        reference: &OciReference,
        module: &Bytes,
        progress: OnProgress<'_>,
    ) -> Result<(), Error> {
        // The body of a request outlives the borrow of `progress`.
        let sent = Arc::new(AtomicU64::new(0));
        let counter = sent.clone();
        let on_sent = move |bytes| counter.store(bytes, Ordering::Relaxed);
        let upload = self
            .inner
            .network
            .push_blob(reference, module, &on_sent, progress);
        tokio::pin!(upload);
        let mut told = 0;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let done = loop {
            tokio::select! {
                done = &mut upload => break done,
                _ = ticks.tick() => {
                    let bytes = sent.load(Ordering::Relaxed);
                    if bytes != told {
                        told = bytes;
                        progress(FetchProgress::Received { bytes });
                    }
                }
            }
        };
        if done.is_ok() {
            let bytes = module.len() as u64;
            progress(FetchProgress::Received { bytes });
        }
        done
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: Digest::of(bytes).to_string(),
        size: bytes.len() as u64,
    }
}

fn json(value: &impl Serialize) -> Bytes {
    // Strings and numbers with string keys: serialization cannot fail.
    serde_json::to_vec(value).unwrap_or_default().into()
}
