use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::failed;
use crate::Error;

/// A file that is being written, and locked while its writer lives: an unlocked one was left by a killed
/// program. Removed when dropped.
///
/// A lock is reliable: a process ID may be reused after a restart or in another container, and an age would
/// need a clock that never jumps.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// Writes these parts to a new file and syncs it.
    pub(super) fn write(directory: &Path, parts: &[&[u8]]) -> Result<Self, Error> {
        let mut temporary = Self::create(directory).map_err(failed(directory))?;
        let mut write = || -> io::Result<()> {
            for part in parts {
                temporary.file.write_all(part)?;
            }
            temporary.file.sync_data()
        };
        let written = write();
        written.map_err(failed(&temporary.path))?;
        Ok(temporary)
    }

    fn create(directory: &Path) -> io::Result<Self> {
        loop {
            let (file, path) = tempfile::Builder::new()
                .make_in(directory, |path| {
                    OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .mode(0o600)
                        .open(path)
                })?
                .keep()
                .map_err(|error| error.error)?;
            // A sweep may have removed it in the meantime.
            if lock_if_linked(&file, &path)? {
                return Ok(Self { file, path });
            }
        }
    }

    /// Renames it to its final name, replacing an existing file.
    pub(super) fn persist(self, path: &Path) -> Result<(), Error> {
        fs::rename(&self.path, path).map_err(failed(path))?;
        sync_directory(path).map_err(failed(path))
    }

    /// Removes a file of this kind, unless it is being written.
    pub(super) fn remove_abandoned(path: &Path) {
        let Ok(file) = File::open(path) else {
            return;
        };
        match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(path);
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is no file of that name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Locks a file, and returns whether its path still names it.
fn lock_if_linked(file: &File, path: &Path) -> io::Result<bool> {
    file.lock()?;
    is_linked(file, path)
}

/// Whether this path names the file.
pub(super) fn is_linked(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((open.dev(), open.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Syncs the directory, so that a new name is on disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
