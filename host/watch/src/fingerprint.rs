use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    fs::Metadata,
    io::{self, Read},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sha2::{Digest as _, Sha256};

use crate::file;

/// The digests of files and directories at one moment. A fingerprint that is taken before the files are read lets
/// [`Watch::from_fingerprint`](crate::Watch::from_fingerprint) report every later change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub(crate) contents: BTreeMap<PathBuf, FileContent>,
    pub(crate) extensions: Extensions,
}

/// The file name extensions, in lower or upper case, of the files that are read in a directory. Hidden files are left
/// out. An empty list selects all files, including hidden ones.
pub type Extensions = &'static [&'static str];

/// Returns whether the name of a directory entry selects it to be read. Backups of editors are not selected: `a.yaml~`,
/// `#a.yaml#` and `a.yaml.bak` have other extensions, and `.#a.yaml` is hidden.
pub fn is_selected_file(path: &Path, extensions: Extensions) -> bool {
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let is_known = |extension: &OsStr| {
        extensions
            .iter()
            .any(|selected_extension| extension.eq_ignore_ascii_case(selected_extension))
    };
    extensions.is_empty()
        || path.file_name().is_some_and(|name| !is_hidden(name)) && path.extension().is_some_and(is_known)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileContent {
    Absent,
    File([u8; 32]),
    /// The entries of a directory by name.
    Directory(BTreeMap<OsString, FileContent>),
    /// The path leads to a device, a pipe or a socket. It is not read, because it may be infinite.
    Other,
    Unreadable(io::ErrorKind),
}

impl Fingerprint {
    /// Reads these paths, and all files in the directories among them. This blocks.
    pub fn read(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::read_extensions(paths, &[])
    }

    /// Reads these paths. In the directories among them, reads only the files with these extensions. This blocks.
    pub fn read_extensions(paths: impl IntoIterator<Item = PathBuf>, extensions: Extensions) -> Self {
        Self::read_with_digests(paths, extensions, &mut DigestCache::default())
    }

    /// Returns one digest of all paths and contents in this fingerprint. It can be compared with the digest of a
    /// fingerprint from another process.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (path, content) in &self.contents {
            hash_part(&mut hasher, path.as_os_str().as_encoded_bytes());
            content.hash_into(&mut hasher);
        }
        hasher.finalize().into()
    }

    pub(crate) fn read_with_digests(
        paths: impl IntoIterator<Item = PathBuf>,
        extensions: Extensions,
        digests: &mut DigestCache,
    ) -> Self {
        digests.begin();
        let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
        let contents = paths
            .into_iter()
            .map(|path| {
                let content = FileContent::read(&path, extensions, digests);
                (path, content)
            })
            .collect();
        digests.end();
        Self { contents, extensions }
    }

    /// Returns the paths that `other` lacks, or for which `other` has a different content.
    pub(crate) fn differing_paths(&self, other: &Self) -> Vec<PathBuf> {
        self.contents
            .iter()
            .filter(|(path, content)| other.contents.get(*path) != Some(content))
            .map(|(path, _)| path.clone())
            .collect()
    }
}

/// Hashes the length of the bytes before the bytes themselves, so that adjacent parts cannot be confused.
fn hash_part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

impl FileContent {
    fn hash_into(&self, hasher: &mut Sha256) {
        match self {
            Self::Absent => hash_part(hasher, b"absent"),
            Self::Other => hash_part(hasher, b"other"),
            Self::Unreadable(kind) => hash_part(hasher, format!("unreadable: {kind:?}").as_bytes()),
            Self::File(digest) => {
                hash_part(hasher, b"file");
                hasher.update(digest);
            }
            Self::Directory(entries) => {
                hash_part(hasher, b"directory");
                hasher.update((entries.len() as u64).to_le_bytes());
                for (name, content) in entries {
                    hash_part(hasher, name.as_encoded_bytes());
                    content.hash_into(hasher);
                }
            }
        }
    }

    fn read(path: &Path, extensions: Extensions, digests: &mut DigestCache) -> Self {
        Self::try_read(path, extensions, digests).unwrap_or_else(|error| match error.kind() {
            // The file does not exist, a link in the path is dangling, or a parent is not a directory.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Absent,
            kind => Self::Unreadable(kind),
        })
    }

    fn try_read(path: &Path, extensions: Extensions, digests: &mut DigestCache) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        if metadata.is_file() {
            return digests.read_digest(path, &metadata).map(Self::File);
        }
        if !metadata.is_dir() {
            // The path is not opened, because opening a pipe would wait for a writer.
            return Ok(Self::Other);
        }
        let mut entries = BTreeMap::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let path = entry.path();
            let is_directory = path.is_dir();
            if is_directory && extensions.is_empty() || !is_selected_file(&path, extensions) {
                continue;
            }
            // A subdirectory may have a name like a definition file, such as `a.yaml`. Its content is not read, but its
            // name is recorded, so that its removal is noticed.
            let content = if is_directory {
                Self::Other
            } else {
                Self::read(&path, extensions, digests)
            };
            entries.insert(entry.file_name(), content);
        }
        Ok(Self::Directory(entries))
    }
}

/// Caches the digests of files, so that a large file is read again only when its stamp has changed.
#[derive(Debug, Default)]
pub(crate) struct DigestCache {
    last: HashMap<PathBuf, (Stamp, [u8; 32])>,
    next: HashMap<PathBuf, (Stamp, [u8; 32])>,
}

/// If a file is written twice within this time, its stamp may be the same after both writes.
const TIMESTAMP_COARSENESS: Duration = Duration::from_secs(2);

/// A file larger than this many bytes is not read. It counts as changed if its stamp has changed.
const MAX_DIGESTED_SIZE: u64 = 256 << 20;

impl DigestCache {
    fn begin(&mut self) {
        self.next = HashMap::new();
    }

    fn end(&mut self) {
        self.last = std::mem::take(&mut self.next);
    }

    fn read_digest(&mut self, path: &Path, metadata: &Metadata) -> io::Result<[u8; 32]> {
        let stamp = Stamp::from_metadata(metadata);
        if let Some((known, digest)) = self.last.get(path)
            && *known == stamp
        {
            self.next.insert(path.to_owned(), (stamp, *digest));
            return Ok(*digest);
        }
        if metadata.len() > MAX_DIGESTED_SIZE {
            self.next.insert(path.to_owned(), (stamp, stamp.digest()));
            return Ok(stamp.digest());
        }
        #[allow(clippy::disallowed_methods, reason = "it is compared with the times of files")]
        let now = SystemTime::now();
        let mut file = file::open(path)?;
        // The path may by now lead to another file than before, so the stamp is taken from the open file.
        let stamp = Stamp::from_metadata(&file.metadata()?);
        let digest = hash_content(&mut (&mut file).take(MAX_DIGESTED_SIZE))?;
        if stamp.is_settled(now) {
            self.next.insert(path.to_owned(), (stamp, digest));
        }
        Ok(digest)
    }
}

fn hash_content(file: &mut impl Read) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(length) => hasher.update(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file's identity, length and times. If two stamps are equal, so is the content, provided that the file was read
/// more than two seconds after its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
    changed: Option<SystemTime>,
}

impl Stamp {
    /// Returns the stamp of a file with this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        let seconds = u64::try_from(metadata.ctime()).ok();
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).ok();
        Self {
            file: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            changed: seconds.zip(nanoseconds).and_then(|(seconds, nanoseconds)| {
                SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
            }),
        }
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(format!("{self:?}")).into()
    }

    /// Returns how long ago the file was last changed or replaced; `None` if that is in the future.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(self.changed?).ok()
    }

    /// Returns whether the file was last changed more than two seconds ago. If a file was changed more recently,
    /// another change may not alter its stamp, because the times of files are coarse.
    fn is_settled(&self, now: SystemTime) -> bool {
        self.age(now).is_some_and(|age| age > TIMESTAMP_COARSENESS)
    }
}

#[cfg(test)]
mod tests;
