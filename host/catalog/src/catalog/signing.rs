use std::{path::Path, sync::Arc};

use url::Url;

use super::{Found, Inner, on_disk};
use crate::{
    Error, Module, ModuleReference, OnProgress,
    signature::{
        Blob, FoundSignature, Material, Requirement, SIGNATURE_SIZE_LIMIT, Source, Subject, Verified,
        bundle_url, gather_beside, signature_url, verify,
    },
};

impl Inner {
    /// Makes a module if the bytes are signed as required. Kept signatures are tried first; if they do not
    /// suffice, the current signatures are fetched.
    pub(super) async fn checked(
        &self,
        reference: &ModuleReference,
        source: Option<&Source>,
        requirement: Option<&Requirement>,
        found: Found,
        progress: OnProgress<'_>,
    ) -> Result<Module, Error> {
        let Some(requirement) = requirement.filter(|requirement| **requirement != Requirement::Unsigned)
        else {
            return Ok(module(reference, found, Verified::Unrequired, None));
        };
        let subject = Subject {
            reference,
            module: &found.bytes,
        };
        // Signatures next to a file are local, so the current ones are used.
        let kept = match reference {
            ModuleReference::File(_) => None,
            _ => self.material(reference, &found).await?,
        };
        let refused = match kept {
            Some(material) => match verify(requirement, subject, &material) {
                Ok(verified) => return Ok(module(reference, found, verified, Some(material))),
                Err(error) => Some(error),
            },
            None => None,
        };
        let material = match (self.gather(reference, source, &found, progress).await, refused) {
            (Ok(material), _) => material,
            // The error about the kept signatures is more helpful than a network error.
            (Err(_), Some(refused)) => return Err(refused.into()),
            (Err(error), None) => return Err(error),
        };
        let verified = verify(requirement, subject, &material)?;
        if !matches!(reference, ModuleReference::File(_)) {
            let (reference, digest, material) = (reference.clone(), found.digest, material.clone());
            self.with_store(move |store| store.keep_material(&reference, digest, &material))
                .await?;
        }
        Ok(module(reference, found, verified, Some(material)))
    }

    /// The same with the kept signatures only.
    pub(super) async fn checked_offline(
        &self,
        reference: &ModuleReference,
        found: Found,
    ) -> Result<Module, Error> {
        let source = self.source(reference).await?;
        let requirement = self.requirement(reference, source.as_ref())?;
        let Some(requirement) = requirement.filter(|requirement| **requirement != Requirement::Unsigned)
        else {
            return Ok(module(reference, found, Verified::Unrequired, None));
        };
        let material = self.material(reference, &found).await?.unwrap_or_default();
        let subject = Subject {
            reference,
            module: &found.bytes,
        };
        let verified = verify(requirement, subject, &material)?;
        Ok(module(reference, found, verified, Some(material)))
    }

    /// The kept signatures of the module.
    async fn material(&self, reference: &ModuleReference, found: &Found) -> Result<Option<Material>, Error> {
        let Some(store) = self.store.clone() else {
            return Ok(None);
        };
        let (reference, digest) = (reference.clone(), found.digest);
        on_disk(move || store.material(&reference, digest)).await
    }

    /// Fetches the current signatures.
    pub(super) async fn gather(
        &self,
        reference: &ModuleReference,
        source: Option<&Source>,
        found: &Found,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        match reference {
            ModuleReference::File(path) => {
                let resolved = source.and_then(Source::path).unwrap_or(path);
                beside(path, resolved).await
            }
            ModuleReference::Https(url) => self.beside_url(reference, url, progress).await,
            ModuleReference::Oci(artifact) => self.in_registry(artifact, found, progress).await,
        }
    }

    async fn beside_url(
        &self,
        reference: &ModuleReference,
        url: &Url,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        let mut material = Material::default();
        if let Some((name, content)) = self.signature_at(&signature_url(url), progress).await? {
            material.add(reference, FoundSignature::Detached { name, content })?;
        }
        if let Some((name, content)) = self.signature_at(&bundle_url(url), progress).await? {
            material.add(reference, FoundSignature::Bundle { name, content })?;
        }
        Ok(material)
    }

    async fn signature_at(
        &self,
        url: &Url,
        progress: OnProgress<'_>,
    ) -> Result<Option<(String, Blob)>, Error> {
        match self.network.get_small(url, SIGNATURE_SIZE_LIMIT, progress).await {
            Ok(content) => Ok(content.map(|content| (url.to_string(), Blob(content.into())))),
            // Object stores answer 403 for a missing object to clients that may not list objects.
            Err(Error::Unauthorized { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn beside(path: &Path, resolved: &Path) -> Result<Material, Error> {
    let (path, resolved) = (path.to_owned(), resolved.to_owned());
    Ok(on_disk(move || gather_beside(&path, &resolved)).await??)
}

fn module(
    reference: &ModuleReference,
    found: Found,
    verified: Verified,
    material: Option<Material>,
) -> Module {
    Module {
        reference: reference.clone(),
        bytes: found.bytes,
        digest: found.digest,
        manifest: found.manifest,
        verified,
        material: material.map(Arc::new),
    }
}
