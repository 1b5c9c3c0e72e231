//! Changes Endpoints, which list the ready and the not ready addresses of a Service's Pods.

use admittance_sdk::Text;
use admittance_sdk::prelude::*;
use admittance_sdk::serde::de::IgnoredAny;

use crate::NullableList;
use crate::nodes::LookedUpNodes;

#[view]
struct NodeEndpoints<'a> {
    #[serde(borrow)]
    subsets: NullableList<EndpointSubset<'a>>,
}

#[view]
struct EndpointSubset<'a> {
    addresses: Option<Vec<IgnoredAny>>,
    #[serde(borrow)]
    not_ready_addresses: NullableList<NodeAddress<'a>>,
}

#[view]
struct NodeAddress<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
}

/// Moves the unready addresses on reachable nodes to the end of the ready addresses.
pub(crate) fn patch<'r>(request: &'r Request, nodes: &mut LookedUpNodes<'r>) -> Result<Patch, Error> {
    let mut patch = Patch::new();
    let subsets = request
        .object::<NodeEndpoints<'r>>()?
        .and_then(|endpoints| endpoints.subsets);
    for (index, subset) in subsets.iter().flatten().enumerate() {
        if let Some(subset) = subset {
            move_addresses(index, subset, nodes, &mut patch)?;
        }
    }
    Ok(patch)
}

fn move_addresses<'r>(
    index: usize,
    subset: &EndpointSubset<'r>,
    nodes: &mut LookedUpNodes<'r>,
    patch: &mut Patch,
) -> Result<(), Error> {
    let not_ready = subset.not_ready_addresses.as_deref().unwrap_or_default();
    let mut reachable = Vec::new();
    for (at, address) in not_ready.iter().enumerate() {
        if nodes.is_presumed_reachable(address.as_ref().and_then(|address| address.node_name.as_ref()))? {
            reachable.push(at);
        }
    }
    if reachable.is_empty() {
        return Ok(());
    }
    let from = pointer!["subsets", index, "notReadyAddresses"];
    let to = pointer!["subsets", index, "addresses"];
    let all = reachable.len() == not_ready.len();
    if all && subset.addresses.as_ref().is_none_or(Vec::is_empty) {
        patch.move_to(&from, &to);
        return Ok(());
    }
    patch.ensure_array(&to, subset.addresses.is_some());
    let end = to.with_trailing_token("-");
    for (moved, at) in reachable.into_iter().enumerate() {
        // Each earlier move took one address out of the list, and all addresses behind it moved up by one. So after
        // `moved` moves, the address whose index was `at` has the index `at - moved`.
        patch.move_to(from.with_trailing_token(at - moved), &end);
    }
    if all {
        patch.remove(&from);
    }
    Ok(())
}
