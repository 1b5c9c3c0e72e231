use crate::Digest;

/// Everything that a compiled form depends on, as one digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompiledKey(Digest);

impl CompiledKey {
    /// The key of a module with these settings, compiled by an engine with this fingerprint.
    pub fn new(module: Digest, settings: &str, engine_fingerprint: &str) -> Self {
        Self(Digest::of_parts([
            module.as_bytes().as_slice(),
            settings.as_bytes(),
            engine_fingerprint.as_bytes(),
        ]))
    }

    pub(super) fn digest(self) -> Digest {
        self.0
    }
}
