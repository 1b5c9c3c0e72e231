//! Signatures of modules: which sources [require](SignaturePolicy) which signatures, and whether the
//! signatures of a module ([`Material`]) [satisfy](verify) the requirement.
//!
//! For a module in a registry the manifest is signed, as `cosign sign` does; for any other module its bytes,
//! as `cosign sign-blob` does. Verification needs no network: the signatures are plain data, which is kept
//! with the module and verified again whenever the module is loaded.
//!
//! Certificates, logs and bundles are verified by `sigstore-verify`; cosign's older formats are converted to
//! bundles first.

mod describe;
mod error;
mod gather;
mod glob;
mod key;
mod keyless;
mod legacy;
mod material;
mod opened;
mod pattern;
mod policy;
mod provider;
mod source;
mod verify;

pub(crate) use self::opened::SIGNATURE_STATEMENT;
pub use self::{
    describe::{SignatureDescription, SignatureKind, describe},
    error::{Finding, InvalidTrust, Refusal, SignatureError},
    gather::{SIGNATURE_SUFFIXES, bundle_url, gather_beside, signature_url},
    key::PublicKey,
    keyless::{IdentityPattern, InvalidIdentity, InvalidIssuer, IssuerUrl, Keyless, TrustRoot},
    material::{Blob, FoundSignature, Material, SIGNATURE_COUNT_LIMIT, SIGNATURE_SIZE_LIMIT},
    pattern::{InvalidPattern, SourcePattern},
    policy::{PublicKeys, Requirement, SignaturePolicy, SignatureRule},
    source::Source,
    verify::{Subject, Verified, verify},
};
