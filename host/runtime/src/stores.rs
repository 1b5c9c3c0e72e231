//! The stores of definitions, and their last known content.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use admittance_definitions::{
    DefinitionFile, DefinitionId, DefinitionSet, DefinitionStore, Destination, FileChange, FileStore,
    Mistakes, StoreError,
};
use admittance_watch::Fingerprint;
use futures_util::future::{join_all, select_all};
use tokio::sync::Notify;

use crate::{ChangeError, Error};

/// A store of definitions.
#[derive(Clone, Debug)]
pub(crate) enum StoreLocation {
    /// A file or a directory.
    Path(PathBuf),
    Store(Arc<dyn DefinitionStore>),
}

/// The content of a store, sorted by path.
pub(crate) type Held = Arc<[DefinitionFile]>;

/// All stores of definitions. Lives as long as the host.
#[derive(Debug)]
pub(crate) struct Stores {
    /// In the order of the configuration.
    locations: Vec<StoreLocation>,
    /// Writes files.
    files: FileStore,
    /// The content of each store when a table was last built from it, successfully or not; `None` before that.
    known: Mutex<Vec<Option<Held>>>,
    /// Notified when a read finds changed content.
    news: Notify,
}

/// A snapshot of the stores.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The fingerprint of the files, taken before they were read.
    pub(crate) seen: Fingerprint,
    files: Result<DefinitionSet, Mistakes>,
    stores: Vec<Result<Held, StoreError>>,
}

impl Stores {
    pub(crate) fn new(locations: Vec<StoreLocation>) -> Self {
        let (mut paths, mut known) = (Vec::new(), Vec::new());
        for location in &locations {
            match location {
                StoreLocation::Path(path) => paths.push(path.clone()),
                StoreLocation::Store(_) => known.push(None),
            }
        }
        Self {
            locations,
            files: FileStore::new(paths),
            known: Mutex::new(known),
            news: Notify::new(),
        }
    }

    /// The files and directories.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let path = |location: &StoreLocation| match location {
            StoreLocation::Path(path) => Some(path.clone()),
            StoreLocation::Store(_) => None,
        };
        self.locations.iter().filter_map(path).collect()
    }

    fn stores(&self) -> impl Iterator<Item = &Arc<dyn DefinitionStore>> {
        self.locations.iter().filter_map(|location| match location {
            StoreLocation::Path(_) => None,
            StoreLocation::Store(store) => Some(store),
        })
    }

    /// Whether all that can be changed are files.
    pub(crate) fn are_files(&self) -> bool {
        self.stores().next().is_none()
    }

    /// Whether this is a file of the system.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        !self.stores().any(|store| store.owns(path))
    }

    /// Reads all files and stores.
    pub(crate) async fn read(&self) -> Result<Contents, Error> {
        let paths = self.paths();
        let files = tokio::task::spawn_blocking(move || {
            let seen = Fingerprint::of(paths.iter().cloned());
            (seen, DefinitionSet::read(&paths))
        });
        let stores = join_all(self.stores().map(|store| store.read()));
        let (files, stores) = tokio::join!(files, stores);
        let (seen, files) = files.map_err(Error::Interrupted)?;
        let sorted = |mut held: Vec<DefinitionFile>| {
            held.sort_by(|a, b| a.path.cmp(&b.path));
            Held::from(held)
        };
        Ok(Contents {
            seen,
            files,
            stores: stores.into_iter().map(|read| read.map(sorted)).collect(),
        })
    }

    /// The destination of a new definition: the first store that accepts it.
    pub(crate) fn destination(&self, id: &DefinitionId) -> Option<Destination> {
        self.locations.iter().find_map(|location| match location {
            StoreLocation::Path(path) if path.is_dir() => self.files.place_for(id).map(Destination::File),
            StoreLocation::Path(_) => None,
            StoreLocation::Store(store) => store.place_for(id).map(Destination::Store),
        })
    }

    /// The store of all of these changes; `None` without changes.
    pub(crate) fn of_changes(
        &self,
        changes: &[FileChange],
    ) -> Result<Option<&dyn DefinitionStore>, ChangeError> {
        let mut one: Option<&dyn DefinitionStore> = None;
        for change in changes {
            let store = match self.stores().find(|store| store.owns(&change.path)) {
                Some(store) => store.as_ref(),
                None if self.files.owns(&change.path) => &self.files,
                None => {
                    return Err(ChangeError::Store(StoreError::Refused {
                        store: change.path.display().to_string(),
                        reason: "it is not in any of the configured stores".to_owned(),
                    }));
                }
            };
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

    /// Wait until a store may hold something else than what is known. What files hold is watched elsewhere,
    /// together with the modules that they name.
    pub(crate) async fn changed(&self) {
        let news = self.news.notified();
        let stores = self.stores().map(|store| store.changed());
        let mut changes: Vec<_> = stores.collect();
        changes.push(Box::pin(news));
        select_all(changes).await;
    }

    /// Updates the known content. The content of stores that could not be read is kept.
    pub(crate) fn act_upon(&self, contents: &Contents) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = contents.held(&known);
    }

    /// Have it told by [`changed`](Self::changed) if this is something else than what is known: a store tells
    /// of what was not read yet alone.
    pub(crate) fn tell_of(&self, contents: &Contents) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if contents.held(&known) != *known {
            self.news.notify_one();
        }
    }

    /// The known content of each store.
    pub(crate) fn known(&self) -> Vec<Option<Held>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Contents {
    /// The content of each store; the last known content of those that could not be read.
    fn held(&self, known: &[Option<Held>]) -> Vec<Option<Held>> {
        let held = |(read, known): (&Result<Held, StoreError>, &Option<Held>)| match read {
            Ok(held) => Some(held.clone()),
            Err(_) => known.clone(),
        };
        self.stores.iter().zip(known).map(held).collect()
    }

    /// Whether a store is unreachable.
    pub(crate) fn is_lost(&self) -> bool {
        let is_unreachable =
            |read: &Result<Held, StoreError>| matches!(read, Err(StoreError::Unreachable { .. }));
        self.stores.iter().any(is_unreachable)
    }

    /// All definitions; the last known ones of stores that could not be read.
    pub(crate) fn whole(&self, known: &[Option<Held>]) -> DefinitionSet {
        let files = self.files.clone().unwrap_or_default();
        let held = self.held(known);
        let held = held.iter().flatten().flat_map(|held| held.iter().cloned());
        files.with_stored(held.collect())
    }

    /// All definitions.
    ///
    /// # Errors
    ///
    /// All mistakes in files, and all stores that cannot be read.
    pub(crate) fn set(self) -> Result<DefinitionSet, Error> {
        let (mut mistakes, mut lost, mut stored) = (Mistakes::new(), Vec::new(), Vec::new());
        let files = self.files.unwrap_or_else(|wrong| {
            mistakes.extend(wrong);
            DefinitionSet::default()
        });
        for read in self.stores {
            match read {
                Ok(held) => stored.extend(held.iter().cloned()),
                Err(StoreError::Mistakes(wrong)) => mistakes.extend(wrong),
                Err(error) => lost.push(error),
            }
        }
        if lost.is_empty() {
            return Ok(mistakes.into_result(files.with_stored(stored))?);
        }
        if !mistakes.is_empty() {
            lost.push(StoreError::Mistakes(mistakes));
        }
        Err(Error::Stores(lost))
    }
}
