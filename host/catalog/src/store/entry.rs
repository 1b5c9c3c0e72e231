use super::{Kind, Store, Temporary};
use crate::{Digest, Error};

/// The magic bytes of a sealed entry, followed by the digest of the rest.
const MAGIC: &[u8; 8] = b"admstr01";
const HEADER: usize = MAGIC.len() + 32;

impl Store {
    /// The content of a sealed entry.
    pub(super) fn sealed(&self, kind: Kind, name: Digest) -> Option<Vec<u8>> {
        let path = self.path(kind, name);
        let mut entry = self.read(&path)?;
        let is_intact = entry.split_at_checked(HEADER).is_some_and(|(header, content)| {
            let (magic, digest) = header.split_at(MAGIC.len());
            magic == MAGIC && digest == Digest::of(content).as_bytes()
        });
        if !is_intact {
            self.remove_damaged(&path);
            return None;
        }
        entry.drain(..HEADER);
        Some(entry)
    }

    /// Write a sealed entry.
    pub(super) fn keep_sealed(&self, kind: Kind, name: Digest, content: &[u8]) -> Result<(), Error> {
        let digest = Digest::of(content);
        let parts = [MAGIC.as_slice(), digest.as_bytes(), content];
        Temporary::write(&self.directory_of(Kind::Temporary), &parts)?.persist(&self.path(kind, name))
    }
}
