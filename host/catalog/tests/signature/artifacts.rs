//! Tests of signatures of registry artifacts, as cosign 2's `cosign sign --key` makes them.

use admittance_catalog::{
    Digest, ModuleReference,
    signature::{
        Blob, FoundSignature, Material, PublicKey, PublicKeys, Requirement, SignatureError, SignatureKind,
        SignedModule, describe, verify,
    },
};
use ring::signature::{EcdsaKeyPair, KeyPair};
use serde_json::json;

use crate::{
    authority::{ecdsa_key, public_pem, sign},
    subject::{check, check_artifact, manifest_bytes, module_bytes, outcome},
};

fn requirement(key: &EcdsaKeyPair) -> Requirement {
    let key = PublicKey::from_pem(&public_pem(key.public_key().as_ref())).unwrap();
    Requirement::Keys(PublicKeys::new(vec![key]).unwrap())
}

pub(crate) fn payload(manifest: &str, kind: &str) -> String {
    json!({
        "critical": {
            "identity": { "docker-reference": "registry.example.com/elsewhere" },
            "image": { "docker-manifest-digest": manifest },
            "type": kind,
        },
        "optional": null,
    })
    .to_string()
}

pub(crate) const COSIGN_SIGNATURE_TYPE: &str = "cosign container image signature";

fn simple_signing(payload: &str, signature: &str) -> FoundSignature {
    FoundSignature::SimpleSigning {
        name: "sha256-0.sig".to_owned(),
        payload: Blob(payload.as_bytes().to_vec()),
        signature: signature.to_owned(),
        certificate: None,
        chain: None,
        log: None,
    }
}

#[test]
fn a_signature_must_cover_the_manifest_of_the_module() {
    let key = ecdsa_key();
    let digest = Digest::of_bytes(manifest_bytes());
    let module_digest = Digest::of_bytes(module_bytes());
    let good = payload(&digest.to_string(), COSIGN_SIGNATURE_TYPE);
    let of_module = payload(&module_digest.to_string(), COSIGN_SIGNATURE_TYPE);
    let other = payload(&Digest::of_bytes("other").to_string(), COSIGN_SIGNATURE_TYPE);
    let attestation = payload(&digest.to_string(), "https://example.com/scanned");
    let sign_payload = |payload: &str| simple_signing(payload, &sign(&key, payload.as_bytes()));
    let by = "by the key";
    let wrong = "was made by another key or over different content";
    for (name, signature, expected) in [
        ("of the manifest", sign_payload(&good), by.to_owned()),
        (
            "of another manifest",
            sign_payload(&other),
            format!("is over {}, not over {digest}", Digest::of_bytes("other")),
        ),
        (
            "of the module",
            sign_payload(&of_module),
            format!("is over {module_digest}, not over {digest}"),
        ),
        (
            "of another kind",
            sign_payload(&attestation),
            "is a statement of the kind `https://example.com/scanned`".to_owned(),
        ),
        (
            "no digest",
            sign_payload(&payload("latest", COSIGN_SIGNATURE_TYPE)),
            format!("is over latest, not over {digest}"),
        ),
        (
            "no payload of cosign",
            sign_payload("{}"),
            "is damaged: its payload is not a cosign payload".to_owned(),
        ),
        (
            "another's signature",
            simple_signing(&good, &sign(&key, other.as_bytes())),
            wrong.to_owned(),
        ),
        (
            "another's key",
            simple_signing(&good, &sign(&ecdsa_key(), good.as_bytes())),
            wrong.to_owned(),
        ),
        (
            "no base64",
            simple_signing(&good, "%"),
            "is damaged: the signature is not valid base64".to_owned(),
        ),
        ("empty", simple_signing(&good, ""), wrong.to_owned()),
    ] {
        let actual = outcome(check_artifact(&requirement(&key), vec![signature]));
        assert!(actual.starts_with(&expected), "{name}: {actual}");
    }
}

#[test]
fn the_manifest_must_match_the_module_and_the_reference() {
    let key = ecdsa_key();
    let digest = Digest::of_bytes(manifest_bytes());
    let text = payload(&digest.to_string(), COSIGN_SIGNATURE_TYPE);
    let signatures = vec![simple_signing(&text, &sign(&key, text.as_bytes()))];
    let material_with = |manifest: Option<Vec<u8>>| Material {
        manifest: manifest.map(Blob),
        signatures: signatures.clone(),
    };
    let reference_to =
        |digest: Digest| -> ModuleReference { format!("oci://registry.example.com/a@{digest}").parse().unwrap() };
    let good = material_with(Some(manifest_bytes()));
    let unrelated = |reference: &ModuleReference, module: &[u8], material: &Material| {
        let error = check(&requirement(&key), reference, module, material).unwrap_err();
        assert!(matches!(error, SignatureError::Unrelated { .. }), "{error}");
    };
    let reference = reference_to(digest);
    check(&requirement(&key), &reference, &module_bytes(), &good).unwrap();
    unrelated(&reference, b"another module", &good);
    unrelated(&reference_to(Digest::of_bytes("other")), &module_bytes(), &good);
    unrelated(&reference, &module_bytes(), &material_with(None));
    unrelated(&reference, &module_bytes(), &material_with(Some(b"{}".to_vec())));
}

#[test]
fn the_error_of_an_unsigned_artifact_says_how_to_sign_it() {
    let key = ecdsa_key();
    let error = check_artifact(&requirement(&key), Vec::new()).unwrap_err();
    let fix = format!(
        "sign it with `cosign sign --key <private key> registry.example.com/plugins/a@{}`",
        Digest::of_bytes(manifest_bytes())
    );
    assert!(error.to_string().ends_with(&fix), "{error}");
    let reference = "https://example.com/a.wasm".parse().unwrap();
    let module = module_bytes();
    let subject = SignedModule {
        reference: &reference,
        module: &module,
        digest: Digest::of_bytes(&module),
    };
    let error = verify(&requirement(&key), subject, &Material::default()).unwrap_err();
    let fix = "and publish the bundle at https://example.com/a.wasm.sigstore.json";
    assert!(error.to_string().ends_with(fix), "{error}");
}

#[test]
fn signatures_are_described_even_if_none_is_required() {
    let signatures = vec![simple_signing("{}", "MAA="), simple_signing("{}", "%")];
    let material = Material {
        manifest: None,
        signatures,
    };
    let described = describe(&material);
    assert_eq!(described[0].kind, SignatureKind::SimpleSigning);
    assert_eq!(described[0].damage, None);
    let damage = described[1].damage.as_deref().unwrap();
    assert!(
        damage.starts_with("is damaged: the signature is not valid base64"),
        "{damage}"
    );
}
