//! Tests of signatures by the owner of a certificate that a known authority issued.

use admittance_catalog::{
    Digest,
    signature::{CertificateRequirement, FoundSignature, Requirement, SigningCertificate},
};
use rcgen::ExtendedKeyUsagePurpose;

use crate::{
    artifacts::{COSIGN, payload},
    authority::{CertificateProperties, SIGNED_AT, SignedLayer, SigningAuthority},
    subject::{check_artifact, detached, fixture, manifest, outcome, text},
};

/// A validity of almost a hundred years: its begin and end, in seconds relative to the signing.
const LONG: (i64, i64) = (-60, 3_000_000_000);
const ENDED: (i64, i64) = (-60, 540);

fn signed(authority: &SigningAuthority, validity: (i64, i64), logged_at: i64) -> SignedLayer {
    let payload = payload(&Digest::of(manifest()).to_string(), COSIGN);
    let request = CertificateProperties {
        validity,
        logged_at,
        ..CertificateProperties::default()
    };
    authority.sign(&payload, request)
}

fn required(signed: &SignedLayer, log: Option<&SigningAuthority>, must_be_logged: bool) -> Requirement {
    Requirement::Certified(CertificateRequirement {
        certificate: SigningCertificate::new(&signed.certificate, None).unwrap(),
        trust_root: log.map(SigningAuthority::trust_root),
        must_be_logged,
    })
}

fn bare(signed: &SignedLayer) -> FoundSignature {
    let mut found = signed.simple_signing();
    if let FoundSignature::SimpleSigning { certificate, log, .. } = &mut found {
        (*certificate, *log) = (None, None);
    }
    found
}

#[test]
fn a_signature_must_match_the_certificate_and_be_logged_if_required() {
    let (ours, other) = (SigningAuthority::new(), SigningAuthority::new());
    let good = signed(&ours, ENDED, SIGNED_AT);
    let late = signed(&ours, ENDED, SIGNED_AT + 541);
    let stranger = signed(&ours, ENDED, SIGNED_AT);
    let elsewhere = SignedLayer {
        log: other.promise(&good.payload, &good.signature, &good.certificate, SIGNED_AT),
        ..good.clone()
    };
    let of_another = SignedLayer {
        log: stranger.log.clone(),
        ..good.clone()
    };
    let unlogged = "is not proven to be in a log of the trust root";
    for (name, signer, found, log, must_be_logged, expected) in [
        (
            "logged",
            &good,
            good.simple_signing(),
            Some(&ours),
            true,
            "by the key",
        ),
        ("in no log", &good, bare(&good), Some(&ours), false, "by the key"),
        (
            "in no log that is known",
            &good,
            good.simple_signing(),
            None,
            false,
            "by the key",
        ),
        (
            "in no log, as it must",
            &good,
            bare(&good),
            Some(&ours),
            true,
            unlogged,
        ),
        (
            "no log is known",
            &good,
            good.simple_signing(),
            None,
            true,
            unlogged,
        ),
        (
            "after its end",
            &late,
            late.simple_signing(),
            Some(&ours),
            false,
            "was made at",
        ),
        (
            "after its end, unknown",
            &late,
            late.simple_signing(),
            None,
            false,
            "by the key",
        ),
        (
            "in another log",
            &good,
            elsewhere.simple_signing(),
            Some(&ours),
            false,
            unlogged,
        ),
        (
            "another's entry",
            &good,
            of_another.simple_signing(),
            Some(&ours),
            false,
            unlogged,
        ),
        (
            "by another",
            &good,
            stranger.simple_signing(),
            Some(&ours),
            false,
            "was made by another key",
        ),
        (
            "of bytes",
            &good,
            detached(fixture("p256.sig")),
            None,
            false,
            "was made by another key",
        ),
    ] {
        let required = required(signer, log, must_be_logged);
        let found = outcome(check_artifact(&required, vec![found]));
        assert!(found.starts_with(expected), "{name}: {found}");
    }
}

#[test]
fn a_certificate_must_allow_code_signing_and_be_issued_by_the_authority() {
    let (ours, other) = (SigningAuthority::new(), SigningAuthority::new());
    let chain = |authority: &SigningAuthority| Some(vec![authority.certificate().to_owned()]);
    let certificate = |request| ours.sign("", request).certificate;
    let (long, ended) = (signed(&ours, LONG, SIGNED_AT), signed(&ours, ENDED, SIGNED_AT));
    let server = certificate(CertificateProperties {
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        ..CertificateProperties::default()
    });
    let early = certificate(CertificateProperties {
        validity: (2_000_000_000, 3_000_000_000),
        ..CertificateProperties::default()
    });
    for (name, certificate, chain, expected) in [
        ("trusted", &long.certificate, None, ""),
        ("issued", &long.certificate, chain(&ours), ""),
        ("ended", &ended.certificate, None, ""),
        (
            "issued, and ended",
            &ended.certificate,
            chain(&ours),
            "or it has expired",
        ),
        (
            "issued by another",
            &long.certificate,
            chain(&other),
            "no certificate of its chain issued it",
        ),
        (
            "an empty chain",
            &long.certificate,
            Some(Vec::new()),
            "no certificate of its chain issued it",
        ),
        (
            "no chain",
            &long.certificate,
            Some(vec!["text".to_owned()]),
            "of its chain: it is not the PEM text",
        ),
        ("for servers", &server, None, "does not include code signing"),
        (
            "of an authority",
            &ours.certificate().to_owned(),
            None,
            "does not include digital signatures",
        ),
        ("too early", &early, None, "it is not valid before"),
        (
            "a key",
            &text("p256.pub"),
            None,
            "it is not the PEM text of a certificate",
        ),
    ] {
        let said = match SigningCertificate::new(certificate, chain.as_deref()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{name}: {said}"
        );
    }
}
