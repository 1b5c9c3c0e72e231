use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use admittance_catalog::Digest;
use admittance_watch::file;
use serde::{Serialize, de::DeserializeOwned};

use super::{HistoryEntry, HistoryError};
use crate::{DisabledStage, RolloutProgress};

/// A directory with one file for each revision. It is locked until the program ends, so that no other program uses it.
#[derive(Debug)]
pub(crate) struct HistoryDirectory {
    path: PathBuf,
    _lock: File,
}

const TEMPORARY_PREFIX: &str = ".tmp";
const REVISION_EXTENSION: &str = "revision";
const DISABLED_FILE: &str = "disabled";
const ROLLOUTS_FILE: &str = "rollouts";

impl HistoryDirectory {
    pub(crate) fn open(path: &Path) -> Result<Self, HistoryError> {
        let failed = |source| HistoryError::Io {
            path: path.to_owned(),
            source,
        };
        // Only the owner may read the directory, because definitions may contain secrets.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let lock = lock_directory(path)?;
        let directory = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        directory.remove_temporary_files();
        Ok(directory)
    }

    fn remove_temporary_files(&self) {
        for file in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = file.file_name();
            if name.as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes())
                && let Err(error) = fs::remove_file(file.path())
            {
                tracing::warn!(path = %file.path().display(), %error, "a temporary file cannot be removed");
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all revisions, the oldest first. Damaged files are logged and skipped.
    pub(crate) fn read_entries(&self) -> Result<Vec<HistoryEntry>, HistoryError> {
        let failed = |source| HistoryError::Io {
            path: self.path.clone(),
            source,
        };
        let mut entries = Vec::<HistoryEntry>::new();
        for file in fs::read_dir(&self.path).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            if path.extension().is_none_or(|ending| ending != REVISION_EXTENSION) {
                continue;
            }
            match read_checked(&path) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a revision cannot be read; it is left out");
                }
            }
        }
        entries.sort_by_key(|entry| entry.revision().number);
        Ok(entries)
    }

    pub(crate) fn write(&self, entry: &HistoryEntry) -> Result<(), HistoryError> {
        self.replace(self.revision_path(entry.revision().number), entry)
    }

    pub(crate) fn read_disabled_stages(&self) -> Result<Vec<DisabledStage>, HistoryError> {
        self.read_list(DISABLED_FILE)
    }

    pub(crate) fn read_rollouts(&self) -> Result<Vec<RolloutProgress>, HistoryError> {
        self.read_list(ROLLOUTS_FILE)
    }

    fn read_list<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, HistoryError> {
        let path = self.path.join(name);
        match read_checked(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|source| HistoryError::Io { path, source }),
        }
    }

    pub(crate) fn write_disabled_stages(&self, stages: &[DisabledStage]) -> Result<(), HistoryError> {
        self.replace(self.path.join(DISABLED_FILE), &stages)
    }

    pub(crate) fn write_rollouts(&self, rollouts: &[RolloutProgress]) -> Result<(), HistoryError> {
        self.replace(self.path.join(ROLLOUTS_FILE), &rollouts)
    }

    /// Replaces a file of the history atomically. The file's first line is the digest of the rest.
    fn replace(&self, path: PathBuf, content: &impl Serialize) -> Result<(), HistoryError> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec_pretty(content)?;
            let mut file = tempfile::Builder::new()
                .prefix(TEMPORARY_PREFIX)
                .tempfile_in(&self.path)?;
            writeln!(file, "{}", Digest::of_bytes(&text))?;
            file.write_all(&text)?;
            file.as_file().sync_data()?;
            file.persist(&path)?;
            // The new name of the file is in the directory. If the directory were not synced, the file could be missing
            // after a power failure.
            file::sync_directory(&self.path)
        };
        write().map_err(|source| HistoryError::Io { path, source })
    }

    pub(crate) fn remove_before(&self, first: u64) {
        let old = fs::read_dir(&self.path).map(|files| {
            let paths = files.filter_map(|file| Some(file.ok()?.path()));
            let is_old = |path: &PathBuf| {
                let is_revision = path.extension().is_some_and(|ending| ending == REVISION_EXTENSION);
                let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
                is_revision && number.is_some_and(|number: u64| number < first)
            };
            paths.filter(is_old).collect::<Vec<_>>()
        });
        for path in old.unwrap_or_default() {
            remove(&path);
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        remove(&self.revision_path(number));
    }

    fn revision_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:010}.{REVISION_EXTENSION}"))
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a revision cannot be removed");
    }
}

#[allow(clippy::disallowed_methods, reason = "the file is locked, in a private directory")]
fn lock_directory(directory: &Path) -> Result<File, HistoryError> {
    let path = directory.join("lock");
    let failed = |source| HistoryError::Io {
        path: path.clone(),
        source,
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            return Err(HistoryError::InUse {
                path: directory.to_owned(),
                owner: owner.trim().to_owned(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // The process id is written to the lock file, so that another program can report who holds the lock.
    let note = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
    if let Err(error) = note {
        tracing::debug!(path = %path.display(), %error, "the owner of the lock cannot be recorded");
    }
    Ok(file)
}

fn read_checked<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let bytes = file::read(path, u64::MAX)?;
    let invalid_data = |message| io::Error::new(io::ErrorKind::InvalidData, message);
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| invalid_data("it is truncated"))?;
    let (digest, text) = bytes.split_at(end);
    let text = text.get(1..).unwrap_or_default();
    if digest != Digest::of_bytes(text).to_string().as_bytes() {
        return Err(invalid_data("its digest does not match its first line"));
    }
    Ok(serde_json::from_slice(text)?)
}

#[cfg(test)]
mod tests;
