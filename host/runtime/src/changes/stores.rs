//! Reads the stores of definitions, and keeps what each of them last contained.

use std::{path::Path, sync::Arc};

use admittance_definitions::{
    DefinitionFile, DefinitionId, DefinitionSet, DefinitionStore, Destination, DocumentForms, FileChange, Mistakes,
    StoreError, StoreKind,
};
use futures_util::future::{join_all, select_all};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{ChangeError, Error, StoreStatus, history::HistoryEntry};

type StoreContent = Arc<[DefinitionFile]>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoreSnapshot {
    /// The definitions that the store contained when it was last read successfully; `None` before the first success.
    content: Option<StoreContent>,
    is_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Stores {
    /// The stores in their order: a new definition is written to the first one that accepts it.
    stores: Vec<Arc<dyn DefinitionStore>>,
    last_snapshots: Mutex<Vec<StoreSnapshot>>,
    /// Notified when [`peek`](Self::peek) finds that the content of a store is not the same as in `last_snapshots`.
    changed_on_peek: Notify,
    forms: DocumentForms,
}

#[derive(Debug)]
pub(crate) struct StoreContents {
    stores: Vec<Result<StoreContent, StoreError>>,
    /// A cache of parsed definitions, so that each text is parsed only once.
    parse_cache: DefinitionSet,
}

impl Stores {
    pub(crate) fn new(stores: Vec<Arc<dyn DefinitionStore>>, forms: DocumentForms) -> Self {
        Self {
            last_snapshots: Mutex::new(vec![StoreSnapshot::default(); stores.len()]),
            stores,
            changed_on_peek: Notify::new(),
            forms,
        }
    }

    pub(crate) fn are_files(&self) -> bool {
        self.stores.iter().all(|store| store.kind() == StoreKind::Files)
    }

    fn owner(&self, path: &Path) -> Option<&dyn DefinitionStore> {
        let mut stores = self.stores.iter().map(AsRef::as_ref);
        stores.find(|store| store.owns(path))
    }

    /// Tells each store which versions of its own definitions were live when the host last stopped.
    pub(crate) async fn record_last_live(&self, files: &[DefinitionFile]) {
        for store in &self.stores {
            let store_files = files.iter().filter(|file| store.owns(&file.path));
            store.set_last_live(store_files.cloned().collect()).await;
        }
    }

    pub(crate) async fn read(&self) -> StoreContents {
        let reads = join_all(self.stores.iter().map(|store| store.read())).await;
        StoreContents {
            stores: reads.into_iter().map(|content| content.map(sort_by_path)).collect(),
            parse_cache: self.new_set(Vec::new()),
        }
    }

    /// Reads all stores, but does not record the content as known. A store reports each change only until the change is
    /// read, so a change that is read here would be lost. To prevent this, [`wait_for_change`](Self::wait_for_change)
    /// completes if the content differs from the known content.
    pub(crate) async fn peek(self: &Arc<Self>) -> Result<StoreContents, Error> {
        let stores = self.clone();
        let reading = tokio::spawn(async move {
            let contents = stores.read().await;
            let snapshots = stores.snapshots();
            if contents.snapshots_after(&snapshots) != snapshots {
                stores.changed_on_peek.notify_one();
            }
            contents
        });
        reading.await.map_err(Error::Interrupted)
    }

    pub(crate) fn set_of(&self, revision: &HistoryEntry) -> DefinitionSet {
        let files = revision.detail.files.iter().map(|file| {
            let kind = self.owner(&file.path).map_or(StoreKind::Files, DefinitionStore::kind);
            DefinitionFile::new(kind, &file.path, &file.text)
        });
        self.new_set(files.collect())
    }

    pub(crate) fn new_set(&self, files: Vec<DefinitionFile>) -> DefinitionSet {
        DefinitionSet::of_forms(files, &self.forms)
    }

    pub(crate) fn destination(&self, id: &DefinitionId) -> Option<Destination> {
        self.stores.iter().find_map(|store| {
            Some(Destination {
                kind: store.kind(),
                path: store.path_for(id)?,
            })
        })
    }

    pub(crate) fn store_of_changes(&self, changes: &[FileChange]) -> Result<Option<&dyn DefinitionStore>, ChangeError> {
        let mut owning_store: Option<&dyn DefinitionStore> = None;
        for change in changes {
            let store = self.owner(&change.path).ok_or_else(|| StoreError::Refused {
                store: change.path.display().to_string(),
                reason: "it is not in any of the configured stores".to_owned(),
            })?;
            match owning_store {
                Some(before) if before.location() != store.location() => {
                    return Err(ChangeError::SeveralStores {
                        one: before.location(),
                        other: store.location(),
                    });
                }
                _ => owning_store = Some(store),
            }
        }
        Ok(owning_store)
    }

    pub(crate) async fn wait_for_change(&self) {
        let mut changes: Vec<_> = self.stores.iter().map(|store| store.wait_for_change()).collect();
        changes.push(Box::pin(self.changed_on_peek.notified()));
        select_all(changes).await;
    }

    pub(crate) fn set_known(&self, contents: &StoreContents) {
        let mut snapshots = self.last_snapshots.lock();
        *snapshots = contents.snapshots_after(&snapshots);
    }

    fn snapshots(&self) -> Vec<StoreSnapshot> {
        self.last_snapshots.lock().clone()
    }

    pub(crate) fn known_content(&self) -> Vec<Option<StoreContent>> {
        self.snapshots().into_iter().map(|snapshot| snapshot.content).collect()
    }

    pub(crate) fn status(&self) -> Vec<StoreStatus> {
        let stores = self.stores.iter().zip(self.snapshots());
        let status = stores.map(|(store, snapshot)| StoreStatus {
            location: store.location(),
            kind: store.kind(),
            count: snapshot.content.map(|content| content.len()),
            lost: snapshot.is_lost,
        });
        status.collect()
    }

    pub(crate) fn known_set(&self) -> DefinitionSet {
        self.new_set(files_of(self.snapshots()))
    }

    /// Returns the definitions that were read. For a store that could not be read, returns its last known definitions.
    pub(crate) fn set_after_reading(&self, contents: &StoreContents) -> DefinitionSet {
        contents
            .parse_cache
            .with_contents(files_of(contents.snapshots_after(&self.snapshots())))
    }
}

fn files_of(snapshots: Vec<StoreSnapshot>) -> Vec<DefinitionFile> {
    let contents = snapshots.iter().filter_map(|snapshot| snapshot.content.as_ref());
    contents.flat_map(|content| content.iter().cloned()).collect()
}

fn sort_by_path(mut files: Vec<DefinitionFile>) -> StoreContent {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.into()
}

impl StoreContents {
    fn snapshots_after(&self, snapshots: &[StoreSnapshot]) -> Vec<StoreSnapshot> {
        let next_snapshot = |(reading, snapshot): (&Result<StoreContent, StoreError>, &StoreSnapshot)| StoreSnapshot {
            content: reading.as_ref().ok().or(snapshot.content.as_ref()).cloned(),
            is_lost: reading.is_err(),
        };
        self.stores.iter().zip(snapshots).map(next_snapshot).collect()
    }

    pub(crate) fn from_set(stores: &Stores, set: &DefinitionSet) -> Self {
        let of_store = |store: &Arc<dyn DefinitionStore>| {
            let files = set.all_files().filter(|file| store.owns(&file.path));
            Ok(sort_by_path(files.cloned().collect()))
        };
        Self {
            stores: stores.stores.iter().map(of_store).collect(),
            parse_cache: set.clone(),
        }
    }

    pub(crate) fn has_unreachable_store(&self) -> bool {
        let mut errors = self.stores.iter().filter_map(|reading| reading.as_ref().err());
        errors.any(|error| matches!(error, StoreError::Unreachable { .. }))
    }

    pub(crate) fn into_set(self) -> Result<DefinitionSet, Error> {
        let (mut mistakes, mut store_errors, mut files) = (Mistakes::new(), Vec::new(), Vec::new());
        for reading in self.stores {
            match reading {
                Ok(content) => files.extend(content.iter().cloned()),
                Err(StoreError::Mistakes(store_mistakes)) => mistakes.extend(store_mistakes),
                Err(error) => store_errors.push(error),
            }
        }
        if store_errors.is_empty() {
            return Ok(mistakes.into_result(self.parse_cache.with_contents(files))?);
        }
        if !mistakes.is_empty() {
            store_errors.push(StoreError::Mistakes(mistakes));
        }
        Err(Error::Stores(store_errors))
    }
}
