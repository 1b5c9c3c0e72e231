use std::{fmt, io, path::Path, sync::Arc};

use admittance_watch::file;
use bytes::Bytes;

use crate::{
    Digest, Error, ModuleReference,
    signature::{Material, Verified},
};

/// The default size limit of a module, in bytes: far more than a hook needs.
pub const MODULE_SIZE_LIMIT: u64 = 32 << 20;

/// A module that may be used: its digest is the one that the definition names, and its signature is as
/// required. Only a [`Catalog`](crate::Catalog) makes one. Lives while a table is built.
#[derive(Clone)]
pub struct Module {
    pub(crate) reference: ModuleReference,
    pub(crate) bytes: Bytes,
    pub(crate) digest: Digest,
    /// The manifest that lists it, for one of a registry.
    pub(crate) manifest: Option<Bytes>,
    pub(crate) verified: Verified,
    /// What the signature was checked with; `None` when none was required.
    pub(crate) material: Option<Arc<Material>>,
}

impl Module {
    /// Its source.
    pub fn reference(&self) -> &ModuleReference {
        &self.reference
    }

    /// The bytes, not yet validated as a component.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Of the bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The result of the signature check.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("reference", &self.reference)
            .field("digest", &self.digest)
            .field("size", &self.bytes.len())
            .field("verified", &self.verified)
            .finish_non_exhaustive()
    }
}

/// Read a module's file, of at most `limit` bytes.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Bytes, Error> {
    let unreadable = |source| Error::ModuleUnreadable {
        path: path.to_owned(),
        source: Arc::new(source),
    };
    let too_large = |_| Error::ModuleTooLarge {
        place: path.display().to_string(),
        size: std::fs::metadata(path).map_or(limit.saturating_add(1), |metadata| metadata.len()),
        limit,
    };
    match file::read(path, limit) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(too_large(error)),
        Err(error) => Err(unreadable(error)),
    }
}

/// Checks that bytes have the digest that a definition names.
pub(crate) fn check_pin(place: &str, pinned: Option<Digest>, actual: Digest) -> Result<(), Error> {
    match pinned {
        Some(expected) if expected != actual => Err(Error::DigestMismatch {
            place: place.to_owned(),
            expected,
            actual,
        }),
        _ => Ok(()),
    }
}

/// Checks that a response is WebAssembly: servers often send an error page with status 200.
pub(crate) fn check_magic(place: &str, bytes: &[u8]) -> Result<(), Error> {
    if bytes.starts_with(b"\0asm") {
        return Ok(());
    }
    let start: Vec<u8> = bytes.iter().copied().take(16).collect();
    let found = match std::str::from_utf8(&start) {
        Ok("") => "nothing".to_owned(),
        Ok(text) if !text.contains(char::is_control) => format!("`{text}`"),
        _ => format!("the bytes {}", hex::encode(&start)),
    };
    Err(Error::NotWebAssembly {
        place: place.to_owned(),
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.wasm");
        assert!(matches!(read_file(&path, 3), Err(Error::ModuleUnreadable { .. })));
        assert!(matches!(
            read_file(directory.path(), 3),
            Err(Error::ModuleUnreadable { .. })
        ));
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_file(&path, 3).unwrap(), "abc");
        assert!(matches!(
            read_file(&path, 2),
            Err(Error::ModuleTooLarge {
                size: 3,
                limit: 2,
                ..
            })
        ));
    }

    #[test]
    fn what_is_no_webassembly_is_told() {
        check_magic("a", b"\0asm\x0d\0\x01\0").unwrap();
        for (bytes, found) in [
            (b"<!doctype html><html>".as_slice(), "`<!doctype html><`"),
            (b"", "nothing"),
            (b"\x1f\x8b\x08", "the bytes 1f8b08"),
            (b"line\nbreak", "the bytes 6c696e650a627265616b"),
        ] {
            let error = check_magic("https://a/b", bytes).unwrap_err();
            assert!(error.to_string().contains(found), "{error}");
        }
    }
}
