//! Reads and writes files that users name in arguments.

#![allow(
    clippy::disallowed_methods,
    reason = "a command reads what its user names, a pipe too"
)]

use std::{
    fmt::Display,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use admittance_net::causes::root_cause;
use tempfile::NamedTempFile;

pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| error_at(path)(describe_error(&error)))
}

pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

pub(crate) fn describe_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; let this user read it"),
        _ => error.to_string(),
    }
}

pub(crate) fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| error_at(path)(describe_error(&error)))
}

pub(crate) fn error_at<E: Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// The access rights of a file that only its owner may read.
pub(crate) const SECRET_MODE: u32 = 0o600;
/// The access rights of a file that everyone may read.
pub(crate) const PUBLIC_MODE: u32 = 0o644;

/// A file that was completely written under a temporary name. Publishing it renames it to `path`.
pub(crate) struct FileDraft<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> FileDraft<'a> {
    pub(crate) fn new(path: &'a Path, content: &[u8], mode: u32) -> Result<Self, String> {
        let write = || {
            let mut file = NamedTempFile::new_in(parent_directory(path))?;
            file.write_all(content)?;
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.as_file().sync_all()?;
            io::Result::Ok(file)
        };
        let file = write().map_err(|error| {
            error_at(path)(match error.kind() {
                io::ErrorKind::NotFound => "its directory does not exist; create it, or name another".to_owned(),
                _ => root_cause(&error),
            })
        })?;
        Ok(Self { path, file })
    }

    /// Gives the temporary file its final name. If a file has that name already, `replace` must be true.
    pub(crate) fn publish(self, replace: bool) -> Result<(), String> {
        let published = if replace {
            self.file.persist(self.path)
        } else {
            self.file.persist_noclobber(self.path)
        };
        published.map(drop).map_err(|error| error_at(self.path)(error.error))
    }
}

pub(crate) fn replace_file(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    FileDraft::new(path, content, mode)?.publish(true)
}

pub(crate) fn replace_in_tree(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    fs::create_dir_all(parent_directory(path)).map_err(error_at(path))?;
    replace_file(path, content, mode)
}

pub(crate) fn parent_directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

pub(crate) fn is_module(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wasm")
}

pub(crate) fn join_paths(paths: &[impl AsRef<Path>]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_a_file_overwrites_the_previous_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        for content in ["first", "second"] {
            replace_file(&path, content.as_bytes(), PUBLIC_MODE).unwrap();
            assert_eq!(read(&path).unwrap(), content);
        }
        let error = replace_file(&folder.path().join("none/a.wasm"), b"", PUBLIC_MODE).unwrap_err();
        assert!(
            error.ends_with("none/a.wasm: its directory does not exist; create it, or name another"),
            "{error}"
        );
    }
}
