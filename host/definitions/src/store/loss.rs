//! Finds what a change of definitions takes away.

use std::collections::HashMap;

use admittance_admission::Phase;

use crate::{ChainDefinition, Definitions, ExceptionDefinition, StageDefinition};

/// Whether a stage may refuse less than before: it is gone, or is called or enforced in another way, or its plugin
/// has less in its settings; or there is an exception that was not there.
///
/// A stage that became stricter counts too: telling them apart would take a comparison of selectors and expressions.
/// A change that a truncated file cannot cause does not count: another module or URL, other values in settings, more
/// rules of a chain.
pub(super) fn enforces_less(before: &Definitions, now: &Definitions) -> bool {
    let is_new = |exception: &ExceptionDefinition| {
        let mut others = before.exceptions.iter();
        !others.any(|other| other.exception == exception.exception && other.stages == exception.stages)
    };
    let chains: HashMap<_, _> = now.chains.iter().map(|chain| (id(chain), chain)).collect();
    let is_less = |chain: &ChainDefinition| chains.get(&id(chain)).is_none_or(|now| of_chain(chain, now));
    now.exceptions.iter().any(is_new) || before.chains.iter().any(is_less)
}

fn id(chain: &ChainDefinition) -> (Phase, &str) {
    (chain.phase, &chain.name)
}

fn of_chain(before: &ChainDefinition, now: &ChainDefinition) -> bool {
    let is_less = |before: &StageDefinition| {
        let mut stages = now.stages.iter();
        let now = stages.find(|now| now.spec.name == before.spec.name);
        now.is_none_or(|now| of_stage(before, now))
    };
    !before.rules.iter().all(|rule| now.rules.contains(rule)) || before.stages.iter().any(is_less)
}

fn of_stage(before: &StageDefinition, now: &StageDefinition) -> bool {
    before.spec != now.spec || before.hook.may_refuse_more_than(&now.hook)
}

#[cfg(test)]
mod tests;
