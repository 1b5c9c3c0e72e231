use std::fs;

use admittance_admission::{FailurePolicy, NamespaceSelector, Phase, Reinvocation};
use admittance_conditions::MessageWording;

use crate::{CelDefinition, ChainDefinition, load, load_text};

/// The fields in the `spec` of a policy. In the documents of the tests, each field is written on its own line, and the
/// first one on line 5.
const POLICY: [(&str, &str); 3] = [
    (
        "matchConstraints",
        "{ resourceRules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ] }",
    ),
    ("failurePolicy", "Ignore"),
    ("validations", "[ { expression: 'true' } ]"),
];
const MUTATING_POLICY: [(&str, &str); 3] = [
    POLICY[0],
    ("reinvocationPolicy", "IfNeeded"),
    (
        "mutations",
        "[ { patchType: JSONPatch, jsonPatch: { expression: '[]' } } ]",
    ),
];
const BINDING: [(&str, &str); 2] = [("policyName", "p"), ("validationActions", "[Deny]")];

/// Returns a document with these fields and a change: `field: value` adds or replaces a field, `field:` removes it.
fn document(kind: &str, name: &str, fields: &[(&str, &str)], change: &str) -> String {
    let mut text =
        format!("apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec:\n");
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
fn a_policy_and_its_bindings_become_one_chain() {
    let constrained = "matchResources: { excludeResourceRules: [ { operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], \
        resources: ['*'], resourceNames: [a] } ], namespaceSelector: { matchLabels: { a: b } } }";
    let constraints = "matchConstraints: { resourceRules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], \
        resources: [pods] } ], namespaceSelector: { matchLabels: { c: d } } }";
    let text = [
        document("ValidatingAdmissionPolicyBinding", "second", &BINDING, constrained),
        document("ValidatingAdmissionPolicy", "p", &POLICY, constraints),
        document("ValidatingAdmissionPolicyBinding", "first", &BINDING, ""),
        document("ValidatingAdmissionPolicy", "unbound", &POLICY, ""),
        document("MutatingAdmissionPolicy", "p", &MUTATING_POLICY, ""),
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
    let Some(cel) = second.hook.get::<CelDefinition>() else {
        panic!("{second:?}");
    };
    let wording = MessageWording::Kubernetes {
        policy: "p".to_owned(),
        binding: "second".to_owned(),
    };
    assert_eq!(cel.binding.wording, wording);
    assert_eq!(cel.policy.summary(), "1 validation");
}

#[test]
fn mistakes_in_policies_are_reported_with_their_locations() {
    // (change of the policy, expected mistake). The rules are those by which kube-apiserver validates policies.
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
        ("variables: [ { name: a-b, expression: '1' } ]", "is not an identifier"),
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
        ("mutations: []", "a policy of this kind has no such field; remove it"),
        ("paramKind: { apiVersion: v1 }", "spec.paramKind.kind: missing"),
        ("unknown: 1", "spec.unknown: unknown field"),
    ] {
        let text = document("ValidatingAdmissionPolicy", "p", &POLICY, change);
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{change}: {mistakes}");
    }
    for (change, expected) in [
        ("reinvocationPolicy:", "spec.reinvocationPolicy: missing"),
        ("mutations: []", "the policy has no expressions; write `mutations`"),
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
        let text = document("MutatingAdmissionPolicy", "p", &MUTATING_POLICY, change);
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{change}: {mistakes}");
    }
    for (change, expected) in [
        (
            "policyName: q",
            "9:15: spec.policyName: there is no ValidatingAdmissionPolicy \"q\"; add its document, or correct the name",
        ),
        ("validationActions:", "spec.validationActions: missing"),
        ("validationActions: [Deny, Warn]", "Deny and Warn exclude each other"),
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

const WIDGETS: &str = r#"---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { kind: Widget, plural: widgets }
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                size: { type: integer }
                ratio: { type: number }
                port: { x-kubernetes-int-or-string: true }
                since: { type: string, format: date-time }
                owner: { type: string, nullable: true }
                anything: { type: object, x-kubernetes-preserve-unknown-fields: true }
                parts:
                  type: array
                  items: { type: object, properties: { name: { type: string } } }
                options: { type: object, additionalProperties: { type: boolean } }
    - { name: v2, served: true, storage: false }
"#;

fn with_binding(policy: &str, kind: &str, name: &str) -> String {
    let actions = if kind == "Validating" {
        ", validationActions: [Deny]"
    } else {
        ""
    };
    format!(
        "{policy}---
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}AdmissionPolicyBinding
metadata: {{ name: b }}
spec: {{ policyName: {name}{actions} }}
{WIDGETS}"
    )
}

fn type_warnings(versions: &str, variables: &str, validations: &str) -> Vec<String> {
    let policy = format!(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{ name: widgets }}
spec:
  paramKind: {{ apiVersion: example.com/v1, kind: Widget }}
  matchConstraints:
    resourceRules:
      - {{ operations: [CREATE], apiGroups: [example.com], apiVersions: [{versions}], resources: [widgets] }}
  variables: {variables}
  validations: {validations}
"#
    );
    let chains = load_text("widgets.yaml", &with_binding(&policy, "Validating", "widgets"))
        .unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.as_slice() else {
        panic!("{chains:?}")
    };
    chain.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn parameters_for_a_policy_without_parameters_cause_a_warning() {
    let policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: { name: p }\n\
                  spec:\n  matchConstraints:\n    resourceRules:\n      \
                  - { operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }\n  \
                  validations: [{ expression: \"true\" }]\n";
    let actions = "validationActions: [Deny]";
    let parameters = "paramRef: { name: a, parameterNotFoundAction: Deny }";
    let text = with_binding(policy, "Validating", "p").replace(actions, &format!("{actions}, {parameters}"));
    let chains = load_text("p.yaml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let warnings: Vec<_> = chains[0].warnings().iter().map(ToString::to_string).collect();
    let expected = "spec.paramRef: the policy \"p\" has no parameters: nothing is looked up; remove it, or add `paramKind` \
                    to the policy";
    assert!(
        warnings.iter().any(|warning| warning.contains(expected)),
        "{warnings:?}"
    );
}

/// The checks are those of kube-apiserver 1.36, policy/validating/typechecking.go.
#[test]
fn expressions_are_checked_with_the_schemas_of_kinds() {
    for right in [
        "object.spec.size > 1 && object.spec.ratio < 2.0 && object.apiVersion == 'example.com/v1'",
        "object.spec.parts.all(part, part.name.startsWith('a'))",
        "object.spec.port == 'http' || object.spec.port == 80",
        "object.spec.since != '' && object.spec.owner == null && object.spec.anything.a.b == 1",
        "has(object.spec.parts) && object.spec.options.a && object.spec.?size.orValue(1) == 1",
        "object == null || object.metadata.labels.a == object.metadata.name",
        "oldObject == null || oldObject.spec.size == params.spec.size",
        "request.name == 'a' && object.metadata.ownerReferences.exists(owner, owner.kind == 'A')",
    ] {
        let validations = format!("[ {{ expression: {right:?} }} ]");
        assert_eq!(type_warnings("v1", "[]", &validations), Vec::<String>::new(), "{right}");
    }
    for (wrong, expected) in [
        (
            "object.spec.sizes > 1",
            "undefined field 'sizes': Widget.spec has no such field (did you mean size?)",
        ),
        (
            "object.status.ready == true",
            "undefined field 'status': Widget has no such field",
        ),
        (
            "oldObject.spec.size == 'a'",
            "no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "object.spec.parts.all(part, part.nam == 'a')",
            "undefined field 'nam': Widget.spec.parts[]",
        ),
        ("has(object.spec.part)", "undefined field 'part'"),
        ("object.spec.options.a == 1", "applied to '(bool, int)'"),
        ("params.spec.sized == 1", "undefined field 'sized'"),
        (
            "object.metadata.label == {}",
            "undefined field 'label': Widget.metadata",
        ),
    ] {
        let validations = format!("[ {{ expression: {wrong:?} }} ]");
        let warnings = type_warnings("v1, v2", "[]", &validations);
        let [warning] = warnings.as_slice() else {
            panic!("{wrong}: {warnings:?}")
        };
        assert!(
            warning.contains("spec.validations[0].expression: for example.com/v1/Widget: "),
            "{warning}"
        );
        assert!(warning.contains(expected), "{wrong}: {warning}");
    }
    let variables = "[ { name: size, expression: object.spec.size }, { name: other, expression: object.spec.x } ]";
    let validations = "[ { expression: \"variables.size > 'a'\", messageExpression: string(object.spec.y) }, { expression: variables.other == 1 } ]";
    let warnings = type_warnings("v1", variables, validations);
    let paths: Vec<&str> = warnings
        .iter()
        .filter_map(|warning| warning.split(": ").nth(1))
        .collect();
    assert_eq!(
        paths,
        [
            "spec.variables[1].expression",
            "spec.validations[0].expression",
            "spec.validations[0].messageExpression"
        ]
    );
    for versions in ["v2", "\"*\""] {
        let warnings = type_warnings(versions, "[]", "[ { expression: object.spec.sizes > 1 } ]");
        assert_eq!(warnings, Vec::<String>::new(), "{versions}");
    }
}

/// Part of an API server's OpenAPI document at `/openapi/v3/apis/apps/v1`, and a schema that contains itself.
const APPS: &str = r##"{
  "openapi": "3.0.0",
  "info": {"title": "Kubernetes", "version": "v1.36.0"},
  "paths": {
    "/apis/apps/v1/": {"get": {"operationId": "getAppsV1APIResources"}},
    "/apis/apps/v1/deployments": {"get": {"x-kubernetes-action": "list",
      "x-kubernetes-group-version-kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}},
    "/apis/apps/v1/namespaces/{namespace}/deployments": {"post": {"x-kubernetes-action": "post",
      "x-kubernetes-group-version-kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}},
    "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": {"post": {"x-kubernetes-action": "post",
      "x-kubernetes-group-version-kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}}
  },
  "components": {"schemas": {
    "io.k8s.api.apps.v1.Deployment": {"type": "object",
      "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
      "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], "default": {}},
        "spec": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}], "default": {}}}},
    "io.k8s.api.apps.v1.DeploymentSpec": {"type": "object", "properties": {
        "replicas": {"type": "integer", "format": "int32"},
        "containers": {"type": "array", "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container", "default": {}}},
        "maxSurge": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
        "tree": {"$ref": "#/components/schemas/io.k8s.Tree"},
        "lost": {"$ref": "#/components/schemas/io.k8s.Lost"}}},
    "io.k8s.api.core.v1.Container": {"type": "object", "properties": {
        "name": {"type": "string"},
        "limits": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/io.k8s.Quantity"}}}},
    "io.k8s.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.Tree": {"type": "object", "properties": {
        "leaf": {"type": "boolean"}, "left": {"$ref": "#/components/schemas/io.k8s.Tree"}}},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
  }}
}"##;

#[test]
fn expressions_are_checked_with_the_schemas_of_an_api_server() {
    let policy = |expression: &str| {
        format!(
            r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{ name: deployments }}
spec:
  matchConstraints:
    resourceRules:
      - {{ operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments, deployments/scale] }}
  validations: [ {{ expression: {expression:?} }} ]
"#
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("apps-v1.json"), APPS).unwrap();
    let warnings = |expression: &str| -> Vec<String> {
        let text = with_binding(&policy(expression), "Validating", "deployments");
        fs::write(path("policy.yaml"), text).unwrap();
        let chains = load(&[directory.path().to_owned()]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!(chains.len(), 1);
        let warnings = chains.iter().flat_map(ChainDefinition::warnings);
        warnings.map(|warning| warning.to_string()).collect()
    };
    for right in [
        "object.spec.replicas <= 5 && object.metadata.name != ''",
        "object.spec.maxSurge == 1 || object.spec.maxSurge == '10%'",
        "object.spec.containers.all(c, c.name == 'a' || quantity(c.limits.cpu).isLessThan(quantity('1')))",
        "object.spec.tree.left.left.anything == 1 && object.spec.lost.found",
    ] {
        assert_eq!(warnings(right), Vec::<String>::new(), "{right}");
    }
    for (wrong, expected) in [
        (
            "object.spec.replica <= 5",
            "undefined field 'replica': DeploymentSpec has no such field (did you mean replicas?)",
        ),
        ("object.spec.replicas == 'a'", "applied to '(int, string)'"),
        (
            "object.spec.containers.all(c, c.nam == 'a')",
            "undefined field 'nam': Container has no such field",
        ),
        (
            "object.spec.tree.leave == true",
            "undefined field 'leave': Tree has no such field",
        ),
    ] {
        let messages = warnings(wrong);
        let [warning] = messages.as_slice() else {
            panic!("{wrong}: {messages:?}")
        };
        assert!(warning.contains("for apps/v1/Deployment: "), "{warning}");
        assert!(warning.contains(expected), "{wrong}: {warning}");
    }
    fs::write(path("again.json"), APPS).unwrap();
    assert_eq!(warnings("object.spec.replica <= 5").len(), 1);
}

#[test]
fn an_unusable_openapi_document_is_a_mistake() {
    for (document, expected) in [
        (
            r#"{"swagger": "2.0"}"#,
            "a.json:1:13: swagger: OpenAPI documents of version 2 are not read; save one of version 3",
        ),
        (
            r#"{"openapi": "4.0.0"}"#,
            "a.json:1:13: openapi: only OpenAPI documents of version 3 are read",
        ),
        (
            r#"{"openapi": "3.0.0", "paths": {}}"#,
            "a.json:1:1: the OpenAPI document has no schema of a kind",
        ),
    ] {
        let mistakes = load_text("a.json", document).unwrap_err().to_string();
        assert!(mistakes.starts_with(expected), "{mistakes}");
    }
}

fn mutation_warnings(version: &str, resource: &str, patch: &str) -> Vec<String> {
    let policy = format!(
        r#"
apiVersion: admissionregistration.k8s.io/{version}
kind: MutatingAdmissionPolicy
metadata: {{ name: hardened }}
spec:
  matchConstraints:
    resourceRules:
      - {{ operations: [CREATE], {resource} }}
  reinvocationPolicy: Never
  mutations:
    - {patch}
"#
    );
    let chains = load_text("hardened.yaml", &with_binding(&policy, "Mutating", "hardened"))
        .unwrap_or_else(|mistakes| panic!("{mistakes}"));
    chains[0].warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn mutations_of_unknown_fields_cause_warnings() {
    let pods = "apiGroups: [''], apiVersions: [v1], resources: [pods]";
    let apply = |expression: &str| {
        format!("{{ patchType: ApplyConfiguration, applyConfiguration: {{ expression: {expression:?} }} }}")
    };
    let typo = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', securityContxt: \
                Object.spec.containers.securityContxt{runAsNonRoot: true}}]}}";
    let patch = "{ patchType: JSONPatch, jsonPatch: { expression: '[JSONPatch{op: \"add\", path: \"/spec/containers/-\", \
                 value: Object.spec.containers{name: \"a\", imge: \"b\"}}]' } }";
    let patch_of = |operation: &str, path: &str, value: &str| {
        format!(
            "{{ patchType: JSONPatch, jsonPatch: {{ expression: '[JSONPatch{{op: \"{operation}\", path: \"{path}\", \
             value: {value}}}]' }} }}"
        )
    };
    let widgets = "apiGroups: [example.com], apiVersions: [v1], resources: [widgets]";
    for (resource, patch, expected) in [
        (
            pods,
            apply(typo),
            Some("for v1/Pod: Object.spec.containers has no field \"securityContxt\""),
        ),
        (
            pods,
            patch.to_owned(),
            Some("for v1/Pod: Object.spec.containers has no field \"imge\""),
        ),
        (
            widgets,
            apply("Object{spec: Object.spec{sized: 1}}"),
            Some("for example.com/v1/Widget: Object.spec has no field \"sized\""),
        ),
        (widgets, apply("Object{spec: Object.spec{size: 1}}"), None),
        (
            pods,
            apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"),
            None,
        ),
        // The rule matches every kind, so the schema of the object is unknown. Therefore a misspelt field causes no
        // warning. However, a type that contradicts its path, such as `Object.spce` for the field `spec`, still causes
        // one.
        (
            "apiGroups: ['*'], apiVersions: ['*'], resources: ['*']",
            apply(typo),
            None,
        ),
        (
            "apiGroups: ['*'], apiVersions: ['*'], resources: ['*']",
            apply("Object{spec: Object.spce{replicas: 1}}"),
            Some("Object.spec has the type of its path, and not Object.spce"),
        ),
        (
            pods,
            apply("Object{spec: Object.spec{containers: [Object.spec.container{name: 'a'}]}}"),
            Some("for v1/Pod: Object.spec.containers has the type of its path, and not Object.spec.container"),
        ),
        (
            pods,
            apply("Object{spec: Object.spec{hostNetwork: 'no'}}"),
            Some("for v1/Pod: Object.spec.hostNetwork: expected boolean, got &{}"),
        ),
        (
            pods,
            apply("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', args: ['-v']}]}}"),
            Some("Object.spec.containers.args is replaced as a whole, which only a JSONPatch can do"),
        ),
        (
            pods,
            apply("Object{spec: Object.spec{activeDeadlineSeconds: object.spec.x, hostNetwork: true}}"),
            None,
        ),
        (
            pods,
            apply("Object{spec: Object.spec{activeDeadlineSeconds: 2.0}}"),
            None,
        ),
        (pods, patch_of("add", "/spec/hostNetwork", "true"), None),
        (pods, patch_of("add", "/metadata/labels/example.com~1a", "\"b\""), None),
        (pods, patch_of("add", "/spec/activeDeadlineSeconds", "object.x"), None),
        (pods, patch_of("add", "/spec/activeDeadlineSeconds", "2.0"), None),
        (pods, patch_of("remove", "/spec/hostNetwrk", "null"), None),
        (
            pods,
            patch_of("add", "/spec/hostNetwrk", "true"),
            Some(
                "for v1/Pod: there is no field \"hostNetwrk\" on the path \"/spec/hostNetwrk\", so the mutation fails",
            ),
        ),
        (
            pods,
            patch_of("replace", "/spec/hostNetwork", "\"no\""),
            Some("cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        ),
        (
            pods,
            patch_of("add", "/metadata/labels", "{\"a\": 1}"),
            Some("cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
        ),
        (
            pods,
            patch_of("add", "/spec/containers/-", "{\"name\": \"b\", \"imge\": \"a\"}"),
            Some("the value for \"/spec/containers/-\" has no field \"imge\""),
        ),
        (
            pods,
            patch_of("copy", "/spec/containers/0/imge", "null"),
            Some("there is no field \"imge\" on the path \"/spec/containers/0/imge\""),
        ),
    ] {
        let warnings = mutation_warnings("v1", resource, &patch);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{patch}: {warnings:?}");
        if let Some(expected) = expected {
            assert!(warnings[0].contains(expected), "{patch}: {warnings:?}");
        }
    }
}

#[test]
fn policies_of_earlier_versions_are_read_like_v1() {
    let patch = "{ patchType: ApplyConfiguration, applyConfiguration: { expression: 'Object{}' } }";
    let pods = "apiGroups: [''], apiVersions: [v1], resources: [pods]";
    for version in ["v1", "v1beta1", "v1alpha1"] {
        assert!(mutation_warnings(version, pods, patch).is_empty(), "{version}");
    }
}

#[test]
fn a_policy_without_a_binding_does_nothing() {
    let policy = document("ValidatingAdmissionPolicy", "p", &POLICY, "");
    let warnings = |text: &str| -> Vec<String> {
        let chains = load_text("a.yaml", text).unwrap();
        chains[0].warnings().iter().map(ToString::to_string).collect()
    };
    let does_nothing = |warnings: Vec<String>| warnings.iter().any(|warning| warning.contains("does nothing"));
    assert!(does_nothing(warnings(&policy)));
    assert!(!does_nothing(warnings(&with_binding(&policy, "Validating", "p"))));
}

#[test]
fn only_the_version_of_an_unsupported_policy_is_reported() {
    let policy = document("ValidatingAdmissionPolicy", "p", &POLICY, "");
    let text = with_binding(&policy, "Validating", "p").replace(
        "k8s.io/v1\nkind: ValidatingAdmissionPolicy\n",
        "k8s.io/v1beta9\nkind: ValidatingAdmissionPolicy\n",
    );
    let mistakes = load_text("a.yaml", &text).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes}");
    assert!(mistakes.to_string().contains("v1beta9"), "{mistakes}");
}

#[test]
fn stages_of_native_chains_use_the_schemas_of_custom_kinds() {
    let chain = |phase: &str, cel: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: widgets }}
spec:
  phase: {phase}
  rules: [ {{ operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets] }} ]
  stages: [ {{ name: s, cel: {{ {cel} }} }} ]
{WIDGETS}"
        )
    };
    let warnings = |phase: &str, cel: &str| -> Vec<String> {
        let chains = load_text("a.yaml", &chain(phase, cel)).unwrap();
        chains[0].warnings().iter().map(ToString::to_string).collect()
    };
    let apply = |expression: &str| {
        format!(
            "mutations: [ {{ patchType: ApplyConfiguration, applyConfiguration: {{ expression: '{expression}' }} }} ]"
        )
    };
    for (phase, cel, expected) in [
        (
            "Validating",
            "validations: [ { expression: 'object.spec.size > 1' } ]".to_owned(),
            None,
        ),
        (
            "Validating",
            "validations: [ { expression: 'object.spec.sise > 1' } ]".to_owned(),
            Some("spec.stages[0].cel.validations[0].expression: for example.com/v1/Widget: "),
        ),
        ("Mutating", apply("Object{spec: Object.spec{size: 1}}"), None),
        (
            "Mutating",
            apply("Object{spec: Object.spec{sise: 1}}"),
            Some("Object.spec has no field \"sise\""),
        ),
    ] {
        let messages = warnings(phase, &cel);
        assert_eq!(messages.len(), usize::from(expected.is_some()), "{cel}: {messages:?}");
        for (warning, expected) in messages.iter().zip(expected) {
            assert!(warning.contains(expected), "{cel}: {warning}");
        }
    }
    let chains = load_text("a.yaml", &chain("Mutating", &apply("Object{}"))).unwrap();
    let cel: &CelDefinition = chains[0].stages[0].hook.get().unwrap();
    assert_eq!(cel.binding.structures.len(), 1, "the version with a schema");
}
