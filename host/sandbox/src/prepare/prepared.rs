use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{ConfigurationTime, Description, Error, kubewarden::PolicyMode};

/// A checked, configured and compiled plugin. Its header and code can be stored on disk, under a key that consists of
/// the module's digest, the settings and the [fingerprint](crate::Sandbox::fingerprint).
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) header: Header,
    pub(crate) code: NativeCode,
}

/// Native code.
///
/// It must be the unchanged output of the compiler of this version of wasmtime. So it comes from this program, from a
/// compiler process that is trusted like this program, or from a cache that is private to this program and verifies the
/// code when it reads it (see [`Prepared::from_file`]). The fingerprint and wasmtime itself refuse code of another
/// version or configuration.
#[derive(Clone, derive_more::Debug)]
pub(crate) enum NativeCode {
    #[debug("{} bytes", _0.len())]
    Memory(Bytes),
    /// A file that begins with the code. It is mapped into memory: nobody may write to it again, but it may be removed.
    #[debug("{_0:?}")]
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) fingerprint: String,
    pub(crate) description: Description,
    pub(crate) configured: ConfigurationTime,
    /// The settings, if every call must run `configure`; otherwise `None`.
    pub(crate) settings: Option<String>,
    pub(crate) policy: Option<PolicyMode>,
}

impl Prepared {
    /// Returns the plugin's description of itself.
    pub fn description(&self) -> &Description {
        &self.header.description
    }

    /// Returns whether the plugin was configured once, or is configured in every call.
    pub fn configuration_time(&self) -> &ConfigurationTime {
        &self.header.configured
    }

    /// Serialises the header: the description of the plugin, the fingerprint of the engine that prepared it, and
    /// whether `configure` runs once or in every call.
    pub fn header(&self) -> Vec<u8> {
        // The header is plain data, so serialisation cannot fail.
        serde_json::to_vec(&self.header).unwrap_or_default()
    }

    /// Returns the native code of the plugin, if it is in memory rather than in a file.
    pub fn code(&self) -> Option<&Bytes> {
        match &self.code {
            NativeCode::Memory(bytes) => Some(bytes),
            NativeCode::File(_) => None,
        }
    }

    /// Creates a plugin from its [header](Self::header) and its native code.
    ///
    /// The code runs with all rights of this program. So if it comes from disk, nobody else may be able to change it.
    ///
    /// # Errors
    ///
    /// Fails when the header is malformed.
    pub fn from_bytes(code: impl Into<Bytes>, header: &[u8]) -> Result<Self, Error> {
        Self::new(NativeCode::Memory(code.into()), header)
    }

    /// Creates a plugin from its [header](Self::header) and a file that begins with its native code. Loading the plugin
    /// maps the file into memory, so that processes which load the same file share its pages.
    ///
    /// Nobody may write to the file again, even after the plugin has been loaded. The file may be removed.
    ///
    /// # Errors
    ///
    /// Fails when the header is malformed.
    pub fn from_file(path: impl Into<PathBuf>, header: &[u8]) -> Result<Self, Error> {
        Self::new(NativeCode::File(path.into()), header)
    }

    fn new(code: NativeCode, header: &[u8]) -> Result<Self, Error> {
        let header = serde_json::from_slice(header).map_err(|error| Error::Artifact(error.to_string()))?;
        Ok(Self { header, code })
    }
}
