//! What a native chain lacks of the chain that it was written from.

use admittance_admission::MatchPolicy;
use admittance_conditions::Action;

use crate::{ChainDefinition, HookDefinition, StageDefinition, native::write};

/// What a chain has and no native one can have, a sentence each.
pub(super) fn foreign(chain: &ChainDefinition) -> Vec<String> {
    let of_stage = |stage| foreign_to(stage).map(|what| format!("{}: {what}", stage.spec.name));
    chain.stages.iter().flat_map(of_stage).collect()
}

/// What is in a chain and not in the native one, a sentence each.
pub(super) fn lost(chain: &ChainDefinition, native: &ChainDefinition) -> Vec<String> {
    let mut lost = Vec::new();
    if chain.phase != native.phase {
        lost.push("the phase differs".to_owned());
    }
    if chain.rules != native.rules {
        let policies = chain.rules.iter().map(|rule| rule.match_policy);
        let is_mixed = policies.clone().any(|policy| policy == MatchPolicy::Exact)
            && policies.clone().any(|policy| policy != MatchPolicy::Exact);
        lost.push(match is_mixed {
            true => "a native chain has one `matchPolicy`".to_owned(),
            false => "`resourceNames` has no native form".to_owned(),
        });
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

/// What a stage has and no native one can have.
fn foreign_to(stage: &StageDefinition) -> impl Iterator<Item = &'static str> {
    let (actions, params, sees_namespace) = match &stage.hook {
        HookDefinition::Cel(cel) => (
            &*cel.binding.actions,
            cel.binding.params.is_some(),
            write::conditions(stage)
                .iter()
                .any(|(_, expression)| expression.contains("namespaceObject")),
        ),
        _ => (&[][..], false, false),
    };
    let other_actions = !actions.is_empty() && actions != [Action::Deny];
    let found = [
        (params, "parameters have no native form"),
        (
            other_actions,
            "`validationActions` other than Deny have no native form",
        ),
        (
            sees_namespace,
            "a match condition of a native stage does not see `namespaceObject`",
        ),
        (
            !stage.spec.exclude_rules.is_empty(),
            "`excludeResourceRules` has no native form",
        ),
        (stage.spec.message.is_some(), "`message` has no native form"),
    ];
    found
        .into_iter()
        .filter_map(|(is_there, what)| is_there.then_some(what))
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
    let same_hook = match (&stage.hook, &native.hook) {
        (HookDefinition::Cel(one), HookDefinition::Cel(other)) => {
            let (one, other) = (&one.policy, &other.policy);
            one.variables().eq(other.variables())
                && one.validations == other.validations
                && one.audit_annotations == other.audit_annotations
                && one.mutations == other.mutations
        }
        (one, other) => one == other,
    };
    let differs = [
        (rules != other.rules, "its rules have no native form"),
        (
            spec.namespace_selector != other.namespace_selector,
            "the selector of namespaces differs",
        ),
        (
            spec.object_selector != other.object_selector,
            "the selector of objects differs",
        ),
        (
            write::conditions(stage) != other.match_conditions.expressions(),
            "the match conditions differ",
        ),
        (
            spec.failure_policy != other.failure_policy,
            "the failure policy differs",
        ),
        (spec.timeout != other.timeout, "the timeout differs"),
        (spec.mode != other.mode, "the mode differs"),
        (spec.side_effects != other.side_effects, "the side effects differ"),
        (
            spec.reinvocation != other.reinvocation,
            "the reinvocation policy differs",
        ),
        (!same_hook, "what it calls has no native form"),
        (stage.candidate != native.candidate, "the candidate differs"),
    ];
    differs
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
}
