//! The stores of definitions, and their last known content.

use std::{path::Path, sync::Arc};

use admittance_definitions::{
    DefinitionFile, DefinitionId, DefinitionSet, DefinitionStore, Destination, DocumentForms, FileChange,
    Mistakes, StoreError, StoreKind,
};
use futures_util::future::{join_all, select_all};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{ChangeError, Error, StoreStatus, history::HistoryEntry};

/// The content of a store, sorted by path.
type Held = Arc<[DefinitionFile]>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoreSnapshot {
    /// Its content when it was last read successfully; `None` before that.
    held: Option<Held>,
    /// Whether it could not be read since.
    is_lost: bool,
}

/// All stores of definitions. Lives as long as the host.
#[derive(Debug)]
pub(crate) struct Stores {
    /// The first store that accepts a new definition gets it.
    stores: Vec<Arc<dyn DefinitionStore>>,
    /// The snapshot of each store from which a table was last built, successfully or not.
    known: Mutex<Vec<StoreSnapshot>>,
    /// Notified when a read finds changed content.
    news: Notify,
    /// The systems whose documents are read.
    forms: DocumentForms,
}

#[derive(Debug)]
pub(crate) struct Contents {
    stores: Vec<Result<Held, StoreError>>,
    /// The set whose texts were read already.
    read: DefinitionSet,
}

impl Stores {
    pub(crate) fn new(stores: Vec<Arc<dyn DefinitionStore>>, forms: DocumentForms) -> Self {
        Self {
            known: Mutex::new(vec![StoreSnapshot::default(); stores.len()]),
            stores,
            news: Notify::new(),
            forms,
        }
    }

    /// Whether all that can be changed are files.
    pub(crate) fn are_files(&self) -> bool {
        self.stores.iter().all(|store| store.kind() == StoreKind::Files)
    }

    fn owner(&self, path: &Path) -> Option<&dyn DefinitionStore> {
        let mut stores = self.stores.iter().map(AsRef::as_ref);
        stores.find(|store| store.owns(path))
    }

    /// These definitions were live when the host ended.
    pub(crate) async fn were_live(&self, files: &[DefinitionFile]) {
        for store in &self.stores {
            let own = files.iter().filter(|file| store.owns(&file.path));
            store.was_live(own.cloned().collect()).await;
        }
    }

    pub(crate) async fn read(&self) -> Contents {
        let reads = join_all(self.stores.iter().map(|store| store.read())).await;
        Contents {
            stores: reads.into_iter().map(|read| read.map(sorted)).collect(),
            read: self.set(Vec::new()),
        }
    }

    /// Reads all stores without acting on the result. If it differs from what is known, [`changed`](Self::changed)
    /// reports it, even if the caller is dropped meanwhile: a store does not report again what was read already.
    pub(crate) async fn peek(self: &Arc<Self>) -> Result<Contents, Error> {
        let stores = self.clone();
        let reading = tokio::spawn(async move {
            let contents = stores.read().await;
            let known = stores.known();
            if contents.after(&known) != known {
                stores.news.notify_one();
            }
            contents
        });
        reading.await.map_err(Error::Interrupted)
    }

    pub(crate) fn set_of(&self, revision: &HistoryEntry) -> DefinitionSet {
        let files = revision.detail.files.iter().map(|file| {
            // The configuration may have changed since.
            let kind = self
                .owner(&file.path)
                .map_or(StoreKind::Files, DefinitionStore::kind);
            DefinitionFile::new(kind, &file.path, &file.text)
        });
        self.set(files.collect())
    }

    /// These definitions, of which nothing was read.
    pub(crate) fn set(&self, files: Vec<DefinitionFile>) -> DefinitionSet {
        DefinitionSet::of_forms(files, &self.forms)
    }

    /// The destination of a new definition: the first store that accepts it.
    pub(crate) fn destination(&self, id: &DefinitionId) -> Option<Destination> {
        self.stores.iter().find_map(|store| {
            Some(Destination {
                kind: store.kind(),
                path: store.place_for(id)?,
            })
        })
    }

    /// The store of all of these changes; `None` without changes.
    pub(crate) fn of_changes(
        &self,
        changes: &[FileChange],
    ) -> Result<Option<&dyn DefinitionStore>, ChangeError> {
        let mut one: Option<&dyn DefinitionStore> = None;
        for change in changes {
            let store = self.owner(&change.path).ok_or_else(|| StoreError::Refused {
                store: change.path.display().to_string(),
                reason: "it is not in any of the configured stores".to_owned(),
            })?;
            match one {
                Some(before) if before.location() != store.location() => {
                    return Err(ChangeError::SeveralStores {
                        one: before.location(),
                        other: store.location(),
                    });
                }
                _ => one = Some(store),
            }
        }
        Ok(one)
    }

    /// Waits until a store may hold something else than what is known.
    pub(crate) async fn changed(&self) {
        let mut changes: Vec<_> = self.stores.iter().map(|store| store.changed()).collect();
        changes.push(Box::pin(self.news.notified()));
        select_all(changes).await;
    }

    /// Makes this the known content.
    pub(crate) fn act_upon(&self, contents: &Contents) {
        let mut known = self.known.lock();
        *known = contents.after(&known);
    }

    fn known(&self) -> Vec<StoreSnapshot> {
        self.known.lock().clone()
    }

    pub(crate) fn known_content(&self) -> Vec<Option<Held>> {
        self.known().into_iter().map(|known| known.held).collect()
    }

    pub(crate) fn status(&self) -> Vec<StoreStatus> {
        let stores = self.stores.iter().zip(self.known());
        let status = stores.map(|(store, known)| StoreStatus {
            location: store.location(),
            kind: store.kind(),
            count: known.held.map(|held| held.len()),
            lost: known.is_lost,
        });
        status.collect()
    }

    pub(crate) fn known_set(&self) -> DefinitionSet {
        self.set(files_of(self.known()))
    }

    /// All definitions as far as they will be known after this was read.
    pub(crate) fn set_after(&self, contents: &Contents) -> DefinitionSet {
        contents
            .read
            .with_contents(files_of(contents.after(&self.known())))
    }
}

fn files_of(known: Vec<StoreSnapshot>) -> Vec<DefinitionFile> {
    let held: Vec<Held> = known.into_iter().filter_map(|known| known.held).collect();
    held.iter().flat_map(|held| held.iter().cloned()).collect()
}

fn sorted(mut files: Vec<DefinitionFile>) -> Held {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.into()
}

impl Contents {
    fn after(&self, known: &[StoreSnapshot]) -> Vec<StoreSnapshot> {
        let after = |(read, known): (&Result<Held, StoreError>, &StoreSnapshot)| StoreSnapshot {
            held: read.as_ref().ok().or(known.held.as_ref()).cloned(),
            is_lost: read.is_err(),
        };
        self.stores.iter().zip(known).map(after).collect()
    }

    /// The content of the stores once these definitions are written.
    pub(crate) fn of(stores: &Stores, set: &DefinitionSet) -> Self {
        let of_store = |store: &Arc<dyn DefinitionStore>| {
            let files = set.all().filter(|file| store.owns(&file.path));
            Ok(sorted(files.cloned().collect()))
        };
        Self {
            stores: stores.stores.iter().map(of_store).collect(),
            read: set.clone(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        let is_unreachable =
            |read: &Result<Held, StoreError>| matches!(read, Err(StoreError::Unreachable { .. }));
        self.stores.iter().any(is_unreachable)
    }

    /// All definitions.
    ///
    /// # Errors
    ///
    /// All mistakes in files, and all stores that cannot be read.
    pub(crate) fn set(self) -> Result<DefinitionSet, Error> {
        let (mut mistakes, mut lost, mut files) = (Mistakes::new(), Vec::new(), Vec::new());
        for read in self.stores {
            match read {
                Ok(held) => files.extend(held.iter().cloned()),
                Err(StoreError::Mistakes(wrong)) => mistakes.extend(wrong),
                Err(error) => lost.push(error),
            }
        }
        if lost.is_empty() {
            return Ok(mistakes.into_result(self.read.with_contents(files))?);
        }
        if !mistakes.is_empty() {
            lost.push(StoreError::Mistakes(mistakes));
        }
        Err(Error::Stores(lost))
    }
}
