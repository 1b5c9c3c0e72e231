use crate::{Error, store::Partial};

/// How many bytes are buffered before they are written to the store.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// A download in progress, which can be resumed: in memory and, with a store, in a file that outlives the
/// program. Lives as long as the download.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    bytes: Vec<u8>,
    /// The server's validator of the version.
    validator: Option<String>,
    /// How many of the bytes are in the file.
    written: usize,
    partial: Option<Partial>,
}

impl Landing {
    /// In memory only.
    pub(crate) fn in_memory() -> Self {
        Self::default()
    }

    /// Also in the file, with its current contents.
    pub(crate) async fn on(partial: Partial, limit: u64) -> Self {
        match on_disk(partial, move |partial| partial.content(limit)).await {
            Some((partial, (bytes, validator))) => Self {
                written: bytes.len(),
                bytes,
                validator,
                partial: Some(partial),
            },
            None => Self::default(),
        }
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The server's validator of the version, if it has one.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref()
    }

    /// Starts over with this version.
    pub(crate) async fn restart(&mut self, validator: Option<&str>) {
        self.bytes.clear();
        self.written = 0;
        self.validator = validator.map(str::to_owned);
        if let Some(partial) = self.partial.take() {
            let validator = self.validator.clone();
            self.partial = on_disk(partial, move |partial| partial.restart(validator.as_deref()))
                .await
                .map(|(partial, ())| partial);
        }
    }

    /// Appends bytes.
    pub(super) async fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.written >= WRITTEN_AT_ONCE {
            self.write().await;
        }
    }

    /// Writes the buffered bytes.
    pub(super) async fn write(&mut self) {
        let rest = self.bytes.get(self.written..).unwrap_or_default();
        if !rest.is_empty()
            && let Some(partial) = self.partial.take()
        {
            let (rest, offset) = (rest.to_vec(), self.written as u64);
            self.partial = on_disk(partial, move |partial| partial.write_at(&rest, offset))
                .await
                .map(|(partial, ())| partial);
        }
        self.written = self.bytes.len();
    }

    /// The bytes, and the file with them.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Partial>) {
        (self.bytes, self.partial)
    }
}

/// Works on the file on a blocking thread. After an error the file is removed and the download continues
/// without it; the error is reported when the complete download is stored.
async fn on_disk<T: Send + 'static>(
    mut partial: Partial,
    work: impl FnOnce(&mut Partial) -> Result<T, Error> + Send + 'static,
) -> Option<(Partial, T)> {
    let work = move || match work(&mut partial) {
        Ok(done) => Some((partial, done)),
        Err(error) => {
            tracing::warn!(%error, "a download could not be saved to disk; if it is interrupted, it starts over");
            partial.discard();
            None
        }
    };
    tokio::task::spawn_blocking(work).await.ok().flatten()
}
