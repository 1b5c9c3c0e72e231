use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use admittance_admission::Digest;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{self, OnceCell};

use crate::Sandbox;

/// Keeps compiled forms of a module for later preparations. It keeps only forms that do not depend on the settings. If
/// there is no such value, these forms are shared only among preparations that run at the same time.
#[derive(Clone, Debug)]
#[must_use = "the compiled forms are dropped with the last of these"]
pub struct SharedModule(pub(crate) Arc<SharedForms>);

#[derive(Debug, Default)]
pub(crate) struct SharedForms {
    /// The compiled form of the instrumented module. Each preparation runs `configure` with it, and then takes a
    /// snapshot.
    pub(crate) instrumented: OnceCell<Bytes>,
    /// The digest and the compiled form of the template that was compiled last.
    pub(crate) template: sync::Mutex<Option<(Digest, Bytes)>>,
}

/// The compiled forms of the modules that are being prepared, by the module's digest.
#[derive(Debug, Default)]
pub(crate) struct SharedModules(Mutex<HashMap<Digest, Weak<SharedForms>>>);

impl Sandbox {
    /// Shares the compiled forms of the module with this digest. Until the returned value is dropped, forms that do not
    /// depend on settings are compiled once for all preparations of the module.
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
