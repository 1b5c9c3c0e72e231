//! Tests of bundles that other tools made, and of invalid trust roots.

use admittance_catalog::{
    Digest, ModuleReference,
    signature::{Material, SignatureKind, SignedModule, TrustRoot, VerifiedSignature, describe, verify},
};
use sigstore_verify::trust_root::SIGSTORE_STAGING_TRUSTED_ROOT;

use crate::{
    authority::{IDENTITY, ISSUER, SigningAuthority},
    keyless::keyless_requirement,
    subject::{bundle_signature, check_artifact, check_file, fixture, fixture_text, module_bytes, outcome},
};

#[test]
fn bundles_made_by_the_sigstore_client_are_verified() {
    let root = || TrustRoot::from_json(&fixture_text("keyless-root.json")).unwrap();
    let by = "by signer@example.com of https://accounts.example.com at 2025-06-01T12:00:00Z";
    let other = || SigningAuthority::new().trust_root();
    let changed = |name: &str, from: &str, to: &str| {
        let text = fixture_text(name);
        assert!(text.contains(from));
        text.replacen(from, to, 1).into_bytes()
    };
    for (name, trust_root, content, expected) in [
        ("a message", root(), fixture("keyless-message.sigstore.json"), by),
        (
            "with a timestamp beside the log's time",
            root(),
            fixture("keyless-timestamp.sigstore.json"),
            by,
        ),
        (
            "with a timestamp in place of the log's time",
            root(),
            changed("keyless-timestamp.sigstore.json", "inclusionPromise", "promise"),
            by,
        ),
        (
            "with another root",
            other(),
            fixture("keyless-message.sigstore.json"),
            "is not proven to be in a log of the trust root",
        ),
        (
            "at another time",
            root(),
            changed(
                "keyless-message.sigstore.json",
                "\"integratedTime\": \"17487792",
                "\"integratedTime\": \"17487791",
            ),
            "is not proven to be in a log of the trust root",
        ),
        (
            "without the log's promise",
            root(),
            changed("keyless-message.sigstore.json", "inclusionPromise", "promise"),
            "is not proven to be in a log of the trust root",
        ),
        (
            "with a statement on something else",
            root(),
            fixture("keyless-statement.sigstore.json"),
            "is over sha256:",
        ),
    ] {
        let required = keyless_requirement(trust_root, IDENTITY, ISSUER);
        let found = outcome(check_file(&required, &module_bytes(), vec![bundle_signature(content)]));
        assert!(found.starts_with(expected), "{name}: {found}");
    }
    let required = keyless_requirement(root(), IDENTITY, ISSUER);
    for (name, expected) in [
        ("keyless-statement.sigstore.json", by),
        (
            "keyless-provenance.sigstore.json",
            "is a statement of the kind `https://slsa.dev/provenance/v1`",
        ),
        ("keyless-message.sigstore.json", "is over sha256:"),
    ] {
        let found = outcome(check_artifact(&required, vec![bundle_signature(fixture(name))]));
        assert!(found.starts_with(expected), "{name}: {found}");
    }
}

#[test]
fn a_bundle_made_by_sigstores_public_services_is_verified() {
    let root = TrustRoot::from_json(SIGSTORE_STAGING_TRUSTED_ROOT).unwrap();
    let required = keyless_requirement(root, "*@yossarian.net", "https://github.com/login/oauth");
    let reference: ModuleReference = "file:/opt/services.txt".parse().unwrap();
    let content = fixture("services.txt");
    let subject = SignedModule {
        reference: &reference,
        module: &content,
        digest: Digest::of_bytes(&content),
    };
    let material = Material {
        manifest: None,
        signatures: vec![bundle_signature(fixture("services.sigstore.json"))],
    };
    let verified = verify(&required, subject, &material).unwrap();
    let VerifiedSignature::Identity {
        identity, log_index, ..
    } = verified
    else {
        panic!("{verified:?}");
    };
    let described = describe(&material);
    assert_eq!(described[0].kind, SignatureKind::Bundle);
    assert_eq!(described[0].identity.as_deref(), Some(identity.as_str()));
    assert_eq!(described[0].log_index, log_index);
    assert_eq!(described[0].logged_at.as_deref(), Some("2024-04-02T19:19:09Z"));
}

#[test]
fn an_invalid_trust_root_is_refused_with_the_reason() {
    for (text, expected) in [
        ("", "trust root: it is not a valid sigstore trust root"),
        ("{}", "trust root: it is not a valid sigstore trust root"),
        (
            r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#,
            "trust root: it names no certificate authority",
        ),
    ] {
        let error = TrustRoot::from_json(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let authority = SigningAuthority::new();
    let key = fixture_text("p256.pub");
    for (certificates, log, expected) in [
        (
            "",
            key.as_str(),
            "trust root: it is empty, or holds a PEM block that is not a `CERTIFICATE`",
        ),
        (
            key.as_str(),
            key.as_str(),
            "trust root: it is empty, or holds a PEM block that is not a `CERTIFICATE`",
        ),
        (authority.certificate(), "", "public key: it holds no PEM block"),
    ] {
        let error = TrustRoot::from_pem(certificates, log, None).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
