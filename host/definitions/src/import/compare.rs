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
            matches!(stage.hook, HookDefinition::Group(_)),
            "denials of a native group have the code 403, and causes that name `plugins`",
        ),
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
        (
            !stage.spec.yields_to.is_empty(),
            "a canary takes its place, which has no native form",
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
            let mut binding = one.binding.clone();
            (binding.names, binding.actions) = (None, Vec::new());
            binding.failure_policy = other.binding.failure_policy;
            let (one, policy) = (&one.policy, &other.policy);
            one.variables().eq(policy.variables())
                && one.validations == policy.validations
                && one.audit_annotations == policy.audit_annotations
                && one.mutations == policy.mutations
                && binding == other.binding
        }
        (one, other) => one == other,
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
        (!same_hook, "what it calls has no native form"),
        (
            stage.candidate != native.candidate,
            "its candidate has no native form",
        ),
    ];
    differs
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
}
