use std::{collections::HashSet, fs, path::PathBuf, time::SystemTime};

use super::{CompiledKey, Kind, Store, files_in};
use crate::Digest;

/// Entries that must stay because they are in use.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// The modules of the live table.
    pub modules: HashSet<Digest>,
    /// Their compiled forms.
    pub compiled: HashSet<CompiledKey>,
}

/// The result of pruning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of removed entries.
    pub entries: usize,
    /// Their total size in bytes.
    pub bytes: u64,
    /// The size of the store after pruning, in bytes.
    pub left: u64,
}

struct Entry {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

impl Store {
    /// Removes the least recently used entries until the rest has at most `limit` bytes. Entries in use stay.
    /// An entry that another program is about to use may be removed: it is fetched or compiled again.
    pub fn prune(&self, limit: u64, in_use: &InUse) -> Pruned {
        let keep: HashSet<PathBuf> = in_use
            .modules
            .iter()
            .map(|digest| self.path(Kind::Module, *digest))
            .chain(
                in_use
                    .compiled
                    .iter()
                    .map(|key| self.path(Kind::Compiled, key.digest())),
            )
            .collect();
        let mut entries = self.entries();
        entries.sort_by_key(|entry| entry.used);
        let mut pruned = Pruned {
            left: entries.iter().map(|entry| entry.size).sum(),
            ..Pruned::default()
        };
        for entry in entries {
            if pruned.left <= limit {
                break;
            }
            if !keep.contains(&entry.path) && fs::remove_file(&entry.path).is_ok() {
                pruned.entries += 1;
                pruned.bytes = pruned.bytes.saturating_add(entry.size);
                pruned.left = pruned.left.saturating_sub(entry.size);
            }
        }
        pruned
    }

    /// All complete entries. Temporary files and downloads are removed separately.
    fn entries(&self) -> Vec<Entry> {
        [Kind::Module, Kind::Compiled, Kind::Resolution, Kind::Signature]
            .into_iter()
            .flat_map(|kind| files_in(&self.directory_of(kind)))
            .filter_map(|path| {
                let metadata = fs::metadata(&path).ok()?;
                Some(Entry {
                    size: metadata.len(),
                    used: metadata.modified().ok()?,
                    path,
                })
            })
            .collect()
    }
}
