//! Whether a policy may trust a certificate, as Kubewarden's policy server decides it.
//!
//! The policy chooses the certificates, and so how much there is to verify: certificates with one name lead to more and more
//! paths, and each signature takes up to a millisecond. So their number is limited, and so is the number of steps of a path.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use admittance_admission::Deadline;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, UnixTime,
    pem::PemObject,
};
use serde::Deserialize;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    anchor_from_trusted_cert,
};
use x509_parser::parse_x509_certificate;

use super::capabilities::{Answer, parse};

/// The object identifier of code signing, for which a certificate with a chain must be.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

/// The most certificates of a chain, and their size in bytes. A path has at most six of them besides the root.
const CHAIN: usize = 32;
const CHAIN_SIZE: usize = 256 << 10;

/// A verification checks at most this many certificates and signatures. The longest path without a detour has 14.
const STEPS: u32 = 32;

#[derive(Deserialize)]
struct Question {
    cert: Certificate,
    /// Intermediate authorities, and the root at the end. Without it, only dates are compared.
    cert_chain: Option<Vec<Certificate>>,
    /// When it must still be valid; without it, that is not checked unless there is a chain.
    not_after: Option<String>,
}

#[derive(Deserialize)]
struct Certificate {
    encoding: Encoding,
    data: Vec<u8>,
}

#[derive(Deserialize)]
enum Encoding {
    Der,
    Pem,
}

/// The answer to `crypto/v1/is_certificate_trusted`. It takes tens of milliseconds at most, and is an error after the deadline.
pub(super) fn is_trusted(payload: &[u8], now: SystemTime, deadline: Deadline) -> Answer {
    let wrong = problem(&parse(payload)?, now, deadline)?;
    let answer = json!({"trusted": wrong.is_none(), "reason": wrong.unwrap_or_default()});
    Ok(answer.to_string().into_bytes())
}

/// Why the certificate is not trusted, if it is not.
fn problem(question: &Question, now: SystemTime, deadline: Deadline) -> Result<Option<String>, String> {
    let der = question.cert.der()?;
    let leaf =
        EndEntityCert::try_from(&der).map_err(|error| format!("the certificate is not valid: {error}"))?;
    let (_, parsed) =
        parse_x509_certificate(&der).map_err(|error| format!("the certificate is not valid: {error}"))?;
    let validity = parsed.validity();
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let at = match &question.not_after {
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
    if chain.len() > CHAIN || size > CHAIN_SIZE {
        return Err(format!(
            "the chain has {} certificates of {size} bytes; the limit is {CHAIN} of {CHAIN_SIZE} bytes together. Leave out \
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
    let steps = Steps {
        left: AtomicU32::new(STEPS),
        deadline,
    };
    let counted: Vec<_> = ALL_VERIFICATION_ALGS
        .iter()
        .map(|algorithm| Counted(*algorithm, &steps))
        .collect();
    let algorithms: Vec<_> = counted
        .iter()
        .map(|counted| counted as &dyn SignatureVerificationAlgorithm)
        .collect();
    let verified = leaf.verify_for_usage(
        &algorithms,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(Duration::from_secs(at)),
        Counted(KeyUsage::required(CODE_SIGNING), &steps),
        None,
        None,
    );
    match verified {
        Ok(_) => Ok(None),
        Err(_) if deadline.has_passed() => Err("the chain was not verified in time".to_owned()),
        Err(_) if steps.are_used_up() => Err(format!(
            "the chain has too many paths: none of those within {STEPS} certificates and signatures leads to the \
             certificate. Leave out certificates with the same name"
        )),
        Err(error) => Ok(Some(format!(
            "the chain does not lead to the certificate: {error}"
        ))),
    }
}

/// The steps of a verification that are left. Lives as long as it.
#[derive(Debug)]
struct Steps {
    left: AtomicU32,
    deadline: Deadline,
}

impl Steps {
    /// Takes one, if one is left and the deadline has not passed.
    fn take(&self) -> bool {
        let fewer = |left: u32| left.checked_sub(1).filter(|_| !self.deadline.has_passed());
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
    }

    fn are_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

/// A check of each certificate or signature that takes a step.
#[derive(Debug)]
struct Counted<'a, T>(T, &'a Steps);

impl ExtendedKeyUsageValidator for Counted<'_, KeyUsage> {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let Self(usage, steps) = self;
        if steps.take() {
            usage.validate(purposes)
        } else {
            // This error ends the verification, whatever other paths there are.
            Err(webpki::Error::MaximumPathBuildCallsExceeded)
        }
    }
}

impl SignatureVerificationAlgorithm for Counted<'_, &dyn SignatureVerificationAlgorithm> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let Self(algorithm, steps) = self;
        if steps.take() {
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
            Encoding::Der => Ok(CertificateDer::from(self.data.as_slice())),
            Encoding::Pem => CertificateDer::from_pem_slice(&self.data)
                .map_err(|_| "a certificate is not valid PEM".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        KeyUsagePurpose,
    };
    use serde_json::Value;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    struct Authority {
        intermediate: CertifiedIssuer<'static, KeyPair>,
        root: String,
    }

    fn params(name: &str, now: SystemTime) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = (now - DAY).into();
        params.not_after = (now + DAY).into();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params
    }

    fn authority(now: SystemTime) -> Authority {
        let ca = |name: &str| {
            let mut params = params(name, now);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            params
        };
        let root = CertifiedIssuer::self_signed(ca("root"), KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let intermediate = CertifiedIssuer::signed_by(ca("intermediate"), key, &root).unwrap();
        Authority {
            intermediate,
            root: root.pem(),
        }
    }

    fn pem(text: &str) -> Value {
        json!({"encoding": "Pem", "data": text.as_bytes()})
    }

    fn trusted(question: &Value, now: SystemTime) -> Answer {
        is_trusted(question.to_string().as_bytes(), now, Deadline::after(DAY))
    }

    /// A certificate, and a chain of this many intermediates with one name. Each could have issued every other, so the paths
    /// are all orders of them. The root signed the certificate if `is_rooted`; otherwise no path leads to it.
    fn tangle(now: SystemTime, intermediates: usize, is_rooted: bool) -> Value {
        let signing = |name: &str| {
            let mut params = params(name, now);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let root =
            CertifiedIssuer::self_signed(signing(if is_rooted { "one" } else { "root" }), key()).unwrap();
        let mut chain = Vec::new();
        let mut last = None;
        for _ in 0..intermediates {
            let one = CertifiedIssuer::self_signed(signing("one"), key()).unwrap();
            chain.push(pem(&one.pem()));
            last = Some(one);
        }
        let leaf = match (&last, is_rooted) {
            (_, true) | (None, _) => params("leaf", now).signed_by(&key(), &root).unwrap(),
            (Some(last), false) => params("leaf", now).signed_by(&key(), last).unwrap(),
        };
        chain.push(pem(&root.pem()));
        json!({"cert": pem(&leaf.pem()), "cert_chain": chain})
    }

    /// The limits of webpki are 200,000 certificates and 100 signatures.
    #[test]
    fn a_verification_is_bounded_whatever_the_chain_is() {
        let now = SystemTime::now();
        for (case, question, expected) in [
            ("few with one name", tangle(now, 3, true), Ok(true)),
            ("many paths", tangle(now, 31, false), Err("too many paths")),
            ("many certificates", tangle(now, 32, true), Err("the limit is 32")),
            (
                "large certificates",
                json!({"cert": tangle(now, 0, true)["cert"], "cert_chain": [{"encoding": "Der", "data": vec![0; CHAIN_SIZE + 1]}]}),
                Err("of 262144 bytes"),
            ),
        ] {
            match (trusted(&question, now), expected) {
                (Ok(answer), Ok(is_trusted)) => {
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    assert_eq!(answer["trusted"], is_trusted, "{case}: {answer}");
                }
                (Err(error), Err(says)) => assert!(error.contains(says), "{case}: {error}"),
                (answer, expected) => panic!("{case}: {answer:?}, and not {expected:?}"),
            }
        }
        let late = is_trusted(
            tangle(now, 3, true).to_string().as_bytes(),
            now,
            Deadline::after(Duration::ZERO),
        );
        assert!(late.unwrap_err().contains("in time"));
    }

    /// The rows are those of Kubewarden's policy-evaluator, src/callback_handler/crypto.rs.
    #[test]
    fn certificates() {
        let now = SystemTime::now();
        let (ours, theirs) = (authority(now), authority(now));
        let leaf = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = params("leaf", now);
            change(&mut params);
            params
                .signed_by(&KeyPair::generate().unwrap(), &ours.intermediate)
                .unwrap()
        };
        let chain = |of: &Authority| json!([pem(&of.intermediate.pem()), pem(&of.root)]);
        let valid = leaf(&|_| {});
        let expired = leaf(&|params| params.not_after = (now - DAY / 2).into());
        let early = leaf(&|params| params.not_before = (now + DAY / 2).into());
        let server = leaf(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        let at = OffsetDateTime::from(now).format(&Rfc3339).unwrap();
        let der = json!({"encoding": "Der", "data": valid.der().to_vec()});
        for (case, cert, chain, not_after, expected) in [
            ("trusted", pem(&valid.pem()), chain(&ours), json!(at), Ok("")),
            ("in DER", der, chain(&ours), json!(null), Ok("")),
            (
                "another authority",
                pem(&valid.pem()),
                chain(&theirs),
                json!(null),
                Ok("does not lead"),
            ),
            (
                "an empty chain",
                pem(&valid.pem()),
                json!([]),
                json!(null),
                Ok("no authority"),
            ),
            ("no chain", pem(&valid.pem()), json!(null), json!(null), Ok("")),
            (
                "expired, not asked for",
                pem(&expired.pem()),
                json!(null),
                json!(null),
                Ok(""),
            ),
            (
                "expired",
                pem(&expired.pem()),
                chain(&ours),
                json!(at),
                Ok("expires before"),
            ),
            (
                "expired in a chain",
                pem(&expired.pem()),
                chain(&ours),
                json!(null),
                Ok("does not lead"),
            ),
            (
                "too early",
                pem(&early.pem()),
                json!(null),
                json!(null),
                Ok("not valid yet"),
            ),
            (
                "for servers",
                pem(&server.pem()),
                chain(&ours),
                json!(null),
                Ok("does not lead"),
            ),
            (
                "no time",
                pem(&valid.pem()),
                json!(null),
                json!("malformed"),
                Err("not a time in RFC 3339"),
            ),
            (
                "no certificate",
                pem("x"),
                json!(null),
                json!(null),
                Err("not valid PEM"),
            ),
            (
                "no root",
                pem(&valid.pem()),
                json!([{"encoding": "Der", "data": [1]}]),
                json!(null),
                Err("is not valid"),
            ),
        ] {
            let question = json!({"cert": cert, "cert_chain": chain, "not_after": not_after});
            match (trusted(&question, now), expected) {
                (Ok(answer), Ok(reason)) => {
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    assert_eq!(answer["trusted"], reason.is_empty(), "{case}: {answer}");
                    assert!(
                        answer["reason"].as_str().unwrap().contains(reason),
                        "{case}: {answer}"
                    );
                }
                (Err(error), Err(says)) => assert!(error.contains(says), "{case}: {error}"),
                (answer, expected) => panic!("{case}: {answer:?}, and not {expected:?}"),
            }
        }
    }
}
