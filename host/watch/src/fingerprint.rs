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

/// Digests of the content of some paths at one moment. If it is taken before the files are read,
/// [`Watch::since`](crate::Watch::since) misses no change to what was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub(crate) contents: BTreeMap<PathBuf, Content>,
    pub(crate) extensions: Extensions,
}

/// The extensions of the files that count in a directory, ignoring case. With extensions, hidden files do not count;
/// without any, all files do.
pub type Extensions = &'static [&'static str];

/// Returns whether an entry of a directory counts, by its name alone. The backups of editors do not: `a.yaml~`,
/// `#a.yaml#` and `a.yaml.bak` have another extension, and `.#a.yaml` is hidden.
pub fn counts(path: &Path, extensions: Extensions) -> bool {
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let is_known = |extension: &OsStr| {
        extensions
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    };
    extensions.is_empty()
        || path.file_name().is_some_and(|name| !is_hidden(name)) && path.extension().is_some_and(is_known)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Absent,
    File([u8; 32]),
    /// A directory, with its entries by name. Directories in it are left out, unless their name has one of the
    /// extensions that count.
    Directory(BTreeMap<OsString, Content>),
    /// A device, a pipe or a socket, which is not read, because it may be infinite.
    Other,
    Unreadable(io::ErrorKind),
}

impl Fingerprint {
    /// Reads these paths. This blocks.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::of_extensions(paths, &[])
    }

    /// Reads these paths. Of directories, it reads only the files with these extensions. This blocks.
    pub fn of_extensions(paths: impl IntoIterator<Item = PathBuf>, extensions: Extensions) -> Self {
        Self::with(paths, extensions, &mut Digests::default())
    }

    /// Returns a digest of all paths and contents. It is the same in all processes.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (path, content) in &self.contents {
            hash_part(&mut hasher, path.as_os_str().as_encoded_bytes());
            content.add_to(&mut hasher);
        }
        hasher.finalize().into()
    }

    pub(crate) fn with(
        paths: impl IntoIterator<Item = PathBuf>,
        extensions: Extensions,
        digests: &mut Digests,
    ) -> Self {
        digests.begin();
        // Several stages may use the same file.
        let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
        let contents = paths
            .into_iter()
            .map(|path| {
                let content = Content::of(&path, extensions, digests);
                (path, content)
            })
            .collect();
        digests.end();
        Self { contents, extensions }
    }

    /// Returns the paths whose content differs from the other fingerprint, or is missing there.
    pub(crate) fn differs_from(&self, other: &Self) -> Vec<PathBuf> {
        self.contents
            .iter()
            .filter(|(path, content)| other.contents.get(*path) != Some(content))
            .map(|(path, _)| path.clone())
            .collect()
    }
}

/// Hashes the length of some bytes, which separates them from what follows, and the bytes.
fn hash_part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

impl Content {
    fn add_to(&self, hasher: &mut Sha256) {
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
                    content.add_to(hasher);
                }
            }
        }
    }

    fn of(path: &Path, extensions: Extensions, digests: &mut Digests) -> Self {
        Self::read(path, extensions, digests).unwrap_or_else(|error| match error.kind() {
            // The file does not exist, a link is dangling, or a file is in place of a directory.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Absent,
            kind => Self::Unreadable(kind),
        })
    }

    fn read(path: &Path, extensions: Extensions, digests: &mut Digests) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        if metadata.is_file() {
            return digests.of(path, &metadata).map(Self::File);
        }
        if !metadata.is_dir() {
            // Opening a pipe would wait for a writer.
            return Ok(Self::Other);
        }
        let mut entries = BTreeMap::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let path = entry.path();
            let is_directory = path.is_dir();
            if is_directory && extensions.is_empty() || !counts(&path, extensions) {
                continue;
            }
            // A directory with the name of a watched file is a mistake of the operator, and its removal is a change.
            let content = if is_directory {
                Self::Other
            } else {
                Self::of(&path, extensions, digests)
            };
            entries.insert(entry.file_name(), content);
        }
        Ok(Self::Directory(entries))
    }
}

/// The cached digests of files, so that a large file is read again only when its stamp has changed.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    last: HashMap<PathBuf, (Stamp, [u8; 32])>,
    next: HashMap<PathBuf, (Stamp, [u8; 32])>,
}

/// The time after a write within which the next write may leave a file's times unchanged, because the clocks of file
/// systems are coarse.
const COARSENESS: Duration = Duration::from_secs(2);

/// A file above this size in bytes is considered changed when its stamp has changed: files this large are not
/// used, and reading them would take long.
const LARGEST: u64 = 256 << 20;

impl Digests {
    fn begin(&mut self) {
        self.next = HashMap::new();
    }

    fn end(&mut self) {
        self.last = std::mem::take(&mut self.next);
    }

    fn of(&mut self, path: &Path, metadata: &Metadata) -> io::Result<[u8; 32]> {
        let stamp = Stamp::of(metadata);
        if let Some((known, digest)) = self.last.get(path)
            && *known == stamp
        {
            self.next.insert(path.to_owned(), (stamp, *digest));
            return Ok(*digest);
        }
        if metadata.len() > LARGEST {
            self.next.insert(path.to_owned(), (stamp, stamp.digest()));
            return Ok(stamp.digest());
        }
        #[allow(clippy::disallowed_methods, reason = "it is compared with the times of files")]
        let now = SystemTime::now();
        let mut file = file::open(path)?;
        // The path may now lead to a different file.
        let stamp = Stamp::of(&file.metadata()?);
        let digest = digest(&mut (&mut file).take(LARGEST))?;
        if stamp.is_settled(now) {
            self.next.insert(path.to_owned(), (stamp, digest));
        }
        Ok(digest)
    }
}

fn digest(file: &mut impl Read) -> io::Result<[u8; 32]> {
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

/// The metadata of a file: the same settled stamp means the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
    changed: Option<SystemTime>,
}

impl Stamp {
    /// Returns the stamp of a file.
    pub fn of(metadata: &Metadata) -> Self {
        let seconds = u64::try_from(metadata.ctime()).ok();
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).ok();
        let changed = seconds.zip(nanoseconds).and_then(|(seconds, nanoseconds)| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
        });
        Self {
            file: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            changed,
        }
    }

    /// Returns a digest in place of the content of a file that is too large to be read.
    fn digest(&self) -> [u8; 32] {
        Sha256::digest(format!("{self:?}")).into()
    }

    /// Returns the time since the file was last written or replaced; `None` if that lies in the future.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(self.changed?).ok()
    }

    /// Returns whether every change of the file after `now` changes its stamp.
    fn is_settled(&self, now: SystemTime) -> bool {
        self.age(now).is_some_and(|age| age > COARSENESS)
    }
}

#[cfg(test)]
mod tests;
