use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use admittance_admission::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{self, OnceCell};

use crate::Sandbox;

/// Keeps the compiled forms of a module that do not depend on settings, so that the next preparation reuses them.
/// Without this value, only concurrent preparations share them.
#[derive(Clone, Debug)]
#[must_use = "the compiled forms are dropped with the last of these"]
pub struct SharedModule(pub(crate) Arc<Shared>);

/// The compiled forms that all preparations of one module share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The compiled instrumented module, which is configured and snapshotted.
    pub(crate) instrumented: OnceCell<Bytes>,
    /// The last compiled [`SnapshotTemplate`](crate::snapshot_template::SnapshotTemplate): its digest and its compiled
    /// form.
    pub(crate) template: sync::Mutex<Option<(Digest, Bytes)>>,
}

/// The compiled forms that running preparations share, by the digest of the module.
#[derive(Debug, Default)]
pub(crate) struct SharedModules(Mutex<HashMap<Digest, Weak<Shared>>>);

impl Sandbox {
    /// Shares the compiled forms of the module with this digest. Until the result is dropped, forms that do not depend
    /// on settings are compiled only once for all preparations of the module.
    pub fn share(&self, module: Digest) -> SharedModule {
        let mut modules = self.inner.shared.0.lock();
        modules.retain(|_, known| known.strong_count() > 0);
        SharedModule(modules.get(&module).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::default();
            modules.insert(module, Arc::downgrade(&shared));
            shared
        }))
    }
}
