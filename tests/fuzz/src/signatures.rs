use std::sync::LazyLock;

use admittance::{Digest, ModuleReference};
use admittance_catalog::signature::{
    Blob, FoundSignature, Keyless, Material, PublicKey, PublicKeys, Requirement, SignedModule, TrustRoot, describe,
    verify,
};

use crate::parts;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../host/catalog/tests/signature/fixtures/",
            $name
        ))
    };
}

const MODULE: &[u8] = fixture!("module.wasm");
const MANIFEST: &[u8] = fixture!("manifest.json");

/// Verifies the signature of a module in each of its forms: a bundle, a bare signature, a cosign artifact, and the copy
/// in the store. The input is the payload of a cosign artifact, an empty line, and the signature. Checks that the
/// signature is never valid for another module.
pub fn signatures(input: &[u8]) {
    let name = || "module.wasm.sigstore.json".to_owned();
    let [payload, signature] = parts(input);
    let signature_forms = [
        FoundSignature::Bundle {
            name: name(),
            content: Blob(input.to_vec()),
        },
        FoundSignature::Detached {
            name: name(),
            content: Blob(input.to_vec()),
        },
        FoundSignature::SimpleSigning {
            name: name(),
            payload: Blob(payload.to_vec()),
            signature: String::from_utf8_lossy(signature).into_owned(),
            certificate: None,
            chain: None,
            log: Some(String::from_utf8_lossy(payload).into_owned()),
        },
    ];
    for signature in signature_forms {
        check(&Material {
            manifest: Some(Blob(MANIFEST.to_vec())),
            signatures: vec![signature],
        });
    }
    if let Ok(material) = serde_json::from_slice::<Material>(input) {
        let json = serde_json::to_vec(&material).expect("material can be written");
        let again: Material = serde_json::from_slice(&json).expect("written material can be read");
        assert_eq!(again, material);
        check(&material);
    }
}

fn check(material: &Material) {
    static REQUIREMENTS: LazyLock<[Requirement; 2]> = LazyLock::new(requirements);
    static FILE: LazyLock<ModuleReference> = LazyLock::new(|| "file:/module.wasm".parse().expect("a reference"));
    static ARTIFACT: LazyLock<ModuleReference> =
        LazyLock::new(|| "oci://registry.example.com/plugins/a:1".parse().expect("a reference"));
    describe(material);
    for requirement in REQUIREMENTS.iter() {
        for reference in [&*FILE, &*ARTIFACT] {
            let verify_module = |module| {
                let subject = SignedModule {
                    reference,
                    module,
                    digest: Digest::of_bytes(module),
                };
                verify(requirement, subject, material)
            };
            let first = verify_module(MODULE);
            assert_eq!(
                first.is_ok(),
                verify_module(MODULE).is_ok(),
                "asked twice, answered twice"
            );
            let other = verify_module(b"another module");
            assert!(other.is_err(), "{material:?} vouches for another module: {other:?}");
        }
    }
}

fn requirements() -> [Requirement; 2] {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the fixture is text");
    let keys = [
        fixture!("p256.pub").as_slice(),
        fixture!("ed25519.pub"),
        fixture!("rsa.pub"),
    ]
    .into_iter()
    .map(|key| PublicKey::from_pem(&text(key)).expect("the fixture is a key"))
    .collect();
    [
        Requirement::Keys(PublicKeys::new(keys).expect("there are keys")),
        Requirement::Keyless(Keyless {
            trust_root: TrustRoot::from_json(&text(fixture!("keyless-root.json"))).expect("a trust root"),
            identity: "**".parse().or_else(|_| "*@example.com".parse()).expect("a pattern"),
            issuer: "https://accounts.example.com".parse().expect("an issuer"),
        }),
    ]
}
