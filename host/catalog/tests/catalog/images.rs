//! Tests of reading container images from a real registry, as Kubewarden policies do.

use std::{collections::BTreeMap, env::consts};

use admittance_admission::{ImageError, ImageReader as _, OciReference, Signer, Signers};
use admittance_catalog::{Digest, RegistryImages};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::{
    registry::{Registry, RegistryLogin},
    scene::CatalogScene,
    signatures::{self, index_json, put_blob, put_manifest},
};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

async fn put_image(registry: &Registry, tag: &str, configuration: &Value) -> (Value, Value) {
    let config = put_blob(registry, &configuration.to_string()).await;
    let layer = put_blob(registry, "a layer").await;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer]});
    let descriptor = put_manifest(registry, tag, &manifest).await;
    (manifest, descriptor)
}

fn image_reference(registry: &Registry, tag: &str) -> OciReference {
    format!("{}/plugins/a:{tag}", registry.name).parse().unwrap()
}

fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn assert_error(result: Result<Digest, ImageError>, part: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(part), "{part}: {error}");
}

#[tokio::test]
async fn manifests_and_configurations_of_images_are_read() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let images = RegistryImages::new(scene.catalog());
    let user = |name: &str| json!({"os": "linux", "architecture": "amd64", "config": {"User": name}});
    let (manifest, image_descriptor) = put_image(&registry, "1", &user("nobody")).await;
    let (_, other) = put_image(&registry, "other", &user("other")).await;
    let architecture = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let entry = |descriptor: &Value, os: &str, architecture: &str| {
        let mut entry = descriptor.clone();
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    };
    let all = index_json(&[
        entry(&other, "windows", architecture),
        entry(&image_descriptor, "linux", architecture),
    ]);
    let index_descriptor = put_manifest(&registry, "all", &all).await;
    put_manifest(&registry, "foreign", &index_json(&[entry(&other, "linux", "s390")])).await;

    let fetched_manifest = images.manifest(&image_reference(&registry, "1")).await.unwrap();
    assert_eq!(json!(fetched_manifest.digest.to_string()), image_descriptor["digest"]);
    assert_eq!(parse_json(fetched_manifest.json.get()), manifest);
    let fetched_manifest = images.manifest(&image_reference(&registry, "all")).await.unwrap();
    assert_eq!(json!(fetched_manifest.digest.to_string()), index_descriptor["digest"]);
    assert_eq!(parse_json(fetched_manifest.json.get()), all);
    for tag in ["1", "all"] {
        let (fetched_manifest, configuration) = images.configuration(&image_reference(&registry, tag)).await.unwrap();
        assert_eq!(json!(fetched_manifest.digest.to_string()), image_descriptor["digest"]);
        assert_eq!(parse_json(configuration.get())["config"]["User"], "nobody");
    }
    let error = images
        .configuration(&image_reference(&registry, "foreign"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("none of them for linux/"), "{error}");
    let error = images.manifest(&image_reference(&registry, "none")).await.unwrap_err();
    assert!(error.to_string().contains("no such artifact"), "{error}");

    let cached_image = image_reference(&registry, "1");
    let uncached_image = image_reference(&registry, "other");
    drop(registry);
    images.manifest(&cached_image).await.unwrap();
    images.configuration(&cached_image).await.unwrap();
    images.manifest(&uncached_image).await.unwrap_err();
}

#[tokio::test]
async fn signatures_of_images_are_verified() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let images = || RegistryImages::new(scene.catalog());
    let (_, descriptor) = put_image(&registry, "1", &json!({})).await;
    let image = image_reference(&registry, "1");
    let (signer, other) = (signatures::CosignKey::new(), signatures::CosignKey::new());
    let key_signers = |signers: &[&signatures::CosignKey], annotations: &[(&str, &str)]| Signers {
        all: signers.iter().map(|signer| Signer::Key(signer.public_key())).collect(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
    };
    assert_error(
        images().verify_signatures(&image, &key_signers(&[&signer], &[])).await,
        "found: none",
    );

    let digest = descriptor["digest"].as_str().unwrap();
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": ""},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": {"env": "prod"},
    })
    .to_string();
    let config = put_blob(&registry, "{}").await;
    let mut layer = put_blob(&registry, &payload).await;
    layer["mediaType"] = json!("application/vnd.dev.cosign.simplesigning.v1+json");
    layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signer.sign(payload.as_bytes())});
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer]});
    put_manifest(&registry, &format!("{}.sig", digest.replace(':', "-")), &manifest).await;

    let reader = images();
    for annotations in [&[][..], &[("env", "prod")]] {
        let signed_digest = reader
            .verify_signatures(&image, &key_signers(&[&signer], annotations))
            .await
            .unwrap();
        assert_eq!(signed_digest.to_string(), digest);
    }
    assert_error(
        reader
            .verify_signatures(&image, &key_signers(&[&signer], &[("env", "test")]))
            .await,
        "found: none",
    );
    assert_error(
        reader.verify_signatures(&image, &key_signers(&[&other], &[])).await,
        "it needs a signature by the key",
    );
    assert_error(
        reader
            .verify_signatures(&image, &key_signers(&[&signer, &other], &[]))
            .await,
        "no valid signature",
    );
    assert_error(
        reader.verify_signatures(&image, &key_signers(&[], &[])).await,
        "no signer is named",
    );
    for (all, part) in [
        (Signer::Key("no key".to_owned()), "no PEM block"),
        (
            Signer::Identity {
                issuer: "https://accounts.example.com".to_owned(),
                subject: "ann@example.com".to_owned(),
                is_prefix: false,
            },
            "no rule of `signatures` names one",
        ),
    ] {
        let signers = Signers {
            all: vec![all],
            ..Signers::default()
        };
        assert_error(reader.verify_signatures(&image, &signers).await, part);
    }
    let (authority, stranger) = (CodeAuthority::new(), CodeAuthority::new());
    let certified = |certificate: String, chain: Option<Vec<String>>, must_be_logged| Signers {
        all: vec![Signer::Certificate {
            certificate,
            chain,
            must_be_logged,
        }],
        annotations: BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
    };
    let own_certificate = || authority.certify(&signer);
    for chain in [None, Some(vec![stranger.pem(), authority.pem()])] {
        let signed = reader
            .verify_signatures(&image, &certified(own_certificate(), chain, false))
            .await;
        assert_eq!(signed.unwrap().to_string(), digest);
    }
    for (signers, part) in [
        (
            certified(authority.certify(&other), None, false),
            "was made by another key",
        ),
        (
            certified(own_certificate(), Some(vec![stranger.pem()]), false),
            "no certificate of its chain issued it",
        ),
        (
            certified(own_certificate(), None, true),
            "no rule of `signatures` names one",
        ),
        (certified("no text".to_owned(), None, false), "not the PEM text"),
    ] {
        assert_error(reader.verify_signatures(&image, &signers).await, part);
    }
    drop(registry);
    reader
        .verify_signatures(&image, &key_signers(&[&signer], &[]))
        .await
        .unwrap();
}

struct CodeAuthority(CertifiedIssuer<'static, KeyPair>);

impl CodeAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn certify(&self, signer: &signatures::CosignKey) -> String {
        let mut params = CertificateParams::new(["signer.example.com".to_owned()]).unwrap();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.signed_by(signer.key(), &self.0).unwrap().pem()
    }
}
