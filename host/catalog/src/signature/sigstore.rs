//! Verifies signatures in the formats of sigstore and cosign.

mod certificate;
mod key;
mod legacy;
mod parsed;
mod provider;
mod trust_root;

use sigstore_verify::{
    CertificateError, Error, TimestampError, TransparencyLogError, VerificationPolicy,
    bundle::Error as BundleError,
    crypto::parse_certificate_info,
    types::{Bundle, DerCertificate, VerificationMaterialContent},
};

pub use self::{certificate::SigningCertificate, key::PublicKey, trust_root::TrustRoot};

use self::parsed::{ParsedSignature, SignedContent};
use super::{
    CertificateRequirement, FoundSignature, Keyless, PublicKeys, Refusal, SignatureDescription, SignatureKind,
    VerifiedSignature,
};

pub(super) fn describe(signature: &FoundSignature) -> SignatureDescription {
    provider::install();
    let mut description = SignatureDescription::new(signature);
    match ParsedSignature::new(signature) {
        Ok(parsed_signature) => {
            if matches!(parsed_signature.signed, SignedContent::Envelope(_)) {
                description.kind = SignatureKind::Statement;
            }
            if let Some(bundle) = &parsed_signature.bundle {
                add_bundle_claims(&mut description, bundle);
            }
        }
        Err(refusal) => description.damage = Some(refusal.to_string()),
    }
    description
}

fn add_bundle_claims(description: &mut SignatureDescription, bundle: &Bundle) {
    let certificate = bundle
        .signing_certificate()
        .and_then(|certificate| parse_certificate_info(certificate).ok());
    if let Some(certificate) = certificate {
        description.identity = certificate.identity.map(|identity| identity.to_string());
        description.issuer = certificate.issuer;
    }
    if let VerificationMaterialContent::PublicKey(key) = &bundle.verification_material.content {
        description.key_hint = Some(key.hint.clone()).filter(|hint| !hint.is_empty());
    }
    description.log_index = log_index(bundle);
    let entries = &bundle.verification_material.tlog_entries;
    let logged_at = entries.iter().find_map(|entry| entry.integrated_time);
    description.logged_at = logged_at.map(|time| time.to_string());
}

fn log_index(bundle: &Bundle) -> Option<u64> {
    Some(bundle.verification_material.tlog_entries.first()?.log_index.get())
}

pub(super) fn verify_by_key(
    keys: &PublicKeys,
    signature: &FoundSignature,
    artifact: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    let parsed_signature = ParsedSignature::new(signature)?;
    let message = parsed_signature.signed.signed_message(artifact);
    let key = keys
        .iter()
        .find(|key| key.has_signed(&message, &parsed_signature.signature))
        .ok_or(Refusal::WrongKey)?;
    parsed_signature.signed.check_subject(artifact)?;
    Ok(VerifiedSignature::Key {
        fingerprint: key.fingerprint(),
    })
}

pub(super) fn verify_by_identity(
    keyless: &Keyless,
    signature: &FoundSignature,
    artifact: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    let parsed_signature = ParsedSignature::new(signature)?;
    let bundle = parsed_signature.bundle.as_ref().ok_or(Refusal::NoCertificate)?;
    let certificate = bundle.signing_certificate().ok_or(Refusal::NoCertificate)?;
    // The signed digest is compared first, so that a signature of another module gets an error of its own.
    parsed_signature.signed.check_subject(artifact)?;
    let message = parsed_signature.signed.bundle_artifact(artifact);
    let root = &keyless.trust_root;
    let verification = root
        .verifier()
        .verify(message, bundle, &root.policy())
        .map_err(|error| refusal_from_error(error, bundle, certificate))?;
    let issuer = verification.issuer().unwrap_or_default();
    if issuer != keyless.issuer.as_str() {
        return Err(Refusal::WrongIssuer {
            found: issuer.to_owned(),
            required: keyless.issuer.to_string(),
        });
    }
    let identity = verification.identity().map(ToString::to_string).unwrap_or_default();
    if !keyless.identity.matches(&identity) {
        return Err(Refusal::WrongIdentity {
            found: identity,
            required: keyless.identity.to_string(),
        });
    }
    let signed_at = verification.verified_timestamps().iter().min().copied();
    Ok(VerifiedSignature::Identity {
        identity,
        issuer: issuer.to_owned(),
        signed_at: signed_at
            .ok_or_else(|| Refusal::NotInLog("the time of signing is not recorded".to_owned()))?
            .to_string(),
        log_index: log_index(bundle),
    })
}

pub(super) fn verify_by_certificate(
    certified: &CertificateRequirement,
    signature: &FoundSignature,
    artifact: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    let certificate = &certified.certificate;
    // The signature must be verified with the certificate that the policy names. So a copy of the signature gets this
    // certificate, even if another one was stored with the signature.
    let mut certified_signature = signature.clone();
    if let FoundSignature::SimpleSigning {
        certificate: stored_certificate,
        chain,
        ..
    } = &mut certified_signature
    {
        *stored_certificate = Some(certificate.pem());
        *chain = None;
    }
    let parsed_signature = ParsedSignature::new(&certified_signature)?;
    let key = &certificate.key;
    if !key.has_signed(
        &parsed_signature.signed.signed_message(artifact),
        &parsed_signature.signature,
    ) {
        return Err(Refusal::WrongKey);
    }
    parsed_signature.signed.check_subject(artifact)?;
    let matches_certificate = |bundle: &&Bundle| {
        let has_entry = !bundle.verification_material.tlog_entries.is_empty();
        has_entry && bundle.signing_certificate() == Some(&certificate.der)
    };
    let logged_bundle = parsed_signature.bundle.as_ref().filter(matches_certificate);
    match (logged_bundle, &certified.trust_root) {
        (Some(bundle), Some(root)) => {
            // The chain of the certificate is not verified again, because it was verified when the requirement was read
            // from the configuration.
            let policy = VerificationPolicy::any_identity().skip_certificate_chain();
            root.verifier()
                .verify(parsed_signature.signed.bundle_artifact(artifact), bundle, &policy)
                .map_err(|error| refusal_from_error(error, bundle, &certificate.der))?;
        }
        _ if certified.must_be_logged => {
            return Err(Refusal::NotInLog("it has no entry for the certificate".to_owned()));
        }
        _ => {}
    }
    Ok(VerifiedSignature::Key {
        fingerprint: key.fingerprint(),
    })
}

fn refusal_from_error(error: Error, bundle: &Bundle, certificate: &DerCertificate) -> Refusal {
    match error {
        Error::SignatureInvalid(_) | Error::ArtifactMismatch(_) => Refusal::WrongKey,
        Error::Certificate(error) => expiry_refusal(bundle, certificate).unwrap_or_else(|| certificate_refusal(&error)),
        Error::TransparencyLog(TransparencyLogError::IntegratedTime(problem)) => {
            expiry_refusal(bundle, certificate).unwrap_or(Refusal::NotInLog(problem))
        }
        Error::TransparencyLog(error) => Refusal::NotInLog(error.to_string()),
        Error::Timestamp(TimestampError::NoVerifiedTimestamp(_)) => {
            Refusal::NotInLog("neither a log nor a timestamp authority records the time of signing".to_owned())
        }
        Error::Timestamp(error) => Refusal::NotInLog(error.to_string()),
        Error::Bundle(
            error @ (BundleError::MissingInclusionPromise(_)
            | BundleError::MissingInclusionProof(_)
            | BundleError::MissingSigningTimeEvidence),
        ) => Refusal::NotInLog(error.to_string()),
        Error::UnsupportedBundle(problem) | Error::UnsupportedArtifact(problem) => Refusal::Unsupported(problem),
        error => Refusal::Damaged(error.to_string()),
    }
}

fn certificate_refusal(error: &CertificateError) -> Refusal {
    match error {
        CertificateError::Malformed(problem) => Refusal::Damaged(problem.clone()),
        error => Refusal::UntrustedCertificate(error.to_string()),
    }
}

/// Returns a refusal if the certificate was not valid at the time at which a log recorded the signature. sigstore's
/// verifier reports such a certificate only as an invalid chain.
fn expiry_refusal(bundle: &Bundle, certificate: &DerCertificate) -> Option<Refusal> {
    let certificate = parse_certificate_info(certificate).ok()?;
    let (not_before, not_after) = (certificate.not_before, certificate.not_after);
    let entries = &bundle.verification_material.tlog_entries;
    let signed_at = entries
        .iter()
        .filter_map(|entry| entry.integrated_time)
        .find(|time| *time < not_before || *time > not_after)?;
    Some(Refusal::Expired {
        signed_at: signed_at.to_string(),
        not_before: not_before.to_string(),
        not_after: not_after.to_string(),
    })
}
