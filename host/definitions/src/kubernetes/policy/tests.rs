use admittance_admission::{FailurePolicy, NamespaceSelector, Phase, Reinvocation};

use crate::{HookDefinition, load_text};

/// The fields of a policy's spec, one on each line from line 5.
const POLICY: [(&str, &str); 3] = [
    (
        "matchConstraints",
        "{ resourceRules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ] }",
    ),
    ("failurePolicy", "Ignore"),
    ("validations", "[ { expression: 'true' } ]"),
];
const MUTATING: [(&str, &str); 3] = [
    POLICY[0],
    ("reinvocationPolicy", "IfNeeded"),
    (
        "mutations",
        "[ { patchType: JSONPatch, jsonPatch: { expression: '[]' } } ]",
    ),
];
const BINDING: [(&str, &str); 2] = [("policyName", "p"), ("validationActions", "[Deny]")];

/// A document with these fields, one of which is changed: `field: value`, or `field:` for none.
fn document(kind: &str, name: &str, fields: &[(&str, &str)], change: &str) -> String {
    let mut text = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec:\n"
    );
    let (changed, value) = change.split_once(':').unwrap_or(("", ""));
    for (field, usual) in fields {
        match (*field == changed, value) {
            (true, "") => {}
            (true, value) => text.push_str(&format!("  {field}:{value}\n")),
            (false, _) => text.push_str(&format!("  {field}: {usual}\n")),
        }
    }
    if !value.is_empty() && !fields.iter().any(|(field, _)| *field == changed) {
        text.push_str(&format!("  {change}\n"));
    }
    text + "---\n"
}

#[test]
fn a_policy_and_its_bindings_are_a_chain() {
    let constrained = "matchResources: { excludeResourceRules: [ { operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], \
        resources: ['*'], resourceNames: [a] } ], namespaceSelector: { matchLabels: { a: b } } }";
    let constraints = "matchConstraints: { resourceRules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], \
        resources: [pods] } ], namespaceSelector: { matchLabels: { c: d } } }";
    let text = [
        document(
            "ValidatingAdmissionPolicyBinding",
            "second",
            &BINDING,
            constrained,
        ),
        document("ValidatingAdmissionPolicy", "p", &POLICY, constraints),
        document("ValidatingAdmissionPolicyBinding", "first", &BINDING, ""),
        document("ValidatingAdmissionPolicy", "unbound", &POLICY, ""),
        document("MutatingAdmissionPolicy", "p", &MUTATING, ""),
        document("MutatingAdmissionPolicyBinding", "first", &BINDING[..1], ""),
    ]
    .concat();
    let chains = load_text("a.yaml", &text).unwrap();
    let names: Vec<_> = chains
        .iter()
        .map(|chain| {
            let stages: Vec<&str> = chain.stages.iter().map(|stage| &*stage.spec.name).collect();
            (chain.phase, chain.name.as_str(), stages)
        })
        .collect();
    assert_eq!(
        names,
        [
            (Phase::Mutating, "p", vec!["first"]),
            (Phase::Validating, "p", vec!["first", "second"]),
            (Phase::Validating, "unbound", vec![]),
        ]
    );
    assert_eq!(chains[0].stages[0].spec.reinvocation, Reinvocation::IfNeeded);
    let second = &chains[1].stages[1];
    assert_eq!(second.spec.failure_policy, FailurePolicy::Ignore);
    assert_eq!(second.spec.exclude_rules[0].names, ["a"]);
    let Some(NamespaceSelector::Labels(selector)) = &second.spec.namespace_selector else {
        panic!("{second:?}");
    };
    assert_eq!(selector.to_string(), "c in (d),a in (b)");
    assert_eq!(chains[1].rules.len(), 1);
    let HookDefinition::Cel(cel) = &second.hook else {
        panic!("{second:?}");
    };
    assert_eq!(cel.binding.names, Some(("p".to_owned(), "second".to_owned())));
    assert_eq!(cel.policy.summary(), "1 validation");
}

#[test]
fn mistakes_in_policies() {
    // (change of the policy, what is said); sources: kube-apiserver's validation of policies and bindings.
    for (change, expected) in [
        (
            "matchConstraints:",
            "5:3: spec.matchConstraints: missing; say which requests the policy is for",
        ),
        (
            "validations:",
            "the policy has no expressions; write `validations` or `auditAnnotations`",
        ),
        (
            "validations: []",
            "the policy has no expressions; write `validations` or `auditAnnotations`",
        ),
        (
            "matchConstraints: { resourceRules: [] }",
            "spec.matchConstraints.resourceRules: the list is empty",
        ),
        (
            "validations: [ { expression: '1' } ]",
            "spec.validations[0].expression: must evaluate to bool but got int",
        ),
        (
            "validations: [ { expression: 'params.x == 1' } ]",
            "undeclared reference to 'params'",
        ),
        (
            "validations: [ { expression: 'true', messageExpression: '1' } ]",
            "must evaluate to string but got int",
        ),
        (
            "validations: [ { expression: 'true', reason: Teapot } ]",
            "is not a valid reason",
        ),
        (
            "validations: [ { expression: \"true\\n|| false\" } ]",
            "an expression of several lines needs a message; write a `message`",
        ),
        (
            "validations: [ { expression: 'true', message: \"a\\nb\" } ]",
            "the message has several lines",
        ),
        (
            "variables: [ { name: a-b, expression: '1' } ]",
            "is not an identifier",
        ),
        (
            "variables: [ { name: a, expression: '1' }, { name: a, expression: '2' } ]",
            "\"a\" is already defined",
        ),
        (
            "variables: [ { name: a, expression: 'variables.b' }, { name: b, expression: '1' } ]",
            "undefined field 'b'",
        ),
        (
            "auditAnnotations: [ { key: a, valueExpression: '1' } ]",
            "must evaluate to string or null but got int",
        ),
        (
            "auditAnnotations: [ { key: a, valueExpression: \"'x'\" }, { key: a, valueExpression: \"'y'\" } ]",
            "\"a\" is also the key of the annotation on line",
        ),
        (
            "matchConditions: [ { name: a, expression: '1' } ]",
            "must evaluate to bool but got int",
        ),
        (
            "mutations: []",
            "a policy of this kind has no such field; remove it",
        ),
        ("paramKind: { apiVersion: v1 }", "spec.paramKind.kind: missing"),
        ("unknown: 1", "spec.unknown: unknown field"),
    ] {
        let text = document("ValidatingAdmissionPolicy", "p", &POLICY, change);
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{change}: {mistakes}");
    }
    for (change, expected) in [
        ("reinvocationPolicy:", "spec.reinvocationPolicy: missing"),
        (
            "mutations: []",
            "the policy has no expressions; write `mutations`",
        ),
        (
            "mutations: [ { patchType: JSONPatch } ]",
            "`jsonPatch` is missing; write `jsonPatch: { expression: ... }`",
        ),
        (
            "mutations: [ { patchType: JSONPatch, applyConfiguration: { expression: '1' } } ]",
            "`applyConfiguration` does not fit the patch type; write it in `jsonPatch`",
        ),
        (
            "mutations: [ { patchType: ApplyConfiguration, applyConfiguration: { expression: '{}' } } ]",
            "must evaluate to Object but got map(dyn, dyn)",
        ),
    ] {
        let text = document("MutatingAdmissionPolicy", "p", &MUTATING, change);
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{change}: {mistakes}");
    }
    for (change, expected) in [
        (
            "policyName: q",
            "9:15: spec.policyName: there is no ValidatingAdmissionPolicy \"q\"; add its document, or correct the name",
        ),
        ("validationActions:", "spec.validationActions: missing"),
        (
            "validationActions: [Deny, Warn]",
            "Deny and Warn exclude each other",
        ),
        ("validationActions: [Deny, Deny]", "the action is listed twice"),
        (
            "paramRef: { parameterNotFoundAction: Deny }",
            "the parameters are named by one of `name` and `selector`",
        ),
        (
            "paramRef: { name: a }",
            "spec.paramRef.parameterNotFoundAction: missing",
        ),
    ] {
        let binding = document("ValidatingAdmissionPolicyBinding", "b", &BINDING, change);
        let text = binding + &document("ValidatingAdmissionPolicy", "p", &POLICY, "");
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        let expected = expected.replace("9:15", "5:15");
        assert!(mistakes.contains(&expected), "{change}: {mistakes}");
    }
    let twice = document("ValidatingAdmissionPolicy", "p", &POLICY, "").repeat(2);
    let mistakes = load_text("a.yaml", &twice).unwrap_err().to_string();
    assert!(
        mistakes.contains("\"p\" is also the name of the chain in a.yaml:1:1"),
        "{mistakes}"
    );
}
