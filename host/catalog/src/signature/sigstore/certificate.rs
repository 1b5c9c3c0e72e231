use std::fmt;

use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use sigstore_verify::types::{DerCertificate, DerPublicKey};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

use super::{PublicKey, key::invalid_trust_error};
use crate::signature::InvalidTrust;

const CODE_SIGNING_OID: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

/// A certificate whose owner signs modules.
#[derive(Clone, PartialEq, Eq, derive_more::Display, derive_more::Debug)]
#[debug("SigningCertificate({})", key.fingerprint())]
#[display("the certificate of the key {key}")]
pub struct SigningCertificate {
    pub(super) der: DerCertificate,
    pub(super) key: PublicKey,
}

impl SigningCertificate {
    /// Reads a code-signing certificate in PEM, and verifies that one of the authorities, also in PEM, issued it.
    /// If there is no list of authorities, the certificate is trusted as it is, even after its expiry.
    ///
    /// # Errors
    ///
    /// Returns an error when a text is not PEM, the certificate is not valid yet, or no authority issued it.
    pub fn new(certificate: &str, authorities: Option<&[String]>) -> Result<Self, InvalidTrust> {
        Self::parse(certificate, authorities).map_err(invalid_trust_error("certificate", None))
    }

    fn parse(certificate: &str, authorities: Option<&[String]>) -> Result<Self, String> {
        let der = parse_certificate(certificate)?;
        let wrong = |error: &dyn fmt::Display| format!("it cannot be read: {error}");
        let (_, parsed) = parse_x509_certificate(&der).map_err(|error| wrong(&error))?;
        check_is_for_signing(&parsed)?;
        let now = UnixTime::now();
        let begins = parsed.validity().not_before;
        if u64::try_from(begins.timestamp()).is_ok_and(|begins| begins > now.as_secs()) {
            return Err(format!("it is not valid before {begins}"));
        }
        let key = PublicKey::from_der(DerPublicKey::new(parsed.public_key().raw.to_vec()))?;
        if let Some(authorities) = authorities {
            let leaf = EndEntityCert::try_from(&der).map_err(|error| wrong(&error))?;
            check_was_issued(&leaf, authorities, now)?;
        }
        let der = DerCertificate::from_bytes(&der);
        Ok(Self { der, key })
    }

    pub(super) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.der.as_bytes()))
    }
}

fn parse_certificate(text: &str) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|_| "it is not the PEM text of a certificate, `-----BEGIN CERTIFICATE-----`".to_owned())
}

/// Checks that the certificate has the key usages and the subject alternative name of cosign's certificates.
fn check_is_for_signing(certificate: &X509Certificate<'_>) -> Result<(), String> {
    let wrong = |error: &dyn fmt::Display| format!("its extensions cannot be read: {error}");
    let usage = certificate.key_usage().map_err(|error| wrong(&error))?;
    if !usage.is_some_and(|usage| usage.value.digital_signature()) {
        return Err("its key usage does not include digital signatures".to_owned());
    }
    let purposes = certificate.extended_key_usage().map_err(|error| wrong(&error))?;
    if !purposes.is_some_and(|purposes| purposes.value.code_signing) {
        return Err("its extended key usage does not include code signing".to_owned());
    }
    let names = certificate.subject_alternative_name().map_err(|error| wrong(&error))?;
    match names {
        Some(_) => Ok(()),
        None => Err("it has no subject alternative name, which says whose it is".to_owned()),
    }
}

fn check_was_issued(leaf: &EndEntityCert<'_>, authorities: &[String], now: UnixTime) -> Result<(), String> {
    let authorities: Vec<_> = authorities
        .iter()
        .map(|authority| parse_certificate(authority))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("of its chain: {error}"))?;
    let anchors: Vec<_> = authorities
        .iter()
        .map(anchor_from_trusted_cert)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a certificate of its chain cannot be read: {error}"))?;
    let usage = KeyUsage::required(CODE_SIGNING_OID);
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], now, usage, None, None)
        .map(drop)
        .map_err(|error| format!("no certificate of its chain issued it, or it has expired: {error}"))
}
