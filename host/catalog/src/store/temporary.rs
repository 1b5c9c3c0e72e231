use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::failed;
use crate::Error;

/// A file that is being written, and locked as long as its writer lives: one that is not locked was left
/// by a program that was killed. Removed when dropped.
///
/// The lock says so in every case: a process number may be another's after a restart, or in another
/// container, and an age would need a clock that never jumps.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// Write these parts to a new file, down to the disk.
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
            // A sweep may have come in between, and taken it for one that was left.
            if lock_if_linked(&file, &path)? {
                return Ok(Self { file, path });
            }
        }
    }

    /// Give it its name, in place of what had it.
    pub(super) fn persist(self, path: &Path) -> Result<(), Error> {
        fs::rename(&self.path, path).map_err(failed(path))?;
        sync_directory(path).map_err(failed(path))
    }

    /// Remove a file of this kind, unless its writer is at work.
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
        // After a rename there is nothing under that name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Lock a file, and tell whether it is still the one under its name.
fn lock_if_linked(file: &File, path: &Path) -> io::Result<bool> {
    file.lock()?;
    is_linked(file, path)
}

/// Whether the file is the one under this name.
pub(super) fn is_linked(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((open.dev(), open.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Make sure that a new name is on the disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
