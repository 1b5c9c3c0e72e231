//! EndpointSlices: the endpoints of a Service, each with its own conditions.

use admittance_sdk::Text;
use admittance_sdk::prelude::*;

use crate::List;
use crate::nodes::Nodes;

#[view]
struct Slice<'a> {
    #[serde(borrow)]
    endpoints: List<Endpoint<'a>>,
}

#[view]
struct Endpoint<'a> {
    conditions: Option<Conditions>,
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    /// In `v1beta1`, contains the name of the node if `nodeName` is absent. `v1` does not have this field.
    #[serde(borrow)]
    topology: Option<Topology<'a>>,
}

/// The conditions of an endpoint. An absent condition is unknown, which consumers treat as ready.
#[view]
#[derive(Clone, Copy)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[view]
struct Topology<'a> {
    /// The name of the node, set by the control plane.
    #[serde(borrow, rename = "kubernetes.io/hostname")]
    hostname: Option<Text<'a>>,
}

/// Marks the endpoints on nodes that are presumed reachable as ready.
pub(crate) fn patch<'r>(request: &'r Request, nodes: &mut Nodes<'r>) -> Result<Patch, Error> {
    let mut patch = Patch::new();
    let has_topology = request.kind().version == "v1beta1";
    let endpoints = request.object::<Slice<'r>>()?.and_then(|slice| slice.endpoints);
    for (index, endpoint) in endpoints.iter().flatten().enumerate() {
        let Some(endpoint) = endpoint else { continue };
        let Some(conditions) = endpoint.conditions.filter(Conditions::can_become_ready) else {
            continue;
        };
        let node = endpoint
            .node_name
            .as_ref()
            .filter(|name| !name.is_empty())
            .or_else(|| {
                let topology = endpoint.topology.as_ref().filter(|_| has_topology)?;
                topology.hostname.as_ref()
            });
        if !nodes.is_presumed_reachable(node)? {
            continue;
        }
        let at = pointer!["endpoints", index, "conditions"];
        patch.replace(at.with_trailing_token("ready"), &true)?;
        // An endpoint that is not terminating must be serving if and only if it is ready.
        if conditions.serving == Some(false) {
            patch.replace(at.with_trailing_token("serving"), &true)?;
        }
    }
    Ok(patch)
}

impl Conditions {
    /// Returns whether the endpoint is neither ready nor terminating: terminating endpoints get no new connections.
    fn can_become_ready(&self) -> bool {
        self.ready == Some(false) && self.terminating != Some(true)
    }
}
