use std::time::SystemTime;

use bytes::Bytes;

use super::{Found, Freshness, Inner, on_disk};
use crate::{Digest, Error, Module, ModuleReference, OnProgress, Resolution, Store, fetch::Landing};

/// The stored module of a reference, and the recorded resolution.
pub(super) type Recorded = Option<(Found, Resolution)>;

impl Inner {
    /// Obtains a module from a URL or a registry.
    pub(super) async fn remote(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Found, Error> {
        let recorded = self.recorded(reference, pinned).await?;
        // A digest always names the same module.
        let is_fixed = pinned.is_some()
            || matches!(reference, ModuleReference::Oci(reference) if reference.digest().is_some());
        if let Some((found, _)) = &recorded
            && (is_fixed || freshness == Freshness::Recorded)
        {
            return Ok(found.clone());
        }
        match reference {
            ModuleReference::Https(url) => self.https(reference, url, pinned, recorded, progress).await,
            ModuleReference::Oci(artifact) => self.oci(reference, artifact, pinned, recorded, progress).await,
            ModuleReference::File(_) => Err(not_fetched(reference)),
        }
    }

    /// The module in the store, with the signatures that were found when it was fetched.
    pub(super) async fn stored(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
    ) -> Result<Module, Error> {
        let Some((found, _)) = self.recorded(reference, pinned).await? else {
            return Err(not_fetched(reference));
        };
        match self.checked_offline(reference, found).await {
            // Signatures may have been added since it was fetched.
            Err(Error::Signature(_)) => Err(not_fetched(reference)),
            checked => checked,
        }
    }

    async fn recorded(&self, reference: &ModuleReference, pinned: Option<Digest>) -> Result<Recorded, Error> {
        let Some(store) = self.store.clone() else {
            return Ok(None);
        };
        let reference = reference.clone();
        on_disk(move || {
            let resolution = match pinned {
                Some(digest) => store.resolution_to(&reference, digest),
                None => store.resolution(&reference),
            };
            let resolution = resolution?;
            let found = Found {
                bytes: store.module(resolution.module)?,
                digest: resolution.module,
                manifest: resolution.manifest.as_ref().map(|(_, bytes)| bytes.clone()),
            };
            Some((found, resolution))
        })
        .await
    }

    /// The module with this digest, if the store has it.
    pub(super) async fn kept(&self, digest: Digest) -> Result<Option<Bytes>, Error> {
        match self.store.clone() {
            Some(store) => on_disk(move || store.module(digest)).await,
            None => Ok(None),
        }
    }

    /// The partial download of this name. When it is locked by another task or process, the download is kept in memory.
    pub(super) async fn landing(&self, name: &str) -> Result<Landing, Error> {
        let Some(store) = self.store.clone() else {
            return Ok(Landing::in_memory());
        };
        let name = Digest::of(name);
        match on_disk(move || store.partial(name)).await?? {
            Some(partial) => Ok(Landing::on(partial, self.size_limit).await),
            None => Ok(Landing::in_memory()),
        }
    }

    /// Stores a complete download.
    pub(super) async fn keep(
        &self,
        landing: Landing,
        digest: Digest,
        manifest: Option<Bytes>,
    ) -> Result<Found, Error> {
        let (bytes, partial) = landing.into_parts();
        let found = Found {
            bytes: bytes.into(),
            digest,
            manifest,
        };
        let (store, bytes) = (self.store.clone(), found.bytes.clone());
        on_disk(move || match (partial, store) {
            (Some(partial), _) => partial.become_module(digest),
            (None, Some(store)) => store.keep_bytes(digest, &bytes),
            (None, None) => Ok(()),
        })
        .await??;
        Ok(found)
    }

    /// Record what the reference means now.
    pub(super) async fn record(
        &self,
        reference: &ModuleReference,
        found: &Found,
        validator: Option<String>,
    ) -> Result<(), Error> {
        let manifest = found.manifest.as_ref();
        let resolution = Resolution {
            module: found.digest,
            manifest: manifest.map(|bytes| (Digest::of(bytes), bytes.clone())),
            validator,
            resolved: SystemTime::now(),
        };
        let reference = reference.clone();
        self.with_store(move |store| store.keep_resolution(&reference, &resolution))
            .await
    }

    /// Records that the reference still means the same. Only the time is new, so a failure to write it is
    /// harmless.
    pub(super) async fn record_again(&self, reference: &ModuleReference, resolution: &Resolution) {
        let wanted = reference.clone();
        let resolution = Resolution {
            resolved: SystemTime::now(),
            ..resolution.clone()
        };
        let kept = self
            .with_store(move |store| store.keep_resolution(&wanted, &resolution))
            .await;
        if let Err(error) = kept {
            tracing::warn!(%reference, %error, "the time at which a module was last resolved could not be recorded");
        }
    }

    pub(super) async fn with_store(
        &self,
        work: impl FnOnce(&Store) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        match self.store.clone() {
            Some(store) => on_disk(move || work(&store)).await?,
            None => Ok(()),
        }
    }
}

fn not_fetched(reference: &ModuleReference) -> Error {
    Error::NotFetched {
        reference: Box::new(reference.clone()),
    }
}

/// The result of a download. After a failure, a partial download that cannot be resumed is removed.
pub(super) async fn begun<T>(landing: Landing, downloaded: Result<T, Error>) -> Result<(Landing, T), Error> {
    match downloaded {
        Ok(downloaded) => Ok((landing, downloaded)),
        Err(error) => {
            if landing.bytes().is_empty() || matches!(error, Error::ModuleTooLarge { .. }) {
                discard(landing).await?;
            }
            Err(error)
        }
    }
}

/// Removes a download that cannot be resumed.
pub(super) async fn discard(landing: Landing) -> Result<(), Error> {
    let (_, partial) = landing.into_parts();
    match partial {
        Some(partial) => on_disk(move || partial.discard()).await,
        None => Ok(()),
    }
}
