mod generated;

use admittance_admission::{ClusterKind, FailurePolicy, Matcher, Mode, ModuleReference, Operation, Phase, Scope};
use admittance_conditions::{Action, MessageWording};
use serde_json::json;

use crate::{CelDefinition, ChainDefinition, PluginDefinition, StageDefinition, load_text};

const REGO: &str = r#"
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: { name: limits }
spec:
  crd:
    spec:
      names: { kind: Limits, shortNames: [lim] }
      validation:
        openAPIV3Schema:
          type: object
          required: [most]
          properties:
            most: { type: integer, minimum: 1 }
            unit: { type: string, enum: [cpu, memory], default: cpu }
            any: { x-kubernetes-int-or-string: true }
            others:
              type: object
              additionalProperties: { type: boolean }
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package limits
        violation[{"msg": "a"}] { data.inventory.cluster[v]["Node"][n]; input.review.namespaceObject }
      libs: ["package lib.a"]
"#;

fn constraint(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Limits\nmetadata: {{ name: {name} }}\nspec: {spec}\n"
    )
}

fn load_one(text: &str) -> ChainDefinition {
    let chains = load_text("policies.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    chain
}

fn plugin(stage: &StageDefinition) -> &PluginDefinition {
    stage.hook.get().unwrap()
}

fn warnings(chain: &ChainDefinition) -> Vec<String> {
    chain.warnings().iter().map(ToString::to_string).collect()
}

fn names(chain: &ChainDefinition) -> Vec<(&str, Mode)> {
    let stages = chain.stages.iter();
    stages.map(|stage| (&*stage.spec.name, stage.spec.mode)).collect()
}

#[test]
fn a_template_is_a_chain_and_its_constraints_are_stages() {
    let spec = r#"
  match:
    kinds: [ { apiGroups: [apps], kinds: [Deployment, StatefulSet] }, { kinds: [Pod] } ]
    scope: Namespaced
    labelSelector: { matchLabels: { a: b } }
    namespaceSelector: { matchLabels: { c: d } }
    excludedNamespaces: [kube-*]
    name: "*-web"
  parameters: { most: 3, others: { x: true }, any: "1" }"#;
    let sync = r#"---
apiVersion: syncset.gatekeeper.sh/v1alpha1
kind: SyncSet
metadata: { name: nodes }
spec: { gvks: [ { version: v1, kind: Node }, { group: apps, version: v1, kind: Deployment } ] }
---
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: { name: config, namespace: gatekeeper-system }
spec:
  sync: { syncOnly: [ { group: "", version: v1, kind: Service } ] }
  match: [ { excludedNamespaces: [system], processes: ["*"] }, { excludedNamespaces: [shop], processes: [audit] } ]
"#;
    let text = format!(
        "{REGO}{}{}{sync}",
        constraint("b", spec),
        constraint(
            "a",
            "{ enforcementAction: dryrun, parameters: { most: 1, unit: memory } }"
        )
    );
    let chain = load_one(&text);
    assert_eq!((chain.name.as_str(), chain.phase), ("limits", Phase::Validating));
    assert_eq!(names(&chain), [("a", Mode::Audit), ("b", Mode::Enforce)]);
    let [a, b] = chain.stages.as_slice() else {
        panic!("{chain:?}")
    };
    assert!(b.spec.denials_name_policy);
    assert_eq!(b.spec.failure_policy, FailurePolicy::Fail);
    let [workloads, pods] = b.spec.rules.as_slice() else {
        panic!("{b:?}")
    };
    assert_eq!(workloads.api_groups, Matcher::Only(vec!["apps".into()]));
    assert_eq!(
        workloads.kinds,
        Matcher::Only(vec!["Deployment".into(), "StatefulSet".into()])
    );
    assert_eq!((&pods.api_groups, pods.scope), (&Matcher::Any, Scope::Namespaced));
    assert_eq!(
        pods.operations,
        Matcher::Only(vec![Operation::Create, Operation::Update])
    );
    assert_eq!(b.spec.object_selector.to_string(), "a in (b)");
    assert!(b.spec.namespace_selector.is_some());
    let conditions = b.spec.match_conditions.expressions();
    let [("excludedNamespaces", excluded), ("name", name)] = conditions.as_slice() else {
        panic!("{conditions:?}")
    };
    assert!(
        excluded.contains("startsWith('kube-')") && excluded.contains("== 'system'"),
        "{excluded}"
    );
    assert!(
        !excluded.contains("shop") && name.ends_with(".endsWith('-web')"),
        "{excluded} {name}"
    );

    let (of_a, of_b) = (plugin(a), plugin(b));
    assert_eq!(of_b.source, ModuleReference::stock("rego"));
    assert_eq!(of_a.settings, of_b.settings, "they share one configured plugin");
    assert_eq!(
        of_b.settings["constraints"],
        json!({
            "a": {"parameters": {"most": 1, "unit": "memory"}, "actions": ["deny"]},
            "b": {"parameters": {"most": 3, "unit": "cpu", "others": {"x": true}, "any": "1"}, "actions": ["deny"]},
        })
    );
    assert_eq!(
        (&of_b.settings["version"], &of_b.settings["libs"]),
        (&json!("v0"), &json!(["package lib.a"]))
    );
    assert_eq!(of_b.settings["inventory"], json!(["v1/Node"]));
    let kinds = [ClusterKind::new("v1", "Namespace"), ClusterKind::new("v1", "Node")];
    assert_eq!(of_b.allow.cluster, kinds.into());
    assert_eq!(of_b.allow.environment["CONSTRAINT"], "b");
}

#[test]
fn only_actions_for_gatekeepers_admission_webhook_are_enforced() {
    let scoped = |entries: &str| {
        format!("{{ parameters: {{ most: 1 }}, enforcementAction: scoped, scopedEnforcementActions: [{entries}] }}")
    };
    let scoped_action =
        |action: &str, point: &str| format!("{{ action: {action}, enforcementPoints: [ {{ name: {point} }} ] }}");
    for (spec, mode, actions) in [
        (
            "{ parameters: { most: 1 } }".to_owned(),
            Some(Mode::Enforce),
            json!(["deny"]),
        ),
        (
            "{ enforcementAction: warn, parameters: { most: 1 } }".to_owned(),
            Some(Mode::Enforce),
            json!(["warn"]),
        ),
        (
            scoped(&scoped_action("deny", "validation.gatekeeper.sh")),
            Some(Mode::Enforce),
            json!(["deny"]),
        ),
        (
            scoped(&format!(
                "{}, {}",
                scoped_action("warn", "'*'"),
                scoped_action("deny", "'*'")
            )),
            Some(Mode::Enforce),
            json!(["warn", "deny"]),
        ),
        (
            scoped(&scoped_action("dryrun", "'*'")),
            Some(Mode::Audit),
            json!(["deny"]),
        ),
        (scoped(&scoped_action("deny", "audit.gatekeeper.sh")), None, json!(null)),
        (scoped(&scoped_action("deny", "vap.k8s.io")), None, json!(null)),
    ] {
        let chain = load_one(&format!("{REGO}{}", constraint("a", &spec)));
        assert_eq!(chain.stages.first().map(|stage| stage.spec.mode), mode, "{spec}");
        if let Some(stage) = chain.stages.first() {
            assert_eq!(plugin(stage).settings["constraints"]["a"]["actions"], actions, "{spec}");
        }
    }
}

#[test]
fn a_template_with_cel_and_rego_uses_cel_without_a_plugin() {
    let text = r#"
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: { name: limits }
spec:
  crd: { spec: { names: { kind: Limits } } }
  targets:
    - target: admission.k8s.gatekeeper.sh
      operations: [CREATE, DELETE]
      code:
        - { engine: Rego, source: { rego: "package a", version: v1 } }
        - engine: K8sNativeValidation
          source:
            failurePolicy: Ignore
            variables: [ { name: most, expression: variables.params.most } ]
            validations: [ { expression: "variables.anyObject.spec.replicas <= variables.most", message: too many } ]
"#;
    let text = format!(
        "{text}{}",
        constraint("a", "{ enforcementAction: warn, parameters: { most: 2 } }")
    );
    let chain = load_one(&text);
    let [stage] = chain.stages.as_slice() else {
        panic!("{chain:?}")
    };
    assert_eq!(stage.spec.failure_policy, FailurePolicy::Ignore);
    assert_eq!(
        chain.rules[0].operations,
        Matcher::Only(vec![Operation::Create, Operation::Delete])
    );
    let Some(cel) = stage.hook.get::<CelDefinition>() else {
        panic!("{stage:?}")
    };
    assert_eq!(cel.binding.actions, [Action::Warn]);
    let MessageWording::Gatekeeper { prefix, constraint } = &cel.binding.wording else {
        panic!("{cel:?}")
    };
    assert_eq!(
        (prefix.as_str(), &constraint["spec"]["parameters"]),
        ("[a]", &json!({"most": 2}))
    );
}

#[test]
fn mistakes_in_templates_and_constraints_are_reported() {
    let with_constraint = |spec: &str| format!("{REGO}{}", constraint("a", spec));
    let mistake = |text: &str| match load_text("policies.yaml", text) {
        Ok(chains) => panic!("{text}: {chains:?}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    for (text, expected) in [
        (
            constraint("a", "{}"),
            "there is no ConstraintTemplate for constraints of kind \"Limits\"",
        ),
        (REGO.replace("name: limits", "name: other"), "call it `limits`"),
        (REGO.replace("rego: |", "regos: |"), "the target has no policy"),
        (
            with_constraint("{ parameters: { most: 1 } }").replace("type: integer", "type: integr"),
            "14:27: spec.crd.spec.validation.openAPIV3Schema.properties.most.type: \"integr\" is not a valid type; did you \
             mean integer?",
        ),
        (
            with_constraint("{ parameters: {} }"),
            "spec.parameters: the template's schema requires the field \"most\"",
        ),
        (
            with_constraint("{ parameters: { most: 0 } }"),
            "spec.parameters.most: the template's schema has minimum 1, and this is 0",
        ),
        (
            with_constraint("{ parameters: { most: \"1\" } }"),
            "a value of type integer, and this is of type string",
        ),
        (
            with_constraint("{ parameters: { most: 1, unit: disk } }"),
            "write one of \"cpu\", \"memory\"",
        ),
        (
            with_constraint("{ parameters: { most: 1, others: { x: 1 } } }"),
            "spec.parameters.others.x: the template's schema asks",
        ),
        (
            with_constraint("{ parameters: { most: 1, any: true } }"),
            "of type integer or string",
        ),
        (
            with_constraint("{ parameters: { most: 1 }, enforcementAction: denny }"),
            "deny",
        ),
        (
            with_constraint("{ parameters: { most: 1 }, enforcementAction: scoped }"),
            "`scopedEnforcementActions` is missing",
        ),
        (
            with_constraint("{ parameters: { most: 1 }, match: { namespaces: [\"a*b\"] } }"),
            "\"a*b\" is not a name",
        ),
        (
            with_constraint("{ parameters: { most: 1 }, match: { kind: [] } }"),
            "did you mean `kinds`?",
        ),
        (
            format!(
                "{}{}",
                with_constraint("{ parameters: { most: 1 } }"),
                constraint("a", "{ parameters: { most: 1 } }")
            ),
            "\"Limits/a\" is also the name of the constraint in",
        ),
    ] {
        let message = mistake(&text);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    // A parameter that is missing in the template's schema causes only a warning, because Kubernetes drops such a
    // field.
    let chain = load_one(&with_constraint("{ parameters: { most: 1, mots: 2 } }"));
    let warnings = warnings(&chain);
    let is_of_field =
        |warning: &&String| warning.contains("spec.parameters.mots: the template's schema has no field \"mots\"");
    assert!(warnings.iter().any(|warning| is_of_field(&warning)), "{warnings:?}");
    let inventory = |warning: &String| warning.contains("reads data.inventory, which is empty");
    assert!(warnings.iter().any(inventory), "{warnings:?}");
}

/// The fields of `names` in a CustomResourceDefinition, such as `plural`, are accepted in a template. Gatekeeper
/// ignores them there.
#[test]
fn crd_names_that_gatekeeper_ignores_are_accepted_in_a_template() {
    let names = "names: { kind: Limits, listKind: LimitsList, plural: limits, singular: limits, categories: [all] }";
    let text = REGO.replace("names: { kind: Limits, shortNames: [lim] }", names);
    assert_ne!(text, REGO);
    assert_eq!(load_one(&text).name, "limits");
}

/// A Rego policy that was written for OPA alone may read `input.request`. Gatekeeper provides only `input.review`, so
/// such a policy finds nothing (gatekeeper#3545).
#[test]
fn a_template_that_reads_missing_input_gets_a_warning() {
    let text = REGO.replace("input.review.namespaceObject", "input.request.object");
    let expected = "the template \"limits\" reads input.request, which no template has";
    let chain_warnings = warnings(&load_one(&text));
    assert!(
        chain_warnings.iter().any(|warning| warning.contains(expected)),
        "{chain_warnings:?}"
    );
    assert_eq!(warnings(&load_one(REGO)), [""; 0]);
}

#[test]
fn supporting_definitions_are_listed_by_kind_and_name() {
    let sync = "apiVersion: syncset.gatekeeper.sh/v1alpha1\nkind: SyncSet\nmetadata: { name: nodes }\n\
                spec: { gvks: [ { version: v1, kind: Node } ] }\n";
    let expansion = "apiVersion: expansion.gatekeeper.sh/v1beta1\nkind: ExpansionTemplate\n\
                     metadata: { name: pods }\nspec: { applyTo: [ { groups: [apps], versions: [v1], kinds: [Deployment] } ], \
                     templateSource: spec.template, generatedGVK: { group: \"\", version: v1, kind: Pod } }\n";
    let config = "apiVersion: config.gatekeeper.sh/v1alpha1\nkind: Config\nmetadata: { name: config }\n";
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: { name: jobs.example.com }\n\
               spec: { group: example.com, names: { kind: Job, plural: jobs }, scope: Namespaced, versions: [] }\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("definitions.yaml");
    for (text, expected) in [
        (sync.to_owned(), vec!["SyncSet nodes"]),
        (expansion.to_owned(), vec!["ExpansionTemplate pods"]),
        (
            format!("{crd}---\n{sync}---\n{config}"),
            vec![
                "Config config",
                "CustomResourceDefinition jobs.example.com",
                "SyncSet nodes",
            ],
        ),
        (REGO.to_owned(), vec![]),
    ] {
        std::fs::write(&file, &text).unwrap();
        let definitions = crate::Definitions::load(std::slice::from_ref(&file))
            .unwrap_or_else(|mistakes| panic!("{text}: {mistakes}"));
        assert_eq!(definitions.supporting, expected, "{text}");
    }
}
