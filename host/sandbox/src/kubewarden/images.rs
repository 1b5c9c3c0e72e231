//! The questions of policies about images in registries, within the grants of their stage.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::{ImageError, ImageReader, OciReference, Signer, Signers, leave};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::time::timeout_at;

use super::host_calls::{Answer, parse};
use crate::{
    capabilities::{PREPARING, denied},
    store::CallState,
};

/// The registry of an image whose name has none, and the path of an image whose name is a single word.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_PATH: &str = "library";

/// The identity provider of GitHub's workflows.
const GITHUB: &str = "https://token.actions.githubusercontent.com";

/// The maximum number of keys, identities and authorities of a verification: each is tried with each signature.
const SIGNERS: usize = 16;

/// The operations of the namespace `oci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    VerifyV1,
    VerifyV2,
    Digest,
    Manifest,
    Configuration,
}

impl Operation {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "v1/verify" => Self::VerifyV1,
            "v2/verify" => Self::VerifyV2,
            "v1/manifest_digest" => Self::Digest,
            "v1/oci_manifest" => Self::Manifest,
            "v1/oci_manifest_config" => Self::Configuration,
            _ => return None,
        })
    }
}

/// A verification in the first version: a map with one key, which is its kind.
#[derive(Deserialize)]
enum VerifyV1 {
    #[serde(rename = "SigstorePubKeyVerify")]
    Keys(ByKeys),
    #[serde(rename = "SigstoreKeylessVerify")]
    Identities(ByIdentities),
}

/// A verification in the second version.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum VerifyV2 {
    #[serde(rename = "SigstorePubKeyVerify")]
    Keys(ByKeys),
    #[serde(rename = "SigstoreKeylessVerify")]
    Identities(ByIdentities),
    #[serde(rename = "SigstoreKeylessPrefixVerify")]
    Prefixes(ByPrefixes),
    #[serde(rename = "SigstoreGithubActionsVerify")]
    Workflow(ByWorkflow),
    #[serde(rename = "SigstoreCertificateVerify")]
    Certificate(ByCertificate),
}

#[derive(Deserialize)]
struct ByKeys {
    image: String,
    pub_keys: Vec<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct ByIdentities {
    image: String,
    keyless: Vec<Identity>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Identity {
    issuer: String,
    subject: String,
}

#[derive(Deserialize)]
struct ByPrefixes {
    image: String,
    keyless_prefix: Vec<Prefix>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Prefix {
    issuer: String,
    url_prefix: String,
}

#[derive(Deserialize)]
struct ByWorkflow {
    image: String,
    owner: String,
    repo: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

/// A verification by a certificate. Its texts are lists of bytes.
#[derive(Deserialize)]
struct ByCertificate {
    image: String,
    certificate: Vec<u8>,
    certificate_chain: Option<Vec<Vec<u8>>>,
    require_rekor_bundle: bool,
    annotations: Option<BTreeMap<String, String>>,
}

type Verification = (String, Signers);

fn verification(
    image: String,
    all: impl IntoIterator<Item = Signer>,
    annotations: Option<BTreeMap<String, String>>,
) -> Verification {
    let signers = Signers {
        all: all.into_iter().collect(),
        annotations: annotations.unwrap_or_default(),
    };
    (image, signers)
}

impl From<ByKeys> for Verification {
    fn from(by: ByKeys) -> Self {
        verification(by.image, by.pub_keys.into_iter().map(Signer::Key), by.annotations)
    }
}

impl From<ByIdentities> for Verification {
    fn from(by: ByIdentities) -> Self {
        let all = by.keyless.into_iter().map(|identity| Signer::Identity {
            issuer: identity.issuer,
            subject: identity.subject,
            is_prefix: false,
        });
        verification(by.image, all, by.annotations)
    }
}

impl From<ByPrefixes> for Verification {
    fn from(by: ByPrefixes) -> Self {
        let all = by.keyless_prefix.into_iter().map(|prefix| Signer::Identity {
            issuer: prefix.issuer,
            subject: prefix.url_prefix,
            is_prefix: true,
        });
        verification(by.image, all, by.annotations)
    }
}

impl From<ByWorkflow> for Verification {
    fn from(by: ByWorkflow) -> Self {
        let mut subject = format!("https://github.com/{}", by.owner);
        if let Some(repository) = by.repo {
            subject += &format!("/{repository}");
        }
        let signer = Signer::Identity {
            issuer: GITHUB.to_owned(),
            subject,
            is_prefix: true,
        };
        verification(by.image, [signer], by.annotations)
    }
}

impl TryFrom<ByCertificate> for Verification {
    type Error = String;

    fn try_from(by: ByCertificate) -> Result<Self, String> {
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| "a certificate is not PEM, which is a text".to_owned())
        };
        let chain = by
            .certificate_chain
            .map(|chain| chain.into_iter().map(text).collect::<Result<_, _>>());
        let signer = Signer::Certificate {
            certificate: text(by.certificate)?,
            chain: chain.transpose()?,
            must_be_logged: by.require_rekor_bundle,
        };
        Ok(verification(by.image, [signer], by.annotations))
    }
}

fn read(operation: Operation, payload: &[u8]) -> Result<Verification, String> {
    match operation {
        Operation::VerifyV1 => Ok(match parse(payload)? {
            VerifyV1::Keys(by) => by.into(),
            VerifyV1::Identities(by) => by.into(),
        }),
        Operation::VerifyV2 => Ok(match parse(payload)? {
            VerifyV2::Keys(by) => by.into(),
            VerifyV2::Identities(by) => by.into(),
            VerifyV2::Prefixes(by) => by.into(),
            VerifyV2::Workflow(by) => by.into(),
            VerifyV2::Certificate(by) => by.try_into()?,
        }),
        Operation::Digest | Operation::Manifest | Operation::Configuration => {
            Ok((parse(payload)?, Signers::default()))
        }
    }
}

fn number_of(signers: &Signers) -> usize {
    let authorities = signers.all.iter().map(|signer| match signer {
        Signer::Certificate { chain, .. } => chain.as_ref().map_or(0, Vec::len),
        Signer::Key(_) | Signer::Identity { .. } => 0,
    });
    signers.all.len() + authorities.sum::<usize>()
}

/// Answers a question about an image, by the deadline of the call.
pub(super) async fn answer(
    state: &mut CallState,
    operation: Operation,
    payload: &[u8],
) -> wasmtime::Result<Answer> {
    if state.preparing {
        return Ok(Err(PREPARING.to_owned()));
    }
    let (name, signers) = match read(operation, payload) {
        Ok((_, signers)) if number_of(&signers) > SIGNERS => {
            let number = number_of(&signers);
            return Ok(Err(format!(
                "the request names {number} keys, identities and authorities; the limit is {SIGNERS}"
            )));
        }
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    let image = match full_name(&name).parse::<OciReference>() {
        Ok(image) => image,
        Err(error) => return Ok(Err(format!("`{name}` is not the name of an image: {error}"))),
    };
    if !state.grants.images.iter().any(|grant| grant.includes(&image)) {
        return Err(denied(format!(
            "the policy reads the image `{}` without permission; add `{}` to `allow.images` of the stage",
            image.name(),
            image.registry()
        )));
    }
    let Some(reader) = state.sandbox.config.images.clone() else {
        return Ok(Err("this host reads no images of registries".to_owned()));
    };
    // The answer of a registry has up to megabytes, which are hashed and parsed.
    leave().await;
    let answer = ask(&*reader, operation, &image, &signers);
    Ok(match timeout_at(state.deadline.instant(), answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the registry of `{name}` did not answer in time")),
    })
}

async fn ask(
    reader: &dyn ImageReader,
    operation: Operation,
    image: &OciReference,
    signers: &Signers,
) -> Result<Vec<u8>, ImageError> {
    let text = |value: serde_json::Value| value.to_string().into_bytes();
    Ok(match operation {
        Operation::VerifyV1 | Operation::VerifyV2 => {
            let digest = reader.signed(image, signers).await?;
            text(json!({"is_trusted": true, "digest": digest.to_string()}))
        }
        Operation::Digest => text(json!({"digest": reader.manifest(image).await?.digest.to_string()})),
        Operation::Manifest => reader.manifest(image).await?.json.get().as_bytes().to_vec(),
        Operation::Configuration => {
            let (manifest, configuration) = reader.configuration(image).await?;
            let parts: [(&str, &Arc<RawValue>); 2] =
                [("manifest", &manifest.json), ("config", &configuration)];
            let parts = parts.map(|(name, part)| format!("\"{name}\":{},", part.get()));
            format!("{{{}\"digest\":\"{}\"}}", parts.concat(), manifest.digest).into_bytes()
        }
    })
}

/// Completes the name of an image: `nginx` becomes `docker.io/library/nginx`.
fn full_name(name: &str) -> String {
    match name.split_once('/') {
        None => format!("{DEFAULT_REGISTRY}/{DEFAULT_PATH}/{name}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        Some(_) => format!("{DEFAULT_REGISTRY}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_completed_as_by_docker() {
        for (name, expected) in [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("acme/web:1", "docker.io/acme/web:1"),
            ("ghcr.io/acme/web", "ghcr.io/acme/web"),
            ("localhost/web", "localhost/web"),
            ("registry:5000/web", "registry:5000/web"),
        ] {
            assert_eq!(full_name(name), expected);
            full_name(name).parse::<OciReference>().unwrap();
        }
    }

    #[test]
    fn a_request_for_verification_names_the_required_signers() {
        let identity = |issuer: &str, subject: &str, is_prefix| Signer::Identity {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            is_prefix,
        };
        let annotated = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        for (operation, payload, all, annotations) in [
            (
                Operation::VerifyV1,
                json!({"SigstorePubKeyVerify": {"image": "a", "pub_keys": ["k", "l"], "annotations": {"a": "1"}}}),
                vec![Signer::Key("k".to_owned()), Signer::Key("l".to_owned())],
                annotated,
            ),
            (
                Operation::VerifyV2,
                json!({"type": "SigstoreKeylessVerify", "image": "a", "keyless": [{"issuer": "i", "subject": "s"}]}),
                vec![identity("i", "s", false)],
                BTreeMap::new(),
            ),
            (
                Operation::VerifyV2,
                json!({"type": "SigstoreKeylessPrefixVerify", "image": "a", "annotations": null,
                    "keyless_prefix": [{"issuer": "i", "url_prefix": "https://x/"}]}),
                vec![identity("i", "https://x/", true)],
                BTreeMap::new(),
            ),
            (
                Operation::VerifyV2,
                json!({"type": "SigstoreGithubActionsVerify", "image": "a", "owner": "o", "repo": "r"}),
                vec![identity(GITHUB, "https://github.com/o/r", true)],
                BTreeMap::new(),
            ),
            (
                Operation::VerifyV2,
                json!({"type": "SigstoreCertificateVerify", "image": "a", "certificate": b"c",
                    "certificate_chain": [b"r"], "require_rekor_bundle": true, "annotations": null}),
                vec![Signer::Certificate {
                    certificate: "c".to_owned(),
                    chain: Some(vec!["r".to_owned()]),
                    must_be_logged: true,
                }],
                BTreeMap::new(),
            ),
        ] {
            let (image, signers) = read(operation, payload.to_string().as_bytes()).unwrap();
            assert_eq!(image, "a");
            assert_eq!(signers, Signers { all, annotations }, "{payload}");
        }
        let certificate = json!({"type": "SigstoreCertificateVerify", "image": "a", "certificate": [255],
            "require_rekor_bundle": true});
        let error = read(Operation::VerifyV2, certificate.to_string().as_bytes()).unwrap_err();
        assert!(error.contains("not PEM"), "{error}");
    }
}
