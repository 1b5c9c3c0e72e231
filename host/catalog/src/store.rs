use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_watch::file;
use bytes::Bytes;

use crate::{Digest, Error, Module, ModuleReference, signature::Material};

mod compiled_key;
mod entry;
mod partial;
mod prune;
mod resolution;
mod temporary;

pub use compiled_key::CompiledKey;
pub use prune::{InUse, Pruned};
pub use resolution::Resolution;

pub(crate) use partial::Partial;
use resolution::name_with;
use temporary::Temporary;

/// The store on disk, with which the next start needs neither network nor compiler: modules under their
/// digests, compiled forms, and the resolutions of references. Lives as long as the program; several programs
/// may share one directory.
///
/// Its contents run as native code, so the directory must belong to the user and not be writable by others,
/// entries are written atomically, and each is checked against its digest whenever it is read. A read-only
/// store still serves its entries.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The kinds of entries, each in its own directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Modules, bare, under their digests.
    Module,
    /// Compiled forms, sealed, under their keys.
    Compiled,
    /// Resolutions of references, sealed, under the digest of the reference.
    Resolution,
    /// Signature material, sealed, under the reference and the digest of the module.
    Signature,
    /// Partial downloads.
    Partial,
    /// Temporary files.
    Temporary,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Module,
        Self::Compiled,
        Self::Resolution,
        Self::Signature,
        Self::Partial,
        Self::Temporary,
    ];

    fn directory(self) -> &'static str {
        match self {
            Self::Module => "modules",
            Self::Compiled => "compiled",
            Self::Resolution => "resolved",
            Self::Signature => "signatures",
            Self::Partial => "partial",
            Self::Temporary => "temporary",
        }
    }
}

/// A partial download is removed when it was not resumed for this long.
const PARTIAL_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

impl Store {
    /// Opens this directory; it is created, with its parents, if it does not exist. Temporary files of killed
    /// programs are removed.
    ///
    /// # Errors
    ///
    /// When it cannot be created, or is not private to this user.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let store = Self {
            directory: directory.into(),
        };
        private_directory(&store.directory)?;
        for kind in Kind::ALL {
            match private_directory(&store.directory_of(kind)) {
                // Its entries are still served.
                Err(Error::Store { source, .. }) if is_unwritable(&source) => {}
                opened => opened?,
            }
        }
        store.sweep();
        Ok(store)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The compiled form under this key. A damaged one is removed and treated as missing.
    pub fn compiled(&self, key: CompiledKey) -> Option<Vec<u8>> {
        self.sealed(Kind::Compiled, key.digest())
    }

    /// Stores a compiled form.
    ///
    /// # Errors
    ///
    /// When it cannot be written. The store is unchanged, and the program can continue without it.
    pub fn keep_compiled(&self, key: CompiledKey, content: &[u8]) -> Result<(), Error> {
        self.keep_sealed(Kind::Compiled, key.digest(), content)
    }

    /// The module with this digest. A damaged one is removed and treated as missing.
    pub fn module(&self, digest: Digest) -> Option<Bytes> {
        let path = self.path(Kind::Module, digest);
        let bytes = self.read(&path)?;
        if Digest::of(&bytes) == digest {
            return Some(bytes.into());
        }
        self.remove_damaged(&path);
        None
    }

    /// Stores a module and its signature material, so that it can be [recalled](crate::Catalog::recall). A
    /// module that a catalog fetched is already stored.
    ///
    /// # Errors
    ///
    /// When it cannot be written. The store is unchanged.
    pub fn keep(&self, module: &Module) -> Result<(), Error> {
        if let Some(material) = &module.material {
            self.keep_material(&module.reference, module.digest, material)?;
        }
        if self.has_module(module.digest, module.bytes.len()) {
            return Ok(());
        }
        self.keep_bytes(module.digest, &module.bytes)
    }

    pub(crate) fn keep_bytes(&self, digest: Digest, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(Kind::Module, digest);
        Temporary::write(&self.directory_of(Kind::Temporary), &[bytes])?.persist(&path)
    }

    /// Whether a module of this size is stored; marks it as used. Its content is checked when it is read.
    fn has_module(&self, digest: Digest, size: usize) -> bool {
        let path = self.path(Kind::Module, digest);
        let is_there = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == size as u64);
        if is_there {
            touch(&path);
        }
        is_there
    }

    /// The signature material of this module and reference. Damaged entries are removed and treated as
    /// missing.
    pub(crate) fn material(&self, reference: &ModuleReference, module: Digest) -> Option<Material> {
        let content = self.sealed(Kind::Signature, name_with(reference, module))?;
        serde_json::from_slice(&content).ok()
    }

    pub(crate) fn keep_material(
        &self,
        reference: &ModuleReference,
        module: Digest,
        material: &Material,
    ) -> Result<(), Error> {
        let content = serde_json::to_vec(material).unwrap_or_default();
        self.keep_sealed(Kind::Signature, name_with(reference, module), &content)
    }

    fn directory_of(&self, kind: Kind) -> PathBuf {
        self.directory.join(kind.directory())
    }

    fn path(&self, kind: Kind, name: Digest) -> PathBuf {
        self.directory_of(kind).join(name.to_hex())
    }

    /// An entry's bytes; marks it as used.
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let read = || {
            let mut bytes = Vec::new();
            file::open(path)?.read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        };
        match read() {
            Ok(bytes) => {
                touch(path);
                Some(bytes)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "an entry of the store cannot be read and is ignored");
                }
                None
            }
        }
    }

    fn remove_damaged(&self, path: &Path) {
        tracing::warn!(path = %path.display(), "an entry of the store is damaged and was removed");
        let _ = fs::remove_file(path);
    }

    /// Removes temporary files of killed programs, and abandoned downloads.
    fn sweep(&self) {
        for path in files_in(&self.directory_of(Kind::Temporary)) {
            Temporary::remove_abandoned(&path);
        }
        for path in files_in(&self.directory_of(Kind::Partial)) {
            let age = fs::metadata(&path)
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|modified| modified.elapsed().ok());
            if age.is_some_and(|age| age > PARTIAL_LIFE) {
                Temporary::remove_abandoned(&path);
            }
        }
    }
}

/// The files in a directory; none when it cannot be read.
fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Marks an entry as used. A store for which this fails is never pruned.
fn touch(path: &Path) {
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Creates a private directory, or checks that it is private.
fn private_directory(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed(path))?;
    let metadata = fs::metadata(path).map_err(failed(path))?;
    let not_private = |problem| Error::StoreNotPrivate {
        path: path.to_owned(),
        problem,
    };
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me {
        return Err(not_private(format!(
            "it belongs to user {}, not to {me}",
            metadata.uid()
        )));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(not_private(format!(
            "its mode is {:o}, so other users may write to it",
            metadata.mode() & 0o777
        )));
    }
    Ok(())
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull
    )
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Store {
        path,
        source: Arc::new(source),
    }
}
