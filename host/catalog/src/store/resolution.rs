use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Store, StoreEntryKind, remove_damaged};
use crate::{Digest, Error, ModuleReference, signature::Blob};

/// The record of the module to which a URL or a tag was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    pub module: Digest,
    /// The digest and the exact bytes of the manifest; `None` if the module is not from a registry.
    pub manifest: Option<(Digest, Bytes)>,
    /// The validator (`ETag`) that the server sent for this version, if the module is from a URL.
    pub validator: Option<String>,
    /// The time at which the reference was last resolved.
    pub resolved: SystemTime,
}

#[derive(Deserialize, Serialize)]
struct ResolutionRecord {
    reference: String,
    module: Digest,
    manifest: Option<Blob>,
    validator: Option<String>,
    seconds: u64,
}

impl Store {
    /// Reads the record of the last resolution of this reference.
    pub fn read_resolution(&self, reference: &ModuleReference) -> Option<Resolution> {
        self.read_record(reference, entry_name(reference))
    }

    /// Reads the record that the reference was resolved to the module, even if it was later resolved to another module.
    pub fn read_resolution_of_module(&self, reference: &ModuleReference, module: Digest) -> Option<Resolution> {
        self.read_record(reference, entry_name_for_module(reference, module))
            .filter(|resolution| resolution.module == module)
    }

    /// # Errors
    ///
    /// Returns an error when the resolution cannot be written.
    pub fn keep_resolution(&self, reference: &ModuleReference, resolution: &Resolution) -> Result<(), Error> {
        let seconds = resolution.resolved.duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = ResolutionRecord {
            reference: reference.to_string(),
            module: resolution.module,
            manifest: resolution.manifest.as_ref().map(|(_, bytes)| Blob(bytes.to_vec())),
            validator: resolution.validator.clone(),
            seconds: seconds.as_secs(),
        };
        let content = serde_json::to_vec(&record).unwrap_or_default();
        self.keep_sealed(
            StoreEntryKind::Resolution,
            entry_name_for_module(reference, resolution.module),
            &content,
        )?;
        self.keep_sealed(StoreEntryKind::Resolution, entry_name(reference), &content)
    }

    fn read_record(&self, reference: &ModuleReference, name: Digest) -> Option<Resolution> {
        let resolution = parse_record(reference, &self.read_sealed(StoreEntryKind::Resolution, name)?);
        if resolution.is_none() {
            remove_damaged(&self.path(StoreEntryKind::Resolution, name));
        }
        resolution
    }
}

fn parse_record(reference: &ModuleReference, content: &[u8]) -> Option<Resolution> {
    let record: ResolutionRecord = serde_json::from_slice(content).ok()?;
    if record.reference != reference.to_string() {
        return None;
    }
    let manifest = record.manifest.map(|Blob(bytes)| Bytes::from(bytes));
    Some(Resolution {
        module: record.module,
        manifest: manifest.map(|bytes| (Digest::of_bytes(&bytes), bytes)),
        validator: record.validator,
        resolved: UNIX_EPOCH.checked_add(Duration::from_secs(record.seconds))?,
    })
}

fn entry_name(reference: &ModuleReference) -> Digest {
    Digest::of_parts([reference.to_string().as_bytes()])
}

pub(super) fn entry_name_for_module(reference: &ModuleReference, module: Digest) -> Digest {
    Digest::of_parts([reference.to_string().as_bytes(), module.as_bytes()])
}
