//! The stock plugin `edge-health`: prevents Kubernetes from evicting the Pods of an edge node, and from removing their
//! addresses from Services, if only the connection between node and control plane is lost.
//!
//! ```yaml
//! alwaysReachable: false
//! ```
//!
//! When the control plane loses contact with a node, the node's condition `Ready` becomes `Unknown`. The node may still
//! be healthy: at the edge, connections fail more often than machines. A component that can still reach the nodes, such
//! as the edge-health daemon of [SuperEdge], marks unhealthy Nodes with the annotation `nodeunhealth`, with any value;
//! nodes without it are healthy. The plugin follows the rules of SuperEdge's edge-health-admission.
//!
//! The effect on a node that is `Unknown` without the annotation:
//!
//! | request | effect |
//! |---|---|
//! | UPDATE of the Node | its taints `node.kubernetes.io/unreachable` with the effect `NoExecute` are removed |
//! | CREATE, UPDATE of Endpoints | its addresses move from `notReadyAddresses` to `addresses` |
//! | CREATE, UPDATE of an EndpointSlice | its endpoints become ready, unless they are terminating |
//!
//! SuperEdge acts only on UPDATE. This plugin also handles the creation of Endpoints and slices: the outcome
//! depends on the current nodes and not on the old object, and a slice that is created while the connection is
//! lost would otherwise wait for its next update. For the behaviour of SuperEdge, name only UPDATE in the rules of
//! the chain. The plugin cannot see why an address is not ready: while its node is `Unknown`, an address whose own
//! probe failed becomes ready too.
//!
//! Nodes are read with the capability `cluster("v1/Node")`, each once per request, and only for addresses that are not
//! ready. Addresses of a missing Node are not changed. If Nodes cannot be read, the call fails, and the stage's failure
//! policy applies. Requests for subresources are ignored: an update of `nodes/status` cannot change taints.
//!
//! [SuperEdge]: https://github.com/superedge/superedge

mod endpoints;
mod node;
mod nodes;
mod settings;
mod slices;

use admittance_sdk::prelude::*;

use node::Reachability;
use nodes::LookedUpNodes;
pub use settings::Settings;

/// A list in an object of the control plane: the list and its elements may be absent or `null`.
type NullableList<T> = Option<Vec<Option<T>>>;

/// The plugin `edge-health`, configured with its settings.
#[derive(Debug)]
pub struct EdgeHealth {
    reachability: Reachability,
}

#[plugin(
    mutates,
    resources = [
        "v1/nodes", "v1/endpoints",
        "discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1beta1/endpointslices",
    ],
    capabilities = [cluster("v1/Node")],
)]
impl Plugin for EdgeHealth {
    type Settings = Settings;

    fn configure(Settings { always_reachable }: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self {
            reachability: Reachability { always_reachable },
        })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        if request.subresource().is_some() {
            return Ok(Response::allow());
        }
        let kind = request.kind();
        let patch = match (
            kind.group.as_str(),
            kind.version.as_str(),
            kind.kind.as_str(),
            request.operation(),
        ) {
            ("", "v1", "Node", Operation::Update) => node::patch(request, self.reachability)?,
            ("", "v1", "Endpoints", Operation::Create | Operation::Update) => {
                endpoints::patch(request, &mut LookedUpNodes::from_cluster(self.reachability))?
            }
            ("discovery.k8s.io", "v1" | "v1beta1", "EndpointSlice", Operation::Create | Operation::Update) => {
                slices::patch(request, &mut LookedUpNodes::from_cluster(self.reachability))?
            }
            _ => Patch::new(),
        };
        Ok(Response::patch(patch))
    }
}

#[cfg(test)]
mod tests;
