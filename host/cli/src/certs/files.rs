//! Certificates and keys on disk.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::Error;

/// The paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Files {
    pub(super) fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        }
    }

    pub(super) fn paths(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }

    /// Both are written to temporary files first and then renamed, so that a reader hardly ever sees an old
    /// and a new file. The key is renamed first, because a certificate without its key causes less clear
    /// errors.
    pub(super) fn write(&self, certificate: &str, key: &str, replace: bool) -> Result<(), Error> {
        let key = Written::new(&self.key, key, SECRET)?;
        let certificate = Written::new(&self.certificate, certificate, PUBLIC)?;
        key.keep(replace)?;
        certificate.keep(replace)
    }

    pub(super) fn read(&self) -> Result<[String; 2], Error> {
        let [certificate, key] = self.paths().map(|path| {
            std::fs::read_to_string(path).map_err(|source| Error::File {
                path: path.to_owned(),
                source,
            })
        });
        Ok([certificate?, key?])
    }
}

/// The access mode of a file.
pub(super) const SECRET: u32 = 0o600;
pub(super) const PUBLIC: u32 = 0o644;

/// A temporary file that is renamed to its final path.
pub(super) struct Written<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Written<'a> {
    pub(super) fn new(path: &'a Path, text: &str, mode: u32) -> Result<Self, Error> {
        let at = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(at)?;
        // Only the owner may read it until its mode is set.
        let mut file = NamedTempFile::new_in(directory).map_err(at)?;
        file.write_all(text.as_bytes()).map_err(at)?;
        set_mode(file.as_file(), mode).map_err(at)?;
        file.as_file().sync_all().map_err(at)?;
        Ok(Self { path, file })
    }

    pub(super) fn keep(self, replace: bool) -> Result<(), Error> {
        let kept = if replace {
            self.file.persist(self.path)
        } else {
            self.file.persist_noclobber(self.path)
        };
        kept.map(drop).map_err(|error| Error::File {
            path: self.path.to_owned(),
            source: error.error,
        })
    }
}

#[cfg(unix)]
fn set_mode(file: &std::fs::File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &std::fs::File, _: u32) -> io::Result<()> {
    Ok(())
}
