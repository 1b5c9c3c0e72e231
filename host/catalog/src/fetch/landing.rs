use crate::{Error, store::Partial};

/// So many bytes are gathered before they are written to the store.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Where a download grows, so that it can be gone on with: in memory and, with a store, in a file that
/// outlives the program. Lives as long as the download.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    bytes: Vec<u8>,
    /// What the server calls the version that the bytes are of.
    validator: Option<String>,
    /// So many of the bytes are in the file.
    written: usize,
    partial: Option<Partial>,
}

impl Landing {
    /// In memory only.
    pub(crate) fn in_memory() -> Self {
        Self::default()
    }

    /// In the file too, with what is there already.
    pub(crate) async fn on(partial: Partial, limit: u64) -> Result<Self, Error> {
        on_disk(partial, move |partial| {
            let (bytes, validator) = partial.content(limit)?;
            Ok((bytes, validator))
        })
        .await
        .map(|(partial, (bytes, validator))| Self {
            written: bytes.len(),
            bytes,
            validator,
            partial: Some(partial),
        })
    }

    /// What is there of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the server calls the version that the bytes are of, if they stand for it alone.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref()
    }

    /// Begin anew, with this version.
    pub(crate) async fn restart(&mut self, validator: Option<&str>) -> Result<(), Error> {
        self.bytes.clear();
        self.written = 0;
        self.validator = validator.map(str::to_owned);
        let Some(partial) = self.partial.take() else {
            return Ok(());
        };
        let validator = self.validator.clone();
        let (partial, ()) = on_disk(partial, move |partial| partial.restart(validator.as_deref())).await?;
        self.partial = Some(partial);
        Ok(())
    }

    /// Take more of it.
    pub(super) async fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.written >= WRITTEN_AT_ONCE {
            self.write().await?;
        }
        Ok(())
    }

    /// Write what was gathered.
    pub(super) async fn write(&mut self) -> Result<(), Error> {
        let rest = self.bytes.get(self.written..).unwrap_or_default().to_vec();
        if rest.is_empty() {
            return Ok(());
        }
        let Some(partial) = self.partial.take() else {
            self.written = self.bytes.len();
            return Ok(());
        };
        let offset = self.written as u64;
        let (partial, ()) = on_disk(partial, move |partial| partial.write_at(&rest, offset)).await?;
        self.partial = Some(partial);
        self.written = self.bytes.len();
        Ok(())
    }

    /// The bytes, and the file that holds them too.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Partial>) {
        (self.bytes, self.partial)
    }
}

/// Work on the file where it may block.
async fn on_disk<T: Send + 'static>(
    mut partial: Partial,
    work: impl FnOnce(&mut Partial) -> Result<T, Error> + Send + 'static,
) -> Result<(Partial, T), Error> {
    tokio::task::spawn_blocking(move || work(&mut partial).map(|done| (partial, done)))
        .await
        .map_err(|_| Error::Stopped)?
}
