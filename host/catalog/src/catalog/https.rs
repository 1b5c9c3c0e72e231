use url::Url;

use super::{
    Found, Inner,
    remote::{Recorded, begun, discard},
};
use crate::{
    Digest, Error, FetchProgress, ModuleReference, OnProgress,
    fetch::{Download, Downloaded},
    module::{check_magic, check_pin},
};

impl Inner {
    /// Obtains the module at a URL, from the server, or from the store when it has the pinned one.
    pub(super) async fn https(
        &self,
        reference: &ModuleReference,
        url: &Url,
        pinned: Option<Digest>,
        recorded: Recorded,
        progress: OnProgress<'_>,
    ) -> Result<Found, Error> {
        let place = reference.to_string();
        if let Some(digest) = pinned
            && let Some(bytes) = self.kept(digest).await?
        {
            // It came from another source, or its record was lost.
            let found = Found {
                bytes,
                digest,
                manifest: None,
            };
            self.record(reference, &found, None).await?;
            return Ok(found);
        }
        let download = Download {
            place: place.clone(),
            limit: self.size_limit,
            digest: pinned,
            size: None,
            unless: recorded
                .as_ref()
                .and_then(|(_, resolution)| resolution.validator.clone()),
        };
        let mut landing = self.landing(&place).await?;
        loop {
            let has_begun = !landing.bytes().is_empty();
            let downloaded = self
                .network
                .download(url, &download, &mut landing, progress)
                .await;
            let (landed, downloaded) = begun(landing, downloaded).await?;
            landing = landed;
            let validator = match (downloaded, &recorded) {
                (Downloaded::Whole(validator), _) => validator,
                (Downloaded::Unchanged, Some((found, resolution))) => {
                    discard(landing).await?;
                    self.record_again(reference, resolution).await;
                    return Ok(found.clone());
                }
                (Downloaded::Unchanged, None) => {
                    return Err(Error::BadAnswer {
                        place,
                        problem: "the server answered 304 Not Modified to an unconditional request"
                            .to_owned(),
                    });
                }
            };
            let digest = Digest::of(landing.bytes());
            if has_begun && pinned.is_some_and(|pinned| pinned != digest) {
                // The partial download may be of another version.
                landing.restart(None).await;
                continue;
            }
            let checked = check_magic(&place, landing.bytes());
            if let Err(error) = checked.and_then(|()| check_pin(&place, pinned, digest)) {
                discard(landing).await?;
                return Err(error);
            }
            let found = self.keep(landing, digest, None).await?;
            self.record(reference, &found, validator).await?;
            progress(FetchProgress::Finished);
            return Ok(found);
        }
    }
}
