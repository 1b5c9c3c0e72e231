//! Keeps the history of live tables, in memory or in a directory.

mod comparison;
mod directory;
mod error;
mod revision;

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, OnceLock},
};

pub(crate) use self::{
    comparison::{changed_names, compare},
    directory::HistoryDirectory,
};
pub use self::{
    error::HistoryError,
    revision::{Comparison, ModuleChange, Origin, Revision, RevisionDetail, RevisionFile, RevisionModule},
};
use admittance_catalog::Digest;
use admittance_definitions::FileChange;
use serde::{Deserialize, Serialize};

use crate::{status::HistoryStatus, status::metrics};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryEntry {
    #[serde(flatten)]
    pub(crate) detail: RevisionDetail,
    /// The digest of the definitions and module files at the time of a rollback. The rollback ends when the current
    /// definitions and files have another digest. Absent if the revision is not a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending: Vec<FileChange>,
    /// The names of the changed definitions and stages, once [`changed_since`](Self::changed_since) has computed them.
    #[serde(skip)]
    pub(crate) changed: OnceLock<Vec<String>>,
}

impl HistoryEntry {
    pub(crate) fn revision(&self) -> &Revision {
        &self.detail.revision
    }

    pub(crate) fn rolled_back_to(&self) -> Option<u64> {
        match self.revision().origin {
            Origin::RolledBack { to } if self.instead_of.is_some() => Some(to),
            _ => None,
        }
    }

    pub(crate) fn changed_since(&self, predecessor: &Self) -> &[String] {
        self.changed
            .get_or_init(|| comparison::changed_names(&predecessor.detail, &self.detail))
    }

    /// Returns whether two revisions have the same definitions in the same files, and the same plugins.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (revision, other_revision) = (self.revision(), other.revision());
        self.detail.files == other.detail.files
            && revision.modules == other_revision.modules
            && revision.hash == other_revision.hash
    }
}

pub(crate) fn find(entries: &[Arc<HistoryEntry>], number: u64) -> Result<&Arc<HistoryEntry>, HistoryError> {
    let matching_entry = entries.iter().find(|entry| entry.revision().number == number);
    matching_entry.ok_or_else(|| {
        let number_of = |entry: &Arc<HistoryEntry>| entry.revision().number;
        HistoryError::Unknown(match (entries.first(), entries.last()) {
            (Some(first), Some(last)) => {
                format!("{number}: {} to {} are kept", number_of(first), number_of(last))
            }
            _ => format!("{number}: there is none yet"),
        })
    })
}

#[derive(Debug)]
pub(crate) struct History {
    entries: VecDeque<Arc<HistoryEntry>>,
    keep: usize,
    directory: Option<Arc<HistoryDirectory>>,
    problem: Option<String>,
}

impl History {
    pub(crate) const DEFAULT_KEPT_COUNT: usize = 20;

    pub(crate) fn in_memory(keep: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            keep: keep.max(1),
            directory: None,
            problem: None,
        }
    }

    pub(crate) fn open(directory: &Path, keep: usize) -> Result<Self, HistoryError> {
        let directory = HistoryDirectory::open(directory)?;
        Ok(Self {
            entries: directory.read_entries()?.into_iter().map(Arc::new).collect(),
            keep: keep.max(1),
            directory: Some(Arc::new(directory)),
            problem: None,
        })
    }

    pub(crate) fn directory(&self) -> Option<Arc<HistoryDirectory>> {
        self.directory.clone()
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    pub(crate) fn status(&self) -> HistoryStatus {
        HistoryStatus {
            directory: self.directory.as_ref().map(|directory| directory.path().to_owned()),
            revisions: self.entries.len(),
            problem: self.problem.clone(),
        }
    }

    pub(crate) fn entries(&self) -> Arc<[Arc<HistoryEntry>]> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn last(&self) -> Option<&Arc<HistoryEntry>> {
        self.entries.back()
    }

    /// Returns whether the newest revision has the same definitions and plugins as `entry`. If the newest revision is a
    /// rollback, returns `false`.
    pub(crate) fn is_newest(&self, entry: &HistoryEntry) -> bool {
        self.last()
            .is_some_and(|last| last.is_like(entry) && last.instead_of.is_none())
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.last().map_or(1, |last| last.revision().number.saturating_add(1))
    }

    /// Adds a revision to the history in memory, and drops the oldest revisions above the limit. Nothing changes on
    /// disk before [`write`](Self::write) is called.
    pub(crate) fn add(&mut self, entry: Arc<HistoryEntry>) {
        self.entries.push_back(entry);
        let excess_count = self.entries.len().saturating_sub(self.keep);
        self.entries.drain(..excess_count);
    }

    /// Writes the newest revision to disk, and deletes those revisions from disk that are no longer in memory.
    pub(crate) async fn write(&mut self) -> Result<(), HistoryError> {
        let (Some(directory), Some(newest)) = (self.directory.clone(), self.entries.back().cloned()) else {
            return Ok(());
        };
        let oldest = self.entries.front().map_or(0, |entry| entry.revision().number);
        let write_result = tokio::task::spawn_blocking(move || {
            directory.write(&newest)?;
            // Older revisions are deleted only after the newest one has been written successfully.
            directory.remove_before(oldest);
            Ok(())
        })
        .await
        .unwrap_or(Err(HistoryError::Stopped));
        if write_result.is_err() {
            metrics::count_write_failure("history");
        }
        self.problem = write_result.as_ref().err().map(ToString::to_string);
        write_result
    }

    /// Adds a revision in memory and on disk. If it cannot be written, the history is unchanged.
    pub(crate) async fn add_and_write(&mut self, entry: Arc<HistoryEntry>) -> Result<(), HistoryError> {
        let before = self.entries.clone();
        self.add(entry);
        let write_result = self.write().await;
        if write_result.is_err() {
            self.entries = before;
        }
        write_result
    }

    /// Writes file changes and the resulting revision to the history before the files are changed. If the program is
    /// killed meanwhile, the next start completes the changes.
    pub(crate) async fn announce(&self, entry: &HistoryEntry, changes: &[FileChange]) -> Result<(), HistoryError> {
        let Some(directory) = self.directory.clone() else {
            return Ok(());
        };
        let announced_entry = HistoryEntry {
            pending: changes.to_vec(),
            ..entry.clone()
        };
        let write_task = tokio::task::spawn_blocking(move || directory.write(&announced_entry));
        write_task.await.unwrap_or(Err(HistoryError::Stopped))
    }

    pub(crate) fn withdraw(&self, entry: &HistoryEntry) {
        if let Some(directory) = &self.directory {
            directory.remove(entry.revision().number);
        }
    }

    pub(crate) async fn complete_change(&mut self) {
        if let Some(last) = self.entries.back_mut() {
            Arc::make_mut(last).pending.clear();
        }
        if let Err(error) = self.write().await {
            tracing::error!("{error}");
        }
    }

    pub(crate) fn module_digests(&self) -> impl Iterator<Item = Digest> {
        self.entries
            .iter()
            .flat_map(|entry| &entry.revision().modules)
            .filter_map(|module| module.digest.parse().ok())
    }
}

#[cfg(test)]
mod tests;
