//! Tests of keyless signatures, whose certificates were issued by the authority of the trust root.

use admittance_catalog::{
    Digest,
    signature::{FoundSignature, Keyless, Requirement, TrustRoot},
};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use serde_json::json;

use crate::{
    artifacts::{COSIGN_SIGNATURE_TYPE, payload},
    authority::{CertificateProperties, IDENTITY, ISSUER, SIGNED_AT, SignedLayer, SigningAuthority},
    subject::{
        check_artifact, check_file, detached_signature, fixture, fixture_text, manifest_bytes, module_bytes, outcome,
    },
};

pub(crate) fn keyless_requirement(trust_root: TrustRoot, identity: &str, issuer: &str) -> Requirement {
    Requirement::Keyless(Keyless {
        trust_root,
        identity: identity.parse().unwrap(),
        issuer: issuer.parse().unwrap(),
    })
}

fn manifest_payload() -> String {
    payload(&Digest::of_bytes(manifest_bytes()).to_string(), COSIGN_SIGNATURE_TYPE)
}

#[test]
fn a_keyless_signature_needs_the_identity_and_a_certificate_valid_at_signing() {
    const WORKFLOW: &str = "https://github.com/o/r/.github/workflows/release.yml@refs/tags/v1.0";
    let authority = SigningAuthority::new();
    let default = CertificateProperties::default;
    let of_workflow = || CertificateProperties {
        identity: SanType::URI(WORKFLOW.try_into().unwrap()),
        ..default()
    };
    let expired = |from: i64, to: i64| CertificateProperties {
        validity: (from, to),
        ..default()
    };
    let good = "by signer@example.com of https://accounts.example.com at 2025-06-15T15:06:40Z";
    for (name, request, identity, issuer, expected) in [
        ("an e-mail address", default(), IDENTITY, ISSUER, good),
        ("a pattern", default(), "*@example.com", ISSUER, good),
        ("a URI", of_workflow(), WORKFLOW, ISSUER, "by https://github.com/o/r/"),
        (
            "a pattern of URIs",
            of_workflow(),
            "https://github.com/o/r/.github/workflows/release.yml@refs/tags/*",
            ISSUER,
            "by https://github.com/o/r/",
        ),
        (
            "another identity",
            default(),
            "other@example.com",
            ISSUER,
            "was made by `signer@example.com`, not by `other@example.com`",
        ),
        (
            "no match of the pattern",
            of_workflow(),
            "https://github.com/o/r/.github/workflows/release.yml@refs/heads/*",
            ISSUER,
            "was made by `https://github.com/o/r/",
        ),
        (
            "another issuer",
            default(),
            IDENTITY,
            "https://accounts.example.org",
            "was made by an identity of the issuer `https://accounts.example.com`, not of `https://accounts.example.org`",
        ),
        ("as the certificate begins", expired(0, 10), IDENTITY, ISSUER, good),
        ("as the certificate ends", expired(-10, 0), IDENTITY, ISSUER, good),
        (
            "after the certificate",
            expired(-600, -1),
            IDENTITY,
            ISSUER,
            "was made at 2025-06-15T15:06:40Z, outside the validity of its certificate \
             (2025-06-15T14:56:40Z to 2025-06-15T15:06:39Z)",
        ),
        (
            "before the certificate",
            expired(1, 600),
            IDENTITY,
            ISSUER,
            "was made at 2025-06-15T15:06:40Z, outside the validity of its certificate",
        ),
        (
            "a certificate for something else",
            CertificateProperties {
                usage: ExtendedKeyUsagePurpose::ServerAuth,
                ..default()
            },
            IDENTITY,
            ISSUER,
            "has a certificate that the trust root does not trust",
        ),
        (
            "in the future",
            CertificateProperties {
                validity: (0, 3_000_000_000),
                logged_at: SIGNED_AT + 2_900_000_000,
                ..default()
            },
            IDENTITY,
            ISSUER,
            "is not proven to be in a log of the trust root: integrated time",
        ),
    ] {
        let required = keyless_requirement(authority.trust_root(), identity, issuer);
        let signed = authority.sign(&manifest_payload(), request);
        let actual = outcome(check_artifact(&required, vec![signed.simple_signing()]));
        assert!(actual.starts_with(expected), "{name}: {actual}");
    }
}

#[test]
fn a_signature_must_match_its_certificate_and_its_log_entry() {
    let authority = SigningAuthority::new();
    let other = SigningAuthority::new();
    let good = || authority.sign(&manifest_payload(), CertificateProperties::default());
    let changed_signature = |change: &dyn Fn(&mut SignedLayer)| {
        let mut signed = good();
        change(&mut signed);
        signed.simple_signing()
    };
    let elsewhere = payload(&Digest::of_bytes("other").to_string(), COSIGN_SIGNATURE_TYPE);
    let unlogged = "is not proven to be in a log of the trust root";
    let damaged = "is damaged";
    for (name, found_signature, expected) in [
        ("good", good().simple_signing(), "by signer@example.com"),
        (
            "of another authority",
            changed_signature(&|signed| {
                let by_other = other.sign(&signed.payload, CertificateProperties::default());
                let (signature, certificate) = (&by_other.signature, &by_other.certificate);
                signed.log = authority.log_promise(&signed.payload, signature, certificate, SIGNED_AT);
                signed.signature = by_other.signature.clone();
                signed.certificate = by_other.certificate.clone();
            }),
            "has a certificate that the trust root does not trust",
        ),
        (
            "in another log",
            changed_signature(&|signed| {
                signed.log = other.log_promise(&signed.payload, &signed.signature, &signed.certificate, SIGNED_AT);
            }),
            unlogged,
        ),
        (
            "in another log, under the name of this",
            changed_signature(&|signed| {
                let log = signed.log["Payload"]["logID"].clone();
                signed.log = other.log_promise(&signed.payload, &signed.signature, &signed.certificate, SIGNED_AT);
                signed.log["Payload"]["logID"] = log;
            }),
            unlogged,
        ),
        (
            "at another time than the log said",
            changed_signature(&|signed| signed.log["Payload"]["integratedTime"] = json!(SIGNED_AT + 1)),
            unlogged,
        ),
        (
            "at another place than the log said",
            changed_signature(&|signed| signed.log["Payload"]["logIndex"] = json!(8)),
            unlogged,
        ),
        (
            "with the promise for another",
            changed_signature(&|signed| signed.log = good().log),
            unlogged,
        ),
        (
            "with a promise for something else",
            changed_signature(&|signed| {
                let body = json!({ "apiVersion": "0.0.1", "kind": "helm" });
                signed.log = authority.sign_log_entry(&body, SIGNED_AT);
            }),
            "is of an unsupported kind",
        ),
        (
            "with the certificate of another",
            changed_signature(&|signed| signed.certificate = good().certificate),
            "was made by another key",
        ),
        (
            "with the signature of another",
            changed_signature(&|signed| signed.signature = good().signature),
            "was made by another key",
        ),
        (
            "for another artifact",
            authority
                .sign(&elsewhere, CertificateProperties::default())
                .simple_signing(),
            "is over sha256:",
        ),
        (
            "for another artifact, with this one's payload",
            changed_signature(&|signed| {
                *signed = authority.sign(&elsewhere, CertificateProperties::default());
                signed.payload = manifest_payload();
            }),
            "was made by another key",
        ),
        (
            "no log's promise",
            changed_signature(&|signed| signed.log = json!({})),
            damaged,
        ),
        (
            "no certificate",
            changed_signature(&|signed| signed.certificate = "text".to_owned()),
            damaged,
        ),
        (
            "two certificates",
            changed_signature(&|signed| signed.certificate = signed.certificate.repeat(2)),
            damaged,
        ),
        (
            "another key in its place",
            changed_signature(&|signed| signed.certificate = fixture_text("p256.pub")),
            damaged,
        ),
    ] {
        let required = keyless_requirement(authority.trust_root(), IDENTITY, ISSUER);
        let actual = outcome(check_artifact(&required, vec![found_signature]));
        assert!(actual.starts_with(expected), "{name}: {actual}");
    }
}

#[test]
fn a_bundle_with_a_missing_part_is_refused() {
    let authority = SigningAuthority::new();
    let signed = authority
        .sign(&manifest_payload(), CertificateProperties::default())
        .simple_signing();
    let FoundSignature::SimpleSigning {
        name,
        payload,
        signature,
        certificate,
        log,
        ..
    } = signed
    else {
        panic!("it is that kind");
    };
    let simple_signing = |certificate, chain, log| FoundSignature::SimpleSigning {
        name: name.clone(),
        payload: payload.clone(),
        signature: signature.clone(),
        certificate,
        chain,
        log,
    };
    let chain = Some(authority.certificate().to_owned());
    for (found_signature, expected) in [
        (
            simple_signing(certificate.clone(), chain, log.clone()),
            "by signer@example.com",
        ),
        (
            simple_signing(certificate, None, None),
            "is not proven to be in a log of the trust root",
        ),
        (simple_signing(None, None, log), "has no certificate"),
    ] {
        let required = keyless_requirement(authority.trust_root(), IDENTITY, ISSUER);
        let actual = outcome(check_artifact(&required, vec![found_signature]));
        assert!(actual.starts_with(expected), "{actual}");
    }
    let required = keyless_requirement(authority.trust_root(), IDENTITY, ISSUER);
    let actual = outcome(check_file(
        &required,
        &module_bytes(),
        vec![detached_signature(fixture("p256.sig"))],
    ));
    assert!(actual.starts_with("has no certificate"), "{actual}");
}
