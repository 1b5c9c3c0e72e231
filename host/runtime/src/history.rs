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

use crate::metrics;

/// A revision as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) detail: RevisionDetail,
    /// Of a rollback: the definitions in the files, which are not live. It stays live until they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<String>,
    /// While the change to this revision is being written: its file changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending: Vec<FileChange>,
}

impl Entry {
    pub(crate) fn revision(&self) -> &Revision {
        &self.detail.revision
    }

    /// Whether both have the same definitions and modules.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let modules = |entry: &Self| entry.revision().modules.clone();
        self.detail.files == other.detail.files && modules(self) == modules(other)
    }
}

/// The revision of this number.
///
/// # Errors
///
/// When it is not kept.
pub(crate) fn find(entries: &[Arc<Entry>], number: u64) -> Result<&Arc<Entry>, HistoryError> {
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
    entries: VecDeque<Arc<Entry>>,
    /// How many are kept.
    keep: usize,
    directory: Option<Arc<HistoryDirectory>>,
    /// Why the newest could not be written.
    problem: Option<String>,
}

impl History {
    /// The default number of revisions to keep.
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

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref().map(HistoryDirectory::path)
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The revisions that are kept, oldest first.
    pub(crate) fn entries(&self) -> Arc<[Arc<Entry>]> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn last(&self) -> Option<&Arc<Entry>> {
        self.entries.back()
    }

    /// Whether this is already live, by its definitions in the files.
    pub(crate) fn says(&self, entry: &Entry) -> bool {
        self.last()
            .is_some_and(|last| last.is_like(entry) && last.instead_of.is_none())
    }

    /// The next number.
    pub(crate) fn next_number(&self) -> u64 {
        self.last()
            .map_or(1, |last| last.revision().number.saturating_add(1))
    }

    /// Keep this one and forget the oldest beyond what is kept, in memory. They are on disk as before until
    /// [`write`](Self::write).
    pub(crate) fn note(&mut self, entry: Arc<Entry>) {
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
    pub(crate) async fn push(&mut self, entry: Arc<Entry>) -> Result<(), HistoryError> {
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
    pub(crate) async fn announce(&self, entry: &Entry, changes: &[FileChange]) -> Result<(), HistoryError> {
        let Some(directory) = self.directory.clone() else {
            return Ok(());
        };
        let announced = Entry {
            pending: changes.to_vec(),
            ..entry.clone()
        };
        let written = tokio::task::spawn_blocking(move || directory.write(&announced));
        written.await.unwrap_or(Err(HistoryError::Stopped))
    }

    /// Take back what was announced: the changes are not made, or come to no revision of their own.
    pub(crate) fn withdraw(&self, entry: &Entry) {
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

    /// The modules of all revisions.
    pub(crate) fn modules(&self) -> impl Iterator<Item = Digest> {
        self.entries
            .iter()
            .flat_map(|entry| &entry.revision().modules)
            .filter_map(|module| module.digest.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    /// A revision of one file that says this, with one plugin.
    pub(super) fn entry(number: u64, text: &str) -> Entry {
        Entry {
            detail: RevisionDetail {
                revision: Revision {
                    number,
                    at: Moment(std::time::SystemTime::UNIX_EPOCH),
                    origin: Origin::Files,
                    by: None,
                    chains: 1,
                    modules: vec![RevisionModule {
                        stage: "Mutating:a/b".to_owned(),
                        candidate: false,
                        source: "file:b.wasm".to_owned(),
                        digest: Digest::of("b").to_string(),
                        plugin: "b".to_owned(),
                        version: "1.0.0".to_owned(),
                    }],
                },
                files: vec![RevisionFile {
                    path: "chains/a.yaml".into(),
                    text: text.to_owned(),
                }],
            },
            instead_of: None,
            pending: Vec::new(),
        }
    }

    #[tokio::test]
    async fn the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(folder.path(), 2).unwrap();
        assert_eq!(history.next_number(), 1);
        for number in 1..=4 {
            history.push(entry(number, "text").into()).await.unwrap();
        }
        assert_eq!(
            find(&history.entries(), 2).unwrap_err().to_string(),
            "there is no revision 2: 3 to 4 are kept"
        );
        drop(history);
        let history = History::open(folder.path(), 2).unwrap();
        let numbers: Vec<_> = history
            .entries()
            .iter()
            .map(|entry| entry.revision().number)
            .collect();
        assert_eq!(
            (numbers.as_slice(), history.next_number()),
            ([3, 4].as_slice(), 5)
        );
    }

    #[tokio::test]
    async fn one_that_cannot_be_written_is_known_until_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut history = History::open(&path, 2).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        assert!(history.push(entry(1, "text").into()).await.is_err());
        assert!(history.problem().is_some());
        assert_eq!(history.last(), None);
        history.note(entry(1, "text").into());
        assert!(history.write().await.is_err());
        assert_eq!(history.last().unwrap().revision().number, 1);
        std::fs::create_dir(&path).unwrap();
        history.push(entry(2, "text").into()).await.unwrap();
        assert_eq!(history.problem(), None);
    }

    #[test]
    fn alike_is_what_is_made_of_the_same() {
        let same = [entry(1, "a"), entry(2, "a")];
        assert!(same[0].is_like(&same[1]));
        assert!(!entry(1, "a").is_like(&entry(1, "b")));
        let mut other = entry(1, "a");
        other.detail.revision.modules[0].digest = "sha256:00".to_owned();
        assert!(!entry(1, "a").is_like(&other));
    }
}
