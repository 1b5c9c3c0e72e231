//! Decides which nodes count as healthy although they are disconnected, and removes their taints.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;
use admittance_sdk::serde::de::IgnoredAny;

use crate::NullableList;

/// The annotation with which unhealthy nodes are marked. It may have any value.
const UNHEALTHY_ANNOTATION: &str = "nodeunhealth";

/// The taint with which Kubernetes evicts the Pods of an unreachable node.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

#[view]
pub(crate) struct ClusterNode {
    metadata: Option<NodeMetadata>,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

#[view]
struct NodeMetadata {
    annotations: Option<BTreeMap<String, IgnoredAny>>,
}

#[view]
struct NodeSpec {
    taints: NullableList<Taint>,
}

#[view]
struct Taint {
    key: Option<String>,
    effect: Option<String>,
}

#[view]
struct NodeStatus {
    conditions: NullableList<NodeCondition>,
}

#[view]
struct NodeCondition {
    #[serde(rename = "type")]
    name: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reachability {
    pub(crate) always_reachable: bool,
}

impl Reachability {
    /// Returns whether the plugin treats a node as reachable although the control plane has lost contact. A node with
    /// the annotation [`UNHEALTHY_ANNOTATION`] is treated so only if `always_reachable` is set.
    pub(crate) fn is_presumed_reachable(self, node: &ClusterNode) -> bool {
        node.is_readiness_unknown() && (self.always_reachable || !node.is_marked_unhealthy())
    }
}

impl ClusterNode {
    fn is_readiness_unknown(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions
            .flatten()
            .flatten()
            .find(|condition| condition.name.as_deref() == Some("Ready"))
            .is_some_and(|ready| ready.status.as_deref() == Some("Unknown"))
    }

    fn is_marked_unhealthy(&self) -> bool {
        let annotations = self
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.contains_key(UNHEALTHY_ANNOTATION))
    }
}

impl Taint {
    fn evicts_pods(&self) -> bool {
        self.key.as_deref() == Some(UNREACHABLE_TAINT) && self.effect.as_deref() == Some("NoExecute")
    }
}

pub(crate) fn patch(request: &Request, reachability: Reachability) -> Result<Patch, Error> {
    let mut patch = Patch::new();
    let Some(node) = request.object::<ClusterNode>()? else {
        return Ok(patch);
    };
    if !reachability.is_presumed_reachable(&node) {
        return Ok(patch);
    }
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let evicting: Vec<usize> = taints
        .iter()
        .enumerate()
        .filter(|(_, taint)| taint.as_ref().is_some_and(Taint::evicts_pods))
        .map(|(index, _)| index)
        .collect();
    if !evicting.is_empty() && evicting.len() == taints.len() {
        patch.remove(pointer!["spec", "taints"]);
    } else {
        // The last taint is removed first, so that the indexes of the taints before it do not change.
        for index in evicting.into_iter().rev() {
            patch.remove(pointer!["spec", "taints", index]);
        }
    }
    Ok(patch)
}
