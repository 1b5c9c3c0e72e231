//! Writes chains in the native form.
//!
//! Chains of other policy systems may have properties that a native chain cannot express. Such a property is left out
//! without a message. Therefore the caller reads the written chain, and compares it with the original.

use std::time::Duration;

use admittance_admission::{
    FailurePolicy, LabelOperator, LabelSelector, MatchPolicy, Matcher, Mode, NamespaceSelector, Operation, Phase,
    Reinvocation, Rule, Scope, SideEffects, StageSpec,
};
use serde_json::{Map, Value as Json, json};

use crate::model::{ChainDefinition, StageDefinition};

pub(crate) fn chain_json(chain: &ChainDefinition, name: &str) -> Json {
    let mut spec = Map::new();
    if chain.phase != Phase::default() {
        put(&mut spec, "phase", chain.phase.as_str());
    }
    // A native chain has only one match policy, which applies to all its rules. The first rule's match policy is used.
    let match_policy = chain.rules.first().map(|rule| rule.match_policy);
    if let Some(policy) = match_policy.filter(|policy| *policy != MatchPolicy::default()) {
        put(&mut spec, "matchPolicy", policy.as_str());
    }
    put(&mut spec, "rules", rules_json(&chain.rules));
    let stages = chain.stages.iter().map(|stage| self::stage_json(chain, stage));
    put(&mut spec, "stages", stages.collect::<Vec<_>>());
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": { "name": name },
        "spec": spec,
    })
}

pub(crate) fn put(object: &mut Map<String, Json>, key: &str, value: impl Into<Json>) {
    object.insert(key.to_owned(), value.into());
}

fn rules_json(rules: &[Rule]) -> Vec<Json> {
    rules.iter().map(rule_json).collect()
}

fn rule_json(rule: &Rule) -> Json {
    let words = |matcher: &Matcher<String>| match matcher {
        Matcher::Any => json!(["*"]),
        Matcher::Only(words) => json!(words),
    };
    let mut object = Map::new();
    let operations = match &rule.operations {
        Matcher::Any => json!(["*"]),
        Matcher::Only(operations) => operations.iter().copied().map(Operation::as_str).collect(),
    };
    put(&mut object, "operations", operations);
    for (key, matcher) in [("apiGroups", &rule.api_groups), ("apiVersions", &rule.api_versions)] {
        if *matcher != Matcher::Any {
            put(&mut object, key, words(matcher));
        }
    }
    let has_kinds = rule.kinds != Matcher::Any;
    if !has_kinds || rule.resources != Rule::for_operations([]).resources {
        let resources = rule.resources.iter().map(ToString::to_string);
        put(&mut object, "resources", resources.collect::<Vec<_>>());
    }
    if has_kinds {
        put(&mut object, "kinds", words(&rule.kinds));
    }
    if rule.scope != Scope::default() {
        put(&mut object, "scope", rule.scope.as_str());
    }
    Json::Object(object)
}

fn stage_json(chain: &ChainDefinition, stage: &StageDefinition) -> Json {
    let spec = &stage.spec;
    let mut object = Map::new();
    put(&mut object, "name", &*spec.name);
    if let Some((field, hook)) = stage.hook.to_native() {
        put(&mut object, field, hook);
    }
    if let Some(candidate) = &stage.candidate {
        put(&mut object, "candidate", candidate.to_native());
    }
    if !spec.rules.is_empty() && spec.rules != chain.rules {
        put(&mut object, "rules", rules_json(&spec.rules));
    }
    if let Some(selector) = &spec.namespace_selector {
        put(&mut object, "namespaceSelector", namespaces_json(selector));
    }
    if !spec.object_selector.is_empty() {
        put(&mut object, "objectSelector", labels_json(&spec.object_selector));
    }
    let conditions = conditions(stage);
    if !conditions.is_empty() {
        let conditions = conditions
            .iter()
            .map(|(name, expression)| json!({"name": name, "expression": expression}));
        put(&mut object, "matchConditions", conditions.collect::<Vec<_>>());
    }
    write_policies(spec, &mut object);
    Json::Object(object)
}

fn write_policies(spec: &StageSpec, object: &mut Map<String, Json>) {
    if spec.failure_policy != FailurePolicy::default() {
        put(object, "failurePolicy", spec.failure_policy.as_str());
    }
    if spec.timeout != StageSpec::DEFAULT_TIMEOUT {
        put(object, "timeout", duration_text(spec.timeout));
    }
    if spec.mode != Mode::default() {
        put(object, "mode", spec.mode.as_str());
    }
    if spec.side_effects != SideEffects::default() {
        put(object, "sideEffects", spec.side_effects.as_str());
    }
    if spec.reinvocation != Reinvocation::default() {
        put(object, "reinvocationPolicy", spec.reinvocation.as_str());
    }
}

/// Returns the names and expressions of a stage's match conditions, followed by those of its hook.
pub(crate) fn conditions(stage: &StageDefinition) -> Vec<(&str, &str)> {
    let mut conditions = stage.spec.match_conditions.expressions();
    conditions.extend(stage.hook.conditions());
    conditions
}

pub(crate) fn duration_text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn namespaces_json(selector: &NamespaceSelector) -> Json {
    match selector {
        NamespaceSelector::In(names) => json!({"operator": "In", "values": names}),
        NamespaceSelector::NotIn(names) => json!({"operator": "NotIn", "values": names}),
        NamespaceSelector::Labels(selector) => labels_json(selector),
    }
}

fn labels_json(selector: &LabelSelector) -> Json {
    let mut equal = Map::new();
    let mut expressions = Vec::new();
    for (key, operator, values) in selector.requirements() {
        match (operator, values) {
            // When a selector is read, `matchLabels` comes before `matchExpressions`. To keep the order of the
            // requirements, a label is written to `matchLabels` only if no expression precedes it.
            (LabelOperator::In, [value]) if expressions.is_empty() && !equal.contains_key(key) => {
                put(&mut equal, key, value.as_str());
            }
            (_, []) => expressions.push(json!({"key": key, "operator": operator})),
            _ => expressions.push(json!({"key": key, "operator": operator, "values": values})),
        }
    }
    let mut object = Map::new();
    if !equal.is_empty() {
        put(&mut object, "matchLabels", equal);
    }
    if !expressions.is_empty() {
        put(&mut object, "matchExpressions", expressions);
    }
    Json::Object(object)
}
