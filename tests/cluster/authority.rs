//! The certificates of the API server, and the key of its service accounts.

use std::net::Ipv4Addr;

use admittance_tests::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

#[derive(Debug)]
pub(crate) struct TestCredentials {
    pub(crate) authority: String,
    /// The certificate with which the API server listens, for loopback addresses.
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// The client certificate that the API server presents to webhook servers.
    pub(crate) caller_certificate: String,
    pub(crate) caller_key: String,
    /// The key pair that signs and verifies the tokens of service accounts.
    pub(crate) accounts_key: String,
    pub(crate) accounts_public_key: String,
}

impl TestCredentials {
    pub(crate) fn make() -> Result<Self, Error> {
        Self::sign().map_err(|error| Error::Invalid(format!("the API server's certificates: {error}")))
    }

    fn sign() -> Result<Self, rcgen::Error> {
        let authority_key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "API server CA");
        let authority = params.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(params, authority_key);

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
            SanType::DnsName("localhost".try_into()?),
            // When a gateway connects to an API server, the certificate of the API server must be valid for the name
            // `kubernetes`.
            SanType::DnsName("kubernetes".try_into()?),
        ];
        let certificate = params.signed_by(&key, &issuer)?.pem();

        let caller_key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let caller_certificate = params.signed_by(&caller_key, &issuer)?.pem();

        let accounts = KeyPair::generate()?;
        Ok(Self {
            authority,
            certificate,
            key: key.serialize_pem(),
            caller_certificate,
            caller_key: caller_key.serialize_pem(),
            accounts_key: accounts.serialize_pem(),
            accounts_public_key: accounts.public_key_pem(),
        })
    }
}
