//! Compares a chain from another policy system with the native chain to which it was converted.

use admittance_admission::MatchPolicy;

use crate::{ChainDefinition, StageDefinition, forms::native::write};

/// Lists the properties of a chain that native chains cannot express, one sentence each.
pub(super) fn foreign(chain: &ChainDefinition) -> Vec<String> {
    let of_stage = |stage| foreign_to(stage).map(|what| format!("{}: {what}", stage.spec.name));
    chain.stages.iter().flat_map(of_stage).collect()
}

/// Lists the properties of `chain` that are missing in `native`, to which it was converted, one sentence each.
pub(super) fn lost(chain: &ChainDefinition, native: &ChainDefinition) -> Vec<String> {
    let mut lost = Vec::new();
    if chain.phase != native.phase {
        lost.push("the phase differs".to_owned());
    }
    if chain.rules != native.rules {
        let policies = chain.rules.iter().map(|rule| rule.match_policy);
        let is_mixed = policies.clone().any(|policy| policy == MatchPolicy::Exact)
            && policies.clone().any(|policy| policy != MatchPolicy::Exact);
        let reason = if is_mixed {
            "a native chain has one `matchPolicy`"
        } else {
            "`resourceNames` has no native form"
        };
        lost.push(reason.to_owned());
    }
    if chain.stages.len() != native.stages.len() {
        lost.push("the number of stages differs".to_owned());
    }
    for (stage, native) in chain.stages.iter().zip(&native.stages) {
        let of_stage = lost_of_stage(chain, stage, native);
        lost.extend(of_stage.map(|what| format!("{}: {what}", stage.spec.name)));
    }
    lost
}

fn foreign_to(stage: &StageDefinition) -> impl Iterator<Item = &'static str> {
    let of_hook = stage.hook.without_native_form();
    let of_spec = [
        (
            !stage.spec.exclude_rules.is_empty(),
            "`excludeResourceRules` has no native form",
        ),
        (
            !stage.spec.yields_to.is_empty(),
            "a canary takes its place, which has no native form",
        ),
        (stage.spec.message.is_some(), "`message` has no native form"),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| is_there.then_some(what));
    of_hook.into_iter().chain(of_spec)
}

fn lost_of_stage<'a>(
    chain: &'a ChainDefinition,
    stage: &'a StageDefinition,
    native: &'a StageDefinition,
) -> impl Iterator<Item = &'static str> + 'a {
    let (spec, other) = (&stage.spec, &native.spec);
    let rules = if spec.rules == chain.rules {
        &[][..]
    } else {
        &spec.rules
    };
    let mut rest = spec.clone();
    rest.rules.clone_from(&other.rules);
    rest.match_conditions = other.match_conditions.clone();
    rest.reinvoked_by_itself = other.reinvoked_by_itself;
    let differs = [
        (rules != other.rules, "its rules have no native form"),
        (
            write::conditions(stage) != other.match_conditions.expressions(),
            "its match conditions have no native form",
        ),
        (rest != *other, "one of its other settings has no native form"),
        (
            !stage.hook.is_complete_in(&native.hook),
            "what it calls has no native form",
        ),
        (
            stage.candidate != native.candidate,
            "its candidate has no native form",
        ),
    ];
    differs
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
}
