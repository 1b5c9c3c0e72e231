use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use admittance_admission::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{self, OnceCell};

use crate::Sandbox;

/// Keeps compiled forms of a module for later preparations of the same module. It keeps only forms that do not depend
/// on the settings. Without a `SharedModule`, preparations share such forms only if they run at the same time.
#[derive(Clone, Debug)]
#[must_use = "the compiled forms are dropped with the last of these"]
pub struct SharedModule(pub(crate) Arc<SharedForms>);

#[derive(Debug, Default)]
pub(crate) struct SharedForms {
    /// The compiled form of the instrumented module. Each preparation runs `configure` with it, then takes a snapshot.
    pub(crate) instrumented: OnceCell<Bytes>,
    /// A template is a snapshot with a filler in place of its data. This is the digest of the template that was
    /// compiled last, and its compiled form.
    pub(crate) template: sync::Mutex<Option<(Digest, Bytes)>>,
}

/// The compiled forms that preparations of a module share. The key is the digest of the module.
#[derive(Debug, Default)]
pub(crate) struct SharedModules(Mutex<HashMap<Digest, Weak<SharedForms>>>);

impl Sandbox {
    /// Shares the compiled forms of the module with this digest. Until the returned value is dropped, forms that do not
    /// depend on settings are compiled once for all preparations of the module.
    pub fn share(&self, module: Digest) -> SharedModule {
        let mut modules = self.inner.shared.0.lock();
        modules.retain(|_, forms| forms.strong_count() > 0);
        SharedModule(modules.get(&module).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::default();
            modules.insert(module, Arc::downgrade(&shared));
            shared
        }))
    }
}
