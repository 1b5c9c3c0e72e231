//! What a commit is about to do, on disk before it is done.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use admittance_module::Digest;
use admittance_watch::file;
use serde::{Deserialize, Serialize};

use super::commit::{Place, sync_directory};

/// The first line is this, a space, and the digest of what follows.
const HEAD: &str = "admittance journal 1";

/// The changes of files. Lives as long as the commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) files: Vec<Entry>,
}

/// The change of one file: its text before and after, none where there is no file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Absolute; a link was followed unless it is removed.
    pub(super) path: PathBuf,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// What [`recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A commit that was broken off is finished.
    Finished {
        /// The files that are now as the change has them.
        files: Vec<PathBuf>,
        /// Those that somebody else changed meanwhile; they were left alone.
        left: Vec<PathBuf>,
    },
    /// A journal that is not whole was removed: the commit that wrote it had not begun.
    Discarded,
}

/// Finish the commit that the program was in when it ended, if it was in one: once, before the
/// definitions are read. `journal` is the file that was given to [`Change::commit`](super::Change::commit).
///
/// # Errors
///
/// When a file cannot be read or written. The journal stays, and recovery can be tried again.
pub fn recover(journal: &Path) -> io::Result<Option<Recovery>> {
    let told = |path: &Path, error: io::Error| {
        let message = format!(
            "the change of definitions that {journal} holds cannot be finished: {path}: {error}; to give the change up, remove {journal}",
            journal = journal.display(),
            path = path.display()
        );
        io::Error::new(error.kind(), message)
    };
    let _ = fs::remove_file(draft(journal));
    let read = match Journal::read(journal) {
        Ok(Some(read)) => read,
        Ok(None) => {
            remove(journal).map_err(|error| told(journal, error))?;
            return Ok(Some(Recovery::Discarded));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(told(journal, error)),
    };
    let (mut files, mut left) = (Vec::new(), Vec::new());
    for entry in read.files {
        let place = Place::new(journal, entry);
        let is_done = place.finish().map_err(|error| told(&place.entry.path, error))?;
        let list = if is_done { &mut files } else { &mut left };
        list.push(place.entry.path);
    }
    remove(journal).map_err(|error| told(journal, error))?;
    Ok(Some(Recovery::Finished { files, left }))
}

impl Journal {
    /// Write it, whole or not at all.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let body = serde_json::to_string(self)?;
        let draft = draft(path);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // Definitions may hold settings that are nobody else's business.
            .mode(0o600)
            .open(&draft)?;
        let digest = Digest::of(&body);
        write!(file, "{HEAD} {digest}\n{body}")?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        sync_directory(path)
    }

    /// None if it is not whole.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = file::read(path, u64::MAX)?;
        let whole = || {
            let text = std::str::from_utf8(&bytes).ok()?;
            let (head, body) = text.split_once('\n')?;
            let digest: Digest = head.strip_prefix(HEAD)?.strip_prefix(' ')?.parse().ok()?;
            (digest == Digest::of(body)).then(|| serde_json::from_str(body).ok())?
        };
        Ok(whole())
    }
}

/// Remove a journal whose commit is done, or at least make it one that is not whole.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => File::create(path)?.sync_all(),
    }
}

fn draft(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".draft");
    name.into()
}

/// Whether this can be a journal: its directory is there and can be written to.
pub(super) fn probe(path: &Path) -> io::Result<()> {
    let draft = draft(path);
    File::create(&draft)?;
    fs::remove_file(&draft)
}
