//! Answers a policy's queries about images in registries, within the grants of its stage.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::{ImageError, ImageReader, OciReference, Signer, Signers, move_to_long_work_thread};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json, value::RawValue};
use tokio::time::timeout_at;

use super::host_calls::{Answer, parse};
use crate::{
    capabilities::{PREPARING_MESSAGE, denied_error},
    store::CallState,
};

const DEFAULT_REGISTRY: &str = "docker.io";
/// The first part of an image's path, if the name of the image is a single word.
const DEFAULT_PATH: &str = "library";

/// The OpenID provider that issues the identities of GitHub's workflows.
const GITHUB_ISSUER: &str = "https://token.actions.githubusercontent.com";

/// The maximum number of signers in a verification, because each is tried with each signature.
const MAX_SIGNERS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageOperation {
    VerifyV1,
    VerifyV2,
    Digest,
    Manifest,
    Configuration,
}

impl ImageOperation {
    pub(super) fn from_name(name: &str) -> Option<Self> {
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

#[derive(Deserialize)]
struct Verification {
    image: String,
    annotations: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    required: RequiredSigners,
}

/// The signers that a policy requires for an image. In the policy's JSON, `type` selects the variant, and a certificate
/// is an array of its bytes.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum RequiredSigners {
    #[serde(rename = "SigstorePubKeyVerify")]
    Keys { pub_keys: Vec<String> },
    #[serde(rename = "SigstoreKeylessVerify")]
    Identities { keyless: Vec<SignerIdentity> },
    #[serde(rename = "SigstoreKeylessPrefixVerify")]
    Prefixes { keyless_prefix: Vec<SubjectPrefix> },
    #[serde(rename = "SigstoreGithubActionsVerify")]
    Workflow { owner: String, repo: Option<String> },
    #[serde(rename = "SigstoreCertificateVerify")]
    Certificate {
        certificate: Vec<u8>,
        certificate_chain: Option<Vec<Vec<u8>>>,
        require_rekor_bundle: bool,
    },
}

/// The types of verification in version 1 of Kubewarden's operation for verifying images. Version 2 has more types.
const VERSION_1_KINDS: [&str; 2] = ["SigstorePubKeyVerify", "SigstoreKeylessVerify"];

#[derive(Deserialize)]
struct SignerIdentity {
    issuer: String,
    subject: String,
}

#[derive(Deserialize)]
struct SubjectPrefix {
    issuer: String,
    url_prefix: String,
}

impl RequiredSigners {
    fn signers(self) -> Result<Vec<Signer>, String> {
        let identity = |issuer, subject, is_prefix| Signer::Identity {
            issuer,
            subject,
            is_prefix,
        };
        Ok(match self {
            Self::Keys { pub_keys } => pub_keys.into_iter().map(Signer::Key).collect(),
            Self::Identities { keyless } => keyless
                .into_iter()
                .map(|one| identity(one.issuer, one.subject, false))
                .collect(),
            Self::Prefixes { keyless_prefix } => keyless_prefix
                .into_iter()
                .map(|one| identity(one.issuer, one.url_prefix, true))
                .collect(),
            Self::Workflow { owner, repo } => {
                let repository = repo.map_or_else(String::new, |repo| format!("/{repo}"));
                let subject = format!("https://github.com/{owner}{repository}");
                vec![identity(GITHUB_ISSUER.to_owned(), subject, true)]
            }
            Self::Certificate {
                certificate,
                certificate_chain,
                require_rekor_bundle,
            } => {
                let text = |bytes: Vec<u8>| {
                    String::from_utf8(bytes).map_err(|_| "a certificate is not PEM, which is a text".to_owned())
                };
                let chain = certificate_chain.map(|chain| chain.into_iter().map(text).collect::<Result<_, _>>());
                vec![Signer::Certificate {
                    certificate: text(certificate)?,
                    chain: chain.transpose()?,
                    must_be_logged: require_rekor_bundle,
                }]
            }
        })
    }
}

fn read_version_1_request(payload: &[u8]) -> Result<Verification, String> {
    let mut kinds: BTreeMap<String, Map<String, Json>> = parse(payload)?;
    match (kinds.pop_first(), kinds.is_empty()) {
        (Some((kind, mut fields)), true) if VERSION_1_KINDS.contains(&&*kind) => {
            fields.insert("type".to_owned(), kind.into());
            parse(Json::Object(fields).to_string().as_bytes())
        }
        _ => Err(format!("a verification has one key, {}", VERSION_1_KINDS.join(" or "))),
    }
}

fn parse_request(operation: ImageOperation, payload: &[u8]) -> Result<(String, Signers), String> {
    let verification = match operation {
        ImageOperation::VerifyV1 => read_version_1_request(payload)?,
        ImageOperation::VerifyV2 => parse(payload)?,
        ImageOperation::Digest | ImageOperation::Manifest | ImageOperation::Configuration => {
            return Ok((parse(payload)?, Signers::default()));
        }
    };
    let signers = Signers {
        all: verification.required.signers()?,
        annotations: verification.annotations.unwrap_or_default(),
    };
    Ok((verification.image, signers))
}

fn signer_count(signers: &Signers) -> usize {
    let authorities = signers.all.iter().map(|signer| match signer {
        Signer::Certificate { chain, .. } => chain.as_ref().map_or(0, Vec::len),
        Signer::Key(_) | Signer::Identity { .. } => 0,
    });
    signers.all.len() + authorities.sum::<usize>()
}

pub(super) async fn answer_query(
    state: &mut CallState,
    operation: ImageOperation,
    payload: &[u8],
) -> wasmtime::Result<Answer> {
    if state.preparing {
        return Ok(Err(PREPARING_MESSAGE.to_owned()));
    }
    let (name, signers) = match parse_request(operation, payload) {
        Ok((_, signers)) if signer_count(&signers) > MAX_SIGNERS => {
            let number = signer_count(&signers);
            return Ok(Err(format!(
                "the request names {number} keys, identities and authorities; the limit is {MAX_SIGNERS}"
            )));
        }
        Ok(request) => request,
        Err(error) => return Ok(Err(error)),
    };
    let image = match full_name(&name).parse::<OciReference>() {
        Ok(image) => image,
        Err(error) => return Ok(Err(format!("`{name}` is not the name of an image: {error}"))),
    };
    if !state.grants.images.iter().any(|grant| grant.includes(&image)) {
        return Err(denied_error(format!(
            "the policy reads the image `{}` without permission; add `{}` to `allow.images` of the stage",
            image.name(),
            image.registry()
        )));
    }
    let Some(reader) = state.sandbox.config.images.clone() else {
        return Ok(Err("this host reads no images of registries".to_owned()));
    };
    // The registry's reply may have several megabytes, which take long to hash and parse.
    move_to_long_work_thread().await;
    let query = query_reader(&*reader, operation, &image, &signers);
    Ok(match timeout_at(state.deadline.instant(), query).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the registry of `{name}` did not answer in time")),
    })
}

async fn query_reader(
    reader: &dyn ImageReader,
    operation: ImageOperation,
    image: &OciReference,
    signers: &Signers,
) -> Result<Vec<u8>, ImageError> {
    let json_bytes = |value: Json| value.to_string().into_bytes();
    Ok(match operation {
        ImageOperation::VerifyV1 | ImageOperation::VerifyV2 => {
            let digest = reader.verify_signatures(image, signers).await?;
            json_bytes(json!({"is_trusted": true, "digest": digest.to_string()}))
        }
        ImageOperation::Digest => json_bytes(json!({"digest": reader.manifest(image).await?.digest.to_string()})),
        ImageOperation::Manifest => reader.manifest(image).await?.json.get().as_bytes().to_vec(),
        ImageOperation::Configuration => {
            let (manifest, configuration) = reader.configuration(image).await?;
            let named_parts: [(&str, &Arc<RawValue>); 2] = [("manifest", &manifest.json), ("config", &configuration)];
            let parts = named_parts.map(|(name, part)| format!("\"{name}\":{},", part.get()));
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
    fn image_names_are_completed_as_in_docker() {
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
    fn the_required_signers_are_read_from_a_verification_request() {
        let identity = |issuer: &str, subject: &str, is_prefix| Signer::Identity {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            is_prefix,
        };
        let expected_annotations = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        for (operation, payload, all, annotations) in [
            (
                ImageOperation::VerifyV1,
                json!({"SigstorePubKeyVerify": {"image": "a", "pub_keys": ["k", "l"], "annotations": {"a": "1"}}}),
                vec![Signer::Key("k".to_owned()), Signer::Key("l".to_owned())],
                expected_annotations,
            ),
            (
                ImageOperation::VerifyV2,
                json!({"type": "SigstoreKeylessVerify", "image": "a", "keyless": [{"issuer": "i", "subject": "s"}]}),
                vec![identity("i", "s", false)],
                BTreeMap::new(),
            ),
            (
                ImageOperation::VerifyV2,
                json!({"type": "SigstoreKeylessPrefixVerify", "image": "a", "annotations": null,
                    "keyless_prefix": [{"issuer": "i", "url_prefix": "https://x/"}]}),
                vec![identity("i", "https://x/", true)],
                BTreeMap::new(),
            ),
            (
                ImageOperation::VerifyV2,
                json!({"type": "SigstoreGithubActionsVerify", "image": "a", "owner": "o", "repo": "r"}),
                vec![identity(GITHUB_ISSUER, "https://github.com/o/r", true)],
                BTreeMap::new(),
            ),
            (
                ImageOperation::VerifyV2,
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
            let (image, signers) = parse_request(operation, payload.to_string().as_bytes()).unwrap();
            assert_eq!(image, "a");
            assert_eq!(signers, Signers { all, annotations }, "{payload}");
        }
        let certificate = json!({"type": "SigstoreCertificateVerify", "image": "a", "certificate": [255],
            "require_rekor_bundle": true});
        let error = parse_request(ImageOperation::VerifyV2, certificate.to_string().as_bytes()).unwrap_err();
        assert!(error.contains("not PEM"), "{error}");
    }
}
