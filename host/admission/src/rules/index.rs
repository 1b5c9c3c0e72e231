use std::{collections::HashMap, iter, sync::Arc};

use crate::{Chain, Matcher, Operation, Outline, Phase, Request};

/// Finds the chains that may match a request, in a time that does not depend on the number of other chains.
///
/// A chain is listed under the resources of its rules. If a rule includes all resources, the chain is listed under the
/// kinds of that rule. If the rule includes all kinds, too, the chain is listed for all requests. After the lookup, the
/// rules decide which of the found chains match.
#[derive(Clone, Debug, Default)]
pub struct ChainIndex {
    by_resource: HashMap<String, Positions>,
    /// Maps a kind in lower case to the positions of the chains that are listed under this kind.
    by_kind: HashMap<String, Positions>,
    for_everything: Positions,
    by_name: HashMap<Arc<str>, Vec<(Phase, usize)>>,
}

type Positions = HashMap<Operation, Vec<usize>>;

impl ChainIndex {
    /// Creates an index of these chains. The index refers to a chain by its position in `chains`.
    pub fn new<'a, S: 'a>(chains: impl IntoIterator<Item = &'a Chain<S>>) -> Self {
        let mut index = Self::default();
        for (position, chain) in chains.into_iter().enumerate() {
            let entries = index.by_name.entry(chain.name.clone()).or_default();
            entries.push((chain.phase, position));
            for rule in &chain.rules {
                let operations = match &rule.operations {
                    Matcher::Any => &Operation::ALL[..],
                    Matcher::Only(operations) => operations,
                };
                let resources: Option<Vec<&str>> = rule.resources.iter().map(|pattern| pattern.resource()).collect();
                let add = |positions: &mut Positions| {
                    for operation in operations {
                        let chain_positions = positions.entry(*operation).or_default();
                        if chain_positions.last() != Some(&position) {
                            chain_positions.push(position);
                        }
                    }
                };
                match (resources, &rule.kinds) {
                    (Some(resources), _) => {
                        for resource in resources {
                            add(index.by_resource.entry(resource.to_owned()).or_default());
                        }
                    }
                    (None, Matcher::Only(kinds)) => {
                        for kind in kinds {
                            add(index.by_kind.entry(kind.to_ascii_lowercase()).or_default());
                        }
                    }
                    (None, Matcher::Any) => add(&mut index.for_everything),
                }
            }
        }
        index
    }

    /// Returns the positions of the chains that may match this request, in ascending order.
    pub fn candidates_of_request(&self, request: &Request) -> Vec<usize> {
        let requested_kind = request.requested_kind.as_deref();
        let resources = iter::once(&request.resource).chain(requested_kind.map(|requested| &requested.resource));
        let kinds = iter::once(&request.kind).chain(requested_kind.map(|requested| &requested.kind));
        self.positions(
            request.operation,
            resources.map(|resource| resource.resource.as_str()),
            kinds.map(|kind| kind.kind.as_str()),
        )
    }

    /// Returns the positions of the chains that may match a request of which only this outline is known. The positions
    /// are in ascending order.
    ///
    /// Returns `None` if the outline says too little: if it has no resource, or if it has no kind, and some chains can
    /// be found only by the kind.
    pub fn candidates_of_outline(&self, outline: &Outline<'_>) -> Option<Vec<usize>> {
        let resource = outline.resource?.resource.as_str();
        match outline.kind {
            Some(kind) => Some(self.positions(outline.operation, [resource], [kind])),
            None if self.by_kind.is_empty() => Some(self.positions(outline.operation, [resource], [])),
            None => None,
        }
    }

    /// Returns the position of the chain with this phase and name.
    pub fn position(&self, phase: Phase, name: &str) -> Option<usize> {
        let mut entries = self.by_name.get(name)?.iter();
        entries
            .find(|(chain_phase, _)| *chain_phase == phase)
            .map(|(_, position)| *position)
    }

    fn positions<'a>(
        &self,
        operation: Operation,
        resources: impl IntoIterator<Item = &'a str>,
        kinds: impl IntoIterator<Item = &'a str>,
    ) -> Vec<usize> {
        let by_resource = resources.into_iter().filter_map(|name| self.by_resource.get(name));
        let by_kind = kinds
            .into_iter()
            .filter(|_| !self.by_kind.is_empty())
            .filter_map(|kind| self.by_kind.get(&kind.to_ascii_lowercase()));
        let mut chain_positions: Vec<usize> = by_resource
            .chain(by_kind)
            .chain([&self.for_everything])
            .filter_map(|positions| positions.get(&operation))
            .flatten()
            .copied()
            .collect();
        chain_positions.sort_unstable();
        chain_positions.dedup();
        chain_positions
    }
}
