use admittance_admission::{FailurePolicy, ModuleReference, NamespaceSelector, Operation, Phase};
use serde_json::json;

use crate::{ChainDefinition, PluginDefinition, load_text, setting_location};

const FULL_SET: &str = "apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata:
  name: logs
  annotations: { kruise.io/sidecarset-hash: x }
spec:
  selector: { matchLabels: { app: web } }
  namespaceSelector: { matchLabels: { tier: front } }
  containers:
    - name: agent
      podInjectPolicy: AfterAppContainer
      upgradeStrategy: { upgradeType: HotUpgrade, hotUpgradeEmptyImage: empty }
  initContainers: [ { name: setup } ]
  volumes: [ { name: logs, emptyDir: {} } ]
  imagePullSecrets: [ { name: pull } ]
  patchPodMetadata: [ { annotations: { a: b }, patchPolicy: Overwrite } ]
  injectionStrategy: { revision: { customVersion: v1 } }
  updateStrategy: { type: RollingUpdate, maxUnavailable: 1 }
  revisionHistoryLimit: 10
status: { matchedPods: 1 }
";

fn load_one(text: &str) -> ChainDefinition {
    let chains = load_text("sets.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    chain
}

#[test]
fn a_sidecar_set_is_a_chain_of_one_stage() {
    let chain = load_one(FULL_SET);
    assert_eq!(
        (chain.name.as_str(), chain.phase),
        ("kruise-sidecarset-logs", Phase::Mutating)
    );
    let pods = |operation| {
        let resource = admittance_admission::GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
        };
        chain
            .rules
            .iter()
            .any(|rule| rule.covers(operation, &resource, None, "Pod"))
    };
    assert!(pods(Operation::Create) && !pods(Operation::Update));
    let stage = &chain.stages[0];
    assert_eq!(&*stage.spec.name, "logs");
    assert!(matches!(
        stage.spec.namespace_selector,
        Some(NamespaceSelector::Labels(_))
    ));
    assert_eq!(stage.spec.object_selector.to_string(), "app in (web)");
    assert_eq!(stage.spec.failure_policy, FailurePolicy::Ignore);
    let Some(plugin) = stage.hook.get::<PluginDefinition>() else {
        panic!("{stage:?}");
    };
    assert_eq!(plugin.source, ModuleReference::stock("sidecar-injector"));
    assert_eq!(
        plugin.settings,
        json!({"sidecarSet": {
            "name": "logs",
            "containers": [{"name": "agent", "podInjectPolicy": "AfterAppContainer",
                            "upgradeStrategy": {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "empty"}}],
            "initContainers": [{"name": "setup"}],
            "volumes": [{"name": "logs", "emptyDir": {}}],
            "imagePullSecrets": [{"name": "pull"}],
            "patchPodMetadata": [{"annotations": {"a": "b"}, "patchPolicy": "Overwrite"}],
        }})
    );
    let warnings: Vec<_> = chain
        .warnings()
        .into_iter()
        .map(|warning| (warning.location.line, warning.path, warning.message))
        .collect();
    let expected = [
        (12, "spec.containers[0].upgradeStrategy.upgradeType", "hot upgrade"),
        (17, "spec.injectionStrategy.revision", "earlier revisions"),
        (18, "spec.updateStrategy", "Pods that exist are not updated"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for ((line, path, message), (expected_line, expected_path, expected_text)) in warnings.iter().zip(expected) {
        assert_eq!((*line, path.as_str()), (expected_line, expected_path));
        assert!(message.contains(expected_text), "{message}");
    }
}

#[test]
fn a_fully_supported_sidecar_set_causes_no_warning() {
    let text = FULL_SET
        .replace("type: RollingUpdate, maxUnavailable: 1", "type: NotUpdate")
        .replace("HotUpgrade,", "ColdUpgrade,")
        .replace("revision: { customVersion: v1 }", "paused: false");
    assert_eq!(load_one(&text).warnings(), []);
    let text = text.replace("  updateStrategy: { type: NotUpdate }\n", "");
    assert_eq!(load_one(&text).warnings().len(), 1);
}

#[test]
fn a_paused_sidecar_set_injects_nothing() {
    let text = FULL_SET.replace("revision: { customVersion: v1 }", "paused: true");
    assert!(load_one(&text).stages.is_empty());
}

#[test]
fn a_sidecar_set_selects_a_namespace_by_name() {
    let selector = "namespaceSelector: { matchLabels: { tier: front } }";
    let text = FULL_SET.replace(selector, "namespace: shop");
    let selected = load_one(&text).stages[0].spec.namespace_selector.clone();
    assert_eq!(selected, Some(NamespaceSelector::In(vec!["shop".to_owned()])));
}

/// `v1beta1` has `specificNamespace` in OpenKruise 1.8 (apis/apps/v1beta1/sidecarset_types.go), not in later releases.
#[test]
fn both_versions_of_a_sidecar_set_have_the_same_meaning() {
    let first = load_one(FULL_SET);
    let second = FULL_SET.replace("v1alpha1", "v1beta1");
    let selector = "namespaceSelector: { matchLabels: { tier: front } }";
    let specific = format!("specificNamespace: {{ {selector} }}\n  customVersion: v1");
    for text in [second.clone(), second.replace(selector, &specific)] {
        let (one, other) = (&first.stages[0], &load_one(&text).stages[0]);
        assert_eq!((&one.spec, &one.hook), (&other.spec, &other.hook), "{text}");
    }
}

#[test]
fn mistakes_in_a_sidecar_set_are_reported() {
    for (from, to, line, path, expected_text) in [
        (
            "v1alpha1",
            "v1",
            1,
            "apiVersion",
            "write `apiVersion: apps.kruise.io/v1beta1`",
        ),
        (
            "{ matchLabels: { app: web } }",
            "{}",
            7,
            "spec.selector",
            "the selector is empty",
        ),
        (
            "  selector: { matchLabels: { app: web } }\n",
            "",
            7,
            "spec.selector",
            "missing",
        ),
        (
            "  namespaceSelector",
            "  namespace: a\n  namespaceSelector",
            7,
            "spec",
            "a namespace and a selector",
        ),
        (
            "  imagePullSecrets: [ { name: pull } ]",
            "  imagePullSecrets: pull",
            15,
            "spec.imagePullSecrets",
            "list",
        ),
        (
            "revision: { customVersion: v1 }",
            "paused: perhaps",
            17,
            "spec.injectionStrategy.paused",
            "true or false",
        ),
        (
            "revisionHistoryLimit",
            "revisionHistoryLimits",
            19,
            "spec.revisionHistoryLimits",
            "did you mean `revisionHistoryLimit`?",
        ),
    ] {
        let text = FULL_SET.replacen(from, to, 1);
        assert_ne!(text, FULL_SET);
        let mistakes = load_text("sets.yaml", &text).unwrap_err();
        let mistake = mistakes
            .iter()
            .find(|mistake| mistake.path == path)
            .unwrap_or_else(|| panic!("{path} of {mistakes}"));
        assert_eq!(mistake.location.line, line, "{mistake}");
        assert!(mistake.to_string().contains(expected_text), "{mistake}");
    }
    let twice = format!("{FULL_SET}---\n{FULL_SET}");
    let mistakes = load_text("sets.yaml", &twice).unwrap_err().to_string();
    assert!(mistakes.contains("is also the name of the chain"), "{mistakes}");
}

#[test]
fn a_mistake_that_the_plugin_reports_is_located_in_the_sidecar_set() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sets.yaml");
    std::fs::write(&file, FULL_SET).unwrap();
    let chains = crate::load(&[file]).unwrap();
    let stage = &chains[0].stages[0].location;
    let location = setting_location(stage, false, "/sidecarSet/containers/0/podInjectPolicy", None).unwrap();
    assert_eq!((location.line, location.column), (11, 24));
}

fn sidecar_set(name: &str, annotations: &str, label: &str) -> String {
    format!(
        "---\napiVersion: apps.kruise.io/v1beta1\nkind: SidecarSet\n\
         metadata: {{ name: {name}, annotations: {{ {annotations} }} }}\n\
         spec: {{ selector: {{ matchLabels: {{ app: {label} }} }}, namespaceSelector: {{ matchLabels: {{ tier: {name} }} }}, \
         updateStrategy: {{ type: NotUpdate }}, containers: [ {{ name: {name} }} ] }}\n"
    )
}

fn canary_annotations(base: &str) -> String {
    format!("apps.kruise.io/sidecarset-canary: \"true\", apps.kruise.io/sidecarset-base: {base}")
}

/// OpenKruise chooses between a canary and its base in its function `sidecarsetMutatingPod`.
#[test]
fn a_sidecar_set_is_not_injected_into_pods_that_its_canary_selects() {
    let text = [
        sidecar_set("base", "", "a"),
        sidecar_set("first", &canary_annotations("base"), "b"),
        sidecar_set("second", &canary_annotations("base"), "c"),
        sidecar_set("paused", &canary_annotations("base"), "d")
            .replace("spec: {", "spec: { injectionStrategy: { paused: true },"),
        sidecar_set("stopped", &canary_annotations("base").replace("true", "false"), "e"),
    ];
    let chains = load_text("sets.yaml", &text.concat()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [base, rest @ ..] = chains.as_slice() else {
        panic!("{chains:?}");
    };
    let canaries: Vec<_> = base.stages[0]
        .spec
        .yields_to
        .iter()
        .map(|other| {
            let namespaces = match &other.namespaces {
                Some(NamespaceSelector::Labels(labels)) => labels.to_string(),
                namespaces => panic!("{namespaces:?}"),
            };
            (&*other.chain, other.objects.to_string(), namespaces)
        })
        .collect();
    let expected = [
        ("kruise-sidecarset-first", "app in (b)", "tier in (first)"),
        ("kruise-sidecarset-second", "app in (c)", "tier in (second)"),
    ]
    .map(|(chain, objects, namespaces)| (chain, objects.to_owned(), namespaces.to_owned()));
    assert_eq!(canaries, expected);
    let specs = rest.iter().flat_map(|chain| &chain.stages).map(|stage| &stage.spec);
    assert!(specs.into_iter().all(|spec| spec.yields_to.is_empty()));
}

/// OpenKruise refuses these annotations in `validateSidecarSetCanaryAnnotations`.
#[test]
fn a_canary_sidecar_set_that_openkruise_refuses_is_a_mistake() {
    let base = sidecar_set("base", "", "a");
    let canary = sidecar_set("canary", &canary_annotations("base"), "a");
    for (text, expected_text) in [
        (
            sidecar_set("base", &canary_annotations("base"), "a"),
            "a canary cannot be its own base",
        ),
        (
            format!("{base}{}", canary.replace("type: NotUpdate", "type: RollingUpdate")),
            "a canary cannot update Pods that exist",
        ),
        (
            format!(
                "{base}{canary}{}",
                sidecar_set("third", &canary_annotations("canary"), "a")
            ),
            "the base \"canary\" is a canary too",
        ),
    ] {
        let mistakes = load_text("sets.yaml", &text).unwrap_err();
        let [mistake] = mistakes.iter().collect::<Vec<_>>()[..] else {
            panic!("{mistakes}");
        };
        assert!(mistake.to_string().contains(expected_text), "{mistake}");
        assert!(mistake.path.ends_with("sidecarset-base\"]"), "{mistake}");
    }
}

#[test]
fn annotations_without_an_effect_cause_warnings() {
    for (annotations, expected_text) in [
        (
            "kruise.io/sidecarset-hash: a, kruise.io/sidecarset-hash-without-image: b",
            None,
        ),
        ("example.com/owner: a, notkruise.io/x: b", None),
        (
            canary_annotations("base").as_str(),
            Some("there is no SidecarSet \"base\""),
        ),
        (
            "apps.kruise.io/sidecarset-canary: \"true\"",
            Some("the annotation apps.kruise.io/sidecarset-canary has no effect here; write both"),
        ),
        (
            "apps.kruise.io/sidecarset-base: base",
            Some("the annotation apps.kruise.io/sidecarset-base has no effect here"),
        ),
        (
            "policy.kruise.io/delete-protection: Always",
            Some("the annotation policy.kruise.io/delete-protection has no effect here"),
        ),
        (
            "kruise.io/other: a",
            Some("the annotation kruise.io/other has no effect here"),
        ),
    ] {
        let warnings = load_one(&sidecar_set("a", annotations, "a")).warnings();
        match (warnings.as_slice(), expected_text) {
            ([], None) => {}
            ([warning], Some(text)) => assert!(warning.to_string().contains(text), "{warning}"),
            _ => panic!("{annotations}: {warnings:?}"),
        }
    }
}
