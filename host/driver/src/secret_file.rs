//! Files that hold a secret, which not everybody may read.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use admittance_watch::file;

/// Why a secret cannot be taken from its file.
#[derive(Debug)]
pub(crate) enum SecretFileError {
    /// It cannot be read.
    Unreadable(io::Error),
    /// Everybody may read it.
    WorldReadable,
}

impl From<io::Error> for SecretFileError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// The first bytes of the file, at most so many.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, SecretFileError> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same as text, which it must be.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, SecretFileError> {
    let mut text = String::new();
    open(path)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether users other than its owner and group may read the file. A file that is not there is not.
pub(crate) fn is_exposed(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_world_readable(&file).unwrap_or_default())
}

fn open(path: &Path) -> Result<File, SecretFileError> {
    let file = file::open(path)?;
    if is_world_readable(&file)? {
        return Err(SecretFileError::WorldReadable);
    }
    Ok(file)
}

fn is_world_readable(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o004 != 0)
}
