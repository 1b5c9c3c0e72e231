use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use admittance_catalog::{Catalog, Error, FetchProgress, OciReference, PushedArtifact};
use serde_json::{Value, json};

use crate::{
    registry::{Registry, RegistryLogin},
    scene::{CatalogScene, component},
};

pub(crate) async fn push(catalog: &Catalog, reference: &str, bytes: &[u8]) -> Result<PushedArtifact, Error> {
    push_with_annotations(catalog, reference, bytes, &BTreeMap::new(), &|_| {}).await
}

async fn push_with_annotations(
    catalog: &Catalog,
    reference: &str,
    bytes: &[u8],
    annotations: &BTreeMap<String, String>,
    progress: &(dyn Fn(FetchProgress) + Send + Sync),
) -> Result<PushedArtifact, Error> {
    let reference: OciReference = reference.parse().unwrap();
    let created = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    catalog
        .push(&reference, bytes.to_vec().into(), annotations, created, progress)
        .await
}

#[tokio::test]
async fn a_module_is_pushed_as_a_standard_wasm_artifact() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let catalog = scene.catalog();
    let bytes = wat::parse_str(
        r#"(component (import "admittance:plugin/cluster@1.0.0" (instance))
            (component (import "inner" (func))) (instance $i) (export "admittance:plugin/hook@1.0.0" (instance $i)))"#,
    )
    .unwrap();
    let name = format!("{}/plugins/a:1.0", registry.name);
    let annotations = BTreeMap::from([("org.opencontainers.image.version".to_owned(), "1.0".to_owned())]);
    let reports = std::sync::Mutex::new(Vec::new());
    let pushed = push_with_annotations(&catalog, &name, &bytes, &annotations, &|progress| {
        reports.lock().unwrap().push(progress);
    })
    .await
    .unwrap();
    let reports = reports.into_inner().unwrap();
    assert!(
        matches!(
            reports.as_slice(),
            [FetchProgress::Started { .. }, .., FetchProgress::Received { bytes: sent }, FetchProgress::Finished]
                if *sent == bytes.len() as u64
        ),
        "{reports:?}"
    );
    assert_eq!(pushed.reference.to_string(), format!("{name}@{}", pushed.manifest));

    let json =
        |digest: &str| -> Value { serde_json::from_slice(&fs::read(registry.blob_path(digest)).unwrap()).unwrap() };
    let manifest = json(&pushed.manifest.to_string());
    let config = manifest["config"]["digest"].as_str().unwrap();
    let config_size = fs::metadata(registry.blob_path(config)).unwrap().len();
    assert_eq!(
        manifest,
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.wasm.config.v0+json", "digest": config, "size": config_size,
            },
            "layers": [{
                "mediaType": "application/wasm", "digest": pushed.module.to_string(), "size": bytes.len(),
            }],
            "annotations": {"org.opencontainers.image.version": "1.0"},
        })
    );
    assert_eq!(
        json(config),
        json!({
            "created": "2001-09-09T01:46:40Z",
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [pushed.module.to_string()],
            "component": {
                "exports": ["admittance:plugin/hook@1.0.0"],
                "imports": ["admittance:plugin/cluster@1.0.0"],
            },
        })
    );
    assert_eq!(fs::read(registry.blob_path(&pushed.module.to_string())).unwrap(), bytes);
    let second_push = push_with_annotations(&catalog, &name, &bytes, &annotations, &|_| {})
        .await
        .unwrap();
    assert_eq!(second_push, pushed);
    let module = scene.obtain(&catalog, &format!("oci://{name}")).await.unwrap();
    assert_eq!(module.digest(), pushed.module);
}

#[tokio::test]
async fn a_refused_push_is_reported_with_the_reason() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Basic, None).await;
    let catalog = scene.catalog();
    let name = format!("{}/a:1", registry.name);
    let pinned = format!("{}/a@{}", registry.name, admittance_catalog::Digest::of_bytes("a"));
    let good = component(100, 1);
    for (name, bytes, expected) in [
        (&name, b"\0asm\x01\0\0\0".as_slice(), "it is a core module"),
        (&name, b"<html>", "it is not valid WebAssembly"),
        (&pinned, &good, "write a tag in place of the digest"),
        (&name, &good, "was refused without credentials"),
    ] {
        let error = push(&catalog, name, bytes).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.is_transient());
    }
    scene.log_in(&registry.name);
    push(&catalog, &name, &good).await.unwrap();
}
