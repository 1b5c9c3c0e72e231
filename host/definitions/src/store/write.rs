//! Replaces definition files as a whole, so that a program that reads one never gets half of it.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use admittance_watch::file;
use tempfile::NamedTempFile;

use super::StoreError;
use crate::{FileChange, document::LARGEST_FILE};

/// Makes these changes. Each file is replaced atomically. If a change fails, it and the changes before it are undone.
pub(super) fn write(changes: &[FileChange]) -> Result<(), StoreError> {
    let staged = changes.iter().map(StagedChange::new).collect::<Result<Vec<_>, _>>()?;
    for (index, (staged, change)) in staged.into_iter().zip(changes).enumerate() {
        if let Err(source) = staged.put() {
            let path = change.path.clone();
            // If replacing the file succeeds, but syncing its directory fails, the change counts as failed although the
            // file was replaced. Therefore the failed change is undone too.
            return Err(match undo(changes.get(..=index).unwrap_or_default()) {
                Ok(()) => StoreError::NotWritten { path, source },
                Err((written, restoring)) => StoreError::PartlyWritten {
                    path,
                    source,
                    written,
                    restoring: Box::new(restoring),
                },
            });
        }
    }
    Ok(())
}

/// Undoes these changes. If a file no longer has the text that its change has written, because somebody else has
/// changed it since, it stays as it is.
fn undo(changes: &[FileChange]) -> Result<(), (PathBuf, StoreError)> {
    for change in changes.iter().rev() {
        let failed = |error| (change.path.clone(), error);
        let back = change.reversed();
        match StagedChange::new(&back) {
            Err(StoreError::ChangedMeanwhile { .. }) => {}
            Err(error) => return Err(failed(error)),
            Ok(staged) => {
                let not_written = |source| StoreError::NotWritten {
                    path: back.path.clone(),
                    source,
                };
                staged.put().map_err(not_written).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// A change that has been prepared: its new text is in a draft on disk, which is not read as a definition.
struct StagedChange {
    path: PathBuf,
    /// A temporary file with the new text. If the change removes a file, the draft is empty, and is created only to
    /// find out whether the directory can be changed.
    draft: NamedTempFile,
    is_new: bool,
    is_removed: bool,
}

impl StagedChange {
    fn new(change: &FileChange) -> Result<Self, StoreError> {
        let failed = |source| StoreError::NotWritten {
            path: change.path.clone(),
            source,
        };
        let path = real_path(change).map_err(failed)?;
        let existing = read_if_exists(&path).map_err(failed)?;
        // A file whose text ends inside a UTF-8 character was truncated. Such a file may be replaced, although it does
        // not contain the text that the change expects.
        let is_cut = existing
            .as_deref()
            .is_some_and(|existing| str::from_utf8(existing).is_err());
        if !is_cut && existing.as_deref() != change.before.as_deref().map(str::as_bytes) {
            let path = change.path.clone();
            return Err(StoreError::ChangedMeanwhile { path });
        }
        let staged = Self {
            draft: write_draft(&path, change).map_err(failed)?,
            path,
            is_new: change.before.is_none(),
            is_removed: change.after.is_none(),
        };
        Ok(staged)
    }

    fn put(self) -> io::Result<()> {
        match self {
            Self { is_removed: true, .. } => fs::remove_file(&self.path)?,
            // If another program has created the file since the check, it is not overwritten.
            Self { is_new: true, .. } => drop(self.draft.persist_noclobber(&self.path)?),
            _ => drop(self.draft.persist(&self.path)?),
        }
        file::sync_directory(directory(&self.path))
    }
}

/// A draft's name is this prefix, followed by `RANDOM_LENGTH` random letters and digits.
const DRAFT_PREFIX: &str = ".admittance-";
const RANDOM_LENGTH: usize = 6;

/// Writes the new text to a draft in the file's directory. If the file exists, the draft gets its mode and owner.
fn write_draft(path: &Path, change: &FileChange) -> io::Result<NamedTempFile> {
    let mut draft = tempfile::Builder::new()
        .prefix(DRAFT_PREFIX)
        .rand_bytes(RANDOM_LENGTH)
        // The umask of the process removes bits from this mode.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory(path))?;
    // The lock shows other processes that the draft is in use. Some file systems lack locks, so a failure is ignored.
    let _ = draft.as_file().try_lock();
    if change.before.is_some() && change.after.is_some() {
        // A rename would replace even a file that must not be written, so the permission is checked first.
        #[allow(
            clippy::disallowed_methods,
            reason = "it is opened to learn whether it may be written"
        )]
        let existing = OpenOptions::new()
            .write(true)
            .custom_flags(file::NON_BLOCKING_FLAGS)
            .open(path)?
            .metadata()?;
        let drafted = draft.as_file().metadata()?;
        if (drafted.uid(), drafted.gid()) != (existing.uid(), existing.gid()) {
            // Only root can give a file to another user. Without root, this fails, and the new file belongs to the user
            // who runs this process.
            let _ = chown(draft.path(), Some(existing.uid()), Some(existing.gid()));
        }
        draft.as_file().set_permissions(existing.permissions())?;
    }
    draft.write_all(change.after.as_deref().unwrap_or_default().as_bytes())?;
    draft.as_file().sync_all()?;
    Ok(draft)
}

/// Removes the drafts that killed programs have left in these directories, or in the directories of these files.
pub(super) fn remove_drafts(paths: &[PathBuf]) {
    for path in paths {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let directory = if path.is_dir() { &path } else { directory(&path) };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for draft in entries.filter(|entry| is_draft(&entry.file_name())) {
            let path = draft.path();
            if draft.file_type().is_ok_and(|kind| kind.is_file())
                && !is_locked(&path)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "a temporary file cannot be removed");
            }
        }
    }
}

fn is_draft(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(DRAFT_PREFIX));
    random.is_some_and(|random| random.len() == RANDOM_LENGTH && random.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Returns whether a running program has locked the draft, so that it must not be removed.
fn is_locked(path: &Path) -> bool {
    let locked = file::open(path).map(|file| file.try_lock());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

fn read_if_exists(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match file::read(path, LARGEST_FILE as u64) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the path to replace or remove. For a symbolic link, the target is replaced, but the link is removed.
fn real_path(change: &FileChange) -> io::Result<PathBuf> {
    if change.before.is_some() && change.after.is_some() {
        match fs::canonicalize(&change.path) {
            // A missing file is not an error here. It is reported later, when its text is read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            path => return path,
        }
    }
    let name = change.path.file_name().unwrap_or(OsStr::new(""));
    Ok(fs::canonicalize(directory(&change.path))?.join(name))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
