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

use super::{DefinitionStore, StoreError};
use crate::{
    DefinitionFile, DefinitionId, DefinitionSet, FileChange, Recovery,
    change::{self, file_name, recover},
    set::is_definition,
};

/// Definitions in files and directories, which people edit too. Lives as long as the host.
///
/// They are read as [`DefinitionSet::read`] says, and written as [`Change::commit`](crate::Change::commit)
/// does. New ones go to the first directory.
#[derive(Debug)]
pub struct FileStore {
    paths: Arc<[PathBuf]>,
    journal: PathBuf,
    /// What the files held just before they were last read; none before that.
    read: watch::Sender<Option<Fingerprint>>,
    /// Of whoever waits for a change.
    watch: Mutex<Option<Watch>>,
    /// Whether a commit that a program before this one was in is made whole.
    is_recovered: Mutex<bool>,
}

impl FileStore {
    /// The definitions in these files, and in the files of these directories. `journal` is a file beside
    /// which nobody else writes; its directory is there.
    pub fn new(paths: Vec<PathBuf>, journal: PathBuf) -> Self {
        Self {
            paths: paths.into(),
            journal,
            read: watch::Sender::new(None),
            watch: Mutex::new(None),
            is_recovered: Mutex::new(false),
        }
    }

    fn broken_off(&self, error: &JoinError) -> StoreError {
        StoreError::Unreachable {
            store: self.location(),
            reason: format!("the work broke off: {error}"),
        }
    }

    /// Once, before anything is read or written.
    async fn recover(&self) -> Result<(), StoreError> {
        let mut is_recovered = self.is_recovered.lock().await;
        if *is_recovered {
            return Ok(());
        }
        let journal = self.journal.clone();
        let recovered = spawn_blocking(move || recover(&journal)).await;
        let recovered: Result<Option<Recovery>, _> = recovered.map_err(|error| self.broken_off(&error))?;
        recovered.map_err(|error| StoreError::Refused {
            store: self.location(),
            reason: error.to_string(),
        })?;
        *is_recovered = true;
        Ok(())
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
        let base = file_name(&id.name);
        let mut path = directory.join(format!("{base}.yaml"));
        let mut number = 2;
        while path.symlink_metadata().is_ok() {
            path = directory.join(format!("{base}-{number}.yaml"));
            number += 1;
        }
        Some(path)
    }

    async fn read(&self) -> Result<Vec<DefinitionFile>, StoreError> {
        self.recover().await?;
        let paths = self.paths.clone();
        let (seen, set) = spawn_blocking(move || {
            // Looked at first: what changes between the two is seen to have changed.
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
        self.recover().await?;
        let (changes, journal) = (changes.to_vec(), self.journal.clone());
        let written = spawn_blocking(move || change::write(&changes, &journal)).await;
        Ok(written.map_err(|error| self.broken_off(&error))??)
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
                // What counts is what was read last.
                _ = read.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
