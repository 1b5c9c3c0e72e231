use std::collections::BTreeMap;

use admittance_sdk::prelude::*;
use admittance_sdk::{Text, cluster};

use crate::node::{ClusterNode, Reachability};

type NodeLookup<'r> = Box<dyn FnMut(&str) -> Result<Option<ClusterNode>, cluster::Error> + 'r>;

pub(crate) struct LookedUpNodes<'r> {
    reachability: Reachability,
    look_up: NodeLookup<'r>,
    presumed_reachable: BTreeMap<Text<'r>, bool>,
}

impl<'r> LookedUpNodes<'r> {
    pub(crate) fn new(
        reachability: Reachability,
        look_up: impl FnMut(&str) -> Result<Option<ClusterNode>, cluster::Error> + 'r,
    ) -> Self {
        Self {
            reachability,
            look_up: Box::new(look_up),
            presumed_reachable: BTreeMap::new(),
        }
    }

    pub(crate) fn from_cluster(reachability: Reachability) -> Self {
        Self::new(reachability, |name| cluster::get("v1", "Node", None, name))
    }

    pub(crate) fn is_presumed_reachable(&mut self, name: Option<&Text<'r>>) -> Result<bool, Error> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(false);
        };
        if let Some(is_presumed_reachable) = self.presumed_reachable.get(name) {
            return Ok(*is_presumed_reachable);
        }
        let node = (self.look_up)(name)
            .map_err(|error| Error::other(format!("the Node \"{name}\" cannot be looked up: {error}")))?;
        let is_presumed_reachable = node.is_some_and(|node| self.reachability.is_presumed_reachable(&node));
        self.presumed_reachable.insert(name.clone(), is_presumed_reachable);
        Ok(is_presumed_reachable)
    }
}
