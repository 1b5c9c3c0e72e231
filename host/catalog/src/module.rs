use std::{io, path::Path, sync::Arc};

use admittance_admission::suggestion_or;
use admittance_watch::file;
use bytes::Bytes;

use crate::{
    Digest, Error, ModuleReference,
    signature::{Material, Requirement, SignatureError, SignedModule, VerifiedSignature, verify},
    stock,
};

/// The default maximum size of a module: 32 MiB, which is far more than a hook needs.
pub const MODULE_SIZE_LIMIT: u64 = 32 << 20;

/// A module that was checked: it has the digest that the definition names, and the required signature. Only a
/// [`Catalog`](crate::Catalog) creates modules.
#[derive(Clone, derive_more::Debug)]
#[debug("Module {{ reference: {reference:?}, digest: {:?}, verified: {verified:?}, .. }}", fetched_module.digest)]
pub struct Module {
    pub(crate) reference: ModuleReference,
    pub(crate) fetched_module: FetchedModule,
    verified: VerifiedSignature,
    /// The signatures with which the module was checked; `None` if no signature was required.
    pub(crate) material: Option<Arc<Material>>,
}

/// A module whose digest was checked, but not yet its signature.
#[derive(Clone, Debug)]
pub(crate) struct FetchedModule {
    pub(crate) bytes: Bytes,
    pub(crate) digest: Digest,
    /// The manifest of the module; `None` if the module is not from a registry.
    #[cfg_attr(
        not(feature = "registries"),
        expect(dead_code, reason = "only registries have manifests")
    )]
    pub(crate) manifest: Option<Bytes>,
}

impl FetchedModule {
    pub(crate) fn new(bytes: Bytes, digest: Digest) -> Self {
        Self {
            bytes,
            digest,
            manifest: None,
        }
    }

    pub(crate) fn accept_unsigned(self, reference: &ModuleReference) -> Module {
        Module {
            reference: reference.clone(),
            fetched_module: self,
            verified: VerifiedSignature::Unrequired,
            material: None,
        }
    }

    pub(crate) fn accept_signed(
        &self,
        reference: &ModuleReference,
        requirement: &Requirement,
        material: Material,
    ) -> Result<Module, SignatureError> {
        let subject = SignedModule {
            reference,
            module: &self.bytes,
            digest: self.digest,
        };
        let verified = verify(requirement, subject, &material)?;
        Ok(Module {
            reference: reference.clone(),
            fetched_module: self.clone(),
            verified,
            material: Some(Arc::new(material)),
        })
    }
}

impl Module {
    pub fn reference(&self) -> &ModuleReference {
        &self.reference
    }

    /// Returns the bytes of the module. They may be no valid component: only digest and signature were checked.
    pub fn bytes(&self) -> &Bytes {
        &self.fetched_module.bytes
    }

    pub fn digest(&self) -> Digest {
        self.fetched_module.digest
    }

    pub fn verified_signature(&self) -> &VerifiedSignature {
        &self.verified
    }
}

pub(crate) fn read_file(path: &Path, limit: u64) -> Result<(Bytes, Digest), Error> {
    match file::read(path, limit) {
        Ok(bytes) => {
            let digest = Digest::of_bytes(&bytes);
            Ok((bytes.into(), digest))
        }
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(Error::ModuleTooLarge {
            location: path.display().to_string(),
            size: std::fs::metadata(path).map_or(limit.saturating_add(1), |metadata| metadata.len()),
            limit,
        }),
        Err(source) => Err(Error::ModuleUnreadable {
            advice: advice(path),
            path: path.to_owned(),
            source: Arc::new(source),
        }),
    }
}

fn advice(path: &Path) -> String {
    let neighbours: Vec<_> = path
        .parent()
        .and_then(|parent| parent.read_dir().ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .collect();
    let stock_advice = stock::advice(path, &neighbours);
    if !stock_advice.is_empty() || path.exists() {
        return stock_advice;
    }
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = neighbours.iter().map(|file| name(file));
    let fix = suggestion_or(&name(path), names, "the path begins at the definition's directory");
    format!("; build the module, or correct `source`: {fix}")
}

pub(crate) fn check_pin(location: &str, pinned: Option<Digest>, actual: Digest) -> Result<(), Error> {
    match pinned {
        Some(expected) if expected != actual => Err(Error::DigestMismatch {
            location: location.to_owned(),
            expected,
            actual,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_file_above_the_size_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.wasm");
        let error = read_file(&directory.path().join("b.wasm"), 3).unwrap_err().to_string();
        assert!(
            error.ends_with("build the module, or correct `source`: the path begins at the definition's directory")
        );
        assert!(matches!(
            read_file(directory.path(), 3),
            Err(Error::ModuleUnreadable { .. })
        ));
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_file(&path, 3).unwrap().0, "abc");
        assert!(matches!(
            read_file(&path, 2),
            Err(Error::ModuleTooLarge { size: 3, limit: 2, .. })
        ));
    }
}
