use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{ClusterKind, HttpGrant, ImageGrant};

/// What a stage grants its plugin. Default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Kinds of the control plane that the plugin may read; those of access reviews let it ask what users may do.
    pub cluster: BTreeSet<ClusterKind>,
    /// The only namespace of which the plugin may read objects; `None`: all, and objects in none.
    pub namespace: Option<Arc<str>>,
    /// Requests that the plugin may send.
    pub http: Vec<HttpGrant>,
    /// Images in registries that the plugin may read.
    pub images: Vec<ImageGrant>,
    /// Environment values that the plugin sees: name and value.
    pub environment: BTreeMap<String, String>,
}

impl Grants {
    /// Whether the plugin may ask what the user of its request may do.
    pub fn own_access(&self) -> bool {
        self.any_access() || self.cluster.contains(&ClusterKind::own_access())
    }

    /// Whether the plugin may ask what any user may do.
    pub fn any_access(&self) -> bool {
        self.cluster.contains(&ClusterKind::any_access())
    }
}
