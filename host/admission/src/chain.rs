use std::{fmt, str::FromStr, sync::Arc};

use crate::{Outline, Request, Rule, Stage, UnknownWord, words};

/// An ordered list of stages, and the rules that say which requests it is for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chain {
    /// Names the chain in traces, metrics and refusals; unique among the chains of its phase.
    pub name: Arc<str>,
    /// When its stages are called, and whether they may change the object.
    pub phase: Phase,
    /// The chain applies to requests that match any of these; without rules, to none.
    pub rules: Vec<Rule>,
    /// Called in this order; concurrently in the phase [`Validating`](Phase::Validating).
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

    /// Whether the chain applies to this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Whether it may apply to a request of which only this is known.
    pub fn may_match(&self, outline: &Outline<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_match(outline))
    }
}

/// The two phases of an admission, as in kube-apiserver. A request passes all mutating chains before the
/// first validating one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Stages are called one after the other, and each may change the object or refuse the request.
    #[default]
    Mutating,
    /// Stages are called concurrently with the final object, and may only refuse the request.
    Validating,
}

words!(Phase, "phase": Mutating = "Mutating", Validating = "Validating");

/// A selection of the chains that a request may pass through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// The chains of a phase.
    Phase(Phase),
    /// One chain of a phase.
    Chain(Phase, String),
}

impl fmt::Display for Selection {
    /// `all`, `Mutating` or `Mutating:pods`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Phase(phase) => write!(f, "{phase}"),
            Self::Chain(phase, name) => write!(f, "{phase}:{name}"),
        }
    }
}

impl FromStr for Selection {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once(':') {
            Some((phase, name)) => Self::Chain(phase.parse()?, name.to_owned()),
            None if text == "all" => Self::All,
            None => Self::Phase(text.parse()?),
        })
    }
}

impl Selection {
    /// Whether the chain is selected.
    pub fn selects(&self, chain: &Chain) -> bool {
        match self {
            Self::All => true,
            Self::Phase(phase) => chain.phase == *phase,
            Self::Chain(phase, name) => chain.phase == *phase && *chain.name == **name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_as_text_and_back() {
        for (selection, text) in [
            (Selection::All, "all"),
            (Selection::Phase(Phase::Validating), "Validating"),
            (
                Selection::Chain(Phase::Mutating, "a:b/c".to_owned()),
                "Mutating:a:b/c",
            ),
        ] {
            assert_eq!(selection.to_string(), text);
            assert_eq!(text.parse(), Ok(selection));
        }
        assert!("mutating".parse::<Selection>().is_err());
    }
}
