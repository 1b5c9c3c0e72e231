//! Finds out whether definitions enforce less than before. If so, a file may have been truncated while it was written.

use std::collections::HashMap;

use admittance_admission::Phase;

use crate::{ChainDefinition, Definitions, ExceptionDefinition, StageDefinition};

/// Returns whether a request that the definitions `before` refused may be allowed by the definitions `now`. Selectors
/// and expressions are only compared for equality. Any change of them counts, even a stricter selector. Changes that
/// cannot result from truncating a file, such as a different URL, do not count.
pub(super) fn enforces_less(before: &Definitions, now: &Definitions) -> bool {
    let is_new = |exception: &ExceptionDefinition| {
        let mut old_exceptions = before.exceptions.iter();
        !old_exceptions.any(|other| other.exception == exception.exception && other.stages == exception.stages)
    };
    let chains: HashMap<_, _> = now.chains.iter().map(|chain| (id(chain), chain)).collect();
    let is_weaker = |chain: &ChainDefinition| chains.get(&id(chain)).is_none_or(|now| chain_is_weaker(chain, now));
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
