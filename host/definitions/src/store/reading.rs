//! Reads files so that all texts belong to one moment, and none is half-written.

use std::{
    cell::OnceCell,
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::Moment;
use admittance_watch::{Extensions, Stamp, is_selected_file};

use crate::{
    DefinitionFile, DefinitionSet, Definitions, DocumentForms,
    document::{self, Mistake, Mistakes},
};

/// After this many reads, files that keep changing are a mistake.
const ATTEMPTS: usize = 10;

pub(super) const EXTENSIONS: Extensions = &["yaml", "yml", "json"];

/// Files are complete if they have been unchanged for this time.
pub(super) const QUIET: Duration = Duration::from_millis(50);

/// Reads these files, and the files `*.yaml`, `*.yml` and `*.json` of these directories, without their subdirectories,
/// hidden files and editors' backups. A directory may be empty. This function blocks.
///
/// The texts belong to one moment: if files change while they are read, all are read again.
///
/// # Errors
///
/// Returns every path that is missing, unreadable, not UTF-8, or larger than [`LARGEST_FILE`](document::LARGEST_FILE).
/// A missing directory never counts as empty.
pub fn read_files(paths: &[PathBuf]) -> Result<Vec<DefinitionFile>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let files = read_readable_files(paths, &mut mistakes);
    mistakes.into_result(files)
}

/// Reads files like [`read_files`], and skips unreadable ones.
pub(crate) fn read_readable_files(paths: &[PathBuf], mistakes: &mut Mistakes) -> Vec<DefinitionFile> {
    let mut reading = Reading::default();
    loop {
        match reading.look(paths, |_| QUIET) {
            Ok(found) => {
                mistakes.extend(found.mistakes);
                return found.files;
            }
            Err(pause) => std::thread::sleep(pause),
        }
    }
}

/// The texts of readable files, and the mistakes about the others.
#[derive(Debug, Default)]
pub(super) struct FilesRead {
    pub(super) files: Vec<DefinitionFile>,
    pub(super) mistakes: Mistakes,
    definitions: OnceCell<Option<Arc<Definitions>>>,
}

impl FilesRead {
    pub(super) fn of_files(files: Vec<DefinitionFile>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// Returns the definitions in the files; `None` if there are mistakes. The first call parses the texts.
    pub(super) fn definitions(&self, forms: &DocumentForms) -> Option<&Arc<Definitions>> {
        let parse = || {
            let files = DefinitionSet::of_forms(self.files.clone(), forms);
            files.definitions().ok().map(Arc::new)
        };
        if self.mistakes.is_empty() {
            self.definitions.get_or_init(parse).as_ref()
        } else {
            None
        }
    }
}

/// Reads files repeatedly until all of them have been unchanged for a while. This prevents reads while a ConfigMap's
/// link is swapped, while a directory that is being removed looks empty, or while a half-written file is valid already.
#[derive(Debug, Default)]
pub(super) struct Reading {
    listing: Listing,
    found: Option<FilesRead>,
    attempts: usize,
}

impl Reading {
    /// Returns the texts if the files have been unchanged for `quiet`; otherwise returns the time until the next
    /// attempt.
    pub(super) fn look(
        &mut self,
        paths: &[PathBuf],
        quiet: impl Fn(&FilesRead) -> Duration,
    ) -> Result<FilesRead, Duration> {
        loop {
            let listing = Listing::of(paths);
            if listing == self.listing
                && let Some(found) = self.found.take()
            {
                return Ok(found);
            }
            if self.attempts == ATTEMPTS {
                return Ok(kept_changing(paths));
            }
            self.attempts += 1;
            self.listing = listing;
            self.found = self.listing.read();
            let Some(found) = &self.found else { continue };
            let rest = quiet(found).saturating_sub(self.listing.age());
            if !rest.is_zero() {
                return Err(rest);
            }
        }
    }
}

fn kept_changing(paths: &[PathBuf]) -> FilesRead {
    let mut found = FilesRead::default();
    let message = "the file kept changing while it was read";
    let mistakes = paths
        .iter()
        .map(|path| file_mistake(path, message, "read it again when it is whole"));
    found.mistakes.extend(mistakes);
    found
}

/// The state of the files. If two listings are equal, no file changed between them.
#[derive(Debug, Default, PartialEq)]
struct Listing {
    /// The state of each path itself, and of the target if it is a link.
    paths: Vec<[Option<Stamp>; 2]>,
    /// The files without duplicates.
    files: Vec<(PathBuf, Option<Stamp>)>,
    mistakes: Mistakes,
}

impl Listing {
    fn of(paths: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        let mut seen = HashSet::new();
        for path in paths {
            listing
                .paths
                .push([stamp(fs::symlink_metadata(path)), stamp(fs::metadata(path))]);
            let files = match files_in(path) {
                Ok(files) => files,
                Err(error) => {
                    let message = format!("the directory cannot be read: {error}");
                    let mistake = file_mistake(path, message, "let the program read it");
                    listing.mistakes.push(mistake);
                    continue;
                }
            };
            for file in files {
                // A file that is also in a given directory is listed once. A missing file is reported when it is read.
                if seen.insert(fs::canonicalize(&file).unwrap_or_else(|_| file.clone())) {
                    let found = stamp(fs::metadata(&file));
                    listing.files.push((file, found));
                }
            }
        }
        listing
    }

    /// Returns the time since the last change of any file or path; zero if the change is in the future.
    fn age(&self) -> Duration {
        let now = Moment::now().0;
        let files = self.files.iter().filter_map(|(_, stamp)| stamp.as_ref());
        let stamps = self.paths.iter().flatten().flatten().chain(files);
        let ages = stamps.map(|stamp| stamp.age(now).unwrap_or_default());
        ages.min().unwrap_or(Duration::MAX)
    }

    /// Reads the texts of the files; `None` if a file was replaced after it was listed.
    fn read(&self) -> Option<FilesRead> {
        let mut found = FilesRead {
            mistakes: self.mistakes.clone(),
            ..FilesRead::default()
        };
        for (path, stamp) in &self.files {
            match document::text_of(path) {
                // The state of the opened file is compared, because a link may briefly lead to another file.
                Ok((_, metadata)) if *stamp != Some(Stamp::from_metadata(&metadata)) => return None,
                Ok((text, _)) => found.files.push(DefinitionFile::file(path, text)),
                Err(mut mistake) => {
                    if mistake.fix.is_empty() {
                        mistake.fix = fix_of_unread(path).to_owned();
                    }
                    found.mistakes.push(mistake);
                }
            }
        }
        Some(found)
    }
}

/// Returns the state of a path; `None` if it is not accessible.
fn stamp(metadata: io::Result<fs::Metadata>) -> Option<Stamp> {
    metadata.ok().map(|metadata| Stamp::from_metadata(&metadata))
}

fn fix_of_unread(path: &Path) -> &'static str {
    match path.symlink_metadata() {
        Ok(_) => "let it be a file that can be read, or delete it to remove its definitions",
        // Only a path that was given explicitly can be missing: files of directories were listed a moment ago.
        Err(_) => {
            "correct the path; if the file was deleted, its definitions are removed with its entry in `definitions` \
             of the configuration"
        }
    }
}

/// Returns the files `*.yaml`, `*.yml` and `*.json` in a directory, sorted by name, or `path` alone if it is a file.
///
/// # Errors
///
/// Fails if the directory cannot be listed.
pub fn files_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        // A directory that is named like a file of definitions is included, so that reading it reports the mistake.
        if is_definition(&file) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a warning if `path` is a directory without definitions. It names a file whose extension may be misspelt.
pub fn empty_directory(path: &Path) -> Option<Mistake> {
    let entries = fs::read_dir(path).ok()?.flatten().map(|entry| entry.path());
    let files: Vec<_> = entries.filter(|file| file.is_file()).collect();
    if files.iter().any(|file| is_definition(file)) {
        return None;
    }
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    let fix = match names.filter(|name| !name.starts_with('.')).min() {
        Some(name) => format!("{name} is not read: end its name in .yaml, .yml or .json"),
        None => "name a file, or a directory with *.yaml, *.yml or *.json in it".to_owned(),
    };
    Some(file_mistake(path, "no definition was found", &fix))
}

pub(super) fn is_definition(file: &Path) -> bool {
    is_selected_file(file, EXTENSIONS)
}

pub(super) fn file_mistake(path: &Path, message: impl Into<String>, fix: &str) -> Mistake {
    Mistake::of_file(path.display().to_string(), message, fix)
}

#[cfg(test)]
mod tests;
