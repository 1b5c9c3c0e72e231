//! OCI indexes, which list artifacts for several platforms or the referrers of an artifact.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde::Deserialize;

use crate::{Digest, Error, OciReference, manifest::not_an_artifact_error, signature::SIGNATURE_STATEMENT};

/// The media type of OCI manifests, with which a push sends its manifest.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media types of manifests and indexes that this program accepts.
pub(super) const MANIFEST_TYPES: HeaderValue = HeaderValue::from_static(
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, */*",
);

/// The standard media type of the configuration of a WebAssembly artifact.
pub(super) const WASM_CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";

/// The artifact type that newer versions of `cosign sign` give to signatures.
const SIGNATURE_ARTIFACT_TYPE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// The prefix of the media types of sigstore bundles; the version follows it.
pub(super) const BUNDLE_TYPE_PREFIX: &str = "application/vnd.dev.sigstore.bundle";

/// A referrer's annotation that contains the predicate type of its statement.
const STATEMENT_ANNOTATION: &str = "dev.sigstore.bundle.predicateType";

#[derive(Deserialize)]
pub(super) struct ImageIndex {
    pub(super) manifests: Option<Vec<IndexEntry>>,
}

/// An entry of an index: an artifact for a platform, or a referrer of an artifact.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IndexEntry {
    #[serde(default)]
    pub(super) digest: String,
    artifact_type: Option<String>,
    platform: Option<IndexPlatform>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct IndexPlatform {
    #[serde(default)]
    architecture: String,
}

impl IndexEntry {
    fn is_wasm(&self) -> bool {
        let architecture = self.platform.as_ref().map(|platform| platform.architecture.as_str());
        architecture == Some("wasm") || self.artifact_type.as_deref() == Some(WASM_CONFIG_TYPE)
    }

    fn is_for_any_platform(&self) -> bool {
        self.platform.is_none() && self.artifact_type.is_none() && !self.digest.is_empty()
    }

    /// Returns whether the referrer may be a signature. A bundle that contains another kind of statement, such as
    /// provenance, is not a signature.
    pub(super) fn may_sign(&self) -> bool {
        let statement = self
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(STATEMENT_ANNOTATION));
        self.artifact_type
            .as_deref()
            .is_none_or(|kind| kind == SIGNATURE_ARTIFACT_TYPE || kind.starts_with(BUNDLE_TYPE_PREFIX))
            && statement.is_none_or(|statement| statement == SIGNATURE_STATEMENT)
    }
}

pub(super) fn find_wasm_entry(reference: &OciReference, bytes: &[u8]) -> Result<Option<Digest>, Error> {
    let Ok(ImageIndex {
        manifests: Some(entries),
    }) = serde_json::from_slice(bytes)
    else {
        return Ok(None);
    };
    select_wasm_entry(&entries)
        .map(Some)
        .map_err(|content| not_an_artifact_error(reference, content))
}

fn select_wasm_entry(entries: &[IndexEntry]) -> Result<Digest, String> {
    let mut candidates: Vec<&IndexEntry> = entries.iter().filter(|entry| entry.is_wasm()).collect();
    if candidates.is_empty() {
        let mut plain_entries = entries.iter().filter(|entry| entry.is_for_any_platform());
        candidates.extend(plain_entries.next().filter(|_| plain_entries.next().is_none()));
    }
    match candidates.as_slice() {
        [entry] => {
            let digest = entry.digest.parse();
            digest.map_err(|_| format!("an index that lists a module with the digest `{}`", entry.digest))
        }
        [] => Err(format!(
            "an index of {} artifacts, none of them for the architecture `wasm`; name one by its digest",
            entries.len()
        )),
        candidates => Err(format!(
            "an index with {} artifacts for the architecture `wasm`; name one of them by its digest",
            candidates.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::INDEX_TYPE;

    #[test]
    fn an_index_must_contain_exactly_one_module() {
        let reference: OciReference = "registry.example.com/a:1".parse().unwrap();
        let (one, other) = (Digest::of_bytes("one"), Digest::of_bytes("other"));
        let entry = |digest: Digest, architecture: &str| {
            format!(
                r#"{{"mediaType":"{MANIFEST_TYPE}","digest":"{digest}","size":2,"platform":{{"architecture":"{architecture}","os":"wasi"}}}}"#
            )
        };
        let typed = format!(r#"{{"digest":"{one}","size":2,"artifactType":"{WASM_CONFIG_TYPE}"}}"#);
        let plain = format!(r#"{{"mediaType":"{MANIFEST_TYPE}","digest":"{one}","size":2}}"#);
        let index = |entries: &[String]| {
            format!(
                r#"{{"schemaVersion":2,"mediaType":"{INDEX_TYPE}","manifests":[{}]}}"#,
                entries.join(",")
            )
        };
        for (text, expected) in [
            (
                index(&[entry(other, "amd64"), entry(one, "wasm"), entry(other, "unknown")]),
                Ok(Some(one)),
            ),
            (index(&[entry(other, "arm64"), typed]), Ok(Some(one))),
            (index(std::slice::from_ref(&plain)), Ok(Some(one))),
            (index(&[entry(other, "amd64"), plain.clone()]), Ok(Some(one))),
            (index(&[entry(other, "wasm"), plain.clone()]), Ok(Some(other))),
            (
                index(&[plain.clone(), plain]),
                Err("an index of 2 artifacts, none of them"),
            ),
            (
                index(&[entry(other, "amd64"), "{}".to_owned()]),
                Err("an index of 2 artifacts, none of them"),
            ),
            (index(&[]), Err("an index of 0 artifacts")),
            (
                index(&[entry(one, "wasm"), entry(other, "wasm")]),
                Err("an index with 2 artifacts for"),
            ),
            (
                index(&[entry(one, "wasm").replace("sha256", "sha512")]),
                Err("an index that lists a module with the digest `sha512:"),
            ),
            (r#"{"schemaVersion":2,"layers":[]}"#.to_owned(), Ok(None)),
            ("<html>".to_owned(), Ok(None)),
        ] {
            match (find_wasm_entry(&reference, text.as_bytes()), expected) {
                (Ok(actual), Ok(expected)) => assert_eq!(actual, expected, "{text}"),
                (Err(Error::NotAnArtifact { content, .. }), Err(expected)) => {
                    assert!(content.starts_with(expected), "{content}");
                }
                (result, _) => panic!("{text}: {result:?}"),
            }
        }
    }
}
