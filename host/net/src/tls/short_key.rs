//! Explains errors about RSA keys that are too short for TLS, such as the 1024-bit keys of CAs that follow the BCS
//! documentation. The TLS library only reports that a signature is invalid. The verifier in this module finds the short
//! key, so that the message can name its size.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::{
    asn1_rs::{Sequence, ToDer},
    parse_x509_certificate,
    prelude::FromDer,
    public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

/// The shortest RSA key that the TLS library accepts, in bits.
pub const SHORTEST_RSA_KEY: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ShortKey {
    #[error("the RSA key of the CA that signed its certificate has {0} bits, and TLS requires {SHORTEST_RSA_KEY}")]
    Authority(usize),
    #[error("the RSA key of its certificate has {0} bits, and TLS requires {SHORTEST_RSA_KEY}")]
    Server(usize),
}

/// Verifies certificates like the TLS library. If an RSA key is too short, the error says so.
#[derive(Debug)]
pub(super) struct KeySizeVerifier {
    inner: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
}

impl KeySizeVerifier {
    pub(super) fn new(inner: Arc<WebPkiServerVerifier>, roots: Arc<RootCertStore>) -> Self {
        Self { inner, roots }
    }

    /// Returns the size in bits of the CA key that signed one of these certificates, if that key is too short.
    fn short_authority_bits(&self, chain: &[&CertificateDer<'_>]) -> Option<usize> {
        let (_, last) = parse_x509_certificate(chain.last()?).ok()?;
        let issuer = last.issuer().as_raw();
        // `issuer` begins with a DER tag and a length. rustls stores the subject of a root certificate without them. So
        // the subject is compared with the end of `issuer` only.
        let all = self.roots.roots.iter();
        let roots = all.filter(|root| issuer.ends_with(&root.subject));
        let from_roots = roots.filter_map(|root| {
            let key = Sequence::new((&*root.subject_public_key_info).into())
                .to_der_vec()
                .ok()?;
            key_bits(&SubjectPublicKeyInfo::from_der(&key).ok()?.1)
        });
        chain
            .iter()
            .skip(1)
            .filter_map(|certificate| rsa_bits(certificate))
            .chain(from_roots)
            .find(|bits| *bits < SHORTEST_RSA_KEY)
    }
}

/// Returns the size of a certificate's RSA key in bits, or `None` if the key has another type.
pub fn rsa_bits(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    key_bits(parsed.public_key())
}

fn key_bits(key: &SubjectPublicKeyInfo<'_>) -> Option<usize> {
    match key.parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

fn explain_error(error: Error, short_key: impl FnOnce() -> Option<ShortKey>) -> Error {
    let short_key = match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => short_key(),
        _ => None,
    };
    short_key.map_or(error, |key| {
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(key))))
    })
}

fn short_server_key(certificate: &CertificateDer<'_>) -> Option<ShortKey> {
    let bits = rsa_bits(certificate).filter(|bits| *bits < SHORTEST_RSA_KEY);
    bits.map(ShortKey::Server)
}

impl ServerCertVerifier for KeySizeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| {
                explain_error(error, || {
                    let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).collect();
                    self.short_authority_bits(&chain).map(ShortKey::Authority)
                })
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.inner.verify_tls12_signature(message, certificate, signature);
        verified.map_err(|error| explain_error(error, || short_server_key(certificate)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.inner.verify_tls13_signature(message, certificate, signature);
        verified.map_err(|error| explain_error(error, || short_server_key(certificate)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
