use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Configured, Description, Error, kubewarden::Mode};

const MAGIC: &[u8; 8] = b"admtplug";

/// A plugin that is checked, configured and compiled. Its bytes can be kept on disk under the module's digest, the
/// settings and the [fingerprint](crate::Sandbox::fingerprint).
#[derive(Clone)]
pub struct Prepared {
    pub(crate) header: Header,
    pub(crate) artifact: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) fingerprint: String,
    pub(crate) description: Description,
    pub(crate) configured: Configured,
    /// The settings, if every call needs them.
    pub(crate) settings: Option<String>,
    pub(crate) policy: Option<Mode>,
}

impl Prepared {
    /// Returns the plugin's description of itself.
    pub fn description(&self) -> &Description {
        &self.header.description
    }

    /// Returns the way in which the plugin is configured.
    pub fn configured(&self) -> &Configured {
        &self.header.configured
    }

    /// Serializes the plugin as a header and native code.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The header is plain data, so serialization cannot fail.
        let header = serde_json::to_vec(&self.header).unwrap_or_default();
        let length = u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes();
        [MAGIC, length.as_slice(), &header, &self.artifact].concat()
    }

    /// Deserializes the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// The bytes contain native code, and are trusted like this program. A caller that reads them from disk must make
    /// sure that no one else can write them.
    ///
    /// # Errors
    ///
    /// Fails when the bytes are malformed.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let wrong = |why: &str| Error::Artifact(why.to_owned());
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| wrong("it does not begin with the expected header"))?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| wrong("it is truncated"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (header, artifact) = rest
            .split_at_checked(length)
            .ok_or_else(|| wrong("it is truncated"))?;
        let header = serde_json::from_slice(header).map_err(|error| Error::Artifact(error.to_string()))?;
        Ok(Self {
            header,
            artifact: bytes.slice_ref(artifact),
        })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("header", &self.header)
            .field("artifact_bytes", &self.artifact.len())
            .finish()
    }
}
