use std::{
    collections::HashMap,
    hash::Hash,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::{Catalog, Found, Freshness, on_disk};
use crate::{
    Digest, Error, Module, ModuleReference, OnProgress,
    module::{check_pin, read_file},
    signature::Source,
};

/// Resolves each reference once, and reads each file once, however many stages name it, so that all stages of
/// a table get the same version. Lives while a table is built.
#[derive(Debug)]
pub struct Resolver {
    catalog: Catalog,
    modules: Once<(ModuleReference, Option<Digest>), Module>,
    /// By the path after symbolic links: two references may name one file.
    files: Once<PathBuf, (Bytes, Digest)>,
}

/// The result for each key, including errors.
#[derive(Debug)]
struct Once<K, V>(Mutex<HashMap<K, Arc<OnceCell<Result<V, Error>>>>>);

impl<K, V> Default for Once<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Once<K, V> {
    async fn get(&self, key: K, find: impl Future<Output = Result<V, Error>>) -> Result<V, Error> {
        let cell = {
            let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cells.entry(key).or_default().clone()
        };
        cell.get_or_init(|| find).await.clone()
    }
}

impl Resolver {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            modules: Once::default(),
            files: Once::default(),
        }
    }

    /// The underlying catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The module that a reference names, as by [`Catalog::obtain`]. The first result, including an error, is
    /// returned by every later call.
    ///
    /// # Errors
    ///
    /// As [`Catalog::obtain`].
    pub async fn obtain(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let find = async {
            match reference {
                ModuleReference::File(path) => self.file(reference, path, pinned, progress).await,
                ModuleReference::Https(_) | ModuleReference::Oci(_) => {
                    self.catalog
                        .obtain_remote(reference, pinned, freshness, progress)
                        .await
                }
            }
        };
        self.modules.get((reference.clone(), pinned), find).await
    }

    async fn file(
        &self,
        reference: &ModuleReference,
        path: &Path,
        pinned: Option<Digest>,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let inner = &*self.catalog.inner;
        let source = inner.source(reference).await?;
        let requirement = inner.requirement(reference, source.as_ref())?;
        let path = source.as_ref().and_then(Source::path).unwrap_or(path).to_owned();
        let target = {
            let path = path.clone();
            on_disk(move || path.canonicalize().unwrap_or(path)).await?
        };
        let read = async {
            let (path, limit) = (path.clone(), inner.size_limit);
            on_disk(move || {
                let bytes = read_file(&path, limit)?;
                let digest = Digest::of(&bytes);
                Ok((bytes, digest))
            })
            .await?
        };
        let (bytes, digest) = self.files.get(target, read).await?;
        check_pin(&path.display().to_string(), pinned, digest)?;
        let found = Found {
            bytes,
            digest,
            manifest: None,
        };
        inner
            .checked(reference, source.as_ref(), requirement, found, progress)
            .await
    }
}
