//! Whether a policy may trust a certificate, as Kubewarden's policy server decides it.

use std::time::{Duration, SystemTime};

use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use serde::Deserialize;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::parse_x509_certificate;

use super::capabilities::{Answer, parse};

/// The object identifier of code signing, for which a certificate with a chain must be.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

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

/// The answer to `crypto/v1/is_certificate_trusted`.
pub(super) fn is_trusted(payload: &[u8], now: SystemTime) -> Answer {
    let wrong = problem(&parse(payload)?, now)?;
    let answer = json!({"trusted": wrong.is_none(), "reason": wrong.unwrap_or_default()});
    Ok(answer.to_string().into_bytes())
}

/// Why the certificate is not trusted, if it is not.
fn problem(question: &Question, now: SystemTime) -> Result<Option<String>, String> {
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
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(Certificate::der).collect::<Result<_, _>>()?;
    let Some((root, intermediates)) = chain.split_last() else {
        return Ok(Some("the chain has no authority".to_owned()));
    };
    let anchors = [anchor_from_trusted_cert(root)
        .map_err(|error| format!("the last certificate of the chain is not valid: {error}"))?];
    let verified = leaf.verify_for_usage(
        ALL_VERIFICATION_ALGS,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(Duration::from_secs(at)),
        KeyUsage::required(CODE_SIGNING),
        None,
        None,
    );
    let problem = verified.err();
    Ok(problem.map(|error| format!("the chain does not lead to the certificate: {error}")))
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
            match (is_trusted(question.to_string().as_bytes(), now), expected) {
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
