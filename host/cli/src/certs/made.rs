//! The result, as it is printed.

use std::{fmt, time::SystemTime};

use serde_json::json;
use time::OffsetDateTime;

use super::{authority::Subject, files::Files};

/// The files that were made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) authority: Files,
    pub(super) authority_is_new: bool,
    pub(super) authority_ends: OffsetDateTime,
    pub(super) authority_ends_soon: bool,
    pub(super) certificates: Vec<Certificate>,
    pub(super) ca_bundle: String,
}

/// A requested certificate.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) subject: Subject,
    pub(super) files: Files,
    /// Whether it is new; otherwise it existed and is still valid.
    pub(super) is_new: bool,
    pub(super) ends: OffsetDateTime,
}

impl Made {
    pub(super) fn to_json(&self) -> serde_json::Value {
        let certificates: Vec<_> = self
            .certificates
            .iter()
            .map(|certificate| {
                json!({
                    "kind": certificate.subject.kind(),
                    "names": certificate.subject.names(),
                    "certificate": certificate.files.certificate,
                    "key": certificate.files.key,
                    "new": certificate.is_new,
                    "notAfter": rfc3339(certificate.ends),
                })
            })
            .collect();
        json!({
            "ca": {
                "certificate": self.authority.certificate,
                "key": self.authority.key,
                "new": self.authority_is_new,
                "notAfter": rfc3339(self.authority_ends),
            },
            "certificates": certificates,
            "caBundle": self.ca_bundle,
        })
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Files { certificate, key } = &self.authority;
        let verb = if self.authority_is_new { "wrote" } else { "used" };
        writeln!(
            f,
            "{verb} {}, the CA, valid until {}",
            certificate.display(),
            self.authority_ends.date()
        )?;
        writeln!(
            f,
            "{verb} {}, its key: keep it where no other user can read it",
            key.display()
        )?;
        if self.authority_ends_soon {
            writeln!(
                f,
                "the CA is valid for less than a year: make its successor with --new-ca"
            )?;
        }
        for made in &self.certificates {
            let Files { certificate, key } = &made.files;
            let verb = if made.is_new { "wrote" } else { "kept" };
            writeln!(
                f,
                "{verb} {}, for the {} {}, valid until {}",
                certificate.display(),
                made.subject.kind(),
                made.subject.names().join(", "),
                made.ends.date(),
            )?;
            writeln!(f, "{verb} {}, its key", key.display())?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "Paste this line under `webhook:` of the stage in an AdmissionChain, or under `clientConfig:`"
        )?;
        writeln!(
            f,
            "in a BCS admissionwebhook or a Kubernetes webhook configuration:"
        )?;
        writeln!(f)?;
        writeln!(f, "caBundle: {}", self.ca_bundle)
    }
}

fn rfc3339(time: OffsetDateTime) -> String {
    humantime::format_rfc3339_seconds(SystemTime::from(time)).to_string()
}
