//! Writing a change: all of it or nothing.
//!
//! 1. Every new text is written beside its file, under a hidden name that nothing reads. What cannot be
//!    written, a full disk or a read-only mount, ends the commit here.
//! 2. The journal is written. From here on the change is decided.
//! 3. Each file takes its place by being renamed, and the files that go are renamed to hidden names.
//! 4. The journal is removed.
//!
//! When a step fails, the steps before it are undone. When the program ends in between, the journal is
//! there, and recovery does what is left.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt, chown},
    },
    path::{Path, PathBuf},
};

use admittance_module::Digest;
use admittance_watch::file;

use super::{
    FileChange,
    journal::{self, Entry, Journal},
};
use crate::document::LARGEST_FILE;

/// Why a change was not written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A file is not what it was when the change was made.
    #[error("{path} was changed by someone else meanwhile; nothing was written, try again")]
    ChangedMeanwhile {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written, so nothing was changed: {source}")]
    NothingChanged {
        /// The file, or the journal.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file could not be written, and what was written before could not be undone.
    #[error(
        "{path} cannot be written, and a part of the change is: {source}; the rest is written at the next start, from {journal}"
    )]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// What [`recover`](super::recover) will finish it from.
        journal: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What a commit has just done. For tests, which break it off there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A new text is beside its file.
    Staged,
    /// The journal is there.
    Decided,
    /// One file is as it is to be.
    Placed,
    /// All are, and the journal is still there.
    AllPlaced,
    /// The journal is gone.
    Finished,
}

/// Called after each step; an error counts as one of the step.
pub(super) type Observer<'a> = &'a mut dyn FnMut(Step) -> io::Result<()>;

pub(super) fn commit(files: &[FileChange], journal: &Path, observe: Observer<'_>) -> Result<(), CommitError> {
    if files.is_empty() {
        return Ok(());
    }
    let nothing = |path: &Path, source| CommitError::NothingChanged {
        path: path.to_owned(),
        source,
    };
    let journal = std::path::absolute(journal).map_err(|error| nothing(journal, error))?;
    // Of a commit before that could not be undone.
    journal::recover(&journal).map_err(|error| nothing(&journal, error))?;
    journal::probe(&journal).map_err(|error| nothing(&journal, error))?;
    let mut places = Vec::new();
    for file in files {
        let place = resolve(file).map_err(|error| nothing(&file.path, error))?;
        places.push(Place::new(&journal, place));
    }
    let staged = stage(&places, observe);
    let staged = staged.and_then(|()| {
        let entries = places.iter().map(|place| place.entry.clone());
        let decision = Journal {
            files: entries.collect(),
        };
        decision.write(&journal).map_err(|error| {
            // It may be there, only not for certain.
            let _ = journal::remove(&journal);
            nothing(&journal, error)
        })
    });
    if let Err(error) = staged {
        places.iter().for_each(Place::clean);
        return Err(error);
    }

    let mut placed = 0;
    let result = observe(Step::Decided)
        .map_err(|error| (journal.clone(), error))
        .and_then(|()| {
            for place in &places {
                // Counted before, so that it is undone even if only the last part of it failed.
                placed += 1;
                place
                    .put()
                    .and_then(|()| observe(Step::Placed))
                    .map_err(|error| (place.entry.path.clone(), error))?;
            }
            Ok(())
        });
    if let Err((path, source)) = result {
        let undone = places
            .iter()
            .take(placed)
            .rev()
            .try_for_each(Place::undo)
            .and_then(|()| journal::remove(&journal));
        return match undone {
            Ok(()) => {
                places.iter().for_each(Place::clean);
                Err(nothing(&path, source))
            }
            Err(_) => Err(CommitError::Unfinished {
                path,
                journal,
                source,
            }),
        };
    }
    places.iter().for_each(Place::clean);
    let finished = observe(Step::AllPlaced)
        .and_then(|()| journal::remove(&journal))
        .and_then(|()| observe(Step::Finished));
    // All is written. A journal that stays finds all done at the next start.
    drop(finished);
    Ok(())
}

fn stage(places: &[Place], observe: Observer<'_>) -> Result<(), CommitError> {
    for place in places {
        let path = &place.entry.path;
        let nothing = |source| CommitError::NothingChanged {
            path: path.clone(),
            source,
        };
        if !place.holds(place.entry.before.as_ref()).map_err(nothing)? {
            return Err(CommitError::ChangedMeanwhile { path: path.clone() });
        }
        place
            .stage()
            .and_then(|()| observe(Step::Staged))
            .map_err(nothing)?;
    }
    Ok(())
}

/// Where a file really is.
fn resolve(file: &FileChange) -> io::Result<Entry> {
    let written = match (&file.before, &file.after) {
        // The link's target is written, so that the link stays.
        (Some(_), Some(_)) => match fs::canonicalize(&file.path) {
            Ok(path) => Some(path),
            // It is gone, which is found when its text is looked at.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        },
        _ => None,
    };
    let path = match written {
        Some(path) => path,
        None => {
            let name = file.path.file_name().unwrap_or(OsStr::new(""));
            let directory = match file.path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            fs::canonicalize(directory)?.join(name)
        }
    };
    if path.to_str().is_none() {
        let message = "the path is not UTF-8, and the journal is";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(Entry {
        path,
        before: file.before.clone(),
        after: file.after.clone(),
    })
}

/// A file of a commit, and the hidden names beside it.
pub(super) struct Place {
    pub(super) entry: Entry,
    /// What it will hold.
    new: PathBuf,
    /// What it held, when it goes.
    old: PathBuf,
}

impl Place {
    /// The hidden names are the same whenever this program is at it, so that nothing is left lying
    /// around, and others for another program, which has another journal.
    pub(super) fn new(journal: &Path, entry: Entry) -> Self {
        let parts = [journal.as_os_str().as_bytes(), entry.path.as_os_str().as_bytes()];
        let mut name = Digest::of_parts(parts).to_hex();
        name.truncate(16);
        Self {
            new: entry.path.with_file_name(format!(".admittance-{name}.new")),
            old: entry.path.with_file_name(format!(".admittance-{name}.old")),
            entry,
        }
    }

    /// Whether the file has this text, or is not there as there is none.
    fn holds(&self, text: Option<&String>) -> io::Result<bool> {
        let bytes = match file::read(&self.entry.path, LARGEST_FILE as u64) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(bytes.as_deref() == text.map(String::as_bytes))
    }

    /// Write the new text beside the file, with its mode and owner. What goes is not written, but that
    /// its directory can be is tried.
    fn stage(&self) -> io::Result<()> {
        self.write(self.entry.after.as_deref().unwrap_or_default())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.clean();
        let mut file = OpenOptions::new().write(true).create_new(true).open(&self.new)?;
        if self.entry.before.is_some() && self.entry.after.is_some() {
            // Renaming would also replace a file that nobody may write.
            let there = OpenOptions::new()
                .write(true)
                .custom_flags(file::NO_WAIT)
                .open(&self.entry.path)?
                .metadata()?;
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (there.uid(), there.gid()) {
                // Only root can give files away; for others it stays theirs.
                let _ = chown(&self.new, Some(there.uid()), Some(there.gid()));
            }
            file.set_permissions(there.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Put the staged text in place, or the file away.
    fn put(&self) -> io::Result<()> {
        let path = &self.entry.path;
        match (&self.entry.before, &self.entry.after) {
            (_, None) => fs::rename(path, &self.old)?,
            // Unlike a rename, a link replaces nothing that came to be meanwhile.
            (None, Some(_)) => match fs::hard_link(&self.new, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Not every file system has links.
                    fs::rename(&self.new, path)?;
                }
                linked => linked?,
            },
            (Some(_), Some(_)) => fs::rename(&self.new, path)?,
        }
        sync_directory(path)
    }

    /// Make it what it was, as far as it was put.
    fn undo(&self) -> io::Result<()> {
        let path = &self.entry.path;
        match (&self.entry.before, &self.entry.after) {
            (Some(_), None) => {
                if self.old.symlink_metadata().is_ok() {
                    fs::rename(&self.old, path)?;
                }
            }
            (None, _) => {
                if self.holds(self.entry.after.as_ref())? {
                    fs::remove_file(path)?;
                }
            }
            (Some(before), Some(_)) => {
                if self.holds(self.entry.after.as_ref())? {
                    self.write(before)?;
                    fs::rename(&self.new, path)?;
                }
            }
        }
        sync_directory(path)
    }

    /// Do what is left of it, in a program that was started again. False if somebody else changed the
    /// file since; it is left alone then.
    pub(super) fn finish(&self) -> io::Result<bool> {
        let is_done = self.holds(self.entry.after.as_ref())?;
        let is_to_do = !is_done && self.holds(self.entry.before.as_ref())?;
        if is_to_do {
            self.stage()?;
            self.put()?;
        }
        self.clean();
        // What was put before may not be on the disk yet.
        sync_directory(&self.entry.path)?;
        Ok(is_done || is_to_do)
    }

    /// Remove what is under the hidden names. What stays of it harms nobody.
    fn clean(&self) {
        let _ = fs::remove_file(&self.new);
        let _ = fs::remove_file(&self.old);
    }
}

/// Make the names in the directory of this file survive a crash.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if directory != Path::new("") => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
