//! The content that is signed in these tests, and functions that check its signatures.

use std::path::PathBuf;

use admittance_catalog::{
    Digest, ModuleReference,
    signature::{
        Blob, FoundSignature, Material, PublicKey, PublicKeys, Requirement, SignatureError, SignedModule,
        VerifiedSignature, verify,
    },
};

/// Reads a file in `fixtures`. `fixtures/README.md` describes how each file was made.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/signature/fixtures")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn fixture_text(name: &str) -> String {
    String::from_utf8(fixture(name)).unwrap()
}

pub(crate) fn module_bytes() -> Vec<u8> {
    fixture("module.wasm")
}

pub(crate) fn manifest_bytes() -> Vec<u8> {
    fixture("manifest.json")
}

pub(crate) fn key_requirement(names: &[&str]) -> Requirement {
    let keys = names
        .iter()
        .map(|name| PublicKey::from_pem(&fixture_text(name)).unwrap())
        .collect();
    Requirement::Keys(PublicKeys::new(keys).unwrap())
}

pub(crate) fn detached_signature(content: impl Into<Vec<u8>>) -> FoundSignature {
    FoundSignature::Detached {
        name: "module.wasm.sig".to_owned(),
        content: Blob(content.into()),
    }
}

pub(crate) fn bundle_signature(content: impl Into<Vec<u8>>) -> FoundSignature {
    FoundSignature::Bundle {
        name: "module.wasm.sigstore.json".to_owned(),
        content: Blob(content.into()),
    }
}

pub(crate) fn check_file(
    requirement: &Requirement,
    module: &[u8],
    signatures: Vec<FoundSignature>,
) -> Result<VerifiedSignature, SignatureError> {
    let material = Material {
        manifest: None,
        signatures,
    };
    let reference: ModuleReference = "file:/opt/module.wasm".parse().unwrap();
    check(requirement, &reference, module, &material)
}

pub(crate) fn check_artifact(
    requirement: &Requirement,
    signatures: Vec<FoundSignature>,
) -> Result<VerifiedSignature, SignatureError> {
    let material = Material {
        manifest: Some(Blob(manifest_bytes())),
        signatures,
    };
    let reference: ModuleReference = "oci://registry.example.com/plugins/a:1".parse().unwrap();
    check(requirement, &reference, &module_bytes(), &material)
}

/// Converts the signatures to the store's format and back, and then checks them.
pub(crate) fn check(
    requirement: &Requirement,
    reference: &ModuleReference,
    module: &[u8],
    material: &Material,
) -> Result<VerifiedSignature, SignatureError> {
    let stored_text = serde_json::to_string(material).unwrap();
    let material: Material = serde_json::from_str(&stored_text).unwrap();
    let subject = SignedModule {
        reference,
        module,
        digest: Digest::of_bytes(module),
    };
    verify(requirement, subject, &material)
}

pub(crate) fn outcome(result: Result<VerifiedSignature, SignatureError>) -> String {
    match result {
        Ok(verified) => verified.to_string(),
        Err(SignatureError::Refused { findings, .. }) => {
            let refusals: Vec<String> = findings.iter().map(|finding| finding.refusal.to_string()).collect();
            refusals.join("; ")
        }
        Err(error) => error.to_string(),
    }
}
