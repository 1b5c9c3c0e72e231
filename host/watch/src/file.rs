//! Reads regular files by their paths, up to a size limit, and only if the file does not change during the read.
//!
//! Opening a FIFO waits for a writer, and opening a device may have side effects. A configured path can lead to either,
//! so the program reads every path with these functions.

#![allow(
    clippy::disallowed_methods,
    reason = "everything else opens files with these functions"
)]

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use rustix::fs::OFlags;

use crate::Stamp;

/// The maximum number of attempts to read a file that changes while it is read.
const MAX_ATTEMPTS: u32 = 20;
/// The pause before the next attempt to read a file.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The flags that open a path of any file type without blocking.
pub const NON_BLOCKING_FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();

/// Opens a regular file for reading. Refuses other kinds of files without blocking.
///
/// # Errors
///
/// Fails if the file cannot be opened, with [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // The kind of the file is checked before the file is opened. If the path leads to a device, merely opening it may
    // rewind a tape or arm a watchdog.
    check_regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NON_BLOCKING_FLAGS)
        .open(path)?;
    // The path may have changed meanwhile, so the file that was opened is checked again.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file for appending, and creates it if it is missing. Only its owner can read a new file, because
/// logs may hold secrets.
///
/// # Errors
///
/// Fails for the same reasons as [`open`].
pub fn open_for_appending(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(metadata) => check_regular(&metadata)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NON_BLOCKING_FLAGS)
        .open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Creates a file that only its owner may read.
///
/// # Errors
///
/// Fails if the file cannot be created, with [`io::ErrorKind::AlreadyExists`] if the path exists.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Waits until the creation, renaming and removal of files in a directory have been written to disk.
///
/// # Errors
///
/// Fails if the directory cannot be opened or synced.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads a regular file of at most `limit` bytes, and its metadata.
///
/// If the file changes during the read, the read is repeated, for about 200 ms. This blocks.
///
/// # Errors
///
/// Fails if the file cannot be opened or read: with [`io::ErrorKind::FileTooLarge`] if it is larger than the limit, and
/// with [`io::ErrorKind::ResourceBusy`] if it keeps changing.
pub fn read_with_metadata(path: &Path, limit: u64) -> io::Result<(Vec<u8>, Metadata)> {
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(RETRY_PAUSE);
        }
        let mut file = open(path)?;
        let before = file.metadata()?;
        let bytes = read_from(&mut file, &before, limit)?;
        let after = file.metadata()?;
        if Stamp::from_metadata(&before) == Stamp::from_metadata(&after) && bytes.len() as u64 == after.len() {
            return Ok((bytes, after));
        }
    }
    let message = "it keeps changing while it is read; write a new file and rename it over this one";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

/// Reads a regular file of at most `limit` bytes, as [`read_with_metadata`] does.
///
/// # Errors
///
/// Fails for the same reasons as [`read_with_metadata`].
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    Ok(read_with_metadata(path, limit)?.0)
}

/// Reads a regular file of at most `limit` bytes as text.
///
/// # Errors
///
/// Fails like [`read_with_metadata`], and with [`io::ErrorKind::InvalidData`] if the content is not UTF-8.
pub fn read_to_string(path: &Path, limit: u64) -> io::Result<String> {
    decode_text(read(path, limit)?)
}

fn decode_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn read_from(file: &mut File, metadata: &Metadata, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let message = format!("it has {size} bytes, and at most {limit} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    file.rewind()?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // The file may have grown since its size was read, so the read is limited as well.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let kind_name = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "something else"
    };
    let message = format!("it is {kind_name}, not a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// The reason why a file with a secret cannot be used.
#[derive(Debug)]
pub enum SecretError {
    /// The file with the secret cannot be read.
    Unreadable(io::Error),
    /// Every user of the machine may read the file with the secret.
    WorldReadable,
}

impl SecretError {
    /// Returns the error as a message for the operator. `subject` describes the file, such as `the key file`.
    pub fn describe(&self, path: &Path, subject: &str) -> String {
        let name = path.display();
        match self {
            Self::Unreadable(error) => format!("{name}: {error}"),
            Self::WorldReadable => format!("{name}: {subject} is world-readable: chmod o-r {name}"),
        }
    }
}

impl From<io::Error> for SecretError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Reads a file of at most `limit` bytes, unless every user of the machine may read it.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if every user may read it.
pub fn read_secret(path: &Path, limit: u64) -> Result<Vec<u8>, SecretError> {
    let file = open(path)?;
    if has_world_read(&file)? {
        return Err(SecretError::WorldReadable);
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a secret file like [`read_secret`], as text.
///
/// # Errors
///
/// Fails like [`read_secret`], and with [`io::ErrorKind::InvalidData`] if the content is not UTF-8.
pub fn read_secret_to_string(path: &Path, limit: u64) -> Result<String, SecretError> {
    Ok(decode_text(read_secret(path, limit)?)?)
}

/// Returns whether every user of the machine may read the file; `false` if the file cannot be opened.
pub fn is_world_readable(path: &Path) -> bool {
    open(path).is_ok_and(|file| has_world_read(&file).unwrap_or_default())
}

fn has_world_read(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("fifo"), path("link")).unwrap();
        for (path, expected) in [
            (path("fifo"), "it is a FIFO, not a regular file"),
            (path("link"), "it is a FIFO, not a regular file"),
            (path("socket"), "it is a socket, not a regular file"),
            (path(""), "it is a directory, not a regular file"),
            ("/dev/zero".into(), "it is a device, not a regular file"),
        ] {
            let error = open(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
            assert_eq!(error.to_string(), expected, "{}", path.display());
            assert_eq!(read(&path, 10).unwrap_err().to_string(), expected);
            assert_eq!(open_for_appending(&path).unwrap_err().to_string(), expected);
        }
        assert_eq!(open(&path("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_created_for_appending_is_readable_only_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for text in ["a", "b"] {
            open_for_appending(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(read_to_string(&path, 2).unwrap(), "ab");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_larger_than_the_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_to_string(&path, 3).unwrap(), "abc");
        let error = read(&path, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 3 bytes, and at most 2 are read");
        std::fs::write(&path, b"\xff").unwrap();
        let error = read_to_string(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let large = File::create(&path).unwrap();
        large.set_len(1 << 40).unwrap();
        assert_eq!(read(&path, 1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
