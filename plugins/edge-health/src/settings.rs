//! What the operator writes.

use admittance_sdk::prelude::*;

/// Which nodes count as reachable though the control plane has lost them.
#[settings]
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Take every node whose condition `Ready` is `Unknown` for reachable, also one with the
    /// annotation `nodeunhealth`. For clusters where nothing sets that annotation properly.
    #[serde(default)]
    pub always_reachable: bool,
}
