//! Signatures of modules: which are [required](SignaturePolicy) of which source, and whether what was found
//! beside a module ([`Material`]) [satisfies](verify) it.
//!
//! A module of a registry is signed by a signature of its manifest, as `cosign sign` makes it; any other by
//! one of its bytes, as `cosign sign-blob` does. The check needs no network: everything that was found is
//! plain data, which is kept beside the module and checked again whenever it is loaded.
//!
//! The checking of certificates, logs and bundles is sigstore's own (`sigstore-verify`); cosign's older forms
//! are brought into the form of a bundle first.

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
