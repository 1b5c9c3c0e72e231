//! Obtains modules from servers and registries.

mod artifact;
mod authorization;
mod client;
mod credentials;
mod download;
mod failure;
mod https;
mod images;
mod index;
mod partial_download;
mod push;
mod redirect;
mod registry;
mod retry;
mod signatures;

use std::hash::Hash;

use admittance_admission::Moment;
use bytes::Bytes;

pub use images::RegistryImages;
pub use push::PushedArtifact;

use client::FetchClient;
use registry::{RegistryAccess, Repository};

use crate::{
    Catalog, Digest, Error, Freshness, Module, ModuleReference, NetworkConfig, OciReference, OnProgress, Resolution,
    catalog::CatalogInner, module::FetchedModule, resolver::OnceMap, signature::Material,
};

#[derive(Debug)]
pub(crate) struct Remote {
    network: FetchClient,
    fetches: OnceMap<(ModuleReference, Option<Digest>, Freshness), Module>,
}

impl Remote {
    pub(crate) fn new(config: NetworkConfig) -> Result<Self, Error> {
        Ok(Self {
            network: FetchClient::new(config)?,
            fetches: OnceMap::default(),
        })
    }

    pub(crate) async fn signatures(
        &self,
        reference: &ModuleReference,
        fetched_module: &FetchedModule,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        match reference {
            ModuleReference::File(_) => Ok(Material::default()),
            ModuleReference::Https(url) => Box::pin(self.network.fetch_signatures(reference, url, progress)).await,
            ModuleReference::Oci(artifact) => {
                let repository = self.repository(artifact, RegistryAccess::Pull, progress);
                Box::pin(repository.fetch_signatures(reference, fetched_module)).await
            }
        }
    }

    fn repository<'a>(
        &'a self,
        artifact: &'a OciReference,
        access: RegistryAccess,
        progress: OnProgress<'a>,
    ) -> Repository<'a> {
        Repository {
            network: &self.network,
            artifact,
            access,
            progress,
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> OnceMap<K, V> {
    /// If a call with this key is running, waits for its result; otherwise runs `find`.
    async fn run_or_join(&self, key: K, find: impl Future<Output = Result<V, Error>>) -> Result<V, Error> {
        let find = async {
            let outcome = find.await;
            self.0.lock().remove(&key);
            outcome
        };
        self.get_or_run(key.clone(), find).await
    }
}

impl Catalog {
    pub(crate) async fn obtain_remote(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let inner = &*self.inner;
        let fetch = Fetch {
            inner,
            reference,
            pinned,
            progress,
        };
        if freshness == Freshness::RecordedOnly {
            return fetch.stored_module().await;
        }
        let rule = inner.requirement(reference).await?;
        let obtained = Box::pin(async {
            let fetched_module = fetch.find_module(freshness).await?;
            inner.accept_if_signed(reference, rule, fetched_module, progress).await
        });
        let key = (reference.clone(), pinned, freshness);
        inner.remote.fetches.run_or_join(key, obtained).await
    }
}

#[derive(Clone, Copy)]
struct Fetch<'a> {
    inner: &'a CatalogInner,
    reference: &'a ModuleReference,
    pinned: Option<Digest>,
    progress: OnProgress<'a>,
}

/// The stored module of a reference, and the record of its resolution.
type RecordedModule = Option<(FetchedModule, Resolution)>;

impl Fetch<'_> {
    async fn find_module(&self, freshness: Freshness) -> Result<FetchedModule, Error> {
        let recorded_module = self.recorded_module().await?;
        // A reference with a digest always means the same module, so it is not resolved again.
        let is_fixed = self.pinned.is_some()
            || matches!(self.reference, ModuleReference::Oci(artifact) if artifact.digest().is_some());
        if let Some((fetched_module, _)) = &recorded_module
            && (is_fixed || freshness == Freshness::PreferRecorded)
        {
            return Ok(fetched_module.clone());
        }
        // The futures of the first two branches are large. In boxes, they do not enlarge futures that await this one.
        match self.reference {
            ModuleReference::Https(url) => Box::pin(self.fetch_https(url, recorded_module)).await,
            ModuleReference::Oci(artifact) => Box::pin(self.fetch_oci(artifact, recorded_module)).await,
            ModuleReference::File(_) => Err(self.not_fetched_error()),
        }
    }

    /// Returns the stored module of the reference if the signatures that were stored with it satisfy the policy.
    async fn stored_module(&self) -> Result<Module, Error> {
        let Some((fetched_module, _)) = self.recorded_module().await? else {
            return Err(self.not_fetched_error());
        };
        match self
            .inner
            .accept_if_signed_offline(self.reference, fetched_module)
            .await
        {
            // The signatures that were stored with the module do not satisfy the policy. The module may have been
            // signed after it was fetched, so the error says that fetching it may help.
            Err(Error::Signature(_)) => Err(self.not_fetched_error()),
            checked => checked,
        }
    }

    async fn recorded_module(&self) -> Result<RecordedModule, Error> {
        let (reference, pinned) = (self.reference.clone(), self.pinned);
        let lookup = self.inner.run_in_store(move |store| {
            let recorded_resolution = match pinned {
                Some(digest) => store.read_resolution_of_module(&reference, digest),
                None => store.read_resolution(&reference),
            };
            let resolution = recorded_resolution?;
            let fetched_module = FetchedModule {
                bytes: store.read_module(resolution.module)?,
                digest: resolution.module,
                manifest: resolution.manifest.as_ref().map(|(_, bytes)| bytes.clone()),
            };
            Some((fetched_module, resolution))
        });
        Ok(lookup.await?.flatten())
    }

    async fn stored_bytes(&self, digest: Digest) -> Result<Option<Bytes>, Error> {
        let lookup = self.inner.run_in_store(move |store| store.read_module(digest));
        Ok(lookup.await?.flatten())
    }

    async fn record(&self, fetched_module: &FetchedModule, validator: Option<String>) -> Result<(), Error> {
        let manifest = fetched_module.manifest.as_ref();
        self.keep_resolution(Resolution {
            module: fetched_module.digest,
            manifest: manifest.map(|bytes| (Digest::of_bytes(bytes), bytes.clone())),
            validator,
            resolved: Moment::now().0,
        })
        .await
    }

    /// Records that the resolution was confirmed now. An error is only logged.
    async fn record_again(&self, resolution: Resolution) {
        let resolution = Resolution {
            resolved: Moment::now().0,
            ..resolution
        };
        if let Err(error) = self.keep_resolution(resolution).await {
            let reference = self.reference;
            tracing::warn!(%reference, %error, "the time at which a module was last resolved could not be recorded");
        }
    }

    async fn keep_resolution(&self, resolution: Resolution) -> Result<(), Error> {
        let reference = self.reference.clone();
        self.inner
            .run_in_store(move |store| store.keep_resolution(&reference, &resolution))
            .await?
            .unwrap_or(Ok(()))
    }

    fn not_fetched_error(&self) -> Error {
        Error::NotFetched {
            reference: Box::new(self.reference.clone()),
        }
    }
}
