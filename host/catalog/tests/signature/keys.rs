//! Tests of signatures of files by keys. `openssl` makes the same signatures as `cosign sign-blob --key`.

use admittance_catalog::signature::{FoundSignature, InvalidTrust, PublicKey, PublicKeys, Requirement, SignatureError};
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::signature::{EcdsaKeyPair, KeyPair};
use serde_json::json;

use crate::authority::{ecdsa_key, public_pem, sign};
use crate::subject::{
    bundle_signature, check_file, detached_signature, fixture, fixture_text, key_requirement, module_bytes, outcome,
};

const WRONG_KEY: &str = "was made by another key or over different content";

fn signed_by(name: &str) -> String {
    let key = PublicKey::from_pem(&fixture_text(name)).unwrap();
    format!("by the key {}", key.fingerprint())
}

#[test]
fn detached_signatures_of_every_kind_of_key_are_verified() {
    let p256 = fixture("p256.sig");
    for (name, required, signature, expected) in [
        ("P-256", vec!["p256.pub"], p256.clone(), signed_by("p256.pub")),
        (
            "not in base64",
            vec!["p256.pub"],
            fixture("p256.raw.sig"),
            signed_by("p256.pub"),
        ),
        (
            "with a line's end",
            vec!["p256.pub"],
            [p256.as_slice(), b"\n"].concat(),
            signed_by("p256.pub"),
        ),
        (
            "P-384 with SHA-384",
            vec!["p384.pub"],
            fixture("p384.sig"),
            signed_by("p384.pub"),
        ),
        (
            "P-384 with SHA-256",
            vec!["p384.pub"],
            fixture("p384-sha256.sig"),
            signed_by("p384.pub"),
        ),
        (
            "Ed25519",
            vec!["ed25519.pub"],
            fixture("ed25519.sig"),
            signed_by("ed25519.pub"),
        ),
        ("RSA", vec!["rsa.pub"], fixture("rsa.sig"), signed_by("rsa.pub")),
        ("RSA-PSS", vec!["rsa.pub"], fixture("rsa-pss.sig"), signed_by("rsa.pub")),
        (
            "the second key",
            vec!["rsa.pub", "p256.pub"],
            p256.clone(),
            signed_by("p256.pub"),
        ),
        ("another key", vec!["p384.pub"], p256.clone(), WRONG_KEY.to_owned()),
        (
            "other keys",
            vec!["p384.pub", "rsa.pub", "ed25519.pub"],
            p256.clone(),
            WRONG_KEY.to_owned(),
        ),
        (
            "empty",
            vec!["p256.pub"],
            Vec::new(),
            "is damaged: it is empty".to_owned(),
        ),
        (
            "a line's end",
            vec!["p256.pub"],
            b"\n".to_vec(),
            "is damaged: it is empty".to_owned(),
        ),
        (
            "cut off within base64",
            vec!["p256.pub"],
            p256[..41].to_vec(),
            "is damaged: it is not valid base64: Invalid input length: 41".to_owned(),
        ),
        ("cut off", vec!["p256.pub"], p256[..40].to_vec(), WRONG_KEY.to_owned()),
        (
            "a text",
            vec!["p256.pub"],
            b"not a signature".to_vec(),
            WRONG_KEY.to_owned(),
        ),
    ] {
        let verification = check_file(
            &key_requirement(&required),
            &module_bytes(),
            vec![detached_signature(signature)],
        );
        assert_eq!(outcome(verification), expected, "{name}");
    }
}

#[test]
fn a_signature_of_another_module_is_refused() {
    let signature = fixture("p256.sig");
    let mut other = module_bytes();
    other[8] ^= 1;
    for changed in [
        other,
        module_bytes()[..10].to_vec(),
        [module_bytes(), vec![0]].concat(),
        Vec::new(),
    ] {
        let verification = check_file(
            &key_requirement(&["p256.pub"]),
            &changed,
            vec![detached_signature(signature.clone())],
        );
        assert_eq!(outcome(verification), WRONG_KEY);
    }
}

#[test]
fn one_valid_signature_is_enough() {
    let good = detached_signature(fixture("p256.sig"));
    let bad = detached_signature(fixture("rsa.sig"));
    for signatures in [vec![good.clone(), bad.clone()], vec![bad.clone(), good]] {
        let verification = check_file(&key_requirement(&["p256.pub"]), &module_bytes(), signatures);
        assert_eq!(outcome(verification), signed_by("p256.pub"));
    }
    let verification = check_file(
        &key_requirement(&["p256.pub"]),
        &module_bytes(),
        vec![bad.clone(), bundle_signature("{}")],
    );
    let Err(SignatureError::Refused { findings, .. }) = verification else {
        panic!("{verification:?}");
    };
    assert_eq!(findings.len(), 2);
}

struct TestSigner {
    key: EcdsaKeyPair,
}

impl TestSigner {
    fn new() -> Self {
        Self { key: ecdsa_key() }
    }

    fn requirement(&self) -> Requirement {
        let key = PublicKey::from_pem(&public_pem(self.key.public_key().as_ref())).unwrap();
        Requirement::Keys(PublicKeys::new(vec![key]).unwrap())
    }

    fn sign(&self, message: &[u8]) -> String {
        sign(&self.key, message)
    }

    fn message_bundle(&self, message: &[u8], digest: Option<&[u8]>) -> FoundSignature {
        let mut signature = json!({ "signature": self.sign(message) });
        if let Some(digest) = digest {
            signature["messageDigest"] = json!({ "algorithm": "SHA2_256", "digest": STANDARD.encode(digest) });
        }
        let content = json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": { "publicKey": { "hint": "a hint" } },
            "messageSignature": signature,
        });
        bundle_signature(content.to_string())
    }

    fn statement_bundle(&self, payload_type: &str, payload: &str) -> FoundSignature {
        let signed = format!(
            "DSSEv1 {} {payload_type} {} {payload}",
            payload_type.len(),
            payload.len()
        );
        let content = json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": { "publicKey": { "hint": "a hint" } },
            "dsseEnvelope": {
                "payloadType": payload_type,
                "payload": STANDARD.encode(payload),
                "signatures": [{ "sig": self.sign(signed.as_bytes()) }],
            },
        });
        bundle_signature(content.to_string())
    }
}

#[test]
fn bundles_signed_by_a_key_are_verified() {
    const IN_TOTO_TYPE: &str = "application/vnd.in-toto+json";
    const COSIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
    let signer = TestSigner::new();
    let module = module_bytes();
    let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    let statement = |kind: &str, predicate: &str, bytes: &[u8]| {
        json!({
            "_type": kind,
            "subject": [{ "digest": { "sha256": hex::encode(digest(bytes)) } }],
            "predicateType": predicate,
            "predicate": {},
        })
        .to_string()
    };
    let good = statement("https://in-toto.io/Statement/v1", COSIGN_PREDICATE, &module);
    let older = json!({ "base64Signature": signer.sign(&module), "cert": "" }).to_string();
    let other_actual = format!("not over sha256:{}", hex::encode(digest(&module)));
    for (name, signature, expected) in [
        ("a message", signer.message_bundle(&module, None), "by the key"),
        (
            "a message with its digest",
            signer.message_bundle(&module, Some(digest(&module).as_ref())),
            "by the key",
        ),
        ("of cosign 2", bundle_signature(older), "by the key"),
        (
            "a statement",
            signer.statement_bundle(IN_TOTO_TYPE, &good),
            "by the key",
        ),
        ("another message", signer.message_bundle(b"another", None), WRONG_KEY),
        (
            "with another's digest",
            signer.message_bundle(&module, Some(digest(b"another").as_ref())),
            other_actual.as_str(),
        ),
        (
            "a statement on another",
            signer.statement_bundle(
                IN_TOTO_TYPE,
                &statement("https://in-toto.io/Statement/v1", COSIGN_PREDICATE, b"another"),
            ),
            other_actual.as_str(),
        ),
        (
            "a statement of another kind",
            signer.statement_bundle(
                IN_TOTO_TYPE,
                &statement(
                    "https://in-toto.io/Statement/v1",
                    "https://slsa.dev/provenance/v1",
                    &module,
                ),
            ),
            "is a statement of the kind `https://slsa.dev/provenance/v1`",
        ),
        (
            "no statement of in-toto",
            signer.statement_bundle(
                IN_TOTO_TYPE,
                &statement("https://example.com/v1", COSIGN_PREDICATE, &module),
            ),
            "is a statement of the kind `https://example.com/v1`",
        ),
        (
            "of another type",
            signer.statement_bundle("text/plain", &good),
            "is a statement of the kind `text/plain`",
        ),
        (
            "no JSON in it",
            signer.statement_bundle(IN_TOTO_TYPE, "text"),
            "is damaged: its payload is not a valid in-toto statement",
        ),
        (
            "by another",
            TestSigner::new().statement_bundle(IN_TOTO_TYPE, &good),
            WRONG_KEY,
        ),
        (
            "no JSON",
            bundle_signature("text"),
            "is damaged: it is not a valid sigstore bundle",
        ),
        ("no text", bundle_signature([0xff]), "is damaged: it is not valid UTF-8"),
        (
            "empty",
            bundle_signature(""),
            "is damaged: it is not a valid sigstore bundle",
        ),
        (
            "an empty object",
            bundle_signature("{}"),
            "is damaged: it is not a valid sigstore bundle",
        ),
        (
            "far too deep",
            bundle_signature("[".repeat(100_000)),
            "is damaged: it is not a valid sigstore bundle",
        ),
    ] {
        let actual = outcome(check_file(&signer.requirement(), &module, vec![signature]));
        assert!(actual.contains(expected), "{name}: {actual}");
    }
}

#[test]
fn the_error_of_an_unsigned_file_says_how_to_sign_it() {
    let key = PublicKey::from_pem(&fixture_text("p256.pub")).unwrap().fingerprint();
    let error = check_file(&key_requirement(&["p256.pub"]), &module_bytes(), Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "module file:/opt/module.wasm is not signed, but a signature by the key {key} is required: sign it \
             with `cosign sign-blob --key <private key> --bundle /opt/module.wasm.sigstore.json /opt/module.wasm`"
        )
    );
    let signatures = vec![detached_signature(fixture("rsa.sig"))];
    let error = check_file(&key_requirement(&["p256.pub"]), &module_bytes(), signatures).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "module file:/opt/module.wasm has no valid signature: a signature by the key {key} is required, \
             but found module.wasm.sig, which was made by another key or over different content: sign it with \
             `cosign sign-blob --key <private key> --bundle /opt/module.wasm.sigstore.json /opt/module.wasm`"
        )
    );
}

#[test]
fn an_invalid_public_key_is_refused_with_the_reason() {
    let private = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let garbage = "-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n";
    let two = format!("{}{}", fixture_text("p256.pub"), fixture_text("rsa.pub"));
    for (pem, expected) in [
        ("", "public key: it holds no PEM block"),
        ("text", "public key: it holds no PEM block"),
        (private, "public key: it is a private key"),
        (certificate, "public key: it is a `CERTIFICATE`"),
        (garbage, "public key: it is not a key for ECDSA on P-256"),
        (two.as_str(), "public key: it holds 2 PEM blocks"),
    ] {
        let error = PublicKey::from_pem(pem).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let error = PublicKey::read(directory.path()).unwrap_err();
    assert!(matches!(error, InvalidTrust::Unreadable { .. }), "{error}");
    let path = directory.path().join("key.pub");
    std::fs::write(&path, private).unwrap();
    let error = PublicKey::read(&path).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("public key {}: it is a private key", path.display())),
        "{error}"
    );
    std::fs::write(&path, fixture_text("p256.pub")).unwrap();
    assert_eq!(
        PublicKey::read(&path).unwrap(),
        PublicKey::from_pem(&fixture_text("p256.pub")).unwrap()
    );
}
