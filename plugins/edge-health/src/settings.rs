//! The settings that a chain gives the plugin.

use admittance_sdk::prelude::*;

/// The nodes that are treated as reachable although the control plane has lost contact.
#[settings]
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Treat every node whose condition `Ready` is `Unknown` as reachable, even one with the annotation `nodeunhealth`.
    /// This is meant for clusters where nothing sets that annotation properly.
    #[serde(default)]
    pub always_reachable: bool,
}
