use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_watch::file;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use super::SignatureError;
use crate::ModuleReference;

/// The maximum size of a signature that is read: 1 MiB, far more than a bundle needs.
pub const SIGNATURE_SIZE_LIMIT: u64 = 1 << 20;

/// The maximum number of signatures that a module may have.
pub const SIGNATURE_COUNT_LIMIT: usize = 64;

/// The signatures of a module, which were not verified. The store saves them with the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Material {
    /// The exact bytes of the manifest that lists the module, if the module is from a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Blob>,
    /// The signatures of the module, in the order in which they were found.
    #[serde(default)]
    pub signatures: Vec<FoundSignature>,
}

/// A signature that was found for a module, but not verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FoundSignature {
    /// A signature that has no certificate, in base64 or binary. It was read from the file `{module}.sig`, or from the
    /// URL of the module with `.sig` at its end.
    Detached { name: String, content: Blob },
    /// A bundle of sigstore or of `cosign sign-blob --bundle`: `{module}.sigstore.json`, or a referrer of the manifest
    /// in a registry.
    Bundle { name: String, content: Blob },
    /// A layer that `cosign sign` pushes under the tag `sha256-{digest}.sig`, and its annotations.
    SimpleSigning {
        name: String,
        /// The content of the layer, which is the payload that the signature covers.
        payload: Blob,
        /// The layer's annotation `dev.cosignproject.cosign/signature`.
        signature: String,
        /// The layer's annotation `dev.sigstore.cosign/certificate`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        certificate: Option<String>,
        /// The layer's annotation `dev.sigstore.cosign/chain`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
        /// The layer's annotation `dev.sigstore.cosign/bundle`: the promise of the log to include the signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<String>,
    },
}

impl FoundSignature {
    pub(crate) fn from_suffix(suffix: &str, name: String, content: Blob) -> Self {
        if suffix == BUNDLE_SUFFIX {
            Self::Bundle { name, content }
        } else {
            Self::Detached { name, content }
        }
    }

    /// Returns the file, URL or digest of the signature.
    pub fn name(&self) -> &str {
        match self {
            Self::Detached { name, .. } | Self::Bundle { name, .. } | Self::SimpleSigning { name, .. } => name,
        }
    }
}

impl Material {
    /// # Errors
    ///
    /// Returns an error when the module already has [`SIGNATURE_COUNT_LIMIT`] signatures.
    pub fn add(&mut self, reference: &ModuleReference, signature: FoundSignature) -> Result<(), SignatureError> {
        if self.signatures.len() >= SIGNATURE_COUNT_LIMIT {
            return Err(SignatureError::TooMany {
                reference: Box::new(reference.clone()),
                limit: SIGNATURE_COUNT_LIMIT,
            });
        }
        if !self.signatures.contains(&signature) {
            self.signatures.push(signature);
        }
        Ok(())
    }
}

/// Bytes that are written as base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(de::Error::custom)
    }
}

pub(super) const BUNDLE_SUFFIX: &str = ".sigstore.json";

/// The suffixes of signatures: `.sig` for a detached signature, and `.sigstore.json` for a bundle. They are appended to
/// the module's file name or to the path of its URL.
pub const SIGNATURE_SUFFIXES: [&str; 2] = [".sig", BUNDLE_SUFFIX];

/// Reads the signatures next to a file, `{file}.sig` and `{file}.sigstore.json`. They may be next to the path of the
/// reference or next to the target of its symbolic links.
///
/// # Errors
///
/// Returns an error when an existing signature cannot be read or is too large.
pub fn read_next_to_file(path: &Path, resolved: &Path) -> Result<Material, SignatureError> {
    let mut material = Material::default();
    let reference = ModuleReference::File(path.to_owned());
    for module_path in [path, resolved] {
        for suffix in SIGNATURE_SUFFIXES {
            if let Some((name, content)) = read_neighbour(module_path, suffix)? {
                material.add(&reference, FoundSignature::from_suffix(suffix, name, content))?;
            }
        }
        // If `path` is not a symbolic link, `resolved` is the same file in the same directory. The first round of this
        // loop has read its signatures already.
        if !path.is_symlink() {
            break;
        }
    }
    Ok(material)
}

fn read_neighbour(path: &Path, suffix: &str) -> Result<Option<(String, Blob)>, SignatureError> {
    let mut name = OsString::from(path);
    name.push(suffix);
    let path = PathBuf::from(name);
    let name = path.display().to_string();
    match file::read(&path, SIGNATURE_SIZE_LIMIT) {
        Ok(content) => Ok(Some((name, Blob(content)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(SignatureError::TooLarge {
            name,
            limit: SIGNATURE_SIZE_LIMIT,
        }),
        Err(source) => Err(SignatureError::Unreadable {
            path,
            source: Arc::new(source),
        }),
    }
}

/// Returns the URL of a signature, which is the module's URL with the suffix at the end of its path.
pub fn signature_url(module: &Url, suffix: &str) -> Url {
    let mut url = module.clone();
    url.set_path(&format!("{}{suffix}", module.path()));
    url
}
