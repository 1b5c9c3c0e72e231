//! Reads files in such a way that all texts are from the same moment, and none is half-written.

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

/// The maximum number of reads. If the files have changed during each of them, this is a mistake.
const MAX_ATTEMPT_COUNT: usize = 10;

pub(super) const EXTENSIONS: Extensions = &["yaml", "yml", "json"];

/// If all files have been unchanged for this time, they count as complete.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(50);

/// Reads these files, and the files `*.yaml`, `*.yml` and `*.json` of these directories, without their subdirectories,
/// hidden files and editors' backups. A directory may be empty. This function blocks.
///
/// All texts are from the same moment: if a file changes during the read, all files are read again.
///
/// # Errors
///
/// Returns a mistake for each file that is missing, unreadable, not UTF-8, or larger than
/// [`LARGEST_FILE`](document::LARGEST_FILE). A missing directory is a mistake too, so that it never counts as empty.
pub fn read_files(paths: &[PathBuf]) -> Result<Vec<DefinitionFile>, Mistakes> {
    let mut mistakes = Mistakes::new();
    let files = read_readable_files(paths, &mut mistakes);
    mistakes.into_result(files)
}

/// Reads files like [`read_files`]. Files that cannot be read are reported in `mistakes`, and left out.
pub(crate) fn read_readable_files(paths: &[PathBuf], mistakes: &mut Mistakes) -> Vec<DefinitionFile> {
    let mut reading = SettledRead::default();
    loop {
        match reading.look_once_more(paths, |_| QUIET_TIME) {
            Ok(files_read) => {
                mistakes.extend(files_read.mistakes);
                return files_read.files;
            }
            Err(pause) => std::thread::sleep(pause),
        }
    }
}

/// The texts of the files that can be read, and the mistakes about the files that cannot.
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

    /// Returns the definitions in the texts; `None` if anything has a mistake. The texts are parsed in the first call.
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

/// Reads files repeatedly until all of them have been unchanged for a while, so that none is half-written.
#[derive(Debug, Default)]
pub(super) struct SettledRead {
    listing: FileListing,
    last_read: Option<FilesRead>,
    attempts: usize,
}

impl SettledRead {
    /// Returns the texts if the files have been unchanged for `quiet_time`; otherwise, the time until the next attempt.
    pub(super) fn look_once_more(
        &mut self,
        paths: &[PathBuf],
        quiet_time: impl Fn(&FilesRead) -> Duration,
    ) -> Result<FilesRead, Duration> {
        loop {
            let listing = FileListing::new(paths);
            if listing == self.listing
                && let Some(files_read) = self.last_read.take()
            {
                return Ok(files_read);
            }
            if self.attempts == MAX_ATTEMPT_COUNT {
                return Ok(unsettled_files(paths));
            }
            self.attempts += 1;
            self.listing = listing;
            self.last_read = self.listing.read();
            let Some(files_read) = &self.last_read else {
                continue;
            };
            let rest = quiet_time(files_read).saturating_sub(self.listing.age());
            if !rest.is_zero() {
                return Err(rest);
            }
        }
    }
}

fn unsettled_files(paths: &[PathBuf]) -> FilesRead {
    let mut files_read = FilesRead::default();
    let message = "the file kept changing while it was read";
    let mistakes = paths
        .iter()
        .map(|path| file_mistake(path, message, "read it again when it is whole"));
    files_read.mistakes.extend(mistakes);
    files_read
}

/// The state of all files at one moment. If two listings are equal, no file has changed between them.
#[derive(Debug, Default, PartialEq)]
struct FileListing {
    /// The state of each given path and, if it is a symbolic link, of its target.
    paths: Vec<[Option<Stamp>; 2]>,
    files: Vec<(PathBuf, Option<Stamp>)>,
    mistakes: Mistakes,
}

impl FileListing {
    fn new(paths: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        let mut canonical_paths = HashSet::new();
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
                // A file may be given twice: by its own path, and by the path of its directory. It is listed only once.
                if canonical_paths.insert(fs::canonicalize(&file).unwrap_or_else(|_| file.clone())) {
                    let file_stamp = stamp(fs::metadata(&file));
                    listing.files.push((file, file_stamp));
                }
            }
        }
        listing
    }

    /// Returns how long ago a file or path last changed; zero if the time of the change is in the future.
    fn age(&self) -> Duration {
        let now = Moment::now().0;
        let files = self.files.iter().filter_map(|(_, stamp)| stamp.as_ref());
        let stamps = self.paths.iter().flatten().flatten().chain(files);
        let ages = stamps.map(|stamp| stamp.age(now).unwrap_or_default());
        ages.min().unwrap_or(Duration::MAX)
    }

    /// Reads the texts of the listed files. Returns `None` if a file was replaced after it was listed.
    fn read(&self) -> Option<FilesRead> {
        let mut files_read = FilesRead {
            mistakes: self.mistakes.clone(),
            ..FilesRead::default()
        };
        for (path, stamp) in &self.files {
            match document::read_file_text(path) {
                // A symbolic link may have got another target after the files were listed. The file at this path is
                // then not the listed one, so the read is given up.
                Ok((_, metadata)) if *stamp != Some(Stamp::from_metadata(&metadata)) => return None,
                Ok((text, _)) => files_read.files.push(DefinitionFile::file(path, text)),
                Err(mut mistake) => {
                    if mistake.fix.is_empty() {
                        mistake.fix = unread_file_fix(path).to_owned();
                    }
                    files_read.mistakes.push(mistake);
                }
            }
        }
        Some(files_read)
    }
}

fn stamp(metadata: io::Result<fs::Metadata>) -> Option<Stamp> {
    metadata.ok().map(|metadata| Stamp::from_metadata(&metadata))
}

fn unread_file_fix(path: &Path) -> &'static str {
    match path.symlink_metadata() {
        Ok(_) => "let it be a file that can be read, or delete it to remove its definitions",
        Err(_) => {
            "correct the path; if the file was deleted, its definitions are removed with its entry in `definitions` \
             of the configuration"
        }
    }
}

/// Returns the files `*.yaml`, `*.yml` and `*.json` in a directory, sorted by name, or `path` itself if it is a file.
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
        // A subdirectory may be named like a definition file, such as `a.yaml`. It is included, so that reading it
        // fails and the mistake is reported.
        if is_definition(&file) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a warning if `path` is a directory without definitions. It names a file with a possibly misspelt extension.
pub fn empty_directory_mistake(path: &Path) -> Option<Mistake> {
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
