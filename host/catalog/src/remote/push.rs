use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use admittance_net::client::{ClientRequest, ClientResponse, RequestBody};
use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
};
use serde::Serialize;
use url::Url;
use wasmparser::{Encoding, Parser, Payload};

use super::{
    RegistryAccess, Repository,
    client::is_absent,
    index::{MANIFEST_TYPE, WASM_CONFIG_TYPE},
    registry::{TagOrDigest, content_digest},
};
use crate::{
    Catalog, Digest, Error, FetchProgress, OciReference, OnProgress,
    manifest::{Descriptor, WASM_TYPE},
};

/// An artifact that was pushed to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedArtifact {
    /// The reference with the tag and the manifest's digest.
    pub reference: OciReference,
    /// The digest of the pushed manifest, which signatures of the artifact must cover.
    pub manifest: Digest,
    /// The digest of the pushed module, which definitions can pin.
    pub module: Digest,
    /// The size of the pushed module, in bytes.
    pub size: u64,
}

/// The configuration of a WebAssembly artifact: <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WasmConfig<'a> {
    created: String,
    architecture: &'a str,
    os: &'a str,
    layer_digests: [String; 1],
    component: &'a PushedComponent,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushedManifest<'a> {
    schema_version: u32,
    media_type: &'a str,
    config: Descriptor,
    layers: [Descriptor; 1],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Default, Serialize)]
struct PushedComponent {
    exports: Vec<String>,
    imports: Vec<String>,
}

impl Catalog {
    /// Pushes a component under the reference's tag, as a standard artifact for WebAssembly.
    ///
    /// `created` becomes the creation time of the artifact: if the component is pushed again with the same time and
    /// annotations, the artifact is identical. Annotations should have names from the OCI image specification.
    ///
    /// # Errors
    ///
    /// Returns an error when the bytes are not a component, the reference has a digest, or the push is refused.
    pub async fn push(
        &self,
        reference: &OciReference,
        module: Bytes,
        annotations: &BTreeMap<String, String>,
        created: SystemTime,
        progress: OnProgress<'_>,
    ) -> Result<PushedArtifact, Error> {
        let not_pushed = |problem: String| Error::NotPushed {
            reference: Box::new(reference.clone()),
            problem,
        };
        let tag = match (reference.digest(), reference.tag()) {
            (None, Some(tag)) => tag,
            _ => {
                let problem = "the digest is not known before the push; write a tag in place of the digest";
                return Err(not_pushed(problem.to_owned()));
            }
        };
        let component = PushedComponent::read(&module).map_err(not_pushed)?;
        let layer = create_descriptor(WASM_TYPE, &module);
        let config = to_json(&WasmConfig {
            created: humantime::format_rfc3339_seconds(created).to_string(),
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [layer.digest.clone()],
            component: &component,
        });
        let manifest = to_json(&PushedManifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE,
            config: create_descriptor(WASM_CONFIG_TYPE, &config),
            layers: [layer],
            annotations,
        });
        progress(FetchProgress::Started {
            reference: format!("oci://{reference}"),
            total: Some(module.len() as u64),
        });
        let repository = self.inner.remote.repository(reference, RegistryAccess::Push, progress);
        repository.push_module(&module).await?;
        repository.push_blob(&config, &Arc::default()).await?;
        repository.push_manifest(tag, &manifest).await?;
        progress(FetchProgress::Finished);
        let digest = Digest::of_bytes(&manifest);
        let pinned_reference = format!("{}:{tag}@{digest}", reference.name());
        Ok(PushedArtifact {
            reference: pinned_reference
                .parse()
                .map_err(|_| not_pushed("it cannot be written as a reference with a digest".to_owned()))?,
            manifest: digest,
            module: Digest::of_bytes(&module),
            size: module.len() as u64,
        })
    }
}

impl Repository<'_> {
    async fn push_module(&self, module: &Bytes) -> Result<(), Error> {
        // The HTTP client may keep the body of the request longer than the callback `progress` lives. So the body does
        // not call `progress`, and only updates a shared counter.
        let sent_size = Arc::new(AtomicU64::new(0));
        let upload = self.push_blob(module, &sent_size);
        tokio::pin!(upload);
        let mut reported_size = 0;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let outcome = loop {
            tokio::select! {
                outcome = &mut upload => break outcome,
                _ = ticks.tick() => {
                    let bytes = sent_size.load(Ordering::Relaxed);
                    if bytes != reported_size {
                        reported_size = bytes;
                        (self.progress)(FetchProgress::Received { bytes });
                    }
                }
            }
        };
        if outcome.is_ok() {
            let bytes = module.len() as u64;
            (self.progress)(FetchProgress::Received { bytes });
        }
        outcome
    }

    async fn push_blob(&self, bytes: &Bytes, sent_size: &Arc<AtomicU64>) -> Result<(), Error> {
        let digest = Digest::of_bytes(bytes);
        let location = &self.image_location(&TagOrDigest::Digest(digest));
        self.with_retries(|| async move {
            let url = self.url(&format!("blobs/{digest}"), location).await?;
            let request = ClientRequest::new(Method::HEAD, url).header(CONTENT_LENGTH, 0);
            let response = self.send(request, location).await?;
            if response.status.is_success() {
                return Ok(());
            }
            if !is_absent(response.status) {
                self.check_response(response, location).await?;
            }
            let url = self.url("blobs/uploads/", location).await?;
            let request = ClientRequest::new(Method::POST, url).header(CONTENT_LENGTH, 0);
            let mut url = upload_url(&self.send_and_check(request, location).await?, location)?;
            url.query_pairs_mut().append_pair("digest", &digest.to_string());
            let request = ClientRequest::new(Method::PUT, url)
                .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
                .header(CONTENT_LENGTH, bytes.len())
                .body(RequestBody::with_counter(bytes.clone(), sent_size.clone()));
            self.send_and_check(request, location).await?;
            Ok(())
        })
        .await
    }

    async fn push_manifest(&self, tag: &str, bytes: &Bytes) -> Result<(), Error> {
        let digest = Digest::of_bytes(bytes);
        let location = &self.image_location(&TagOrDigest::Tag(tag.to_owned()));
        self.with_retries(|| async move {
            let url = self.url(&format!("manifests/{tag}"), location).await?;
            let request = ClientRequest::new(Method::PUT, url)
                .header(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE))
                .body(bytes.clone());
            match content_digest(&self.send_and_check(request, location).await?.headers) {
                Some(actual) if actual != digest => Err(Error::ContentMismatch {
                    location: format!("{location} (the manifest {digest})"),
                    actual,
                }),
                _ => Ok(()),
            }
        })
        .await
    }
}

fn upload_url(response: &ClientResponse, location: &str) -> Result<Url, Error> {
    let bad_answer = |problem: &str| Error::bad_answer(location, problem);
    if response.status != StatusCode::ACCEPTED && response.status != StatusCode::CREATED {
        return Err(bad_answer("the registry does not start an upload"));
    }
    let url = response
        .headers
        .get(LOCATION)
        .and_then(|header| header.to_str().ok())
        .and_then(|text| response.url.join(text).ok())
        .ok_or_else(|| bad_answer("the registry does not say where the upload goes"))?;
    if response.url.scheme() == "https" && url.scheme() != "https" {
        return Err(bad_answer("the registry asks for an upload without TLS"));
    }
    Ok(url)
}

impl PushedComponent {
    /// Reads the imports and exports of a component, without validating it. If the bytes are not a component, the error
    /// says what they are, such as a core module.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut component = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(|error| format!("it is not valid WebAssembly: {error}"))?;
            match payload {
                Payload::Version {
                    encoding: Encoding::Module,
                    ..
                } if depth == 0 => {
                    return Err(
                        "it is a core module, and plugins are components: build it for `wasm32-wasip2`".to_owned(),
                    );
                }
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(imports) if depth == 1 => {
                    for import in imports {
                        let import = import.map_err(|error| error.to_string())?;
                        component.imports.push(import.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) if depth == 1 => {
                    for export in exports {
                        let export = export.map_err(|error| error.to_string())?;
                        component.exports.push(export.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(component)
    }
}

fn create_descriptor(media_type: &str, bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: Digest::of_bytes(bytes).to_string(),
        size: bytes.len() as u64,
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    // Serialisation cannot fail, because the value contains only strings, numbers and maps with string keys.
    serde_json::to_vec(value).unwrap_or_default().into()
}
