//! CAs and certificates that this program issues.

mod authority;
mod subject;

pub use self::{
    authority::{Authority, IssuedCertificate, IssuedValidity, for_service, to_pem, unexpired_authorities},
    subject::{CertificateSubject, ClientName, Service, SubjectHost},
};
