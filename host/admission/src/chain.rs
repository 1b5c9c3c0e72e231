pub(crate) mod effect;
pub(crate) mod evaluation;
pub(crate) mod exception;
pub(crate) mod expansion;
pub(crate) mod group;
pub(crate) mod hook;
pub(crate) mod spans;
pub(crate) mod stage;
pub(crate) mod stage_turn;

use std::{fmt, str::FromStr, sync::Arc};

use crate::{Outline, Request, Rule, Scope, Stage, UnknownKeyword, keywords};

/// An ordered list of stages, and rules that select requests for them. A host may use its own type `S` for stages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chain<S = Stage> {
    /// The chain's name in traces, metrics and refusals. It is unique among the chains of its phase.
    pub name: Arc<str>,
    /// The phase in which the chain's stages are called. It determines whether they may change the object.
    pub phase: Phase,
    /// The chain applies only to resources in this namespace, and not to the Namespace itself. `None` includes all
    /// namespaces and cluster-scoped resources.
    pub namespace: Option<Arc<str>>,
    /// The chain's rules. A request must match at least one of them; without rules, the chain applies to no request.
    pub rules: Vec<Rule>,
    /// The chain's stages. In the phase [`Mutating`](Phase::Mutating) they are called in this order, in the phase
    /// [`Validating`](Phase::Validating) concurrently.
    pub stages: Vec<S>,
}

impl Chain {
    /// Creates a chain in the phase [`Mutating`](Phase::Mutating), for resources in all namespaces.
    pub fn new(name: impl Into<Arc<str>>, rules: Vec<Rule>, stages: Vec<Stage>) -> Self {
        Self {
            name: name.into(),
            phase: Phase::Mutating,
            namespace: None,
            rules,
            stages,
        }
    }
}

impl<S> Chain<S> {
    /// Returns this chain with its stages replaced by these.
    pub fn with_stages<T>(self, stages: Vec<T>) -> Chain<T> {
        Chain {
            name: self.name,
            phase: self.phase,
            namespace: self.namespace,
            rules: self.rules,
            stages,
        }
    }

    /// Returns whether the chain applies to this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.is_for_namespace_of(request) && self.rules.iter().any(|rule| rule.matches(request))
    }

    pub(crate) fn is_for_namespace_of(&self, request: &Request) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| !request.is_cluster_wide() && request.namespace.as_deref() == Some(namespace))
    }

    /// Returns whether the chain may apply to a request of which only this outline is known.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_match(outline))
    }
}

/// The two phases of admission, as in kube-apiserver: the validating chains are called after all mutating chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Stages are called one after the other, and each may change the object or refuse the request.
    #[default]
    Mutating,
    /// Stages are called concurrently with the final object, and may only refuse the request.
    Validating,
}

keywords!(Phase, "phase": Mutating = "Mutating", Validating = "Validating");

/// Selects the chains that a request may pass through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All chains.
    All,
    /// The chains of a phase: those with a namespace (scope `Namespaced`), those without (`Cluster`), or both (`Any`).
    Phase(Phase, Scope),
    /// The chain with this name in a phase.
    Chain(Phase, String),
}

impl fmt::Display for Selection {
    /// Writes `all`, `Mutating`, `Mutating/Namespaced` or `Mutating:pods`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Phase(phase, Scope::Any) => write!(f, "{phase}"),
            Self::Phase(phase, scope) => write!(f, "{phase}/{scope}"),
            Self::Chain(phase, name) => write!(f, "{phase}:{name}"),
        }
    }
}

impl FromStr for Selection {
    type Err = UnknownKeyword;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once(':') {
            Some((phase, name)) => Self::Chain(phase.parse()?, name.to_owned()),
            None if text == "all" => Self::All,
            None => match text.split_once('/') {
                Some((phase, scope)) => Self::Phase(phase.parse()?, scope.parse()?),
                None => Self::Phase(text.parse()?, Scope::Any),
            },
        })
    }
}

impl Selection {
    /// Returns whether the selection includes this chain.
    pub fn selects<S>(&self, chain: &Chain<S>) -> bool {
        match self {
            Self::All => true,
            Self::Phase(phase, scope) => {
                let is_in_scope = match scope {
                    Scope::Any => true,
                    Scope::Cluster => chain.namespace.is_none(),
                    Scope::Namespaced => chain.namespace.is_some(),
                };
                chain.phase == *phase && is_in_scope
            }
            Self::Chain(phase, name) => chain.phase == *phase && *chain.name == **name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupVersionKind, GroupVersionResource, Operation};

    #[test]
    fn a_chain_with_a_namespace_applies_only_to_resources_in_it() {
        let chain = Chain {
            namespace: Some("shop".into()),
            ..Chain::new("shop/all", vec![Rule::for_operations(Operation::ALL)], Vec::new())
        };
        for (resource, subresource, namespace, expected) in [
            ("pods", None, Some("shop"), true),
            ("pods", Some("exec"), Some("shop"), true),
            ("pods", None, Some("shop-2"), false),
            ("pods", None, None, false),
            ("nodes", None, None, false),
            // As in kube-apiserver, the request for a Namespace has the Namespace's name as its namespace.
            ("namespaces", None, Some("shop"), false),
            ("namespaces", Some("finalize"), Some("shop"), false),
            ("namespaces", None, None, false),
        ] {
            let resource = GroupVersionResource {
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                ..GroupVersionResource::default()
            };
            let mut request = Request::new(Operation::Update, GroupVersionKind::default(), resource);
            request.subresource = subresource.map(str::to_owned);
            request.namespace = namespace.map(str::to_owned);
            assert_eq!(chain.matches(&request), expected, "{request:?}");
            assert_eq!(chain.mismatch(&request).is_none(), expected, "{request:?}");
            let everywhere = Chain {
                namespace: None,
                ..chain.clone()
            };
            assert!(everywhere.matches(&request));
        }
    }

    #[test]
    fn a_selection_selects_chains_by_phase_and_scope() {
        let cluster = Chain::new("pods", Vec::new(), Vec::new());
        let namespaced = Chain {
            namespace: Some("shop".into()),
            ..Chain::new("shop/pods", Vec::new(), Vec::new())
        };
        for (phase, scope, expected) in [
            (Phase::Mutating, Scope::Any, [true, true]),
            (Phase::Mutating, Scope::Cluster, [true, false]),
            (Phase::Mutating, Scope::Namespaced, [false, true]),
            (Phase::Validating, Scope::Any, [false, false]),
            (Phase::Validating, Scope::Namespaced, [false, false]),
        ] {
            let selection = Selection::Phase(phase, scope);
            let selected = [&cluster, &namespaced].map(|chain| selection.selects(chain));
            assert_eq!(selected, expected, "{selection}");
        }
    }

    #[test]
    fn a_selection_round_trips_through_text() {
        for (selection, text) in [
            (Selection::All, "all"),
            (Selection::Phase(Phase::Validating, Scope::Any), "Validating"),
            (
                Selection::Phase(Phase::Mutating, Scope::Namespaced),
                "Mutating/Namespaced",
            ),
            (Selection::Chain(Phase::Mutating, "a:b/c".to_owned()), "Mutating:a:b/c"),
        ] {
            assert_eq!(selection.to_string(), text);
            assert_eq!(text.parse(), Ok(selection));
        }
        for text in ["mutating", "Mutating/", "Mutating/pods"] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }
}
