//! Changes EndpointSlices, which list the endpoints of a Service, each with its own conditions.

use admittance_sdk::Text;
use admittance_sdk::prelude::*;

use crate::NullableList;
use crate::nodes::LookedUpNodes;

#[view]
struct EndpointSlice<'a> {
    #[serde(borrow)]
    endpoints: NullableList<SliceEndpoint<'a>>,
}

#[view]
struct SliceEndpoint<'a> {
    conditions: Option<EndpointConditions>,
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    /// The topology of the endpoint, which contains the name of the node in the API version `v1beta1`.
    #[serde(borrow)]
    topology: Option<Topology<'a>>,
}

/// Consumers treat an endpoint without the condition `ready` as ready.
#[view]
#[derive(Clone, Copy)]
struct EndpointConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[view]
struct Topology<'a> {
    /// The name of the endpoint's node, which the control plane sets.
    #[serde(borrow, rename = "kubernetes.io/hostname")]
    hostname: Option<Text<'a>>,
}

pub(crate) fn patch<'r>(request: &'r Request, nodes: &mut LookedUpNodes<'r>) -> Result<Patch, Error> {
    let mut patch = Patch::new();
    let has_topology = request.kind().version == "v1beta1";
    let endpoints = request.object::<EndpointSlice<'r>>()?.and_then(|slice| slice.endpoints);
    for (index, endpoint) in endpoints.iter().flatten().enumerate() {
        let Some(endpoint) = endpoint else { continue };
        let Some(conditions) = endpoint.conditions.filter(EndpointConditions::can_become_ready) else {
            continue;
        };
        let node = endpoint.node_name.as_ref().filter(|name| !name.is_empty()).or_else(|| {
            let topology = endpoint.topology.as_ref().filter(|_| has_topology)?;
            topology.hostname.as_ref()
        });
        if !nodes.is_presumed_reachable(node)? {
            continue;
        }
        let at = pointer!["endpoints", index, "conditions"];
        patch.replace(at.with_trailing_token("ready"), &true)?;
        // The endpoint becomes ready. In Kubernetes, a ready endpoint that is not terminating is always serving too, so
        // this condition is corrected as well.
        if conditions.serving == Some(false) {
            patch.replace(at.with_trailing_token("serving"), &true)?;
        }
    }
    Ok(patch)
}

impl EndpointConditions {
    fn can_become_ready(&self) -> bool {
        self.ready == Some(false) && self.terminating != Some(true)
    }
}
