use admittance_net::client::ClientRequest;
use http::Method;
use url::Url;

use super::{
    Fetch, FetchClient, RecordedModule,
    download::{Download, check_magic},
};
use crate::{
    Error, ModuleReference, OnProgress,
    module::{FetchedModule, check_pin},
    signature::{Blob, FoundSignature, Material, SIGNATURE_SIZE_LIMIT, SIGNATURE_SUFFIXES, signature_url},
};

impl Fetch<'_> {
    /// Obtains the module at a URL. If the reference has a digest and the store has this module, nothing is requested.
    pub(super) async fn fetch_https(&self, url: &Url, recorded_module: RecordedModule) -> Result<FetchedModule, Error> {
        let location = self.reference.to_string();
        if let Some(digest) = self.pinned
            && let Some(bytes) = self.stored_bytes(digest).await?
        {
            // The store has this module, but no record that the URL was resolved to it. This happens if the module was
            // stored for another reference, or if the record was lost.
            let fetched_module = FetchedModule::new(bytes, digest);
            self.record(&fetched_module, None).await?;
            return Ok(fetched_module);
        }
        let network = &self.inner.remote.network;
        let download = Download {
            location: &location,
            name: &location,
            digest: self.pinned,
            size: None,
            known_validator: recorded_module
                .as_ref()
                .and_then(|(_, resolution)| resolution.validator.as_deref()),
        };
        let downloaded = self.download(
            &download,
            |headers| {
                let mut request = ClientRequest::new(Method::GET, url.clone());
                request.headers = headers;
                network.send(request, &location)
            },
            |bytes, digest| check_magic(&location, bytes).and_then(|()| check_pin(&location, self.pinned, digest)),
        );
        match (downloaded.await?, &recorded_module) {
            (Some(downloaded), _) => {
                let fetched_module = FetchedModule::new(downloaded.bytes, downloaded.digest);
                self.record(&fetched_module, downloaded.validator).await?;
                Ok(fetched_module)
            }
            (None, Some((fetched_module, resolution))) => {
                self.record_again(resolution.clone()).await;
                Ok(fetched_module.clone())
            }
            (None, None) => Err(download.not_modified_error()),
        }
    }
}

impl FetchClient {
    pub(super) async fn fetch_signatures(
        &self,
        reference: &ModuleReference,
        url: &Url,
        progress: OnProgress<'_>,
    ) -> Result<Material, Error> {
        let mut material = Material::default();
        for suffix in SIGNATURE_SUFFIXES {
            let url = signature_url(url, suffix);
            let content = match self.fetch_small(&url, SIGNATURE_SIZE_LIMIT, progress).await {
                Ok(Some(content)) => Blob(content.into()),
                // A missing signature is not an error. Some object stores, such as S3, reply with 403 instead of 404 if
                // an object is missing and the client may not list objects. So `Unauthorized` means here that the
                // signature is missing.
                Ok(None) | Err(Error::Unauthorized { .. }) => continue,
                Err(error) => return Err(error),
            };
            let signature = FoundSignature::from_suffix(suffix, url.into(), content);
            material.add(reference, signature)?;
        }
        Ok(material)
    }
}
