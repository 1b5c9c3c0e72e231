use std::{fmt, io, path::PathBuf, sync::Arc};

use super::{SignatureDescription, SourcePattern};
use crate::{Digest, ModuleReference};

/// The error of a module without the required signature. The message says what was found, what is required, and what to
/// do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// No rule of the policy matches this source, so modules from it are refused.
    #[error(
        "module {reference}: no rule of `signatures` matches it (there are rules for {patterns}): add one, with `accept: Unsigned` if it need not be signed",
        patterns = list(patterns)
    )]
    NotCovered {
        reference: Box<ModuleReference>,
        patterns: Vec<SourcePattern>,
    },
    /// The reference is ambiguous, so no rule can be chosen.
    #[error("module {reference} {problem}, so no rule of `signatures` can be chosen: correct the reference")]
    Ambiguous {
        reference: Box<ModuleReference>,
        /// The problem, as the rest of a sentence.
        problem: &'static str,
    },
    /// The module has no signature.
    #[error("module {reference} is not signed, but {required} is required: {fix}")]
    Unsigned {
        reference: Box<ModuleReference>,
        required: String,
        fix: String,
    },
    /// No signature of the module satisfies the rule.
    #[error(
        "module {reference} has no valid signature: {required} is required, but found {found}: {fix}",
        found = list(found)
    )]
    Refused {
        reference: Box<ModuleReference>,
        required: String,
        found: Vec<Finding>,
        fix: String,
    },
    /// The manifest from the registry does not match the module.
    #[error("module {reference}: {problem}: pull it again")]
    Unrelated {
        reference: Box<ModuleReference>,
        /// The mismatch, as a sentence.
        problem: String,
    },
    /// The module or a signature cannot be read.
    #[error("module or signature {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: Arc<io::Error> },
    /// A signature file is too large.
    #[error(
        "signature {name} has more than {limit} bytes and is probably not a signature: remove it, or sign the module again"
    )]
    TooLarge { name: String, limit: u64 },
    /// The module has too many signatures.
    #[error("module {reference} has more than {limit} signatures: remove those that are not needed")]
    TooMany {
        reference: Box<ModuleReference>,
        limit: usize,
    },
}

/// A signature that was found, and the reason for refusing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The claims of the signature.
    pub signature: SignatureDescription,
    /// The reason for refusing it.
    pub refusal: Refusal,
}

/// The reason for refusing a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The signature cannot be parsed.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// The signature is of an unsupported kind.
    #[error("is of an unsupported kind: {0}")]
    Unsupported(String),
    /// None of the keys made the signature, or the signed content was changed.
    #[error("was made by another key or over different content")]
    WrongKey,
    /// The signature is valid, but signs something else.
    #[error("is over {signed}, not over {actual}")]
    OtherSubject { signed: String, actual: Digest },
    /// The signature is a statement about the module that does not approve it.
    #[error("is a statement of the kind `{0}`, which is not a signature of the module")]
    Statement(String),
    /// The signature has no certificate, and so no identity.
    #[error("has no certificate, which a keyless signature needs")]
    NoCertificate,
    /// The certificate has another identity.
    #[error("was made by `{found}`, not by `{required}`")]
    WrongIdentity { found: String, required: String },
    /// The identity has another issuer.
    #[error("was made by an identity of the issuer `{found}`, not of `{required}`")]
    WrongIssuer { found: String, required: String },
    /// The certificate was not valid when the signature was made.
    #[error("was made at {signed_at}, outside the validity of its certificate ({not_before} to {not_after})")]
    Expired {
        signed_at: String,
        not_before: String,
        not_after: String,
    },
    /// No authority of the trust root issued the certificate.
    #[error("has a certificate that the trust root does not trust: {0}")]
    UntrustedCertificate(String),
    /// No log or timestamp authority of the trust root recorded the signature.
    #[error("is not proven to be in a log of the trust root: {0}")]
    NotInLog(String),
}

/// A key or a trust root that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTrust {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The text, or the content of the file, is not valid: a public key or a trust root.
    #[error("{what}{}: {problem}", path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Invalid {
        what: &'static str,
        path: Option<PathBuf>,
        problem: String,
    },
    /// A rule names no key.
    #[error("no key is configured: name at least one")]
    NoKeys,
    /// The program was built without the feature `signatures`.
    #[error(
        "this program cannot check signatures; build it with the feature `signatures` of the crate `admittance`"
    )]
    NoSignatures,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which {}", self.signature, self.refusal)
    }
}

/// The number of findings that one message lists.
const LISTED: usize = 8;

fn list(items: &[impl fmt::Display]) -> String {
    let mut texts: Vec<String> = items.iter().take(LISTED).map(ToString::to_string).collect();
    if items.len() > LISTED {
        texts.push(format!("and {} more", items.len() - LISTED));
    }
    texts.join("; ")
}
