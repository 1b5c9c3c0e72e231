//! The certificate of a service, in memory.

use time::OffsetDateTime;

use super::{
    Error,
    authority::{Authority, Host, Service, Subject},
};

/// A certificate for a service from its own CA, whose key is discarded. Nothing is written to a file.
pub(crate) struct ServiceCertificate {
    /// The CA's certificate, as PEM.
    pub(crate) authority: String,
    /// The service's certificate, as PEM.
    pub(crate) certificate: String,
    /// Its key, as PEM.
    pub(crate) key: String,
}

impl ServiceCertificate {
    /// Makes one, as `--service` does.
    ///
    /// # Errors
    ///
    /// When the names are not valid in a certificate.
    pub(crate) fn make(service: &Service, days: u16, now: OffsetDateTime) -> Result<Self, Error> {
        let authority = Authority::new(now)?;
        let names = service.names().map(Host::Name);
        let issued = authority.issue(&Subject::Server(names.into()), days, now)?;
        Ok(Self {
            authority: authority.pem,
            certificate: issued.certificate,
            key: issued.key,
        })
    }
}
