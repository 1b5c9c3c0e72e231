//! The history of live tables: in memory, or in a directory.

mod comparison;
mod directory;
mod error;
mod revision;

use std::{collections::VecDeque, path::Path, sync::Arc};

pub(crate) use self::{comparison::compare, directory::HistoryDirectory};
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
    /// The definitions in the files that a rollback replaces. The rollback stays live until they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<String>,
    /// While the change to this revision is being written: its file changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending: Vec<FileChange>,
}

impl HistoryEntry {
    pub(crate) fn revision(&self) -> &Revision {
        &self.detail.revision
    }

    /// Whether both have the same definitions in the same places, and the same plugins.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (own, others) = (self.revision(), other.revision());
        self.detail.files == other.detail.files && own.modules == others.modules && own.hash == others.hash
    }
}

/// The revision of this number.
///
/// # Errors
///
/// When it is not kept.
pub(crate) fn find(entries: &[Arc<HistoryEntry>], number: u64) -> Result<&Arc<HistoryEntry>, HistoryError> {
    let found = entries.iter().find(|entry| entry.revision().number == number);
    found.ok_or_else(|| HistoryError::Unknown {
        number,
        kept: match (entries.first(), entries.last()) {
            (Some(first), Some(last)) => {
                format!(
                    "{} to {} are kept",
                    first.revision().number,
                    last.revision().number
                )
            }
            _ => "there is none yet".to_owned(),
        },
    })
}

/// The revisions, newest last. Lives as long as the host.
#[derive(Debug)]
pub(crate) struct History {
    entries: VecDeque<Arc<HistoryEntry>>,
    keep: usize,
    directory: Option<Arc<HistoryDirectory>>,
    /// The error of writing the newest revision.
    problem: Option<String>,
}

impl History {
    pub(crate) const DEFAULT_KEEP: usize = 20;

    /// A history in memory, which ends with the program.
    pub(crate) fn in_memory(keep: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            keep: keep.max(1),
            directory: None,
            problem: None,
        }
    }

    /// A history in this directory, which it locks.
    pub(crate) fn open(directory: &Path, keep: usize) -> Result<Self, HistoryError> {
        let directory = HistoryDirectory::open(directory)?;
        Ok(Self {
            entries: directory.entries()?.into_iter().map(Arc::new).collect(),
            keep: keep.max(1),
            directory: Some(Arc::new(directory)),
            problem: None,
        })
    }

    /// Its directory, if it outlives the program.
    pub(crate) fn directory(&self) -> Option<Arc<HistoryDirectory>> {
        self.directory.clone()
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    pub(crate) fn status(&self) -> HistoryStatus {
        HistoryStatus {
            directory: self
                .directory
                .as_ref()
                .map(|directory| directory.path().to_owned()),
            revisions: self.entries.len(),
            problem: self.problem.clone(),
        }
    }

    /// The revisions that are kept, oldest first.
    pub(crate) fn entries(&self) -> Arc<[Arc<HistoryEntry>]> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn last(&self) -> Option<&Arc<HistoryEntry>> {
        self.entries.back()
    }

    /// Whether this is already live, by its definitions in the files.
    pub(crate) fn is_newest(&self, entry: &HistoryEntry) -> bool {
        self.last()
            .is_some_and(|last| last.is_like(entry) && last.instead_of.is_none())
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.last()
            .map_or(1, |last| last.revision().number.saturating_add(1))
    }

    /// Keep this one and forget the oldest beyond what is kept, in memory. They are on disk as before until
    /// [`write`](Self::write).
    pub(crate) fn note(&mut self, entry: Arc<HistoryEntry>) {
        self.entries.push_back(entry);
        let beyond = self.entries.len().saturating_sub(self.keep);
        self.entries.drain(..beyond);
    }

    /// Have on disk what is kept in memory: the newest is written, and the oldest goes.
    ///
    /// # Errors
    ///
    /// When the newest cannot be written. It is then only kept in memory.
    pub(crate) async fn write(&mut self) -> Result<(), HistoryError> {
        let (Some(directory), Some(newest)) = (self.directory.clone(), self.entries.back().cloned()) else {
            return Ok(());
        };
        let oldest = self.entries.front().map_or(0, |entry| entry.revision().number);
        let written = tokio::task::spawn_blocking(move || {
            directory.write(&newest)?;
            // Only after a successful write.
            directory.remove_before(oldest);
            Ok(())
        })
        .await
        .unwrap_or(Err(HistoryError::Stopped));
        if written.is_err() {
            metrics::write_failed("history");
        }
        self.problem = written.as_ref().err().map(ToString::to_string);
        written
    }

    /// Writes and keeps this revision.
    ///
    /// # Errors
    ///
    /// When it cannot be written. Then it is not kept.
    pub(crate) async fn push(&mut self, entry: Arc<HistoryEntry>) -> Result<(), HistoryError> {
        let before = self.entries.clone();
        self.note(entry);
        let written = self.write().await;
        if written.is_err() {
            self.entries = before;
        }
        written
    }

    /// Write down that these changes are about to be made, and that they come to this revision, so that a start after a
    /// kill can complete them. The next [`write`](Self::write) ends it.
    pub(crate) async fn announce(
        &self,
        entry: &HistoryEntry,
        changes: &[FileChange],
    ) -> Result<(), HistoryError> {
        let Some(directory) = self.directory.clone() else {
            return Ok(());
        };
        let announced = HistoryEntry {
            pending: changes.to_vec(),
            ..entry.clone()
        };
        let written = tokio::task::spawn_blocking(move || directory.write(&announced));
        written.await.unwrap_or(Err(HistoryError::Stopped))
    }

    /// Take back what was announced: the changes are not made, or come to no revision of their own.
    pub(crate) fn withdraw(&self, entry: &HistoryEntry) {
        if let Some(directory) = &self.directory {
            directory.remove(entry.revision().number);
        }
    }

    /// All file changes of the newest revision are written.
    pub(crate) async fn complete(&mut self) {
        if let Some(last) = self.entries.back_mut() {
            Arc::make_mut(last).pending.clear();
        }
        if let Err(error) = self.write().await {
            tracing::error!("{error}");
        }
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = Digest> {
        self.entries
            .iter()
            .flat_map(|entry| &entry.revision().modules)
            .filter_map(|module| module.digest.parse().ok())
    }
}

#[cfg(test)]
mod tests;
