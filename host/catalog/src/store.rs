//! The store on disk, which saves modules and their compiled forms for the next start of the program.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{Moment, keywords};
use admittance_watch::file;
use bytes::Bytes;

use crate::{Digest, Error, Module, ModuleReference, signature::Material};

mod mapping;
mod prune;
mod resolution;

pub use prune::{InUse, PruneResult};
pub use resolution::Resolution;

use resolution::entry_name_for_module;

/// The store on disk. It contains modules by digest, compiled forms, and the resolutions of references. Several
/// programs may share one directory.
///
/// Compiled forms run as native code. Therefore the directory must belong to the user and must not be writable by
/// others, every write is atomic, and each entry is checked against its digest whenever it is read. If the directory is
/// read-only, entries can be read but not added.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    maps_code: bool,
}

/// The key of a compiled form in the store: a digest of everything that the compiled form depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompiledKey(Digest);

impl CompiledKey {
    /// Creates the key for a module with these settings and the compiler that `engine_fingerprint` identifies.
    pub fn new(module: Digest, settings: &str, engine_fingerprint: &str) -> Self {
        Self(Digest::of_parts([
            module.as_bytes().as_slice(),
            settings.as_bytes(),
            engine_fingerprint.as_bytes(),
        ]))
    }
}

/// The kinds of entries in the store. Each kind has its own directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StoreEntryKind {
    /// Modules, whose bytes are stored unchanged. An entry is named by the module's digest.
    Module,
    /// Compiled forms. An entry is named by its key, and ends with a digest of its content.
    Compiled,
    /// Resolutions of references. An entry is named by the reference's digest, and begins with a digest of its content.
    Resolution,
    /// Signatures of modules. The name of an entry is derived from the reference and the module's digest. The entry
    /// begins with a digest of its content.
    Signature,
    Partial,
    Temporary,
}

keywords!(StoreEntryKind, "kind of entry": Module = "modules", Compiled = "compiled", Resolution = "resolved",
    Signature = "signatures", Partial = "partial", Temporary = "temporary");

/// A compiled form that was read from the store and checked against its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledForm {
    pub code: CompiledCode,
    /// The header that the sandbox stored with the native code.
    pub header: Vec<u8>,
}

/// The native code of a compiled form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompiledCode {
    /// The path of a file that begins with the code and can be mapped into memory. Processes that map the file share
    /// its pages, and unused pages take no memory.
    File(PathBuf),
    /// The code itself, because files of this store cannot be mapped safely.
    Memory(Vec<u8>),
}

/// The bytes that mark a file of the store as an entry with a digest of its own content.
const MAGIC: &[u8; 8] = b"admstr01";
const HEADER_SIZE: usize = MAGIC.len() + 32;

/// The size of the end of a compiled form: the code's size, the digest of all bytes before it, and [`MAGIC`].
const TRAILER_SIZE: usize = 8 + HEADER_SIZE;

/// A partial download is removed if it was not resumed for this time.
const PARTIAL_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

impl Store {
    /// Opens or creates the store in this directory, and removes temporary files of killed programs.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be created, or is not private to this user.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        create_private_directory(&directory)?;
        let maps_code = mapping::is_safe_in(&directory);
        let store = Self { directory, maps_code };
        for kind in StoreEntryKind::ALL {
            match create_private_directory(&store.directory_of(kind)) {
                // A store on a read-only disk is not an error: nothing can be added, but its existing entries can be
                // read.
                Err(Error::Store { source, .. }) if is_unwritable(&source) => {}
                opened => opened?,
            }
        }
        store.remove_stale_files();
        Ok(store)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether compiled code can be mapped into memory: the store is on a local disk that allows execution.
    pub fn maps_code(&self) -> bool {
        self.maps_code
    }

    /// Reads the compiled form with this key. A damaged entry is removed and treated as missing.
    pub fn read_compiled(&self, key: CompiledKey) -> Option<CompiledForm> {
        let path = self.path(StoreEntryKind::Compiled, key.0);
        match file::open(&path).and_then(|file| read_compiled_form(&file, self.maps_code.then_some(&path))) {
            Ok(Some(form)) => {
                mark_as_used(&path);
                Some(form)
            }
            Ok(None) => {
                remove_damaged(&path);
                None
            }
            Err(error) => {
                warn_unless_missing(&path, &error);
                None
            }
        }
    }

    /// Stores native code with its header.
    ///
    /// # Errors
    ///
    /// Returns an error when the entry cannot be written. The program can continue, because the store is unchanged.
    pub fn keep_compiled(&self, key: CompiledKey, code: &[u8], header: &[u8]) -> Result<(), Error> {
        let path = self.path(StoreEntryKind::Compiled, key.0);
        let size = (code.len() as u64).to_le_bytes();
        let digest = Digest::of_reader(code.chain(header).chain(size.as_slice())).map_err(store_error(&path))?;
        self.write_entry(&path, &[code, header, &size, digest.as_bytes(), MAGIC])
    }

    /// Reads the module with this digest. A damaged entry is removed and treated as missing.
    pub fn read_module(&self, digest: Digest) -> Option<Bytes> {
        let path = self.path(StoreEntryKind::Module, digest);
        let bytes = read_entry(&path)?;
        if Digest::of_bytes(&bytes) == digest {
            return Some(bytes.into());
        }
        remove_damaged(&path);
        None
    }

    /// Stores a module and its signature material for [`load_stored`](crate::Catalog::load_stored). A fetched module is
    /// stored already.
    ///
    /// # Errors
    ///
    /// Returns an error when an entry cannot be written. The store is unchanged.
    pub fn insert_module(&self, module: &Module) -> Result<(), Error> {
        let (digest, bytes) = (module.digest(), module.bytes());
        if let Some(material) = &module.material {
            self.keep_material(&module.reference, digest, material)?;
        }
        // If the store has a file of the same size under this digest, it has the module. The file is not written again.
        let path = self.path(StoreEntryKind::Module, digest);
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == bytes.len() as u64) {
            mark_as_used(&path);
            return Ok(());
        }
        self.insert_bytes(digest, bytes)
    }

    pub(crate) fn insert_bytes(&self, digest: Digest, bytes: &[u8]) -> Result<(), Error> {
        self.write_entry(&self.path(StoreEntryKind::Module, digest), &[bytes])
    }

    /// Reads the stored signatures of a module of this reference. A damaged entry is removed and counts as missing.
    pub(crate) fn read_material(&self, reference: &ModuleReference, module: Digest) -> Option<Material> {
        serde_json::from_slice(&self.read_sealed(StoreEntryKind::Signature, entry_name_for_module(reference, module))?)
            .ok()
    }

    pub(crate) fn keep_material(
        &self,
        reference: &ModuleReference,
        module: Digest,
        material: &Material,
    ) -> Result<(), Error> {
        let content = serde_json::to_vec(material).unwrap_or_default();
        self.keep_sealed(
            StoreEntryKind::Signature,
            entry_name_for_module(reference, module),
            &content,
        )
    }

    pub(crate) fn read_sealed(&self, kind: StoreEntryKind, name: Digest) -> Option<Vec<u8>> {
        let path = self.path(kind, name);
        let mut entry = read_entry(&path)?;
        let is_intact = entry.split_at_checked(HEADER_SIZE).is_some_and(|(header, content)| {
            let (magic, digest) = header.split_at(MAGIC.len());
            magic == MAGIC && digest == Digest::of_bytes(content).as_bytes()
        });
        if !is_intact {
            remove_damaged(&path);
            return None;
        }
        entry.drain(..HEADER_SIZE);
        Some(entry)
    }

    pub(crate) fn keep_sealed(&self, kind: StoreEntryKind, name: Digest, content: &[u8]) -> Result<(), Error> {
        self.write_entry(
            &self.path(kind, name),
            &[MAGIC, Digest::of_bytes(content).as_bytes().as_slice(), content],
        )
    }

    /// Writes an entry to a temporary file, then renames the file. The temporary file is locked while it is written. If
    /// the program is killed, the lock is gone, so another program can see that the file was left over, and remove it.
    fn write_entry(&self, path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let file = loop {
                let file = tempfile::NamedTempFile::new_in(self.directory_of(StoreEntryKind::Temporary))?;
                file.as_file().lock()?;
                // Other programs remove files in this directory that are not locked. This may happen to the new file
                // before it is locked. Then another file is created.
                if is_linked(file.as_file(), file.path())? {
                    break file;
                }
            };
            for part in parts {
                file.as_file().write_all(part)?;
            }
            file.as_file().sync_data()?;
            file.persist(path)?;
            sync_directory(path)
        };
        write().map_err(store_error(path))
    }

    fn directory_of(&self, kind: StoreEntryKind) -> PathBuf {
        self.directory.join(kind.as_str())
    }

    pub(crate) fn path(&self, kind: StoreEntryKind, name: Digest) -> PathBuf {
        self.directory_of(kind).join(name.to_hex())
    }

    fn remove_stale_files(&self) {
        for path in files_in(&self.directory_of(StoreEntryKind::Temporary)) {
            remove_unlocked(&path);
        }
        for path in files_in(&self.directory_of(StoreEntryKind::Partial)) {
            let age = fs::metadata(&path)
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|modified| modified.elapsed().ok());
            if age.is_some_and(|age| age > PARTIAL_LIFETIME) {
                remove_unlocked(&path);
            }
        }
    }
}

fn read_entry(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match file::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => {
            mark_as_used(path);
            Some(bytes)
        }
        Err(error) => {
            warn_unless_missing(path, &error);
            None
        }
    }
}

fn warn_unless_missing(path: &Path, error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(path = %path.display(), %error, "an entry of the store cannot be read and is ignored");
    }
}

/// Reads a compiled form; returns `None` if the file is damaged. If `mapped` is given, the code is not read into
/// memory, because the file at this path is mapped later.
fn read_compiled_form(file: &File, mapped: Option<&PathBuf>) -> io::Result<Option<CompiledForm>> {
    let mut trailer = [0; TRAILER_SIZE];
    let Some(end) = file.metadata()?.len().checked_sub(TRAILER_SIZE as u64) else {
        return Ok(None);
    };
    file.read_exact_at(&mut trailer, end)?;
    let (length, seal) = trailer.split_at(8);
    let digest = Digest::of_reader(file.take(end + 8))?;
    let size = length.try_into().map_or(0, u64::from_le_bytes);
    if seal != [digest.as_bytes().as_slice(), MAGIC].concat() || size > end {
        return Ok(None);
    }
    let read_range = |from: u64, to: u64| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, from)?;
        Ok(bytes)
    };
    Ok(Some(CompiledForm {
        code: match mapped {
            Some(path) => CompiledCode::File(path.clone()),
            None => CompiledCode::Memory(read_range(0, size)?),
        },
        header: read_range(size, end)?,
    }))
}

/// Sets the time at which an entry was used, by which the store chooses entries to remove. Errors are ignored: if the
/// store cannot be written, nothing is removed from it either.
fn mark_as_used(path: &Path) {
    let _ = file::open(path).and_then(|file| file.set_modified(Moment::now().0));
}

fn remove_damaged(path: &Path) {
    tracing::warn!(path = %path.display(), "an entry of the store is damaged and was removed");
    let _ = fs::remove_file(path);
}

fn remove_unlocked(path: &Path) {
    // A program that uses a file holds its lock, so only unlocked files are removed. This function holds the lock
    // itself until the file is gone.
    if let Ok(file) = file::open(path)
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns whether the path still leads to the file that was opened there.
pub(crate) fn is_linked(file: &File, path: &Path) -> io::Result<bool> {
    let file_metadata = file.metadata()?;
    match fs::metadata(path) {
        Ok(path_metadata) => {
            Ok((file_metadata.dev(), file_metadata.ino()) == (path_metadata.dev(), path_metadata.ino()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => file::sync_directory(parent),
        None => Ok(()),
    }
}

fn create_private_directory(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(store_error(path))?;
    let metadata = fs::metadata(path).map_err(store_error(path))?;
    let (owner, user_id) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let problem = if owner != user_id {
        format!("it belongs to user {owner}, not to {user_id}")
    } else if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o777;
        format!("its mode is {mode:o}, so other users may write to it")
    } else {
        return Ok(());
    };
    Err(Error::StoreNotPrivate {
        path: path.to_owned(),
        problem,
    })
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull
    )
}

pub(crate) fn store_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Store {
        path,
        source: Arc::new(source),
    }
}
