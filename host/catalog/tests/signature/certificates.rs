//! Tests of signatures by the owner of a certificate that a known authority issued.

use admittance_catalog::{
    Digest,
    signature::{CertificateRequirement, FoundSignature, Requirement, SigningCertificate},
};
use rcgen::ExtendedKeyUsagePurpose;

use crate::{
    artifacts::{COSIGN_SIGNATURE_TYPE, payload},
    authority::{CertificateProperties, SIGNED_AT, SignedLayer, SigningAuthority},
    subject::{check_artifact, detached_signature, fixture, fixture_text, manifest_bytes, outcome},
};

/// A validity of almost a hundred years: its begin and end, in seconds relative to the signing.
const LONG_VALIDITY: (i64, i64) = (-60, 3_000_000_000);
const ENDED_VALIDITY: (i64, i64) = (-60, 540);

fn sign_layer(authority: &SigningAuthority, validity: (i64, i64), logged_at: i64) -> SignedLayer {
    let payload = payload(&Digest::of_bytes(manifest_bytes()).to_string(), COSIGN_SIGNATURE_TYPE);
    let request = CertificateProperties {
        validity,
        logged_at,
        ..CertificateProperties::default()
    };
    authority.sign(&payload, request)
}

fn certificate_requirement(signed: &SignedLayer, log: Option<&SigningAuthority>, must_be_logged: bool) -> Requirement {
    Requirement::Certified(CertificateRequirement {
        certificate: SigningCertificate::new(&signed.certificate, None).unwrap(),
        trust_root: log.map(SigningAuthority::trust_root),
        must_be_logged,
    })
}

fn bare_signature(signed: &SignedLayer) -> FoundSignature {
    let mut signature = signed.simple_signing();
    if let FoundSignature::SimpleSigning { certificate, log, .. } = &mut signature {
        (*certificate, *log) = (None, None);
    }
    signature
}

#[test]
fn a_signature_must_match_the_certificate_and_be_logged_if_required() {
    let (own_authority, other_authority) = (SigningAuthority::new(), SigningAuthority::new());
    let good_layer = sign_layer(&own_authority, ENDED_VALIDITY, SIGNED_AT);
    let late_layer = sign_layer(&own_authority, ENDED_VALIDITY, SIGNED_AT + 541);
    let other_key_layer = sign_layer(&own_authority, ENDED_VALIDITY, SIGNED_AT);
    let layer_in_other_log = SignedLayer {
        log: other_authority.log_promise(
            &good_layer.payload,
            &good_layer.signature,
            &good_layer.certificate,
            SIGNED_AT,
        ),
        ..good_layer.clone()
    };
    let layer_with_other_entry = SignedLayer {
        log: other_key_layer.log.clone(),
        ..good_layer.clone()
    };
    let unlogged = "is not proven to be in a log of the trust root";
    for (name, signer, signature, log, must_be_logged, expected) in [
        (
            "logged",
            &good_layer,
            good_layer.simple_signing(),
            Some(&own_authority),
            true,
            "by the key",
        ),
        (
            "in no log",
            &good_layer,
            bare_signature(&good_layer),
            Some(&own_authority),
            false,
            "by the key",
        ),
        (
            "in no log that is known",
            &good_layer,
            good_layer.simple_signing(),
            None,
            false,
            "by the key",
        ),
        (
            "in no log, as it must",
            &good_layer,
            bare_signature(&good_layer),
            Some(&own_authority),
            true,
            unlogged,
        ),
        (
            "no log is known",
            &good_layer,
            good_layer.simple_signing(),
            None,
            true,
            unlogged,
        ),
        (
            "after its end",
            &late_layer,
            late_layer.simple_signing(),
            Some(&own_authority),
            false,
            "was made at",
        ),
        (
            "after its end, unknown",
            &late_layer,
            late_layer.simple_signing(),
            None,
            false,
            "by the key",
        ),
        (
            "in another log",
            &good_layer,
            layer_in_other_log.simple_signing(),
            Some(&own_authority),
            false,
            unlogged,
        ),
        (
            "another's entry",
            &good_layer,
            layer_with_other_entry.simple_signing(),
            Some(&own_authority),
            false,
            unlogged,
        ),
        (
            "by another",
            &good_layer,
            other_key_layer.simple_signing(),
            Some(&own_authority),
            false,
            "was made by another key",
        ),
        (
            "of bytes",
            &good_layer,
            detached_signature(fixture("p256.sig")),
            None,
            false,
            "was made by another key",
        ),
    ] {
        let required = certificate_requirement(signer, log, must_be_logged);
        let actual = outcome(check_artifact(&required, vec![signature]));
        assert!(actual.starts_with(expected), "{name}: {actual}");
    }
}

#[test]
fn a_certificate_must_allow_code_signing_and_be_issued_by_the_authority() {
    let (own_authority, other_authority) = (SigningAuthority::new(), SigningAuthority::new());
    let chain_of = |authority: &SigningAuthority| Some(vec![authority.certificate().to_owned()]);
    let issue = |request| own_authority.sign("", request).certificate;
    let (long_layer, ended_layer) = (
        sign_layer(&own_authority, LONG_VALIDITY, SIGNED_AT),
        sign_layer(&own_authority, ENDED_VALIDITY, SIGNED_AT),
    );
    let server_certificate = issue(CertificateProperties {
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        ..CertificateProperties::default()
    });
    let early_certificate = issue(CertificateProperties {
        validity: (2_000_000_000, 3_000_000_000),
        ..CertificateProperties::default()
    });
    for (name, certificate, chain, expected) in [
        ("trusted", &long_layer.certificate, None, ""),
        ("issued", &long_layer.certificate, chain_of(&own_authority), ""),
        ("ended", &ended_layer.certificate, None, ""),
        (
            "issued, and ended",
            &ended_layer.certificate,
            chain_of(&own_authority),
            "or it has expired",
        ),
        (
            "issued by another",
            &long_layer.certificate,
            chain_of(&other_authority),
            "no certificate of its chain issued it",
        ),
        (
            "an empty chain",
            &long_layer.certificate,
            Some(Vec::new()),
            "no certificate of its chain issued it",
        ),
        (
            "no chain",
            &long_layer.certificate,
            Some(vec!["text".to_owned()]),
            "of its chain: it is not the PEM text",
        ),
        (
            "for servers",
            &server_certificate,
            None,
            "does not include code signing",
        ),
        (
            "of an authority",
            &own_authority.certificate().to_owned(),
            None,
            "does not include digital signatures",
        ),
        ("too early", &early_certificate, None, "it is not valid before"),
        (
            "a key",
            &fixture_text("p256.pub"),
            None,
            "it is not the PEM text of a certificate",
        ),
    ] {
        let error_text = match SigningCertificate::new(certificate, chain.as_deref()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(
            error_text.contains(expected) && error_text.is_empty() == expected.is_empty(),
            "{name}: {error_text}"
        );
    }
}
