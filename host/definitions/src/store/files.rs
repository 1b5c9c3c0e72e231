//! Definitions in files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_watch::{Fingerprint, Watch, WatchConfig};
use async_trait::async_trait;
use tokio::{
    sync::{Mutex, watch},
    task::{JoinError, spawn_blocking},
};

use super::{DefinitionStore, StoreError, write::write};
use crate::{DefinitionFile, DefinitionId, DefinitionSet, FileChange, change::file_of, set::is_definition};

/// Definitions in files and directories, which people edit too. Lives as long as the host.
///
/// They are read as [`DefinitionSet::read`] says. Each is replaced whole; a symbolic link is written where it leads
/// to, and is removed itself. New ones go to the first directory.
#[derive(Debug)]
pub struct FileStore {
    paths: Arc<[PathBuf]>,
    /// The state of the files just before they were last read; `None` before that.
    read: watch::Sender<Option<Fingerprint>>,
    /// Wakes the task that waits for a change.
    watch: Mutex<Option<Watch>>,
}

impl FileStore {
    /// The definitions in these files, and in the files of these directories.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths: paths.into(),
            read: watch::Sender::new(None),
            watch: Mutex::new(None),
        }
    }

    fn broken_off(&self, error: &JoinError) -> StoreError {
        StoreError::Unreachable {
            store: self.location(),
            reason: format!("the work was interrupted: {error}"),
        }
    }
}

#[async_trait]
impl DefinitionStore for FileStore {
    fn location(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    }

    fn owns(&self, path: &Path) -> bool {
        let is_in = |directory: &PathBuf| path.parent() == Some(directory) && is_definition(path);
        self.paths.iter().any(|own| own == path || is_in(own))
    }

    fn place_for(&self, id: &DefinitionId) -> Option<PathBuf> {
        let directory = self.paths.iter().find(|path| path.is_dir())?;
        Some(file_of(id, directory))
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        let paths = self.paths.clone();
        let (seen, set) = spawn_blocking(move || {
            // Taken first, so that changes during the read are noticed.
            let seen = Fingerprint::of(paths.iter().cloned());
            (seen, DefinitionSet::read(&paths))
        })
        .await
        .map_err(|error| self.broken_off(&error))?;
        self.read.send_replace(Some(seen));
        let mut files = set?.files().to_vec();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    async fn commit(&self, changes: &[FileChange]) -> Result<(), StoreError> {
        let changes = changes.to_vec();
        let written = spawn_blocking(move || write(&changes)).await;
        written.map_err(|error| self.broken_off(&error))?
    }

    fn is_transactional(&self) -> bool {
        false
    }

    async fn changed(&self) {
        let mut read = self.read.subscribe();
        let mut watch = self.watch.lock().await;
        loop {
            let Some(seen) = read.borrow_and_update().clone() else {
                // Nothing was read yet, so whatever there is is news.
                return;
            };
            let watch = match &mut *watch {
                Some(watch) => {
                    watch.expect(seen);
                    watch
                }
                none => none.insert(Watch::since(seen, WatchConfig::default())),
            };
            tokio::select! {
                _ = watch.changed() => return,
                // The last read wins.
                _ = read.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
