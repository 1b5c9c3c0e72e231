use std::{fmt, io, path::PathBuf, sync::Arc};

use jiff::Timestamp;

use super::{SignatureDescription, SourcePattern};
use crate::{Digest, ModuleReference};

/// Why a module's signature is not what is required of it. As text: what was found, what is required, and
/// what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The policy says nothing of this source, so nothing of it is taken.
    #[error(
        "module {reference}: no rule of `signatures` matches it (there are rules for {patterns}): add one, with `accept: Unsigned` if it need not be signed",
        patterns = list(patterns)
    )]
    NotCovered {
        /// The module.
        reference: Box<ModuleReference>,
        /// What there are rules for.
        patterns: Vec<SourcePattern>,
    },
    /// The reference can be understood in two ways, so that it cannot be said which rule is for it.
    #[error("module {reference} {problem}, so no rule of `signatures` can be chosen: correct the reference")]
    Ambiguous {
        /// The module.
        reference: Box<ModuleReference>,
        /// What is wrong with it, as the rest of a sentence.
        problem: &'static str,
    },
    /// There is no signature at all.
    #[error("module {reference} is not signed, but {required} is required: {fix}")]
    Unsigned {
        /// The module.
        reference: Box<ModuleReference>,
        /// What the rule asks.
        required: String,
        /// What to do.
        fix: String,
    },
    /// There are signatures, and none is what is required.
    #[error(
        "module {reference} has no valid signature: {required} is required, but found {found}: {fix}",
        found = list(found)
    )]
    Refused {
        /// The module.
        reference: Box<ModuleReference>,
        /// What the rule asks.
        required: String,
        /// Each signature, and why it does not count.
        found: Vec<Finding>,
        /// What to do.
        fix: String,
    },
    /// What a registry said of the module is not, or no longer, about these bytes.
    #[error("module {reference}: {problem}: pull it again")]
    Unrelated {
        /// The module.
        reference: Box<ModuleReference>,
        /// What does not fit, as a sentence.
        problem: String,
    },
    /// The module or what should be its signature cannot be read.
    #[error("module or signature {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// What should be a signature is far larger than one is.
    #[error(
        "signature {name} has more than {limit} bytes and is probably not a signature: remove it, or sign the module again"
    )]
    TooLarge {
        /// The file, URL or digest.
        name: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// There are more signatures than are looked at.
    #[error("module {reference} has more than {limit} signatures: remove those that are not needed")]
    TooMany {
        /// The module.
        reference: Box<ModuleReference>,
        /// How many are looked at.
        limit: usize,
    },
}

/// A signature that was found, and why it does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the signature says of itself.
    pub signature: SignatureDescription,
    /// Why it does not count.
    pub refusal: Refusal,
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It cannot be understood.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// It is of a kind that is not checked here.
    #[error("is of an unsupported kind: {0}")]
    Unsupported(String),
    /// None of the keys made it, or what it is over was changed.
    #[error("was made by another key or over different content")]
    WrongKey,
    /// It is valid, but over something else.
    #[error("is over {signed}, not over {actual}")]
    OtherSubject {
        /// What was signed.
        signed: String,
        /// What is here.
        actual: Digest,
    },
    /// It says something about the module, but is no signature of it.
    #[error("is a statement of the kind `{0}`, which is not a signature of the module")]
    Statement(String),
    /// It carries no certificate, so it names nobody.
    #[error("has no certificate, which a keyless signature needs")]
    NoCertificate,
    /// The certificate is another's.
    #[error("was made by `{found}`, not by `{required}`")]
    WrongIdentity {
        /// Whom the certificate names.
        found: String,
        /// What the rule asks.
        required: String,
    },
    /// Somebody else vouches for the identity.
    #[error("was made by an identity of the issuer `{found}`, not of `{required}`")]
    WrongIssuer {
        /// Whom the certificate names.
        found: String,
        /// What the rule asks.
        required: String,
    },
    /// The certificate was not valid when the signature was made.
    #[error(
        "was made at {signed_at}, outside the validity of its certificate ({not_before} to {not_after})"
    )]
    Expired {
        /// When the log or the timestamp says that it was made.
        signed_at: Timestamp,
        /// When the certificate begins to be valid.
        not_before: Timestamp,
        /// When it ends.
        not_after: Timestamp,
    },
    /// No authority of the trust root issued the certificate.
    #[error("has a certificate that the trust root does not trust: {0}")]
    UntrustedCertificate(String),
    /// No log or timestamp authority of the trust root knows it.
    #[error("is not proven to be in a log of the trust root: {0}")]
    NotInLog(String),
}

/// A key or a trust root that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTrust {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The text is no public key.
    #[error("public key{of}: {problem}", of = of(origin.as_ref()))]
    Key {
        /// The file, if it is from one.
        origin: Option<PathBuf>,
        /// What is wrong, and what to write.
        problem: String,
    },
    /// The text is no trust root.
    #[error("trust root{of}: {problem}", of = of(origin.as_ref()))]
    Root {
        /// The file, if it is from one.
        origin: Option<PathBuf>,
        /// What is wrong, and what to write.
        problem: String,
    },
    /// A rule names no key.
    #[error("no key is configured: name at least one")]
    NoKeys,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which {}", self.signature, self.refusal)
    }
}

/// As many are told of in one message.
const LISTED: usize = 8;

fn list(items: &[impl fmt::Display]) -> String {
    let mut texts: Vec<String> = items.iter().take(LISTED).map(ToString::to_string).collect();
    if items.len() > LISTED {
        texts.push(format!("and {} more", items.len() - LISTED));
    }
    texts.join("; ")
}

fn of(origin: Option<&PathBuf>) -> String {
    origin.map_or_else(String::new, |path| format!(" {}", path.display()))
}
