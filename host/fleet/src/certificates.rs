//! Certificates that this program makes.

mod authority;
mod subject;

pub use self::{
    authority::{Authority, Issued, Validity, for_service, to_pem, unexpired},
    subject::{CertificateSubject, Client, Service, SubjectHost},
};
