use std::{path::Path, sync::Arc};

use admittance_admission::on_thread_for_long_work;

use crate::{
    Digest, Error, MODULE_SIZE_LIMIT, Module, ModuleReference, NetworkConfig, OnProgress, ReferenceResolver, Store,
    module::{FetchedModule, check_pin, read_file},
    remote::Remote,
    resolver::FileContents,
    signature::{
        Material, ReferenceSource, Requirement, SignatureDescription, SignaturePolicy, describe, read_next_to_file,
    },
    stock,
};

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CatalogConfig {
    /// The store that saves fetched modules on disk. Without it, every start of the program fetches them again.
    pub store: Option<Store>,
    pub network: NetworkConfig,
    pub signatures: SignaturePolicy,
    /// The maximum size of an accepted module, in bytes. Default: [`MODULE_SIZE_LIMIT`].
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

/// Whether the catalog uses the digest to which a reference was resolved before, or resolves the reference again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Uses the recorded digest of the reference if the store has its module. Otherwise, resolves the reference.
    PreferRecorded,
    /// Uses the recorded digest of the reference, and fetches nothing. If the store does not have the module, the
    /// result is [`Error::NotFetched`].
    RecordedOnly,
    /// Asks the server for the current digest of the reference, unless the reference itself contains a digest.
    Resolve,
}

/// Obtains modules by reference from files, servers and registries.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) inner: Arc<CatalogInner>,
}

#[derive(Debug)]
pub(crate) struct CatalogInner {
    store: Option<Store>,
    pub(crate) remote: Remote,
    pub(crate) signatures: SignaturePolicy,
    pub(crate) size_limit: u64,
}

pub(crate) struct ModuleRequirement<'a> {
    source: ReferenceSource,
    requirement: &'a Requirement,
}

impl Catalog {
    /// # Errors
    ///
    /// Returns an error when the file of CAs or the proxy's address is invalid.
    pub fn new(config: CatalogConfig) -> Result<Self, Error> {
        Ok(Self {
            inner: Arc::new(CatalogInner {
                store: config.store,
                remote: Remote::new(config.network)?,
                signatures: config.signatures,
                size_limit: config.size_limit,
            }),
        })
    }

    pub fn store(&self) -> Option<&Store> {
        self.inner.store.as_ref()
    }

    /// Obtains the module of a reference, and checks it against the `pinned` digest and the required signature.
    ///
    /// A file is read in every call. A URL or a tag is resolved once and recorded in the store; `freshness` decides
    /// whether it is resolved again. Concurrent calls for the same module share one fetch and its error; only the first
    /// caller gets progress reports.
    ///
    /// # Errors
    ///
    /// Returns an error when the module cannot be fetched or read, is too large, has another digest, or lacks the
    /// signature.
    pub async fn obtain(
        &self,
        reference: &ModuleReference,
        pinned: Option<Digest>,
        freshness: Freshness,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        self.resolver().obtain(reference, pinned, freshness, progress).await
    }

    /// Creates a resolver for stages that go live together, so that each reference is resolved once for all of them.
    pub fn resolver(&self) -> ReferenceResolver {
        ReferenceResolver::new(self.clone())
    }

    pub(crate) async fn obtain_file(
        &self,
        reference: &ModuleReference,
        path: &Path,
        pinned: Option<Digest>,
        files: &FileContents,
    ) -> Result<Module, Error> {
        let inner = &*self.inner;
        let owned_reference = reference.clone();
        if let Some(bytes) = run_on_disk(move || stock::embedded_module(&owned_reference)).await? {
            let digest = Digest::of_bytes(&bytes);
            check_pin(&reference.to_string(), pinned, digest)?;
            // The plugin is part of the program, so its module needs no signature.
            return Ok(FetchedModule::new(bytes, digest).accept_unsigned(reference));
        }
        let rule = inner.requirement(reference).await?;
        // The signature policy was applied to the resolved path of the file, without symbolic links. The file is read
        // through this same path, so that a link that changes in between cannot lead to another file.
        let source = rule.as_ref().and_then(|rule| rule.source.path());
        let path = source.unwrap_or(path).to_owned();
        let target = {
            let path = path.clone();
            run_on_disk(move || path.canonicalize().unwrap_or(path)).await?
        };
        let content = async {
            let (path, limit) = (path.clone(), inner.size_limit);
            run_on_disk(move || read_file(&path, limit)).await?
        };
        let (bytes, digest) = files.get_or_run(target, content).await?;
        check_pin(&path.display().to_string(), pinned, digest)?;
        inner
            .accept_if_signed(reference, rule, FetchedModule::new(bytes, digest), &|_| {})
            .await
    }

    /// Loads an earlier module of a reference from the store, even if the reference now resolves to another digest.
    /// Nothing is fetched; the stored signatures are checked again.
    ///
    /// # Errors
    ///
    /// Returns an error when the module is no longer in the store, or when the current policy refuses its signatures.
    pub async fn load_stored(&self, reference: &ModuleReference, digest: Digest) -> Result<Module, Error> {
        let owned_reference = reference.clone();
        let lookup = self.inner.run_in_store(move |store| {
            Some(FetchedModule {
                bytes: store.read_module(digest)?,
                digest,
                manifest: store
                    .read_resolution_of_module(&owned_reference, digest)
                    .and_then(|resolution| resolution.manifest)
                    .map(|(_, bytes)| bytes),
            })
        });
        let fetched_module = lookup.await?.flatten().ok_or_else(|| Error::NoLongerStored {
            reference: Box::new(reference.clone()),
            digest,
        })?;
        self.inner.accept_if_signed_offline(reference, fetched_module).await
    }

    /// Finds the current signatures of an obtained module, without checking them, even if the policy requires none.
    ///
    /// # Errors
    ///
    /// Returns an error when a signature cannot be fetched or read.
    pub async fn signatures(
        &self,
        module: &Module,
        progress: OnProgress<'_>,
    ) -> Result<Vec<SignatureDescription>, Error> {
        if let Some(material) = &module.material {
            return Ok(describe(material));
        }
        let current_material = self
            .inner
            .find_material(&module.reference, None, &module.fetched_module, progress);
        Ok(describe(&current_material.await?))
    }
}

impl CatalogInner {
    pub(crate) async fn run_in_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<Option<T>, Error> {
        match self.store.clone() {
            Some(store) => run_on_disk(move || work(&store)).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the policy's rule for this module; `None` if the policy is empty.
    pub(crate) async fn requirement(
        &self,
        reference: &ModuleReference,
    ) -> Result<Option<ModuleRequirement<'_>>, Error> {
        if self.signatures.is_empty() {
            return Ok(None);
        }
        let source = {
            let reference = reference.clone();
            // Following the symbolic links of a file's path blocks, so it is done on another thread.
            run_on_disk(move || ReferenceSource::from_reference(&reference)).await??
        };
        let requirement = self.signatures.requirement(reference, &source)?;
        Ok(requirement.map(|requirement| ModuleRequirement { source, requirement }))
    }

    /// Accepts the module if it has the required signature. The stored signatures are checked first.
    pub(crate) async fn accept_if_signed(
        &self,
        reference: &ModuleReference,
        rule: Option<ModuleRequirement<'_>>,
        fetched_module: FetchedModule,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let Some(rule) = rule.filter(|rule| *rule.requirement != Requirement::Unsigned) else {
            return Ok(fetched_module.accept_unsigned(reference));
        };
        // Signatures of a file are not stored, because they are on the same disk, next to the file.
        let is_file = matches!(reference, ModuleReference::File(_));
        let stored_material = if is_file {
            None
        } else {
            self.stored_material(reference, fetched_module.digest).await?
        };
        let refusal = match stored_material {
            Some(material) => match fetched_module.accept_signed(reference, rule.requirement, material) {
                Ok(module) => return Ok(module),
                Err(error) => Some(error),
            },
            None => None,
        };
        let current_material = self.find_material(reference, rule.source.path(), &fetched_module, progress);
        let material = match (current_material.await, refusal) {
            (Ok(material), _) => material,
            (Err(_), Some(refusal)) => return Err(refusal.into()),
            (Err(error), None) => return Err(error),
        };
        let module = fetched_module.accept_signed(reference, rule.requirement, material)?;
        if !is_file && let Some(material) = module.material.clone() {
            let reference = reference.clone();
            self.run_in_store(move |store| store.keep_material(&reference, fetched_module.digest, &material))
                .await?
                .transpose()?;
        }
        Ok(module)
    }

    /// Accepts the module if it has the required signature. Like [`accept_if_signed`](Self::accept_if_signed), but
    /// fetches nothing.
    pub(crate) async fn accept_if_signed_offline(
        &self,
        reference: &ModuleReference,
        fetched_module: FetchedModule,
    ) -> Result<Module, Error> {
        let rule = self.requirement(reference).await?;
        let Some(rule) = rule.filter(|rule| *rule.requirement != Requirement::Unsigned) else {
            return Ok(fetched_module.accept_unsigned(reference));
        };
        let material = self.stored_material(reference, fetched_module.digest).await?;
        Ok(fetched_module.accept_signed(reference, rule.requirement, material.unwrap_or_default())?)
    }

    async fn stored_material(&self, reference: &ModuleReference, digest: Digest) -> Result<Option<Material>, Error> {
        let reference = reference.clone();
        let lookup = self.run_in_store(move |store| store.read_material(&reference, digest));
        Ok(lookup.await?.flatten())
    }

    /// Finds the signatures that a module has now: next to its file, next to its URL, or in its registry. `resolved` is
    /// the path of the module's file without symbolic links.
    async fn find_material(
        &self,
        reference: &ModuleReference,
        resolved: Option<&Path>,
        fetched_module: &FetchedModule,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        match reference {
            ModuleReference::File(path) => {
                let (path, resolved) = (path.clone(), resolved.unwrap_or(path).to_owned());
                Ok(run_on_disk(move || read_next_to_file(&path, &resolved)).await??)
            }
            ModuleReference::Https(_) | ModuleReference::Oci(_) => {
                self.remote.signatures(reference, fetched_module, progress).await
            }
        }
    }
}

pub(crate) async fn run_on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    on_thread_for_long_work(work).await.map_err(|error| {
        if error.is_panic() {
            Error::Panicked(error.to_string())
        } else {
            Error::Stopped
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_during_disk_work_is_reported_with_its_message() {
        let error = run_on_disk(|| assert!(std::path::Path::new("/").is_file(), "no file"))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, Error::Panicked(message) if message.contains("no file")),
            "{error}"
        );
    }
}
