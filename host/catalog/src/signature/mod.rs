//! Signatures of modules. A [policy](SignaturePolicy) contains the required signatures for each source of modules, and
//! [`verify`](fn@verify) checks whether the signatures of a module ([`Material`]) satisfy it.
//!
//! A signature in a registry covers the module's manifest, as `cosign sign` makes it; any other signature covers the
//! module's bytes, as `cosign sign-blob` makes it. Verification needs no network: the signatures are stored with the
//! module, and verified again whenever it is loaded.
//!
//! `sigstore-verify` verifies certificates, logs and bundles; cosign's older formats are converted to bundles first.
//! Neither keys nor trust roots can be created without the feature `signatures`, so no policy can require a signature.

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
pub(crate) use self::verify::find_valid_signature;
pub use self::{
    description::{SignatureDescription, SignatureKind, describe},
    error::{InvalidTrust, Refusal, SignatureError, SignatureFinding},
    material::{
        Blob, FoundSignature, Material, SIGNATURE_COUNT_LIMIT, SIGNATURE_SIZE_LIMIT, SIGNATURE_SUFFIXES,
        read_next_to_file, signature_url,
    },
    pattern::{InvalidPattern, SourcePattern},
    policy::{
        CertificateRequirement, IdentityPattern, IssuerUrl, Keyless, PublicKeys, Requirement, SIGNATURE_STATEMENT,
        SignaturePolicy, SignatureRule,
    },
    sigstore::{PublicKey, SigningCertificate, TrustRoot},
    source::ReferenceSource,
    verify::{SignedModule, VerifiedSignature, verify},
};
