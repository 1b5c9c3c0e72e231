use std::{
    fs::{self, DirBuilder},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Digest, Error};

/// Compiled modules on disk, each under the key of everything that went into it. Lives as long as the
/// program; several programs may share one directory.
///
/// What is in it is run as native code, so the directory must be the user's own and writable by
/// nobody else, an entry is written whole or not at all, and it is checked against its digest each
/// time it is read.
#[derive(Clone, Debug)]
pub struct CompiledCache {
    directory: PathBuf,
}

/// Everything that a compiled form depends on, as one digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompiledKey(Digest);

impl CompiledKey {
    /// The key for a module with these settings, compiled by an engine of this fingerprint.
    pub fn new(module: Digest, settings: &str, engine_fingerprint: &str) -> Self {
        Self(Digest::of_parts([
            module.as_bytes().as_slice(),
            settings.as_bytes(),
            engine_fingerprint.as_bytes(),
        ]))
    }

    pub(crate) fn digest(self) -> Digest {
        self.0
    }
}

/// The first bytes of every entry; the digest of the rest follows.
const MAGIC: &[u8; 8] = b"admcmp01";
const HEADER: usize = MAGIC.len() + 32;

impl CompiledCache {
    /// Use this directory; it is made, with its parents, when it is not there.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is not private to this user.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        let failed = |source| Error::Store {
            path: directory.clone(),
            source: Arc::new(source),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed)?;
        let metadata = fs::metadata(&directory).map_err(failed)?;
        let not_private = |problem| Error::StoreNotPrivate {
            path: directory.clone(),
            problem,
        };
        let me = rustix::process::geteuid().as_raw();
        if metadata.uid() != me {
            return Err(not_private(format!(
                "it belongs to user {}, not to {me}",
                metadata.uid()
            )));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(not_private(format!(
                "its mode is {:o}, so others may write",
                metadata.mode() & 0o777
            )));
        }
        Ok(Self { directory })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The compiled form under this key. A damaged entry is removed and counts as absent.
    pub fn get(&self, key: CompiledKey) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut entry = match fs::read(&path) {
            Ok(entry) => entry,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "a compiled module cannot be read; it is compiled again");
                }
                return None;
            }
        };
        let intact = entry.split_at_checked(HEADER).is_some_and(|(header, content)| {
            let (magic, digest) = header.split_at(MAGIC.len());
            magic == MAGIC && digest == Digest::of(content).as_bytes()
        });
        if !intact {
            tracing::warn!(path = %path.display(), "a compiled module is damaged; it is removed and compiled again");
            let _ = fs::remove_file(&path);
            return None;
        }
        entry.drain(..HEADER);
        Some(entry)
    }

    /// Keep a compiled form, whole or not at all.
    ///
    /// # Errors
    ///
    /// When it cannot be written. The cache is as it was, and the program can go on without.
    pub fn put(&self, key: CompiledKey, content: &[u8]) -> Result<(), Error> {
        let path = self.path(key);
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(MAGIC)?;
            file.write_all(Digest::of(content).as_bytes())?;
            file.write_all(content)?;
            file.as_file().sync_data()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|source| Error::Store {
            path: path.clone(),
            source: Arc::new(source),
        })
    }

    fn path(&self, key: CompiledKey) -> PathBuf {
        self.directory.join(format!("{}.compiled", key.0.to_hex()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(settings: &str) -> CompiledKey {
        CompiledKey::new(Digest::of("module"), settings, "engine")
    }

    #[test]
    fn what_is_put_is_got_under_its_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CompiledCache::open(directory.path().join("a/b")).unwrap();
        assert_eq!(cache.get(key("{}")), None);
        cache.put(key("{}"), b"code").unwrap();
        cache.put(key("{}"), b"code2").unwrap();
        assert_eq!(cache.get(key("{}")), Some(b"code2".to_vec()));
        assert_eq!(cache.get(key("{} ")), None);
        assert_ne!(
            key("{}"),
            CompiledKey::new(Digest::of("module"), "{}", "other engine")
        );
    }

    #[test]
    fn damage_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CompiledCache::open(directory.path()).unwrap();
        for damage in ["cut", "bit", "empty"] {
            cache.put(key("{}"), b"some code").unwrap();
            let path = cache.path(key("{}"));
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "cut" => bytes.truncate(bytes.len() - 1),
                "bit" => bytes[HEADER] ^= 1,
                _ => bytes.clear(),
            }
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.get(key("{}")), None, "{damage}");
            assert!(!path.exists(), "{damage}");
        }
    }

    #[test]
    fn a_directory_that_others_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = CompiledCache::open(directory.path()).unwrap_err();
        assert!(matches!(error, Error::StoreNotPrivate { .. }), "{error}");
    }
}
