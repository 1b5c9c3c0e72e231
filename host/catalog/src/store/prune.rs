use std::{collections::HashSet, fs, path::PathBuf};

use super::{CompiledKey, Store, StoreEntryKind, files_in};
use crate::Digest;

/// The entries of the store that are in use, so that pruning must not remove them.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    pub modules: HashSet<Digest>,
    pub compiled: HashSet<CompiledKey>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneResult {
    pub entries: usize,
    /// The total size of the entries that were removed, in bytes.
    pub bytes: u64,
    /// The size of the store after pruning, in bytes.
    pub size_left: u64,
}

impl Store {
    /// Removes the least recently used entries until the store has at most `limit` bytes. Entries in use are not
    /// removed. If another program needs a removed entry, it fetches or compiles the module again.
    pub fn prune(&self, limit: u64, in_use: &InUse) -> PruneResult {
        let modules = in_use.modules.iter().map(|digest| (StoreEntryKind::Module, *digest));
        let paths_in_use: HashSet<PathBuf> = modules
            .chain(in_use.compiled.iter().map(|key| (StoreEntryKind::Compiled, key.0)))
            .map(|(kind, name)| self.path(kind, name))
            .collect();
        // Temporary files and partial downloads are not pruned, because `remove_stale_files` removes them.
        let mut entries: Vec<_> = [
            StoreEntryKind::Module,
            StoreEntryKind::Compiled,
            StoreEntryKind::Resolution,
            StoreEntryKind::Signature,
        ]
        .into_iter()
        .flat_map(|kind| files_in(&self.directory_of(kind)))
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), path))
        })
        .collect();
        entries.sort_by_key(|(used_at, ..)| *used_at);
        let mut pruned = PruneResult {
            size_left: entries.iter().map(|(_, size, _)| size).sum(),
            ..PruneResult::default()
        };
        for (_, size, path) in entries {
            if pruned.size_left <= limit {
                break;
            }
            if !paths_in_use.contains(&path) && fs::remove_file(&path).is_ok() {
                pruned.entries += 1;
                pruned.bytes = pruned.bytes.saturating_add(size);
                pruned.size_left = pruned.size_left.saturating_sub(size);
            }
        }
        pruned
    }
}
