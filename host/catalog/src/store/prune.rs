use std::{collections::HashSet, fs, path::PathBuf, time::SystemTime};

use super::{CompiledKey, Kind, Store, files_in};
use crate::Digest;

/// What of a store must stay: it serves now.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// The modules of the live table.
    pub modules: HashSet<Digest>,
    /// Their compiled forms.
    pub compiled: HashSet<CompiledKey>,
}

/// What pruning came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many entries were removed.
    pub entries: usize,
    /// How large they were together, in bytes.
    pub bytes: u64,
    /// How large the store is now, in bytes.
    pub left: u64,
}

struct Entry {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

impl Store {
    /// Remove what was not used for longest, until the rest has at most `limit` bytes. What is in use
    /// stays, and so may what another program is about to use not: it fetches or compiles it again.
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

    /// All that is whole. What is being written or downloaded has its own end.
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
