use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance::{Digest, ModuleReference};
use admittance_catalog::{
    Catalog, CatalogConfig, Freshness, Module, NetworkConfig,
    signature::{PublicKey, PublicKeys, Requirement, SignaturePolicy, SignatureRule},
};

use crate::{
    block_on,
    http1::{ParsedReply, serve},
    parts,
};

const MODULE: &[u8] = b"module";
const KEY: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../host/catalog/tests/signature/fixtures/p256.pub"
));

/// Downloads a module from a registry. The input has the registry's responses, separated by empty lines: the manifest
/// of an artifact, the index of its referrers, and the manifest of a signature. Checks that an accepted module has the
/// bytes and the digest in the manifest. If a signature by a certain key is required, checks that a module without such
/// a signature is rejected.
pub fn registry(input: &[u8]) {
    thread_local! {
        static SCENE: RegistryScene = block_on(RegistryScene::new());
    }
    let [manifest, referrers, signature] = parts(input);
    SCENE.with(|scene| {
        *scene.content.lock().expect("nothing panics with it") = RegistryContent {
            manifest: manifest.to_vec(),
            referrers: referrers.to_vec(),
            signature: signature.to_vec(),
        };
        if let Ok(module) = scene.obtain(&scene.trusting) {
            assert_eq!(module.bytes(), MODULE);
            assert_eq!(module.digest(), Digest::of_bytes(MODULE));
            let text = String::from_utf8_lossy(manifest);
            assert!(
                text.contains(&module.digest().to_hex()) || text.contains('\\'),
                "{text}"
            );
        }
        let module = scene.obtain(&scene.strict);
        assert!(module.is_err(), "{module:?} is taken without a signature");
    });
}

#[derive(Default)]
struct RegistryContent {
    manifest: Vec<u8>,
    referrers: Vec<u8>,
    signature: Vec<u8>,
}

impl RegistryContent {
    fn answer(&self, path: &str) -> ParsedReply {
        let is = |part: &str| path.contains(part);
        if path == "/v2/" {
            ParsedReply::ok("{}")
        } else if is("/manifests/1.0") {
            ParsedReply::ok(self.manifest.as_slice())
        } else if is("/referrers/") {
            ParsedReply::ok(self.referrers.as_slice())
        } else if is("/manifests/") {
            ParsedReply::ok(self.signature.as_slice())
        } else if is(&format!("/blobs/{}", Digest::of_bytes(MODULE))) {
            ParsedReply::ok(MODULE)
        } else {
            ParsedReply {
                status: 404,
                ..ParsedReply::ok("{}")
            }
        }
    }
}

struct RegistryScene {
    content: Arc<Mutex<RegistryContent>>,
    reference: ModuleReference,
    /// A catalog that accepts modules without signatures.
    trusting: Catalog,
    /// A catalog that accepts a module only if it has a signature by the required key.
    strict: Catalog,
}

impl RegistryScene {
    async fn new() -> Self {
        let content = Arc::new(Mutex::new(RegistryContent::default()));
        let served = content.clone();
        let address = serve(None, move |path| {
            served.lock().expect("nothing panics with it").answer(path)
        })
        .await;
        let mut network = NetworkConfig::default();
        network.attempts = 1;
        network.first_pause = Duration::ZERO;
        let catalog = |signatures| {
            let mut config = CatalogConfig::default();
            config.network = network.clone();
            config.signatures = signatures;
            Catalog::new(config).expect("the configuration is right")
        };
        let keys = PublicKeys::new(vec![PublicKey::from_pem(KEY).expect("a key")]).expect("there is a key");
        Self {
            content,
            reference: format!("oci://{address}/a:1.0").parse().expect("a reference"),
            trusting: catalog(SignaturePolicy::default()),
            strict: catalog(SignaturePolicy::new(vec![SignatureRule {
                source: "**".parse().expect("a pattern"),
                requirement: Requirement::Keys(keys),
            }])),
        }
    }

    fn obtain(&self, catalog: &Catalog) -> Result<Module, admittance::catalog::Error> {
        block_on(catalog.obtain(&self.reference, None, Freshness::Resolve, &|_| ()))
    }
}
