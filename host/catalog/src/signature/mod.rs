//! Signatures of modules. A [policy](SignaturePolicy) says which signatures the modules of a source must have, and
//! [`verify`] checks whether the signatures of a module ([`Material`]) satisfy it.
//!
//! The signature of a module in a registry is for its manifest, as `cosign sign` makes it; the signature of any other
//! module is for its bytes, as `cosign sign-blob` makes it. Verification needs no network: the signatures are plain
//! data, which is kept with the module and verified again whenever the module is loaded.
//!
//! Certificates, logs and bundles are verified by `sigstore-verify`; cosign's older formats are converted to
//! bundles first. A program without the feature `signatures` can create neither keys nor trust roots, so that no policy
//! can require a signature.

mod description;
mod error;
mod glob;
mod material;
mod pattern;
mod policy;
#[cfg(feature = "signatures")]
mod sigstore;
#[cfg(not(feature = "signatures"))]
#[path = "disabled.rs"]
mod sigstore;
pub(crate) mod source;
mod verify;

#[cfg(feature = "registries")]
pub(crate) use self::verify::valid_signature;
pub use self::{
    description::{SignatureDescription, SignatureKind, describe},
    error::{Finding, InvalidTrust, Refusal, SignatureError},
    material::{
        Blob, FoundSignature, Material, SIGNATURE_COUNT_LIMIT, SIGNATURE_SIZE_LIMIT, SIGNATURE_SUFFIXES,
        gather_beside, signature_url,
    },
    pattern::{InvalidPattern, SourcePattern},
    policy::{
        Certified, IdentityPattern, IssuerUrl, Keyless, PublicKeys, Requirement, SIGNATURE_STATEMENT,
        SignaturePolicy, SignatureRule,
    },
    sigstore::{PublicKey, SigningCertificate, TrustRoot},
    source::Source,
    verify::{SignedModule, Verified, verify},
};
