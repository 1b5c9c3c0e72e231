//! Tests of where the catalog finds the signatures of modules, and of how the store saves them.

use admittance_catalog::{
    Digest, Error, Freshness, ModuleReference,
    signature::{PublicKey, PublicKeys, Requirement, SignaturePolicy, SignatureRule},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, StatusCode, header::LOCATION};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use serde_json::{Value, json};

use crate::{
    pushing::push,
    registry::{Registry, RegistryLogin},
    scene::{CatalogScene, component},
    site::Site,
};

/// A key that makes the same signatures as cosign.
pub(crate) struct CosignKey(rcgen::KeyPair);

impl CosignKey {
    pub(crate) fn new() -> Self {
        Self(rcgen::KeyPair::generate().unwrap())
    }

    pub(crate) fn key(&self) -> &rcgen::KeyPair {
        &self.0
    }

    pub(crate) fn public_key(&self) -> String {
        self.0.public_key_pem()
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> String {
        let (random, key) = (SystemRandom::new(), self.0.serialize_der());
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key, &random).unwrap();
        STANDARD.encode(key.sign(&random, bytes).unwrap())
    }

    fn rule_for(&self, source: &str) -> SignatureRule {
        let key = PublicKey::from_pem(&self.public_key()).unwrap();
        SignatureRule {
            source: source.parse().unwrap(),
            requirement: Requirement::Keys(PublicKeys::new(vec![key]).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_module_that_no_signature_rule_matches_is_not_fetched() {
    let mut scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    site.put_file("/a.wasm", &component(1000, 1), None);
    scene.config.signatures = SignaturePolicy::new(vec![CosignKey::new().rule_for("https://example.com/**")]);
    let error = scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await.unwrap_err();
    assert!(matches!(error, Error::Signature(_)), "{error}");
    assert!(site.requests().is_empty());
}

#[tokio::test]
async fn signatures_next_to_a_url_are_found() {
    let mut scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    let (signer, bytes) = (CosignKey::new(), component(1000, 1));
    let (url, paths) = (site.url("/a.wasm"), ["/a.wasm", "/a.wasm.sig", "/a.wasm.sigstore.json"]);
    site.put_file("/a.wasm", &bytes, None);
    scene.config.signatures = SignaturePolicy::new(vec![signer.rule_for("https://**")]);
    let catalog = scene.catalog();
    let requested_paths = || {
        site.requests()
            .into_iter()
            .map(|request| request.path)
            .collect::<Vec<_>>()
    };
    let error = scene.obtain(&catalog, &url).await.unwrap_err().to_string();
    assert!(error.contains("is not signed"), "{error}");
    assert_eq!(requested_paths(), paths);

    let reference: ModuleReference = url.parse().unwrap();
    site.put_file("/a.wasm.sig", CosignKey::new().sign(&bytes).as_bytes(), None);
    let error = scene.obtain(&catalog, &url).await.unwrap_err();
    assert!(matches!(error, Error::Signature(_)), "{error}");
    let error = catalog
        .load_stored(&reference, Digest::of_bytes(&bytes))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Signature(_)), "{error}");
    site.put_file("/a.wasm.sig", signer.sign(&bytes).as_bytes(), None);
    let module = scene.obtain(&catalog, &url).await.unwrap();
    assert_eq!(
        requested_paths()
            .iter()
            .filter(|path| path.as_str() == "/a.wasm")
            .count(),
        1
    );
    let described = catalog.signatures(&module, &|_| {}).await.unwrap();
    assert_eq!(described.len(), 1);

    let earlier_count = requested_paths().len();
    let stored_module = scene.obtain(&scene.catalog(), &url).await.unwrap();
    assert_eq!(stored_module.verified_signature(), module.verified_signature());
    scene
        .catalog()
        .load_stored(&reference, Digest::of_bytes(&bytes))
        .await
        .unwrap();
    assert_eq!(requested_paths().len(), earlier_count);
    scene.config.signatures = SignaturePolicy::new(vec![CosignKey::new().rule_for("https://**")]);
    let error = scene
        .catalog()
        .load_stored(&reference, Digest::of_bytes(&bytes))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Signature(_)), "{error}");
    let error = scene.obtain(&scene.catalog(), &url).await.unwrap_err();
    assert!(matches!(error, Error::Signature(_)), "{error}");
}

#[tokio::test]
async fn signatures_in_a_registry_are_found() {
    for is_referrer in [false, true] {
        let mut scene = CatalogScene::new();
        let registry = Registry::start(RegistryLogin::Open, None).await;
        let (signer, name) = (CosignKey::new(), format!("{}/plugins/a:1", registry.name));
        let reference = format!("oci://{name}");
        let pushed = push(&scene.catalog(), &name, &component(1000, 1)).await.unwrap();
        let pattern = format!("oci://{}/plugins/**", registry.name);
        scene.config.signatures = SignaturePolicy::new(vec![signer.rule_for(&pattern)]);
        let error = scene
            .obtain(&scene.catalog(), &reference)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not signed"), "{error}");

        let payload = json!({
            "critical": {
                "identity": {"docker-reference": format!("{}/plugins/a", registry.name)},
                "image": {"docker-manifest-digest": pushed.manifest.to_string()},
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        let hex = pushed.manifest.to_hex();
        let config = put_blob(&registry, "{}").await;
        let mut layer = put_blob(&registry, &payload).await;
        layer["mediaType"] = json!("application/vnd.dev.cosign.simplesigning.v1+json");
        layer["annotations"] = json!({
            "dev.cosignproject.cosign/signature": signer.sign(payload.as_bytes()),
        });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config, "layers": [layer],
        });
        if is_referrer {
            let mut entry = put_manifest(&registry, "signature", &manifest).await;
            entry["artifactType"] = json!("application/vnd.dev.cosign.artifact.sig.v1+json");
            let other = json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 2,
                "digest": entry["digest"], "artifactType": "application/spdx+json",
            });
            put_manifest(&registry, &format!("sha256-{hex}"), &index_json(&[other, entry])).await;
        } else {
            put_manifest(&registry, &format!("sha256-{hex}.sig"), &manifest).await;
        }
        let module = scene.obtain(&scene.catalog(), &reference).await.unwrap();
        // The signature covers the WebAssembly artifact, but the reference names an index that lists this artifact.
        let entry = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": pushed.manifest.to_string(),
            "size": 2, "platform": {"os": "wasi", "architecture": "wasm"},
        });
        put_manifest(&registry, "2", &index_json(&[entry])).await;
        let by_index = format!("oci://{}/plugins/a:2", registry.name);
        let module_of_index = scene.obtain(&scene.catalog(), &by_index).await.unwrap();
        assert_eq!(module_of_index.verified_signature(), module.verified_signature());
        drop(registry);
        for pinned in [None, Some(module.digest())] {
            let stored_module = scene
                .obtain_with(&scene.catalog(), &reference, pinned, Freshness::PreferRecorded)
                .await
                .unwrap();
            assert_eq!(stored_module.verified_signature(), module.verified_signature());
        }
        let loaded_module = scene.catalog().load_stored(module.reference(), module.digest()).await;
        assert_eq!(loaded_module.unwrap().verified_signature(), module.verified_signature());
    }
}

pub(crate) async fn put_blob(registry: &Registry, blob: impl AsRef<[u8]>) -> Value {
    let blob = blob.as_ref();
    let digest = Digest::of_bytes(blob);
    let uploads = format!("http://{}/v2/plugins/a/blobs/uploads/", registry.name);
    let location = send_request(Method::POST, &uploads, "", b"").await;
    let url = format!("{location}&digest={digest}");
    send_request(Method::PUT, &url, "application/octet-stream", blob).await;
    json!({"mediaType": "application/json", "digest": digest.to_string(), "size": blob.len()})
}

pub(crate) fn index_json(entries: &[Value]) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries,
    })
}

pub(crate) async fn put_manifest(registry: &Registry, tag: &str, manifest: &Value) -> Value {
    let (text, kind) = (manifest.to_string(), manifest["mediaType"].as_str().unwrap());
    let url = format!("http://{}/v2/plugins/a/manifests/{tag}", registry.name);
    send_request(Method::PUT, &url, kind, text.as_bytes()).await;
    json!({"mediaType": kind, "digest": Digest::of_bytes(&text).to_string(), "size": text.len()})
}

async fn send_request(method: Method, url: &str, kind: &str, body: &[u8]) -> String {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", kind)
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert!(
        matches!(response.status(), StatusCode::ACCEPTED | StatusCode::CREATED),
        "{response:?}"
    );
    response.headers()[LOCATION].to_str().unwrap().to_owned()
}
