#![allow(
    clippy::disallowed_methods,
    reason = "a partial download is opened for reading and writing, in a private directory"
)]

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
};

use admittance_watch::file;

use crate::{
    Digest, Error, Store,
    store::{StoreEntryKind, is_linked, store_error, sync_directory},
};

/// A partial download. Its file is locked as long as this value exists, so that there is only one writer.
#[derive(Debug)]
pub(super) struct PartialDownload {
    file: File,
    path: PathBuf,
    store: Store,
    name: Digest,
}

impl PartialDownload {
    pub(super) fn open(store: &Store, name: Digest) -> Result<Option<Self>, Error> {
        let path = store.path(StoreEntryKind::Partial, name);
        let file = loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(file::NON_BLOCKING_FLAGS)
                .open(&path)
                .map_err(store_error(&path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(store_error(&path)(error)),
            }
            // Before this program got the lock, another writer may have completed the download and renamed the file.
            // Then the path no longer leads to the file that was opened. It is opened again, which creates a new file.
            if is_linked(&file, &path).map_err(store_error(&path))? {
                break file;
            }
        };
        Ok(Some(Self {
            file,
            path,
            store: store.clone(),
            name,
        }))
    }

    /// Reads the bytes that were received so far, or no bytes if they exceed `limit`. Also reads the validator (`ETag`)
    /// of the version that these bytes belong to.
    pub(super) fn read_content(&mut self, limit: u64) -> Result<(Vec<u8>, Option<String>), Error> {
        let mut bytes = Vec::new();
        let mut read_bytes = || -> io::Result<()> {
            self.file.rewind()?;
            (&self.file).take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(())
        };
        read_bytes().map_err(store_error(&self.path))?;
        if bytes.len() as u64 > limit {
            bytes.clear();
        }
        let record = self
            .store
            .read_sealed(StoreEntryKind::Partial, self.validator_name())
            .and_then(|sealed| String::from_utf8(sealed).ok());
        // If the machine crashes, the file can have gaps. The validator (`ETag`) cannot reveal them, because it only
        // identifies the version on the server. So a validator recorded before the machine's last restart is not used.
        let validator = record.and_then(|text| {
            let (boot, validator) = text.split_once(' ')?;
            (Some(boot) == boot_id().as_deref()).then(|| validator.to_owned())
        });
        Ok((bytes, validator))
    }

    pub(super) fn restart(&mut self, validator: Option<&str>) -> Result<(), Error> {
        // The file is emptied first, and then the new validator is stored. In the opposite order, a program that is
        // stopped in between would leave the new validator together with bytes of the old version.
        self.file.set_len(0).map_err(store_error(&self.path))?;
        match (validator, boot_id()) {
            (Some(validator), Some(boot)) => {
                let text = format!("{boot} {validator}");
                self.store
                    .keep_sealed(StoreEntryKind::Partial, self.validator_name(), text.as_bytes())
            }
            _ => self.forget_validator(),
        }
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(store_error(&self.path))
    }

    pub(super) fn become_module(self, digest: Digest) -> Result<(), Error> {
        let path = self.store.path(StoreEntryKind::Module, digest);
        let finish = || -> io::Result<()> {
            self.file.sync_data()?;
            fs::rename(&self.path, &path)?;
            sync_directory(&path)
        };
        finish().map_err(store_error(&path))?;
        self.forget_validator()
    }

    pub(super) fn discard(self) {
        let _ = fs::remove_file(&self.path);
        let _ = self.forget_validator();
    }

    fn validator_name(&self) -> Digest {
        Digest::of_parts([b"validator".as_slice(), self.name.as_bytes()])
    }

    fn forget_validator(&self) -> Result<(), Error> {
        let path = self.store.path(StoreEntryKind::Partial, self.validator_name());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(store_error(&path)(error)),
            _ => Ok(()),
        }
    }
}

fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
