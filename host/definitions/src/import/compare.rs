//! What a native chain lacks of the chain that it was written from.

use admittance_admission::MatchPolicy;
use admittance_conditions::Action;

use crate::{ChainDefinition, HookDefinition, StageDefinition, native::write};

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
    let conditions = write::conditions(stage);
    let is_cel = matches!(stage.hook, HookDefinition::Cel(_));
    let sees_namespace = is_cel
        && conditions
            .iter()
            .any(|(_, expression)| expression.contains("namespaceObject"));
    let (actions, params) = match &stage.hook {
        HookDefinition::Cel(cel) => (&*cel.binding.actions, cel.binding.params.is_some()),
        _ => (&[][..], false),
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
    [
        (rules != other.rules, "its rules have no native form"),
        (
            spec.exclude_rules != other.exclude_rules,
            "`excludeResourceRules` has no native form",
        ),
        (
            spec.namespace_selector != other.namespace_selector,
            "the selector of namespaces differs",
        ),
        (
            spec.object_selector != other.object_selector,
            "the selector of objects differs",
        ),
        (
            conditions != other.match_conditions.expressions(),
            "the match conditions differ",
        ),
        (
            sees_namespace,
            "a match condition of a native stage does not see `namespaceObject`",
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
        (spec.message != other.message, "`message` has no native form"),
        (
            !actions.is_empty() && actions != [Action::Deny],
            "`validationActions` other than Deny have no native form",
        ),
        (params, "parameters have no native form"),
        (!same_hook, "what it calls has no native form"),
        (stage.candidate != native.candidate, "the candidate differs"),
    ]
    .into_iter()
    .filter_map(|(differs, what)| differs.then_some(what))
}
