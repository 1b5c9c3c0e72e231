use std::time::Duration;

use admittance_admission::{FailurePolicy, NamespaceSelector, Phase, Reinvocation};
use admittance_conditions::{Action, MessageWording};

use crate::{CelDefinition, ChainDefinition, StageDefinition, load_text};

fn load_one(text: &str) -> ChainDefinition {
    let chains = load_text("policies.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    chain
}

fn cel(stage: &StageDefinition) -> &CelDefinition {
    stage.hook.get().unwrap()
}

fn pod_policy(kind: &str, lines: &str) -> String {
    let lines = lines.trim().replace('\n', "\n  ");
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{ name: p, namespace: shop }}\nspec:\n  \
         matchConstraints:\n    resourceRules:\n      \
         - {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}\n  {lines}\n"
    )
}

fn mistakes(text: &str) -> String {
    load_text("p.yaml", text).unwrap_err().to_string()
}

#[test]
fn a_kyverno_policy_becomes_a_chain_without_a_binding() {
    let chain = load_one(
        r#"
apiVersion: policies.kyverno.io/v1beta1
kind: ValidatingPolicy
metadata: { name: replicas, annotations: { policies.kyverno.io/title: Replicas } }
spec:
  validationActions: [Audit, Warn]
  failurePolicy: Ignore
  evaluation: { admission: { enabled: true }, background: { enabled: false }, mode: Kubernetes }
  webhookConfiguration: { timeoutSeconds: 7 }
  matchConstraints:
    resourceRules:
      - { operations: [CREATE, UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments] }
    excludeResourceRules:
      - { operations: ["*"], apiGroups: [apps], apiVersions: [v1], resources: [deployments], resourceNames: [big] }
    namespaceSelector: { matchLabels: { a: b } }
    objectSelector: { matchLabels: { c: d } }
  variables:
    - { name: most, expression: "5" }
  matchConditions:
    - { name: is-set, expression: "has(object.spec.replicas) && variables.most == 5" }
  validations:
    - expression: |
        object.spec.replicas <=
          variables.most
    - { expression: "true", message: "a\nb", messageExpression: "'c'" }
  auditAnnotations:
    - { key: replicas, valueExpression: "string(object.spec.replicas)" }
status: {}
"#,
    );
    assert_eq!((chain.name.as_str(), chain.phase), ("replicas", Phase::Validating));
    let [stage] = chain.stages.as_slice() else {
        panic!("{chain:?}")
    };
    assert_eq!(&*stage.spec.name, "replicas");
    assert_eq!(stage.spec.rules, chain.rules);
    assert_eq!(stage.spec.exclude_rules[0].names, ["big"]);
    assert_eq!(stage.spec.failure_policy, FailurePolicy::Ignore);
    assert_eq!(stage.spec.timeout, Duration::from_secs(7));
    assert!(!stage.spec.object_selector.is_empty());
    assert!(matches!(
        &stage.spec.namespace_selector,
        Some(NamespaceSelector::Labels(_))
    ));
    let cel = cel(stage);
    assert_eq!(cel.binding.actions, [Action::Audit, Action::Warn]);
    assert_eq!(cel.binding.failure_policy, FailurePolicy::Ignore);
    let wording = MessageWording::Kyverno {
        policy: "replicas".to_owned(),
    };
    assert_eq!(cel.binding.wording, wording);
    let messages = cel
        .policy
        .validations
        .iter()
        .map(|validation| validation.message.as_deref());
    assert!(messages.eq([Some("CEL expression validation failed at index 0"), Some("a\nb")]));
    assert!(chain.warnings.is_empty());
}

#[test]
fn a_namespaced_policy_applies_only_to_its_namespace() {
    for kind in ["NamespacedValidatingPolicy", "NamespacedMutatingPolicy"] {
        let expressions = match kind {
            "NamespacedValidatingPolicy" => "validations: [{ expression: \"true\" }]",
            _ => {
                "mutations: [{ patchType: JSONPatch, jsonPatch: { expression: \"[]\" } }]\nreinvocationPolicy: IfNeeded"
            }
        };
        let chain = load_one(&pod_policy(kind, expressions));
        assert_eq!(chain.name, "shop/p");
        for stage in &chain.stages {
            let shop = NamespaceSelector::In(vec!["shop".to_owned()]);
            assert_eq!(stage.spec.namespace_selector, Some(shop));
            assert_eq!(
                stage.spec.reinvocation == Reinvocation::IfNeeded,
                kind == "NamespacedMutatingPolicy"
            );
        }
    }
}

#[test]
fn a_policy_for_pods_applies_to_pod_controllers_too() {
    let expression = "object.metadata.?labels.orValue({}) == {} && object.spec.x == 1 && oldObject.spec.x == 1 \
                      && object.metadata.namespace == 'a' && object.metadata.namespaces == 'b'";
    let lines = format!("validations: [{{ expression: \"{expression}\" }}]");
    let chain = load_one(&pod_policy("ValidatingPolicy", &lines));
    let stage_summaries: Vec<_> = chain
        .stages
        .iter()
        .map(|stage| {
            let rules = stage.spec.rules.iter();
            let resources: Vec<_> = rules
                .flat_map(|rule| rule.resources.iter().map(ToString::to_string))
                .collect();
            (
                &*stage.spec.name,
                resources.join(","),
                cel(stage).policy.validations[0].expression.text(),
            )
        })
        .collect();
    let rewritten_expression = |path: &str| {
        expression
            .replace("object.spec", &format!("object.{path}.spec"))
            .replace("oldObject.spec", &format!("oldObject.{path}.spec"))
            .replace("object.metadata.?", &format!("object.{path}.metadata.?"))
            .replace(
                "object.metadata.namespaces",
                &format!("object.{path}.metadata.namespaces"),
            )
    };
    let (template, job) = (
        rewritten_expression("spec.template"),
        rewritten_expression("spec.jobTemplate.spec.template"),
    );
    let controllers = "daemonsets,deployments,replicasets,statefulsets,jobs".to_owned();
    assert_eq!(
        stage_summaries,
        [
            ("p", "pods".to_owned(), expression),
            ("autogen-defaults", controllers, template.as_str()),
            ("autogen-cronjobs", "cronjobs".to_owned(), job.as_str()),
        ]
    );
    for (controllers, expected) in [
        ("[]", vec!["p"]),
        ("[deployments]", vec!["p", "autogen-defaults"]),
        ("[cronjobs]", vec!["p", "autogen-cronjobs"]),
    ] {
        let lines = format!("{lines}\nautogen: {{ podControllers: {{ controllers: {controllers} }} }}");
        let chain = load_one(&pod_policy("ValidatingPolicy", &lines));
        let names: Vec<_> = chain.stages.iter().map(|stage| &*stage.spec.name).collect();
        assert_eq!(names, expected, "{controllers}");
    }
}

#[test]
fn a_policy_with_selectors_for_pods_does_not_apply_to_pod_controllers() {
    let lines = "validations: [{ expression: \"true\" }]";
    for (part, other) in [
        ("resources: [pods]", "resources: [pods, services]"),
        ("resources: [pods]", "resources: [pods], resourceNames: [a]"),
        ("apiVersions: [v1]", "apiVersions: [\"*\"]"),
        ("apiGroups: [\"\"]", "apiGroups: [\"*\"]"),
        (
            "    resourceRules:",
            "    objectSelector: { matchLabels: { a: b } }\n    resourceRules:",
        ),
    ] {
        let chain = load_one(&pod_policy("ValidatingPolicy", lines).replace(part, other));
        assert_eq!(chain.stages.len(), 1, "{other}");
    }
}

#[test]
fn mutations_of_pods_are_made_in_pod_templates_too() {
    for (expression, template) in [
        (
            "Object{spec: Object.spec{a: object.spec.b}}",
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{a: \
             object.spec.template.spec.b}}}}",
        ),
        (
            "Object {metadata: Object.metadata{labels: Object.metadata.labels{a: '1'}}}",
            "Object{spec: Object.spec{template: Object.spec.template{metadata: \
             Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{a: '1'}}}}}",
        ),
    ] {
        let lines = format!(
            "mutations: [{{ patchType: ApplyConfiguration, applyConfiguration: {{ expression: \"{expression}\" }} }}]"
        );
        let chain = load_one(&pod_policy("MutatingPolicy", &lines));
        let texts: Vec<_> = chain
            .stages
            .iter()
            .map(|stage| cel(stage).policy.mutations[0].text())
            .collect();
        assert_eq!(texts[..2], [expression, template]);
        assert_eq!(chain.phase, Phase::Mutating);
    }
}

#[test]
fn fields_without_an_effect_cause_warnings() {
    for (lines, expected, stages) in [
        (
            "evaluation: { admission: { enabled: false } }",
            "the policy is not for requests, so it does nothing here",
            0,
        ),
        (
            "autogen: { podControllers: { controllers: [Deployment] } }",
            "\"Deployment\" creates no Pods, and has no effect, as in Kyverno",
            1,
        ),
        (
            "autogen: { validatingAdmissionPolicy: { enabled: true } }",
            "no policy of Kubernetes is generated: the policy itself is run here",
            3,
        ),
    ] {
        let lines = format!("validations: [{{ expression: \"true\" }}]\n{lines}");
        let chain = load_one(&pod_policy("ValidatingPolicy", &lines));
        let messages: Vec<_> = chain.warnings.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!((messages, chain.stages.len()), (vec![expected], stages));
    }
}

#[test]
fn unsupported_fields_and_kinds_are_mistakes() {
    for (lines, expected) in [
        (
            "failurePolicy: Fail",
            "spec: the policy has no expressions; write `validations` or `auditAnnotations`",
        ),
        (
            "evaluation: { mode: JSON }",
            "spec.evaluation.mode: a policy for JSON payloads is never called",
        ),
        (
            "mutations: []",
            "spec.mutations: a policy of this kind has no such field; remove it",
        ),
        (
            "webhookConfiguration: { timeoutSeconds: 31 }",
            "spec.webhookConfiguration.timeoutSeconds",
        ),
        ("validationActions: [Deny, Warn]", "Deny and Warn exclude each other"),
        ("images: []", "spec.images: unknown field"),
        (
            "validations: [{ expression: \"object.spec == \" }]",
            "spec.validations[0].expression: ",
        ),
    ] {
        let validations = if lines.starts_with("validations") || lines == "failurePolicy: Fail" {
            ""
        } else {
            "validations: [{ expression: \"true\" }]\n"
        };
        let message = mistakes(&pod_policy("ValidatingPolicy", &format!("{validations}{lines}")));
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.matches("p.yaml").count(), 1, "{message}");
    }
    let message = mistakes(&pod_policy(
        "MutatingPolicy",
        "targetMatchConstraints: {}\nmutations: [{ patchType: JSONPatch, jsonPatch: { expression: \"[]\" } }]",
    ));
    assert!(
        message.contains("spec.targetMatchConstraints: objects other than that of the request"),
        "{message}"
    );
    for (version, kind, expected) in [
        (
            "kyverno.io/v1",
            "ClusterPolicy",
            "write a ValidatingPolicy or MutatingPolicy of policies.kyverno.io",
        ),
        (
            "kyverno.io/v2",
            "PolicyException",
            "write a PolicyException of policies.kyverno.io",
        ),
        ("kyverno.io/v2", "CleanupPolicy", "it creates or deletes other objects"),
        (
            "policies.kyverno.io/v1",
            "GeneratingPolicy",
            "it creates or deletes other objects",
        ),
        (
            "policies.kyverno.io/v1",
            "ImageValidatingPolicy",
            "signatures of images are not verified",
        ),
        (
            "policies.kyverno.io/v2",
            "ValidatingPolicy",
            "write `apiVersion: policies.kyverno.io/v1`",
        ),
        (
            "example.com/v1",
            "ValidatingPolicy",
            "\"ValidatingPolicy\" of example.com/v1 is not known here",
        ),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{ name: p }}\n");
        let message = mistakes(&text);
        assert!(message.contains(expected), "{message}");
    }
}

fn with_exception(kind: &str, spec: &str) -> String {
    let expressions = match kind {
        "MutatingPolicy" => "mutations: [{ patchType: JSONPatch, jsonPatch: { expression: \"[]\" } }]",
        _ => "validations: [{ expression: \"true\" }]",
    };
    format!(
        "{}---\napiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {{ name: e, namespace: shop }}\n\
         spec:\n  policyRefs: [{{ name: p, kind: {kind} }}]\n{spec}",
        pod_policy(kind, expressions)
    )
}

#[test]
fn an_exception_applies_to_all_stages_of_its_policy() {
    let condition = "{ name: a, expression: \"image(object.spec.image).tag() == '1'\" }";
    let spec = format!("  matchConditions: [{condition}]\n  expiresAt: 2030-01-01T00:00:00Z\n  reportResult: pass\n");
    for kind in ["ValidatingPolicy", "NamespacedValidatingPolicy", "MutatingPolicy"] {
        let chain = load_one(&with_exception(kind, &spec));
        assert_eq!(chain.stages.len(), 3);
        for stage in &chain.stages {
            let [exception] = stage.spec.exceptions.as_slice() else {
                panic!("{stage:?}")
            };
            assert_eq!(
                (&*exception.name, exception.until.to_string().as_str()),
                ("shop/e", "2030-01-01T00:00:00.000Z")
            );
            assert_eq!(exception.match_conditions.expressions().len(), 1);
        }
    }
}

#[test]
fn an_exception_without_a_namespace_is_in_the_default_namespace() {
    let text = with_exception("ValidatingPolicy", "").replace("name: e, namespace: shop", "name: e");
    assert_eq!(&*load_one(&text).stages[0].spec.exceptions[0].name, "default/e");
}

#[test]
fn labels_and_annotations_must_be_strings_as_in_an_api_server() {
    for (metadata, expected) in [
        (
            "labels: { a: 1 }",
            "metadata.labels.a: a number where a string is expected; put it in quotes: \"1\"",
        ),
        (
            "annotations: { mine: y }",
            "metadata.annotations.mine: true or false where a string is expected; put it in quotes: \"y\"",
        ),
    ] {
        for (version, kind, spec) in [
            ("policies.kyverno.io/v1", "PolicyException", "policyRefs: []"),
            ("admittance.dev/v1alpha1", "AdmissionChain", "stages: []"),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                "validations: []",
            ),
            ("policies.kubewarden.io/v1", "ClusterAdmissionPolicy", "rules: []"),
        ] {
            let text = format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{ name: p, {metadata} }}\nspec: {{ {spec} }}\n"
            );
            let message = mistakes(&text);
            assert!(message.contains(expected), "{message}");
        }
    }
    // An API server reads a label or annotation without a value as an empty string, so null is accepted here.
    let text = pod_policy("ValidatingPolicy", "validations: [{ expression: \"true\" }]");
    load_one(&text.replace("name: p,", "name: p, annotations: { mine: },"));
}

#[test]
fn an_exception_with_images_or_values_allows_them() {
    let chain = load_one(&with_exception(
        "ValidatingPolicy",
        "  images: [nginx]\n  allowedValues: [a]\n",
    ));
    for stage in &chain.stages {
        assert!(stage.spec.exceptions.is_empty());
        let [allowance] = cel(stage).binding.allowances.as_slice() else {
            panic!("{stage:?}")
        };
        assert_eq!(
            (allowance.images.as_slice(), allowance.values.as_slice()),
            (&["nginx".to_owned()][..], &["a".to_owned()][..])
        );
        assert_eq!(allowance.expires_at.to_string(), "9999-12-31T23:59:59.000Z");
    }
}

#[test]
fn mistakes_in_exceptions_are_reported() {
    let lookup = "{ name: a, expression: \"resource.Get('v1', 'pods', 'a', 'b') == null\" }";
    for (spec, expected) in [
        ("  podSecurity: []\n", "spec.podSecurity: unknown field"),
        (
            "  expiresAt: tomorrow\n",
            "spec.expiresAt: \"tomorrow\" is not a day or a moment",
        ),
        (
            &format!("  matchConditions: [{lookup}]\n"),
            "spec.matchConditions: the conditions of an exception see nothing",
        ),
    ] {
        let message = mistakes(&with_exception("ValidatingPolicy", spec));
        assert!(message.contains(expected), "{message}");
    }
    let message = mistakes(&with_exception("ValidatingPolicy", "").replace("name: p, kind", "name: q, kind"));
    assert!(
        message.contains("spec.policyRefs[0]: there is no ValidatingPolicy \"q\"; add its document"),
        "{message}"
    );
}
