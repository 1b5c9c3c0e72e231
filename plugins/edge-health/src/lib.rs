//! The stock plugin `edge-health`: keeps Kubernetes from evicting the Pods of an edge node, and from
//! taking their addresses out of Services, when only the line between node and control plane is cut.
//!
//! ```yaml
//! alwaysReachable: false
//! ```
//!
//! When the control plane no longer hears from a node, its condition `Ready` becomes `Unknown`. The node
//! may be well all the same: at the edge the line fails more often than the machine. Something that still
//! reaches the node, such as the edge-health daemon of [SuperEdge], says so by a Node's annotation
//! `nodeunhealth`: nodes that have it are gone, whatever its value, and nodes that do not have it are there.
//! The rules are those of SuperEdge's edge-health-admission.
//!
//! For a node that is `Unknown` and does not have the annotation:
//!
//! | request | what becomes of it |
//! |---|---|
//! | UPDATE of the Node | its taints `node.kubernetes.io/unreachable` with the effect `NoExecute` are removed |
//! | CREATE, UPDATE of Endpoints | its addresses move from `notReadyAddresses` to `addresses` |
//! | CREATE, UPDATE of an EndpointSlice | its endpoints become ready, unless they are terminating |
//!
//! SuperEdge acts on UPDATE only. Endpoints and slices are treated alike when they are created here: the
//! outcome depends on the nodes as they are and not on what was there before, and a slice that is new while
//! the line is cut would otherwise wait for its next update. A chain whose rules name UPDATE alone has it
//! as SuperEdge does. Why an address is not ready the plugin cannot see: one whose own probe failed is
//! taken in again too while its node is `Unknown`.
//!
//! Nodes are read with the capability `cluster("v1/Node")`, each once in a request, and only for addresses
//! that are not ready. A Node that does not exist leaves its addresses alone. When Nodes cannot be read
//! the call fails, and the stage's failure policy decides. Requests for subresources are left alone:
//! an update of `nodes/status` cannot change taints.
//!
//! [SuperEdge]: https://github.com/superedge/superedge

mod endpoints;
mod node;
mod nodes;
mod settings;
mod slices;

use admittance_sdk::prelude::*;

use node::Judge;
use nodes::Nodes;
pub use settings::Settings;

/// A list of the control plane's: it may be absent or `null`, and so may what is in it.
type List<T> = Option<Vec<Option<T>>>;

/// The configured plugin.
#[derive(Debug)]
pub struct EdgeHealth {
    judge: Judge,
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
            judge: Judge { always_reachable },
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
            ("", "v1", "Node", Operation::Update) => node::patch(request, self.judge)?,
            ("", "v1", "Endpoints", Operation::Create | Operation::Update) => {
                endpoints::patch(request, &mut Nodes::of_the_cluster(self.judge))?
            }
            (
                "discovery.k8s.io",
                "v1" | "v1beta1",
                "EndpointSlice",
                Operation::Create | Operation::Update,
            ) => slices::patch(request, &mut Nodes::of_the_cluster(self.judge))?,
            _ => Patch::new(),
        };
        Ok(Response::patch(patch))
    }
}

#[cfg(test)]
mod tests;
