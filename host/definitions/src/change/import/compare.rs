//! Compares a chain from another policy system with the native chain to which it was converted.

use admittance_admission::MatchPolicy;

use crate::{ChainDefinition, StageDefinition, forms::native::write};

/// Lists the properties of a chain that native chains cannot express, one sentence each.
pub(super) fn foreign_properties(chain: &ChainDefinition) -> Vec<String> {
    let stage_properties =
        |stage| foreign_properties_of_stage(stage).map(|property| format!("{}: {property}", stage.spec.name));
    chain.stages.iter().flat_map(stage_properties).collect()
}

/// Lists the properties of `chain` that are missing in `native`, to which it was converted, one sentence each.
pub(super) fn lost_properties(chain: &ChainDefinition, native: &ChainDefinition) -> Vec<String> {
    let mut properties = Vec::new();
    if chain.phase != native.phase {
        properties.push("the phase differs".to_owned());
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
        properties.push(reason.to_owned());
    }
    if chain.stages.len() != native.stages.len() {
        properties.push("the number of stages differs".to_owned());
    }
    for (stage, native) in chain.stages.iter().zip(&native.stages) {
        let stage_properties = lost_properties_of_stage(chain, stage, native);
        properties.extend(stage_properties.map(|property| format!("{}: {property}", stage.spec.name)));
    }
    properties
}

fn foreign_properties_of_stage(stage: &StageDefinition) -> impl Iterator<Item = &'static str> {
    let hook_properties = stage.hook.native_form_obstacles();
    let spec_properties = [
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
    .filter_map(|(is_there, property)| is_there.then_some(property));
    hook_properties.into_iter().chain(spec_properties)
}

fn lost_properties_of_stage<'a>(
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
    let properties = [
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
        (stage.candidate != native.candidate, "its candidate has no native form"),
    ];
    properties
        .into_iter()
        .filter_map(|(is_different, property)| is_different.then_some(property))
}
