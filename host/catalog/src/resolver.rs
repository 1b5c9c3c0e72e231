use std::{collections::HashMap, hash::Hash, path::PathBuf, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{Catalog, Digest, Error, Freshness, Module, ModuleReference, OnProgress};

/// Resolves each reference and reads each file once, so that stages that go live together get the same modules.
#[derive(Debug)]
pub struct ReferenceResolver {
    catalog: Catalog,
    modules: OnceMap<(ModuleReference, Option<Digest>), Module>,
    files: FileContents,
}

/// The files that were read. The key is the path without symbolic links, because two references may name one file.
pub(crate) type FileContents = OnceMap<PathBuf, (Bytes, Digest)>;

impl ReferenceResolver {
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            modules: OnceMap::default(),
            files: OnceMap::default(),
        }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Obtains a module like [`Catalog::obtain`]. Later calls for the same reference return the result of the first
    /// call, even if it is an error.
    ///
    /// # Errors
    ///
    /// Fails as [`Catalog::obtain`] does.
    pub async fn obtain(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let find = async {
            match reference {
                ModuleReference::File(path) => self.catalog.obtain_file(reference, path, pinned, &self.files).await,
                ModuleReference::Https(_) | ModuleReference::Oci(_) => {
                    self.catalog.obtain_remote(reference, pinned, freshness, progress).await
                }
            }
        };
        self.modules.get_or_run((reference.clone(), pinned), find).await
    }
}

/// Runs one task per key, and keeps its result. All callers with the same key get this result, even if it is an error.
#[derive(Debug)]
pub(crate) struct OnceMap<K, V>(pub(crate) Mutex<HashMap<K, ResultCell<V>>>);

type ResultCell<V> = Arc<OnceCell<Result<V, Error>>>;

impl<K, V> Default for OnceMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> OnceMap<K, V> {
    pub(crate) async fn get_or_run(&self, key: K, find: impl Future<Output = Result<V, Error>>) -> Result<V, Error> {
        let cell = self.0.lock().entry(key).or_default().clone();
        cell.get_or_init(|| find).await.clone()
    }
}
