use std::{fmt, io, path::PathBuf, sync::Arc};

use super::{SignatureDescription, SourcePattern};
use crate::{Digest, ModuleReference};

/// The reason why a module fails the signature check. The message says what was found, what is required, and the fix.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    #[error(
        "module {reference}: no rule of `signatures` matches it (there are rules for {patterns}): add one, with `accept: Unsigned` if it need not be signed",
        patterns = list(patterns)
    )]
    NotCovered {
        reference: Box<ModuleReference>,
        patterns: Vec<SourcePattern>,
    },
    #[error("module {reference} {problem}, so no rule of `signatures` can be chosen: correct the reference")]
    Ambiguous {
        reference: Box<ModuleReference>,
        /// The problem with the module's reference, as a predicate whose subject is the module.
        problem: &'static str,
    },
    #[error("module {reference} is not signed, but {required} is required: {fix}")]
    Unsigned {
        reference: Box<ModuleReference>,
        required: String,
        fix: String,
    },
    #[error(
        "module {reference} has no valid signature: {required} is required, but found {findings}: {fix}",
        findings = list(findings)
    )]
    Refused {
        reference: Box<ModuleReference>,
        required: String,
        findings: Vec<SignatureFinding>,
        fix: String,
    },
    #[error("module {reference}: {problem}: pull it again")]
    Unrelated {
        reference: Box<ModuleReference>,
        /// The reason why the parts of a module, such as its bytes and its manifest, do not belong together. It is a
        /// clause, such as "the signed manifest was not kept".
        problem: String,
    },
    #[error("module or signature {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: Arc<io::Error> },
    #[error(
        "signature {name} has more than {limit} bytes and is probably not a signature: remove it, or sign the module again"
    )]
    TooLarge { name: String, limit: u64 },
    #[error("module {reference} has more than {limit} signatures: remove those that are not needed")]
    TooMany {
        reference: Box<ModuleReference>,
        limit: usize,
    },
}

/// A signature of the module, and why it was refused.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{signature}, which {refusal}")]
pub struct SignatureFinding {
    pub signature: SignatureDescription,
    pub refusal: Refusal,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("is damaged: {0}")]
    Damaged(String),
    #[error("is of an unsupported kind: {0}")]
    Unsupported(String),
    /// The signature was made with another key than the required ones, or the signed content was changed.
    #[error("was made by another key or over different content")]
    WrongKey,
    /// The signature is valid, but for another module.
    #[error("is over {signed}, not over {actual}")]
    OtherSubject { signed: String, actual: Digest },
    /// The signature covers a statement that does not approve the module, such as provenance.
    #[error("is a statement of the kind `{0}`, which is not a signature of the module")]
    Statement(String),
    #[error("has no certificate, which a keyless signature needs")]
    NoCertificate,
    #[error("was made by `{found}`, not by `{required}`")]
    WrongIdentity { found: String, required: String },
    #[error("was made by an identity of the issuer `{found}`, not of `{required}`")]
    WrongIssuer { found: String, required: String },
    #[error("was made at {signed_at}, outside the validity of its certificate ({not_before} to {not_after})")]
    Expired {
        signed_at: String,
        not_before: String,
        not_after: String,
    },
    #[error("has a certificate that the trust root does not trust: {0}")]
    UntrustedCertificate(String),
    #[error("is not proven to be in a log of the trust root: {0}")]
    NotInLog(String),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTrust {
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The PEM or JSON text of a public key, a certificate or a trust root is invalid.
    #[error("{kind}{}: {problem}", path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Invalid {
        kind: &'static str,
        path: Option<PathBuf>,
        problem: String,
    },
    #[error("no key is configured: name at least one")]
    NoKeys,
    #[error("this program cannot check signatures; build it with the feature `signatures` of the crate `admittance`")]
    NoSignatures,
}

/// The maximum number of signatures that an error message lists.
const MAX_LISTED: usize = 8;

fn list(items: &[impl fmt::Display]) -> String {
    let mut texts: Vec<String> = items.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if items.len() > MAX_LISTED {
        texts.push(format!("and {} more", items.len() - MAX_LISTED));
    }
    texts.join("; ")
}
