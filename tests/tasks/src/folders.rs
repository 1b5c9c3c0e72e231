//! Directories below `target` for artifacts that are built once.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
};

use crate::command::{Error, say};

/// Locks a file until the result is dropped. If another process holds the lock, prints `purpose` and waits.
pub(crate) fn lock(path: &Path, purpose: &str) -> Result<File, Error> {
    let file = File::create(path).map_err(file_error(path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            say(&format!("Waiting for another `cargo task` to {purpose}"));
            file.lock().map_err(file_error(path))?;
        }
        Err(TryLockError::Error(source)) => return Err(file_error(path)(source)),
    }
    Ok(file)
}

pub(crate) fn copy_into(from: &Path, directory: &Path) -> Result<(), Error> {
    let to = directory.join(from.file_name().unwrap_or_default());
    fs::copy(from, &to).map(|_| ()).map_err(file_error(from))
}

pub(crate) fn create_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(file_error(path))
}

pub(crate) fn remove_directory(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
