use std::{fs::File, io::Read, sync::Arc};

use crate::{Digest, Error, ModuleReference};

/// The largest module that is read, in bytes: far above what a hook needs, far below what would hurt.
pub const MODULE_SIZE_LIMIT: u64 = 32 << 20;

/// A module's bytes, and the digest that names them. Lives while a table is built.
#[derive(Clone, Debug)]
pub struct Module {
    /// As they were read; not checked to be a component.
    pub bytes: Vec<u8>,
    /// Of the bytes.
    pub digest: Digest,
}

impl Module {
    /// Read the module that the reference names.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is larger than [`MODULE_SIZE_LIMIT`], or does not have the `pinned`
    /// digest.
    pub fn read(reference: &ModuleReference, pinned: Option<Digest>) -> Result<Self, Error> {
        let ModuleReference::File(path) = reference else {
            return Err(Error::Unreachable {
                place: reference.to_string(),
                problem: "only files are read".to_owned(),
            });
        };
        let unreadable = |source| Error::ModuleUnreadable {
            path: path.clone(),
            source: Arc::new(source),
        };
        let file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if size > MODULE_SIZE_LIMIT {
            return Err(Error::ModuleTooLarge {
                place: path.display().to_string(),
                size,
                limit: MODULE_SIZE_LIMIT,
            });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        // The file may have grown since its size was asked.
        file.take(MODULE_SIZE_LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        let size = bytes.len() as u64;
        if size > MODULE_SIZE_LIMIT {
            return Err(Error::ModuleTooLarge {
                place: path.display().to_string(),
                size,
                limit: MODULE_SIZE_LIMIT,
            });
        }
        let digest = Digest::of(&bytes);
        match pinned {
            Some(expected) if expected != digest => Err(Error::DigestMismatch {
                place: path.display().to_string(),
                expected,
                actual: digest,
            }),
            _ => Ok(Self { bytes, digest }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_digest_and_pin() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.wasm");
        let reference = ModuleReference::File(path.clone());
        assert!(matches!(
            Module::read(&reference, None),
            Err(Error::ModuleUnreadable { .. })
        ));
        std::fs::write(&path, "abc").unwrap();
        let module = Module::read(&reference, Some(Digest::of("abc"))).unwrap();
        assert_eq!(
            (module.bytes.as_slice(), module.digest),
            (b"abc".as_slice(), Digest::of("abc"))
        );
        let error = Module::read(&reference, Some(Digest::of("abd"))).unwrap_err();
        assert!(matches!(error, Error::DigestMismatch { .. }), "{error}");
    }

    #[test]
    fn a_module_over_the_limit_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.wasm");
        File::create(&path)
            .unwrap()
            .set_len(MODULE_SIZE_LIMIT + 1)
            .unwrap();
        let error = Module::read(&ModuleReference::File(path), None).unwrap_err();
        assert!(matches!(error, Error::ModuleTooLarge { .. }), "{error}");
    }
}
