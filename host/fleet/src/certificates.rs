//! CAs and certificates that this program issues.

mod authority;
mod subject;

pub use self::{
    authority::{Authority, Issued, Validity, for_service, to_pem, unexpired},
    subject::{CertificateSubject, Client, Service, SubjectHost},
};
