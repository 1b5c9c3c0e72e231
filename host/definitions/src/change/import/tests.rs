use std::path::Path;

use admittance_admission::{Mode, Reinvocation};

use super::*;
use crate::{CelDefinition, certificates};

const TARGET: &str = "/chains/imported.yaml";

fn import_text(text: &str) -> Import {
    import(&[DefinitionFile::file("/from/a.yaml", text)], Path::new(TARGET))
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Imports a text with one definition. Returns the result, the chain's name, the notes and the text of the new file.
fn import_one(text: &str) -> (ImportResult, Option<String>, Vec<String>, String) {
    let import = import_text(text);
    let [definition] = <[ImportedDefinition; 1]>::try_from(import.definitions).unwrap();
    (definition.result, definition.chain, definition.notes, import.text)
}

fn chains(text: &str) -> Vec<ChainDefinition> {
    load_text(TARGET, text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn webhook(extra: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{ name: images, annotations: {{ a: b }} }}
webhooks:
  - name: images.example.com
    rules: [ {{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Namespaced }} ]
    clientConfig: {{ service: {{ namespace: images, name: images, path: /check }}, caBundle: {bundle} }}
    admissionReviewVersions: [v1, v1beta1]
    sideEffects: NoneOnDryRun
    failurePolicy: Ignore
    timeoutSeconds: 3
    namespaceSelector: {{ matchLabels: {{ a: b }}, matchExpressions: [ {{ key: c, operator: NotIn, values: [d] }}, {{ key: e, operator: Exists }} ] }}
    objectSelector: {{ matchLabels: {{ x: w, z: '1' }} }}
    matchConditions: [ {{ name: no-leases, expression: \"object.kind != 'Lease'\" }} ]
{extra}",
        bundle = certificates::ca_bundle()
    )
}

#[test]
fn a_webhook_is_converted_to_an_equivalent_native_chain() {
    let text = webhook("");
    let (result, chain, notes, native) = import_one(&text);
    assert_eq!(
        (result, chain.as_deref()),
        (ImportResult::Exact, Some("images")),
        "{notes:?}"
    );
    assert!(
        native.starts_with("---\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n"),
        "{native}"
    );
    let (original, imported) = (load_text("a.yaml", &text).unwrap(), chains(&native));
    let (one, other) = (&original[0].stages[0], &imported[0].stages[0]);
    assert_eq!(one.hook, other.hook);
    assert_eq!(original[0].rules, imported[0].rules);
    let mut spec = one.spec.clone();
    // The native stage omits its rules, because they equal the rules of its chain.
    spec.rules.clear();
    assert_eq!(spec, other.spec);
}

#[test]
fn a_webhook_without_a_native_form_is_not_converted() {
    let (result, _, notes, kept_text) = import_one(&webhook("").replace(", caBundle: ", " } #"));
    assert_eq!(result, ImportResult::Kept);
    assert!(notes[0].contains("caBundle"), "{notes:?}");
    assert!(
        kept_text.starts_with("---\napiVersion: admissionregistration.k8s.io/v1\n"),
        "{kept_text}"
    );
    assert_eq!(chains(&kept_text)[0].name, "images");

    let second = "  - name: other.example.com
    rules: [ { operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]
    clientConfig: { url: 'https://other.example.com/' }
    admissionReviewVersions: [v1]
    sideEffects: None
    matchPolicy: Exact\n";
    let (result, _, notes, _) = import_one(&webhook(second));
    assert_eq!(result, ImportResult::Kept);
    assert!(notes[0].contains("one `matchPolicy`"), "{notes:?}");
    let (result, _, _, native) = import_one(&webhook(&second.replace("    matchPolicy: Exact\n", "")));
    assert_eq!(result, ImportResult::Exact);
    let stages = &chains(&native)[0].stages;
    assert_eq!(stages.len(), 2);
    assert_ne!(stages[0].spec.rules, stages[1].spec.rules);
}

const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: replicas }
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules: [ { operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments] } ]
  matchConditions: [ { name: not-small, expression: 'object.spec.replicas > 1' } ]
  variables: [ { name: most, expression: '5' } ]
  validations: [ { expression: 'object.spec.replicas <= variables.most', messageExpression: \"'most: ' + string(variables.most)\", reason: Forbidden } ]
  auditAnnotations: [ { key: replicas, valueExpression: 'string(object.spec.replicas)' } ]
";

fn binding(extra: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{ name: everywhere }}
spec: {{ policyName: replicas, validationActions: [Deny]{extra} }}
"
    )
}

#[test]
fn a_policy_and_its_binding_become_one_chain() {
    let import_of = |policy: &str, binding: &str| import_text(&format!("{policy}{binding}"));
    let import = import_of(
        POLICY,
        &binding(", matchResources: { objectSelector: { matchLabels: { a: b } } }"),
    );
    for definition in &import.definitions {
        assert_eq!(definition.result, ImportResult::Differs, "{definition:?}");
        assert_eq!(definition.chain.as_deref(), Some("replicas"));
        assert!(definition.notes[0].contains("do not name the policy"), "{definition:?}");
    }
    let chain = &chains(&import.text)[0];
    let stage = &chain.stages[0];
    assert_eq!(&*stage.spec.name, "everywhere");
    assert_eq!(
        stage.spec.match_conditions.expressions(),
        [("not-small", "object.spec.replicas > 1")]
    );
    let Some(cel) = stage.hook.get::<CelDefinition>() else {
        panic!("{stage:?}")
    };
    assert!(cel.policy.variables().eq([("most", "5")]));
    assert_eq!(cel.policy.audit_annotations.len(), 1);

    for (policy, binding, says) in [
        (POLICY.to_owned(), binding("").replace("[Deny]", "[Warn]"), "validationActions"),
        (
            POLICY.replace("  matchConstraints:\n", "  matchConstraints:\n    excludeResourceRules: [ { operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'] } ]\n"),
            binding(""),
            "excludeResourceRules",
        ),
        (POLICY.replace("resources: [deployments]", "resources: [deployments], resourceNames: [a]"), binding(""), "resourceNames"),
        (POLICY.replace("object.spec.replicas > 1", "namespaceObject.metadata.name == \"a\""), binding(""), "namespaceObject"),
        (
            POLICY.replace("  failurePolicy", "  paramKind: { apiVersion: v1, kind: ConfigMap }\n  failurePolicy"),
            binding(", paramRef: { name: a, namespace: b, parameterNotFoundAction: Allow }"),
            "parameters",
        ),
        (
            POLICY.replace("  failurePolicy", "  paramKind: { apiVersion: v1, kind: ConfigMap }\n  failurePolicy").replace("object.spec.replicas > 1", "params == null"),
            binding(""),
            "params",
        ),
    ] {
        let import = import_of(&policy, &binding);
        for definition in &import.definitions {
            assert_eq!(definition.result, ImportResult::Kept, "{says}");
            assert!(definition.notes.concat().contains(says), "{definition:?}");
        }
        assert_eq!(chains(&import.text)[0].stages.len(), 1);
    }

    let (result, _, notes, text) = import_one(POLICY);
    assert_eq!((result, text.as_str()), (ImportResult::LeftOut, ""));
    assert!(notes[0].contains("no binding"));
    let (result, _, notes, _) = import_one(&binding(""));
    assert_eq!(result, ImportResult::Invalid);
    assert!(notes[0].contains("there is no ValidatingAdmissionPolicy"), "{notes:?}");
}

#[test]
fn a_mutating_policy_is_imported_with_its_mutations() {
    let text = "apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: labels }
spec:
  matchConstraints:
    resourceRules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]
  reinvocationPolicy: IfNeeded
  mutations:
    - { patchType: ApplyConfiguration, applyConfiguration: { expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}' } }
    - { patchType: JSONPatch, jsonPatch: { expression: '[JSONPatch{op: \"add\", path: \"/spec/x\", value: \"y\"}]' } }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: labels }
spec: { policyName: labels }
";
    let import = import_text(text);
    assert_eq!(import.definitions[0].result, ImportResult::Differs, "{import:?}");
    let stage = &chains(&import.text)[0].stages[0];
    assert_eq!(stage.spec.reinvocation, Reinvocation::IfNeeded);
    let Some(cel) = stage.hook.get::<CelDefinition>() else {
        panic!("{stage:?}")
    };
    assert_eq!(cel.policy.mutations.len(), 2);
}

#[test]
fn policies_of_other_systems_are_imported_as_chains() {
    let kubewarden = "apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicy
metadata: { name: labels, namespace: team-a }
spec:
  policyServer: tenants
  module: ghcr.io/kubewarden/policies/safe-labels:v1.0.0
  mode: monitor
  settings: { mandatory: [owner] }
  contextAwareResources: [ { apiVersion: v1, kind: Pod } ]
  rules: [ { apiGroups: [''], apiVersions: [v1], resources: [services], operations: [CREATE] } ]
";
    let (result, chain, notes, native) = import_one(kubewarden);
    assert_eq!(
        (result, chain.as_deref()),
        (ImportResult::Exact, Some("namespaced-team-a-labels"))
    );
    assert!(notes[0].contains("policyServer"), "{notes:?}");
    let imported = chains(&native);
    assert_eq!(
        imported[0].stages[0].hook,
        load_text("a.yaml", kubewarden).unwrap()[0].stages[0].hook
    );
    assert_eq!(imported[0].stages[0].spec.mode, Mode::Audit);
    let (result, _, notes, _) = import_one(&kubewarden.replace("  mode:", "  message: ask\n  mode:"));
    assert_eq!(result, ImportResult::Kept);
    assert!(notes[0].contains("`message`"), "{notes:?}");

    let bcs = format!(
        "apiVersion: v4
kind: admissionwebhook
metadata: {{ name: Inject, namespace: bcs-system }}
resourcesRef: {{ operation: Create, kind: Application }}
admissionWebhooks:
  - name: sidecar
    failurePolicy: Fail
    clientConfig: {{ caBundle: {}, name: sidecar, namespace: hooks, path: /x?y=1, port: 8443 }}
    namespaceSelector: {{ operator: NotIn, values: [kube-system] }}
",
        certificates::ca_bundle()
    );
    let (result, chain, notes, native) = import_one(&bcs);
    assert_eq!(
        (result, chain.as_deref()),
        (ImportResult::Differs, Some("bcs-system.inject")),
        "{notes:?}"
    );
    let original = load_text("a.yaml", &bcs).unwrap();
    let imported = chains(&native);
    assert_eq!(imported[0].rules, original[0].rules);
    assert_eq!(imported[0].stages[0].hook, original[0].stages[0].hook);
    let (result, ..) = import_one(&bcs.replace("values: [kube-system]", "values: []"));
    assert_eq!(result, ImportResult::Kept);

    let set = "apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: { name: logs }
spec:
  selector: { matchLabels: { app: web } }
  namespace: shop
  containers: [ { name: agent, image: 'agent:1' } ]
";
    let (result, chain, _, native) = import_one(set);
    assert_eq!(
        (result, chain.as_deref()),
        (ImportResult::Exact, Some("kruise-sidecarset-logs"))
    );
    assert!(native.contains("source: \"stock:sidecar-injector\""), "{native}");
    let imported = chains(&native);
    assert_eq!(
        imported[0].stages[0].hook,
        load_text("a.yaml", set).unwrap()[0].stages[0].hook
    );
    let paused = set.replace("  namespace: shop", "  injectionStrategy: { paused: true }");
    assert_eq!(import_one(&paused).0, ImportResult::LeftOut);
}

#[test]
fn an_import_finds_definitions_among_other_manifests() {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{ name: a }}\n---\n{}---\n{}",
        webhook("").replace("name: images,", "name: Images,"),
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: own }\nspec:\n  rules: [ { operations: [CREATE], kinds: [pod] } ]\n  stages: [ { name: s, plugin: { source: file:s.wasm } } ]\n"
    );
    let import = import_text(&text);
    assert_eq!(
        import.skipped_mistakes,
        ["/from/a.yaml:2:7: \"Pod\" of v1 is not known here"]
    );
    let results: Vec<_> = import.definitions.iter().map(|definition| definition.result).collect();
    assert_eq!(results, [ImportResult::Invalid, ImportResult::LeftOut]);
    assert!(import.definitions[0].notes[0].contains("metadata.name"), "{import:?}");
    assert_eq!(import.text, "");
    assert!(super::import(&[DefinitionFile::file("a.yaml", "a: [")], Path::new(TARGET)).is_err());
}

#[test]
fn items_of_a_list_are_imported_one_by_one() {
    let item = webhook("");
    let body = item.split_once("metadata:").unwrap().1.replace('\n', "\n  ");
    let text = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfigurationList\nitems:\n- metadata:{}",
        body.trim_end()
    );
    assert_eq!(import_text(&text).definitions[0].result, ImportResult::Exact);
    let import = import_text(&text.replace(", caBundle: ", " } #"));
    assert_eq!(import.definitions[0].result, ImportResult::Kept);
    assert_eq!(chains(&import.text)[0].name, "images");
}

#[test]
fn gatekeeper_documents_are_not_converted() {
    let documents = [
        "apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: { name: owners }
spec:
  crd: { spec: { names: { kind: Owners } } }
  targets:
    - target: admission.k8s.gatekeeper.sh
      code:
        - engine: K8sNativeValidation
          source: { validations: [ { expression: 'has(object.metadata.labels)', message: no labels } ] }
",
        "apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Owners
metadata: { name: pods }
spec: { match: { kinds: [ { apiGroups: [''], kinds: [Pod] } ] } }
",
        "apiVersion: syncset.gatekeeper.sh/v1alpha1
kind: SyncSet
metadata: { name: nodes }
spec: { gvks: [ { group: '', version: v1, kind: Node } ] }
",
    ];
    let import = import_text(&documents.join("---\n"));
    let results: Vec<_> = import.definitions.iter().map(|definition| definition.result).collect();
    assert_eq!(results, [ImportResult::Kept; 3]);
    let stages = |text: &str| chains(text).iter().map(|chain| chain.stages.len()).collect::<Vec<_>>();
    assert_eq!(stages(&import.text), [1]);
    assert_eq!(import.text.matches("kind: SyncSet").count(), 1);
}
