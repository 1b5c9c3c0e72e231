use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Digest, Error, MODULE_SIZE_LIMIT, Module, ModuleReference, NetworkConfig, OnProgress, Store,
    fetch::Network,
    signature::{Requirement, SignatureDescription, SignaturePolicy, Source, describe},
};

mod flights;
mod https;
mod oci;
mod push;
mod registry_signatures;
mod remote;
mod resolver;
mod signing;

pub use push::Pushed;
pub use resolver::Resolver;

use flights::Flights;

/// Configuration of a [`Catalog`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CatalogConfig {
    /// Where modules are kept; without one, every start fetches them again.
    pub store: Option<Store>,
    /// How servers and registries are reached.
    pub network: NetworkConfig,
    /// Which modules must be signed, and by whom.
    pub signatures: SignaturePolicy,
    /// The largest module that is taken, in bytes: [`MODULE_SIZE_LIMIT`].
    pub size_limit: u64,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            store: None,
            network: NetworkConfig::default(),
            signatures: SignaturePolicy::default(),
            size_limit: MODULE_SIZE_LIMIT,
        }
    }
}

/// Whether an earlier resolution of a reference may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// It may, as long as the module is in the store.
    Recorded,
    /// It may, and nothing is fetched: a module that is not in the store is [`Error::NotFetched`].
    Stored,
    /// The server is asked whether the reference now means another module. A digest cannot change its
    /// meaning, so it causes no request.
    Again,
}

/// Obtains modules by reference from files, servers and registries. Lives as long as the host.
#[derive(Clone, Debug)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Option<Store>,
    network: Network,
    signatures: SignaturePolicy,
    size_limit: u64,
    flights: Flights,
}

/// Bytes whose digest was checked, but not their signature.
#[derive(Clone, Debug)]
struct Found {
    bytes: Bytes,
    digest: Digest,
    /// The manifest that lists it, for one of a registry.
    manifest: Option<Bytes>,
}

impl Catalog {
    /// Make one.
    ///
    /// # Errors
    ///
    /// When the file of CAs or the proxy's address cannot be used.
    pub fn new(config: CatalogConfig) -> Result<Self, Error> {
        Ok(Self {
            inner: Arc::new(Inner {
                store: config.store,
                network: Network::new(config.network)?,
                signatures: config.signatures,
                size_limit: config.size_limit,
                flights: Flights::default(),
            }),
        })
    }

    /// Where modules are kept.
    pub fn store(&self) -> Option<&Store> {
        self.inner.store.as_ref()
    }

    /// Obtains the module that a reference names, with the `pinned` digest and the required signature.
    ///
    /// A file is read each time. A URL or a tag is resolved once and recorded in the store; `freshness` says
    /// whether to resolve it again. Concurrent calls for the same module share one fetch, and its error;
    /// progress is reported to the first of them.
    ///
    /// # Errors
    ///
    /// When it cannot be fetched or read, is larger than the limit, has another digest, or is not signed as
    /// required.
    pub async fn obtain(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        self.resolver()
            .obtain(reference, pinned, freshness, progress)
            .await
    }

    /// Resolves the references of one table, each once.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(self.clone())
    }

    async fn obtain_remote(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let inner = &*self.inner;
        if freshness == Freshness::Stored {
            return inner.stored(reference, pinned).await;
        }
        let source = inner.source(reference).await?;
        let requirement = inner.requirement(reference, source.as_ref())?;
        let key = (reference.clone(), pinned, freshness);
        let fetch = async {
            let found = inner.remote(reference, pinned, freshness, progress).await?;
            inner
                .checked(reference, source.as_ref(), requirement, found, progress)
                .await
        };
        inner.flights.share(key, fetch).await
    }

    /// Returns a module that was obtained earlier, even if the reference now means another. It is read from
    /// the store, and its signature is checked again with the kept signatures; nothing is fetched.
    ///
    /// # Errors
    ///
    /// When it is no longer in the store, or is not signed as currently required.
    pub async fn recall(&self, reference: &ModuleReference, digest: Digest) -> Result<Module, Error> {
        let inner = &*self.inner;
        let (wanted, store) = (reference.clone(), inner.store.clone());
        let found = on_disk(move || {
            let store = store?;
            Some(Found {
                bytes: store.module(digest)?,
                digest,
                manifest: store
                    .resolution_to(&wanted, digest)
                    .and_then(|resolution| resolution.manifest)
                    .map(|(_, bytes)| bytes),
            })
        })
        .await?;
        let found = found.ok_or_else(|| Error::NotKept {
            reference: Box::new(reference.clone()),
            digest,
        })?;
        inner.checked_offline(reference, found).await
    }
}

impl Catalog {
    /// Finds the current signatures of an obtained module, whatever is required of it. They are not checked.
    ///
    /// # Errors
    ///
    /// When they cannot be fetched or read.
    pub async fn signatures(
        &self,
        module: &Module,
        progress: OnProgress<'_>,
    ) -> Result<Vec<SignatureDescription>, Error> {
        if let Some(material) = &module.material {
            return Ok(describe(material));
        }
        let reference = &module.reference;
        let found = Found {
            bytes: module.bytes.clone(),
            digest: module.digest,
            manifest: module.manifest.clone(),
        };
        let material = self.inner.gather(reference, None, &found, progress).await?;
        Ok(describe(&material))
    }
}

impl Inner {
    /// The source that signature rules are matched against; `None` when there are no rules.
    async fn source(&self, reference: &ModuleReference) -> Result<Option<Source>, Error> {
        if self.signatures.is_empty() {
            return Ok(None);
        }
        let reference = reference.clone();
        // Symbolic links are followed.
        let source = on_disk(move || Source::of(&reference)).await??;
        Ok(Some(source))
    }

    fn requirement(
        &self,
        reference: &ModuleReference,
        source: Option<&Source>,
    ) -> Result<Option<&Requirement>, Error> {
        match source {
            Some(source) => Ok(self.signatures.requirement(reference, source)?),
            None => Ok(None),
        }
    }
}

/// Runs blocking disk work on a blocking thread.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::Stopped)
}
