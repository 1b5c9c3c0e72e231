use std::{fs, path::Path};

use crate::Error;

/// Replaces a file atomically: writes a temporary file, and then renames it to the file.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, content)
        .and_then(|()| fs::rename(&new, path))
        .map_err(Error::io(path.display().to_string()))
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::io(path.display().to_string()))
}
