//! The store of definitions in files.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use admittance_admission::on_thread_for_long_work;
use admittance_watch::{FileWriters, Fingerprint, Watch, WatchConfig};
use async_trait::async_trait;
use tokio::sync::{Mutex, watch};

use super::{
    DefinitionStore, StoreError, StoreKind,
    enforcement_loss::enforces_less,
    reading::{EXTENSIONS, FilesRead, QUIET_TIME, SettledRead, empty_directory_mistake, file_mistake, is_definition},
    write::{remove_drafts, write},
};
use crate::{
    DefinitionFile, DefinitionId, Definitions, DocumentForms, FileChange, Mistake, Mistakes,
    change::{free_path, new_file_path},
};

/// Removals take effect after the files have been unchanged for this time, because a file may be half-written.
const REMOVAL_QUIET: Duration = Duration::from_secs(2);

/// The maximum time to wait for a program that is writing a file. If it is exceeded, the file is reported as a mistake.
const WRITER_TIMEOUT: Duration = Duration::from_secs(20);

/// The store of definitions in files and directories, which people also edit.
///
/// Files are read by [`read_files`](crate::read_files), with two precautions. While a program is writing a file, the
/// read waits for it, and fails after 20 s. A file that may be incomplete is used only after 2 s without a change. A
/// commit replaces whole files. If a file is a symbolic link, its target is replaced, but only the link is removed. New
/// definitions are written to the first directory. If a commit was killed, the first read removes its temporary files.
#[derive(Debug)]
pub struct FileStore {
    paths: Arc<[PathBuf]>,
    /// The state of the files just before they were last read; `None` if they have not been read.
    last_fingerprint: watch::Sender<Option<Fingerprint>>,
    /// The texts and definitions that were last read without mistakes; `None` if there are none.
    last_complete: Mutex<Option<CompleteRead>>,
    watch: Mutex<Option<Watch>>,
    /// The files that other programs are writing. They are tracked from the first call of `wait_for_change` on.
    writers: OnceLock<FileWriters>,
    empty_directory_warnings: Mutex<Vec<Mistake>>,
    config: WatchConfig,
    writer_timeout: Duration,
    forms: DocumentForms,
}

impl FileStore {
    /// Creates a store of these files, and of the files in these directories.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths: paths.into(),
            last_fingerprint: watch::Sender::new(None),
            last_complete: Mutex::default(),
            watch: Mutex::default(),
            writers: OnceLock::new(),
            empty_directory_warnings: Mutex::default(),
            config: WatchConfig::default(),
            writer_timeout: WRITER_TIMEOUT,
            forms: DocumentForms::default(),
        }
    }

    /// Sets the policy systems whose documents the files may contain.
    #[must_use]
    pub fn with_forms(self, forms: &DocumentForms) -> Self {
        Self {
            forms: forms.clone(),
            ..self
        }
    }

    /// Waits until no program is writing a file of the store. A file that is written for too long is a mistake.
    async fn wait_for_writers(&self) -> Result<(), StoreError> {
        let Some(writers) = self.writers.get() else {
            return Ok(());
        };
        let mut mistakes = Mistakes::new();
        for path in writers.wait_and_list_unfinished(self.writer_timeout).await {
            let fix = "it is read once its writer closes it, or pauses for 2 s";
            mistakes.push(file_mistake(&path, "the file is still being written", fix));
        }
        Ok(mistakes.into_result(())?)
    }

    /// Warns about each directory that has become empty since the last read: without chains, every request passes.
    async fn warn_of_empty_directories(&self) -> Result<(), StoreError> {
        let paths = self.paths.clone();
        let find = move || paths.iter().filter_map(|path| empty_directory_mistake(path)).collect();
        let now: Vec<_> = self.run_blocking(find).await?;
        let mut before = self.empty_directory_warnings.lock().await;
        for warning in now.iter().filter(|warning| !before.contains(warning)) {
            tracing::warn!("no chain of this directory is called: {warning}");
        }
        *before = now;
        Ok(())
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = on_thread_for_long_work(work).await;
        result.map_err(|error| StoreError::Unreachable {
            store: self.location(),
            reason: format!("the work was interrupted: {error}"),
        })
    }

    async fn read_complete(&self, last: Option<CompleteRead>) -> Result<(Fingerprint, FilesRead), StoreError> {
        let (mut reading, last) = (SettledRead::default(), Arc::new(last));
        let mut has_logged = false;
        loop {
            self.wait_for_writers().await?;
            let (paths, before, forms) = (self.paths.clone(), last.clone(), self.forms.clone());
            let look = move || {
                let quiet = |files_read: &FilesRead| match &*before {
                    Some(last) if last.loses_definitions(files_read, &forms) => REMOVAL_QUIET,
                    _ => QUIET_TIME,
                };
                // The state of the files is recorded before their texts are read. If a file changes in between, the
                // next comparison with the recorded state finds this change.
                let fingerprint = Fingerprint::read_extensions(paths.iter().cloned(), EXTENSIONS);
                (fingerprint, reading.look_once_more(&paths, quiet), reading)
            };
            let (fingerprint, outcome);
            (fingerprint, outcome, reading) = self.run_blocking(look).await?;
            match outcome {
                Ok(files_read) => return Ok((fingerprint, files_read)),
                Err(pause) => {
                    if pause > QUIET_TIME && !std::mem::replace(&mut has_logged, true) {
                        tracing::info!(
                            "the definitions have less in them than before, or more exceptions; this goes live if \
                             they are unchanged for {}",
                            humantime::format_duration(REMOVAL_QUIET)
                        );
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

#[async_trait]
impl DefinitionStore for FileStore {
    fn location(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Files
    }

    fn owns(&self, path: &Path) -> bool {
        let is_in = |directory: &PathBuf| path.parent() == Some(directory) && is_definition(path);
        self.paths.iter().any(|own_path| own_path == path || is_in(own_path))
    }

    fn path_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        let directory = self.paths.iter().find(|path| path.is_dir())?;
        Some(free_path(new_file_path(id, directory), &[]))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let last = self.last_complete.lock().await.clone();
        if self.last_fingerprint.borrow().is_none() {
            let paths = self.paths.clone();
            self.run_blocking(move || remove_drafts(&paths)).await?;
        }
        let (fingerprint, files_read) = self.read_complete(last).await?;
        self.last_fingerprint.send_replace(Some(fingerprint));
        self.warn_of_empty_directories().await?;
        let mut complete = self.last_complete.lock().await;
        // The caller may drop this future while `run_blocking` runs. Everything that was moved into the closure is then
        // lost, so the closure gets clones.
        let (last, forms) = (complete.clone(), self.forms.clone());
        let (now, mut files_read) = self
            .run_blocking(move || (CompleteRead::from_read(last, &files_read, &forms), files_read))
            .await?;
        *complete = Some(now);
        files_read.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files_read.mistakes.into_result(files_read.files)?)
    }

    async fn set_last_live(&self, files: Vec<DefinitionFile>) {
        let mut complete = self.last_complete.lock().await;
        let forms = self.forms.clone();
        let before = self.run_blocking(move || CompleteRead::from_read(None, &FilesRead::of_files(files), &forms));
        *complete = before.await.ok();
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        let changes = changes.to_vec();
        let is_listed = |change: &&FileChange| change.after.is_none() && self.paths.contains(&change.path);
        if let Some(change) = changes.iter().find(is_listed) {
            let reason = "the configuration names this file; remove it from `definitions` there, and restart";
            return Err(StoreError::NotWritten {
                path: change.path.clone(),
                source: io::Error::other(reason),
            });
        }
        let mut complete = self.last_complete.lock().await;
        let (last, forms) = (complete.clone(), self.forms.clone());
        let update = self.run_blocking(move || {
            write(&changes)?;
            Ok::<_, StoreError>(last.map(|last| last.with_changes(&changes, &forms)))
        });
        *complete = update.await??;
        Ok(())
    }

    async fn wait_for_change(&self) {
        let mut fingerprints = self.last_fingerprint.subscribe();
        let mut watch = self.watch.lock().await;
        loop {
            let Some(fingerprint) = fingerprints.borrow_and_update().clone() else {
                // The store has not been read yet, so whatever it contains is a change.
                return;
            };
            let watch = match &mut *watch {
                Some(watch) => {
                    watch.set_fingerprint(fingerprint);
                    watch
                }
                none => {
                    let watch = none.insert(Watch::from_fingerprint(fingerprint, self.config));
                    self.writers.get_or_init(|| watch.writers());
                    watch
                }
            };
            tokio::select! {
                _ = watch.changed() => return,
                _ = fingerprints.changed() => {}
            }
        }
    }
}

/// The files that were last read without mistakes, and their definitions. Later reads are compared with them: if a
/// later read enforces less, for example because a rule is missing, one of the files may be half-written.
#[derive(Clone, Debug, Default)]
struct CompleteRead {
    files: Vec<DefinitionFile>,
    definitions: Option<Arc<Definitions>>,
}

impl CompleteRead {
    fn from_read(last: Option<Self>, files_read: &FilesRead, forms: &DocumentForms) -> Self {
        let last = last.unwrap_or_default();
        if last.definitions.is_some() && last.files == files_read.files {
            return last;
        }
        match files_read.definitions(forms) {
            None => last,
            Some(definitions) => Self {
                files: files_read.files.clone(),
                definitions: Some(definitions.clone()),
            },
        }
    }

    fn with_changes(self, changes: &[FileChange], forms: &DocumentForms) -> Self {
        let mut files = self.files.clone();
        for change in changes {
            files.retain(|file| file.path != change.path);
            let new_text = change.after.as_ref();
            files.extend(new_text.map(|text| DefinitionFile::file(&change.path, text)));
        }
        Self::from_read(Some(self), &FilesRead::of_files(files), forms)
    }

    /// Returns whether a file may be half-written. This is the case if a file was truncated, if a new file is blank, or
    /// if all definitions together enforce less than before.
    fn loses_definitions(&self, files_read: &FilesRead, forms: &DocumentForms) -> bool {
        if files_read.files == self.files {
            return false;
        }
        let files = self.files.iter();
        let old_texts: HashMap<&Path, &str> = files.map(|file| (&*file.path, &*file.text)).collect();
        let old_text = |file: &DefinitionFile| old_texts.get(&*file.path).copied();
        let is_cut = |file: &DefinitionFile| match old_text(file) {
            Some(before) => before != file.text && before.starts_with(&file.text),
            None => file.text.trim().is_empty(),
        };
        if files_read.files.iter().any(is_cut) {
            return true;
        }
        let Some(now) = files_read.definitions(forms) else {
            return false;
        };
        let before = self.definitions.as_ref();
        before.is_none_or(|before| enforces_less(before, now))
    }
}

#[cfg(test)]
mod tests;
