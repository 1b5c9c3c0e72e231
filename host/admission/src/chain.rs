use std::sync::Arc;

use crate::{Outline, Request, Rule, Stage, word::words};

/// An ordered list of stages, and the rules that say which requests it is for.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Names the chain in traces, metrics and refusals; unique among the chains of its phase.
    pub name: Arc<str>,
    /// When its stages are called, and whether they may change the object.
    pub phase: Phase,
    /// The chain is for a request that any of these matches; without rules it is for none.
    pub rules: Vec<Rule>,
    /// Called in this order; all at once in the phase [`Validating`](Phase::Validating).
    pub stages: Vec<Stage>,
}

impl Chain {
    /// A chain of the phase [`Mutating`](Phase::Mutating).
    pub fn new(name: impl Into<Arc<str>>, rules: Vec<Rule>, stages: Vec<Stage>) -> Self {
        Self {
            name: name.into(),
            phase: Phase::Mutating,
            rules,
            stages,
        }
    }

    /// Whether the chain is for this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Whether it may be for a request of which only this is known.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_match(outline))
    }
}

/// The two halves of an admission, as kube-apiserver has them. A request passes all mutating chains
/// before the first validating one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Stages are called one after the other, and each may change the object or refuse the request.
    #[default]
    Mutating,
    /// Stages are called all at once with the final object, and may only refuse the request.
    Validating,
}

words!(Phase, "phase": Mutating = "Mutating", Validating = "Validating");

/// Which chains a request may pass through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those of a phase.
    Phase(Phase),
    /// One of a phase.
    Chain(Phase, String),
}

impl Selection {
    /// Whether the chain is one of them.
    pub fn selects(&self, chain: &Chain) -> bool {
        match self {
            Self::All => true,
            Self::Phase(phase) => chain.phase == *phase,
            Self::Chain(phase, name) => chain.phase == *phase && *chain.name == **name,
        }
    }
}
