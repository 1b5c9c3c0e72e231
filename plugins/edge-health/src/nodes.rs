use std::collections::BTreeMap;

use admittance_sdk::prelude::*;
use admittance_sdk::{Text, cluster};

use crate::node::{Judge, Node};

/// Returns the Node of this name, if it exists.
type NodeLookup<'r> = Box<dyn FnMut(&str) -> Result<Option<Node>, cluster::Error> + 'r>;

/// The nodes that a request needs, each of which is looked up once.
pub(crate) struct Nodes<'r> {
    judge: Judge,
    look_up: NodeLookup<'r>,
    kept: BTreeMap<Text<'r>, bool>,
}

impl<'r> Nodes<'r> {
    /// Returns an empty cache; `look_up` is called once per node.
    pub(crate) fn new(
        judge: Judge,
        look_up: impl FnMut(&str) -> Result<Option<Node>, cluster::Error> + 'r,
    ) -> Self {
        Self {
            judge,
            look_up: Box::new(look_up),
            kept: BTreeMap::new(),
        }
    }

    /// Creates a cache that looks up nodes in the control plane.
    pub(crate) fn of_the_cluster(judge: Judge) -> Self {
        Self::new(judge, |name| cluster::get("v1", "Node", None, name))
    }

    /// Returns whether the node of this name is kept; false without a name, or if the node does not exist.
    pub(crate) fn keeps(&mut self, name: Option<&Text<'r>>) -> Result<bool, Error> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(false);
        };
        if let Some(kept) = self.kept.get(name) {
            return Ok(*kept);
        }
        let node = (self.look_up)(name)
            .map_err(|error| Error::other(format!("the Node \"{name}\" cannot be looked up: {error}")))?;
        let kept = node.is_some_and(|node| self.judge.keeps(&node));
        self.kept.insert(name.clone(), kept);
        Ok(kept)
    }
}
