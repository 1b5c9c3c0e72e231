//! Prints which certificate files were made.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Serialize, Serializer};
use time::OffsetDateTime;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateReport {
    pub(super) ca: FileEntry,
    pub(super) certificates: Vec<CertificateEntry>,
    pub(super) ca_bundle: String,
    #[serde(skip)]
    pub(super) ca_expires_soon: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct CertificateEntry {
    pub(super) kind: &'static str,
    pub(super) names: Vec<String>,
    #[serde(flatten)]
    pub(super) entry: FileEntry,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileEntry {
    #[serde(flatten)]
    pub(super) files: CertificateFiles,
    /// Whether the command wrote the file. If not, it kept an existing file that was valid.
    #[serde(rename = "new")]
    pub(super) is_new: bool,
    #[serde(serialize_with = "rfc3339")]
    pub(super) not_after: OffsetDateTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl CertificateFiles {
    pub(super) fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        }
    }

    pub(super) fn paths(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }
}

fn rfc3339<S: Serializer>(time: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_seconds(SystemTime::from(*time)))
}

impl fmt::Display for CertificateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.ca.is_new { "wrote" } else { "used" };
        let CertificateFiles { certificate, key } = &self.ca.files;
        let (certificate, key) = (certificate.display(), key.display());
        let ends = self.ca.not_after.date();
        writeln!(f, "{verb} {certificate}, the CA, valid until {ends}")?;
        writeln!(f, "{verb} {key}, its key: keep it where no other user can read it")?;
        if self.ca_expires_soon {
            f.write_str("the CA is valid for less than a year: make its successor with --new-ca\n")?;
        }
        for CertificateEntry { kind, names, entry } in &self.certificates {
            let verb = if entry.is_new { "wrote" } else { "kept" };
            let (certificate, key) = (entry.files.certificate.display(), entry.files.key.display());
            let (names, ends) = (names.join(", "), entry.not_after.date());
            writeln!(f, "{verb} {certificate}, for the {kind} {names}, valid until {ends}")?;
            writeln!(f, "{verb} {key}, its key")?;
        }
        write!(
            f,
            "\nPaste this line under `webhook:` of the stage in an AdmissionChain, or under `clientConfig:`\n\
             in a BCS admissionwebhook or a Kubernetes webhook configuration:\n\ncaBundle: {}\n",
            self.ca_bundle
        )
    }
}
