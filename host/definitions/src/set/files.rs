//! Takes a consistent snapshot of the files and their texts.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use admittance_watch::Stamp;

use super::DefinitionFile;
use crate::document::{self, Location, Mistake, Mistakes};

/// The number of retries if files change while they are read.
const ATTEMPTS: usize = 10;

/// A file that was written to more recently than this may still be being written: it is looked at again after
/// this time, and read when it is as it was.
const QUIET: Duration = Duration::from_millis(50);

/// The files of these paths, in the order that [`DefinitionSet::read`](super::DefinitionSet::read) says.
///
/// A ConfigMap is replaced by swapping one link, and a directory that is removed lists no files before
/// it is gone: what was read counts when everything is there just as it was before, and was not being written
/// to. Unlike [`Watch`](admittance_watch::Watch) this cannot tell whether a file is still open.
pub(super) fn read(paths: &[PathBuf], mistakes: &mut Mistakes) -> Vec<DefinitionFile> {
    let mut before = Listing::of(paths);
    for _ in 0..ATTEMPTS {
        let read = before.read();
        if before.youngest().is_some_and(|age| age < QUIET) {
            std::thread::sleep(QUIET);
        }
        let after = Listing::of(paths);
        if let Some((files, wrong)) = read
            && before == after
        {
            mistakes.extend(wrong);
            return files;
        }
        before = after;
    }
    for path in paths {
        let message = "the file kept changing while it was read".to_owned();
        mistakes.push(of_path(path, message, "read it again when it is whole"));
    }
    Vec::new()
}

/// The state of the files, for comparison.
#[derive(PartialEq)]
struct Listing {
    /// Of what was asked for: the paths, and how each was found.
    paths: Vec<Option<Stamp>>,
    /// Each once.
    files: Vec<(PathBuf, Option<Stamp>)>,
    mistakes: Vec<Mistake>,
}

impl Listing {
    fn of(paths: &[PathBuf]) -> Self {
        let mut listing = Self {
            paths: Vec::new(),
            files: Vec::new(),
            mistakes: Vec::new(),
        };
        let mut seen = HashSet::new();
        for path in paths {
            listing.paths.push(stamp(path));
            let files = match files(path) {
                Ok(files) => files,
                Err(error) => {
                    let message = format!("the directory cannot be read: {error}");
                    listing.mistakes.push(of_path(path, message, ""));
                    continue;
                }
            };
            for file in files {
                // A file may be named beside its directory. One that cannot be found is reported by
                // reading it.
                let identity = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
                if seen.insert(identity) {
                    let found = stamp(&file);
                    listing.files.push((file, found));
                }
            }
        }
        listing
    }

    /// How long ago a file was last written to or put in place. A clock that is wrong says nothing.
    fn youngest(&self) -> Option<Duration> {
        let now = SystemTime::now();
        let ages = self
            .files
            .iter()
            .filter_map(|(_, found)| found.as_ref()?.age(now));
        ages.min()
    }

    /// The texts of the files; `None` if one of them was replaced in the meantime.
    fn read(&self) -> Option<(Vec<DefinitionFile>, Vec<Mistake>)> {
        let mut files = Vec::new();
        let mut mistakes = self.mistakes.clone();
        for (path, found) in &self.files {
            match document::text_of(path) {
                Ok((text, metadata)) => {
                    // Links may lead elsewhere for a moment, and back.
                    if *found != Some(Stamp::of(&metadata)) {
                        return None;
                    }
                    files.push(DefinitionFile {
                        path: path.clone(),
                        text,
                        place: None,
                    });
                }
                Err(mistake) => mistakes.push(mistake),
            }
        }
        Some((files, mistakes))
    }
}

/// The state of a path; `None` if it cannot be accessed.
fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata))
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        // A symbolic link to a file is a file: Kubernetes mounts ConfigMaps so.
        if is_definition(&file) && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// By its name alone. Backups (`a.yaml~`, `#a.yaml#`, `a.yaml.bak`) have another ending; `.#a.yaml` is
/// hidden.
pub(crate) fn is_definition(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let known = file.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    });
    known && !hidden
}

fn of_path(path: &Path, message: String, fix: &str) -> Mistake {
    Mistake {
        location: Location::of_file(path.display().to_string()),
        path: String::new(),
        message,
        fix: fix.to_owned(),
    }
}
