use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
};

use super::{
    Kind, Store, failed,
    temporary::{is_linked, sync_directory},
};
use crate::{Digest, Error};

/// A download that is not whole yet; a later one goes on with it, in this program or the next. Locked as
/// long as it lives, so that no two write to it.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    store: Store,
    name: Digest,
}

impl Store {
    /// The download of this name; nothing when another program, or another task of this one, is at it.
    pub(crate) fn partial(&self, name: Digest) -> Result<Option<Partial>, Error> {
        let path = self.path(Kind::Partial, name);
        let file = loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed(&path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
            }
            // Another may have finished with it in between: then it is a module by now.
            if is_linked(&file, &path).map_err(failed(&path))? {
                break file;
            }
        };
        Ok(Some(Partial {
            file,
            path,
            store: self.clone(),
            name,
        }))
    }
}

impl Partial {
    /// What is there, and what the server calls the version that it is of. What is longer than `limit` is
    /// of no use.
    pub(crate) fn content(&mut self, limit: u64) -> Result<(Vec<u8>, Option<String>), Error> {
        let mut bytes = Vec::new();
        let mut read = || -> io::Result<()> {
            self.file.rewind()?;
            (&self.file)
                .take(limit.saturating_add(1))
                .read_to_end(&mut bytes)?;
            Ok(())
        };
        read().map_err(failed(&self.path))?;
        if bytes.len() as u64 > limit {
            bytes.clear();
        }
        let validator = self
            .store
            .sealed(Kind::Partial, self.validator_name())
            .and_then(|sealed| String::from_utf8(sealed).ok());
        let boot = boot();
        // After a crash of the whole machine the file may have gaps, and no digest would show them.
        let validator = validator.and_then(|text| {
            let (when, validator) = text.split_once(' ')?;
            (Some(when) == boot.as_deref()).then(|| validator.to_owned())
        });
        Ok((bytes, validator))
    }

    /// Begin anew, with this version.
    pub(crate) fn restart(&mut self, validator: Option<&str>) -> Result<(), Error> {
        // In this order, so that what is there is never taken for another version.
        self.file.set_len(0).map_err(failed(&self.path))?;
        match (validator, boot()) {
            (Some(validator), Some(boot)) => {
                let text = format!("{boot} {validator}");
                self.store
                    .keep_sealed(Kind::Partial, self.validator_name(), text.as_bytes())
            }
            _ => self.forget_validator(),
        }
    }

    /// Write bytes that begin at this offset.
    pub(crate) fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(failed(&self.path))
    }

    /// It is whole, and is the module with this digest.
    pub(crate) fn become_module(self, digest: Digest) -> Result<(), Error> {
        let path = self.store.path(Kind::Module, digest);
        let finish = || -> io::Result<()> {
            self.file.sync_data()?;
            fs::rename(&self.path, &path)?;
            sync_directory(&path)
        };
        finish().map_err(failed(&path))?;
        self.forget_validator()
    }

    /// It is of no use.
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.path);
        let _ = self.forget_validator();
    }

    fn validator_name(&self) -> Digest {
        Digest::of_parts([b"validator".as_slice(), self.name.as_bytes()])
    }

    fn forget_validator(&self) -> Result<(), Error> {
        let path = self.store.path(Kind::Partial, self.validator_name());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path)(error)),
            _ => Ok(()),
        }
    }
}

/// What names the time since the machine was started; nothing where the system has no such name.
fn boot() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
