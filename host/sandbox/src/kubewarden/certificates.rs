//! Decides whether a policy may trust a certificate. The decisions are the same as in Kubewarden's policy server.
//!
//! The cost depends on the certificates, which the policy chooses: certificates with equal names multiply the possible
//! paths, and each signature takes up to 1 ms. So the numbers of certificates and of verification steps are limited.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use admittance_admission::Deadline;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, UnixTime, pem::PemObject,
};
use serde::Deserialize;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    anchor_from_trusted_cert,
};
use x509_parser::parse_x509_certificate;

use super::host_calls::{Answer, parse};

/// The object identifier of the extended key usage for code signing, which a certificate with a chain must have.
const CODE_SIGNING_OID: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

/// The maximum number of certificates in a chain that a policy sends. This is ample, because a verified path has at
/// most six certificates besides the root.
const MAX_CHAIN_LENGTH: usize = 32;
const MAX_CHAIN_SIZE: usize = 256 << 10;

/// The maximum number of steps when a policy lets the host verify a certificate. Each certificate and each signature
/// that is checked on the way to the root counts as a step.
const MAX_STEPS: u32 = 32;

#[derive(Deserialize)]
struct CertificateQuestion {
    cert: Certificate,
    /// The intermediate CAs, then the root. Without a chain, only the certificate's validity dates are checked.
    cert_chain: Option<Vec<Certificate>>,
    not_after: Option<String>,
}

#[derive(Deserialize)]
struct Certificate {
    encoding: CertificateEncoding,
    data: Vec<u8>,
}

#[derive(Deserialize)]
enum CertificateEncoding {
    Der,
    Pem,
}

pub(super) fn answer_trust_question(payload: &[u8], now: SystemTime, deadline: Deadline) -> Answer {
    let reason = find_problem(&parse(payload)?, now, deadline)?;
    let answer = json!({"trusted": reason.is_none(), "reason": reason.unwrap_or_default()});
    Ok(answer.to_string().into_bytes())
}

fn find_problem(question: &CertificateQuestion, now: SystemTime, deadline: Deadline) -> Result<Option<String>, String> {
    let der = question.cert.der()?;
    let leaf = EndEntityCert::try_from(&der).map_err(|error| format!("the certificate is not valid: {error}"))?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|error| format!("the certificate is not valid: {error}"))?;
    let validity = parsed.validity();
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let checked_at = match &question.not_after {
        None => now,
        Some(text) => {
            let time = OffsetDateTime::parse(text, &Rfc3339)
                .map_err(|_| format!("not_after is `{text}`, and not a time in RFC 3339"))?;
            if validity.not_after.timestamp() < time.unix_timestamp() {
                return Ok(Some(format!("the certificate expires before {text}")));
            }
            u64::try_from(time.unix_timestamp()).unwrap_or_default()
        }
    };
    if validity.not_before.timestamp() > i64::try_from(now).unwrap_or(i64::MAX) {
        return Ok(Some("the certificate is not valid yet".to_owned()));
    }
    let Some(chain) = &question.cert_chain else {
        return Ok(None);
    };
    let size: usize = chain.iter().map(|certificate| certificate.data.len()).sum();
    if chain.len() > MAX_CHAIN_LENGTH || size > MAX_CHAIN_SIZE {
        return Err(format!(
            "the chain has {} certificates of {size} bytes; the limit is {MAX_CHAIN_LENGTH} of {MAX_CHAIN_SIZE} bytes together. Leave out \
             those that do not lead from the certificate to its root",
            chain.len()
        ));
    }
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(Certificate::der).collect::<Result<_, _>>()?;
    let Some((root, intermediates)) = chain.split_last() else {
        return Ok(Some("the chain has no authority".to_owned()));
    };
    let anchors = [anchor_from_trusted_cert(root)
        .map_err(|error| format!("the last certificate of the chain is not valid: {error}"))?];
    let budget = CheckBudget {
        checks_left: AtomicU32::new(MAX_STEPS),
        deadline,
    };
    let counted_algorithms: Vec<_> = ALL_VERIFICATION_ALGS
        .iter()
        .map(|algorithm| CountedCheck(*algorithm, &budget))
        .collect();
    let algorithms: Vec<_> = counted_algorithms
        .iter()
        .map(|check| check as &dyn SignatureVerificationAlgorithm)
        .collect();
    let verification = leaf.verify_for_usage(
        &algorithms,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(Duration::from_secs(checked_at)),
        CountedCheck(KeyUsage::required(CODE_SIGNING_OID), &budget),
        None,
        None,
    );
    match verification {
        Ok(_) => Ok(None),
        Err(_) if deadline.has_passed() => Err("the chain was not verified in time".to_owned()),
        Err(_) if budget.is_used_up() => Err(format!(
            "the chain has too many paths: none of those within {MAX_STEPS} certificates and signatures leads to the \
             certificate. Leave out certificates with the same name"
        )),
        Err(error) => Ok(Some(format!("the chain does not lead to the certificate: {error}"))),
    }
}

#[derive(Debug)]
struct CheckBudget {
    checks_left: AtomicU32,
    deadline: Deadline,
}

impl CheckBudget {
    /// Takes one check from the budget. Returns false if the budget is used up or the deadline has passed, so that the
    /// verification stops.
    fn take_check(&self) -> bool {
        let take_one = |checks_left: u32| checks_left.checked_sub(1).filter(|_| !self.deadline.has_passed());
        self.checks_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one)
            .is_ok()
    }

    fn is_used_up(&self) -> bool {
        self.checks_left.load(Ordering::Relaxed) == 0
    }
}

#[derive(Debug)]
struct CountedCheck<'a, T>(T, &'a CheckBudget);

impl ExtendedKeyUsageValidator for CountedCheck<'_, KeyUsage> {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let Self(usage, budget) = self;
        if budget.take_check() {
            usage.validate(purposes)
        } else {
            // This error ends webpki's search. With another error, webpki would go on and try other paths.
            Err(webpki::Error::MaximumPathBuildCallsExceeded)
        }
    }
}

impl SignatureVerificationAlgorithm for CountedCheck<'_, &dyn SignatureVerificationAlgorithm> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let Self(algorithm, budget) = self;
        if budget.take_check() {
            algorithm.verify_signature(public_key, message, signature)
        } else {
            Err(InvalidSignature)
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

impl Certificate {
    fn der(&self) -> Result<CertificateDer<'_>, String> {
        match self.encoding {
            CertificateEncoding::Der => Ok(CertificateDer::from(self.data.as_slice())),
            CertificateEncoding::Pem => {
                CertificateDer::from_pem_slice(&self.data).map_err(|_| "a certificate is not valid PEM".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests;
