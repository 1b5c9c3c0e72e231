//! Decides whether a change weakens the definitions, as truncating a file would.

use std::collections::HashMap;

use admittance_admission::Phase;

use crate::{ChainDefinition, Definitions, ExceptionDefinition, StageDefinition};

/// Returns whether a stage may refuse less than before: it is gone, its conditions or policies differ, or its plugin
/// lost settings; or whether there is a new exception.
///
/// A stricter stage counts too, because distinguishing it would require a comparison of selectors and expressions.
/// Changes that truncating a file cannot cause do not count: another module or URL, other values in settings, more
/// rules of a chain.
pub(super) fn enforces_less(before: &Definitions, now: &Definitions) -> bool {
    let is_new = |exception: &ExceptionDefinition| {
        let mut others = before.exceptions.iter();
        !others.any(|other| other.exception == exception.exception && other.stages == exception.stages)
    };
    let chains: HashMap<_, _> = now.chains.iter().map(|chain| (id(chain), chain)).collect();
    let is_weaker = |chain: &ChainDefinition| {
        chains
            .get(&id(chain))
            .is_none_or(|now| chain_is_weaker(chain, now))
    };
    now.exceptions.iter().any(is_new) || before.chains.iter().any(is_weaker)
}

fn id(chain: &ChainDefinition) -> (Phase, &str) {
    (chain.phase, &chain.name)
}

fn chain_is_weaker(before: &ChainDefinition, now: &ChainDefinition) -> bool {
    let is_weaker = |before: &StageDefinition| {
        let now = now.stages.iter().find(|now| now.spec.name == before.spec.name);
        now.is_none_or(|now| before.spec != now.spec || before.hook.may_refuse_more_than(&now.hook))
    };
    !before.rules.iter().all(|rule| now.rules.contains(rule)) || before.stages.iter().any(is_weaker)
}

#[cfg(test)]
mod tests;
