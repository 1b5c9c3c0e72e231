//! The capability `images`: plugins read images in registries, and verify their signatures.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use async_trait::async_trait;
use serde_json::value::RawValue;
use url::{Host, Url};

use crate::{Digest, ModuleReference, OciReference};

/// Reads images for plugins. Before each call, the sandbox checks that the stage grants the image.
#[async_trait]
pub trait ImageReader: fmt::Debug + Send + Sync + 'static {
    /// Returns the manifest of an image, or its index.
    ///
    /// # Errors
    ///
    /// Fails when the manifest cannot be read. The plugin gets the error.
    async fn manifest(&self, image: &OciReference) -> Result<ImageManifest, ImageError>;

    /// Returns the manifest and configuration of an image or, for an index, of its image for this platform.
    ///
    /// # Errors
    ///
    /// Fails when the image cannot be read. The plugin gets the error.
    async fn configuration(&self, image: &OciReference) -> Result<(ImageManifest, Arc<RawValue>), ImageError>;

    /// Verifies that all these signers signed an image, and returns its digest.
    ///
    /// # Errors
    ///
    /// Fails when the image cannot be read, or when a signature is missing.
    async fn verify_signatures(&self, image: &OciReference, signers: &Signers) -> Result<Digest, ImageError>;
}

/// The manifest of an image.
#[derive(Clone, Debug)]
pub struct ImageManifest {
    /// The digest of the manifest.
    pub digest: Digest,
    /// The manifest exactly as the registry stores it.
    pub json: Arc<RawValue>,
}

/// The signers that an image must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signers {
    /// The signers, who must all have signed the image.
    pub all: Vec<Signer>,
    /// The annotations that each signature must have, as `cosign sign --annotations` adds them.
    pub annotations: BTreeMap<String, String>,
}

/// A signer of images.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signer {
    /// A key pair. The signer has the private key, and this is the public key as PEM.
    Key(String),
    /// An identity that an OpenID provider has confirmed.
    Identity {
        /// The URL of the provider.
        issuer: String,
        /// The e-mail address or URI of the signer.
        subject: String,
        /// Whether `subject` is only the beginning of the address or URI.
        is_prefix: bool,
    },
    /// The owner of a certificate.
    Certificate {
        /// The certificate as PEM.
        certificate: String,
        /// The CAs as PEM. One of them must have issued the certificate. `None` trusts the certificate itself.
        chain: Option<Vec<String>>,
        /// Whether the signature must be in a transparency log.
        must_be_logged: bool,
    },
}

/// The reason why an image cannot be read or verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(pub String);

/// The images that a stage lets its plugin read. A grant names a registry or a path in a registry, or is `*` for all
/// registries. `*` does not include registries on this machine or with an IP address, because clients choose the
/// images, and must not make the host call such servers. A grant for such a registry must name the registry.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}", _0.as_deref().unwrap_or("*"))]
pub struct ImageGrant(Option<Box<str>>);

/// The error for a text that is not an [`ImageGrant`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a registry; write `ghcr.io`, `ghcr.io/acme`, or `*` for all")]
pub struct InvalidImageGrant(String);

impl ImageGrant {
    /// The grant of all images, except those in registries on this machine or with an IP address.
    pub const ALL: Self = Self(None);

    /// Returns whether the grant includes an image.
    pub fn includes(&self, image: &OciReference) -> bool {
        let Self(Some(granted)) = self else {
            return has_name(image.registry());
        };
        let name = image.name();
        let rest = name.strip_prefix(&**granted);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn has_name(registry: &str) -> bool {
    let is_address =
        Url::parse(&format!("https://{registry}")).is_ok_and(|url| !matches!(url.host(), Some(Host::Domain(_))));
    let host = registry.split(':').next().unwrap_or_default();
    !is_address && host != "localhost" && !host.ends_with(".localhost")
}

impl FromStr for ImageGrant {
    type Err = InvalidImageGrant;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::ALL);
        }
        // The text may be only a registry, such as `ghcr.io`, which is not a valid reference to an image. So the text
        // is also checked with a made-up repository, as in `ghcr.io/a`.
        let is_valid = |name: &str| {
            let parsed = format!("oci://{name}").parse();
            matches!(parsed, Ok(ModuleReference::Oci(image)) if image.name() == name)
        };
        if is_valid(text) || is_valid(&format!("{text}/a")) {
            Ok(Self(Some(text.into())))
        } else {
            Err(InvalidImageGrant(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_includes_images_by_registry_and_path() {
        for (grant, image, expected) in [
            ("*", "ghcr.io/acme/a:1", true),
            ("*", "registry.internal:5000/a", true),
            ("*", "localhost/a", false),
            ("*", "a.localhost:5000/a", false),
            ("*", "127.0.0.1:5000/a", false),
            ("*", "169.254.169.254/a", false),
            ("*", "[::1]:5000/a", false),
            ("127.0.0.1:5000", "127.0.0.1:5000/a", true),
            ("ghcr.io", "ghcr.io/acme/a:1", true),
            ("ghcr.io/acme", "ghcr.io/acme/a:1", true),
            ("ghcr.io/acme/a", "ghcr.io/acme/a:1", true),
            ("ghcr.io/ac", "ghcr.io/acme/a:1", false),
            ("ghcr.io", "ghcr.io.example.com/acme/a:1", false),
            ("localhost:5000", "localhost:5000/a", true),
        ] {
            let grant: ImageGrant = grant.parse().unwrap();
            assert_eq!(grant.includes(&image.parse().unwrap()), expected, "{grant:?} {image}");
        }
        for wrong in [
            "",
            "https://ghcr.io",
            "ghcr.io/acme:1",
            "ghcr.io/",
            "ghcr.io/*",
            "Ghcr io",
        ] {
            assert!(wrong.parse::<ImageGrant>().is_err(), "{wrong}");
        }
    }
}
