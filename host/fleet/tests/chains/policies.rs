//! Tests of the store of other systems' policies, with an API server that keeps its resources in memory.

use std::{collections::BTreeSet, path::Path};

use admittance_definitions::{DefinitionFile, DefinitionSet, DefinitionStore, FileChange, OnBadDefinition, StoreError};
use admittance_fleet::{PolicyStore, PolicySystem};
use serde_json::{Value, json};

use crate::{TEST_TIMEOUT, id, setting::Setting};

const ALL_SYSTEMS: [PolicySystem; 4] = [
    PolicySystem::Kubernetes,
    PolicySystem::Gatekeeper,
    PolicySystem::Kubewarden,
    PolicySystem::Kyverno,
];
const KUBERNETES: &str = "admissionregistration.k8s.io";
const TEMPLATES: &str = "templates.gatekeeper.sh/v1";
const CONSTRAINTS: &str = "constraints.gatekeeper.sh/v1beta1";

async fn open_store(setting: &Setting, systems: &[PolicySystem]) -> PolicyStore {
    PolicyStore::new(&setting.cluster().await, systems)
}

fn rules() -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}])
}

fn put_resource(setting: &Setting, plural: &str, namespace: &str, spec: Value) {
    let mut object = json!({"metadata": {"name": "p"}, "spec": spec, "status": {"observedGeneration": 1}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    setting.server.put(plural, object);
}

fn put_policy(setting: &Setting) {
    let validations = json!([{"expression": "true"}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules()}, "validations": validations});
    put_resource(setting, "validatingadmissionpolicies", "", spec);
}

fn put_binding(setting: &Setting) {
    let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    put_resource(setting, "validatingadmissionpolicybindings", "", spec);
}

fn define_kubernetes(setting: &Setting, version: &str) {
    let version = format!("{KUBERNETES}/{version}");
    for (plural, kind) in [
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ] {
        setting.server.define_kind(&version, plural, kind, false);
    }
}

fn define_template(setting: &Setting) {
    setting
        .server
        .define_kind(TEMPLATES, "constrainttemplates", "ConstraintTemplate", false);
    let code = json!({"engine": "K8sNativeValidation", "source": {"validations": [{"expression": "true"}]}});
    let template = json!({
        "crd": {"spec": {"names": {"kind": "Few"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "code": [code]}],
    });
    let object = json!({"metadata": {"name": "few"}, "spec": template, "status": {"created": true}});
    setting.server.put("constrainttemplates", object);
}

fn chain_stage_counts(files: Vec<DefinitionFile>) -> Vec<(String, usize)> {
    let chains = DefinitionSet::of_files(files).chains().unwrap();
    chains
        .into_iter()
        .map(|chain| (chain.name, chain.stages.len()))
        .collect()
}

/// Reads the store after every change until it returns these chains, each with this number of stages.
async fn wait_until_chains(store: &PolicyStore, expected: &[(&str, usize)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, stages)| ((*name).to_owned(), *stages))
        .collect();
    let wait = async {
        while store.read().await.map(chain_stage_counts).ok().as_ref() != Some(&expected) {
            store.wait_for_change().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
}

#[tokio::test]
async fn policies_can_be_read_but_not_written() {
    let setting = Setting::new();
    let store = open_store(&setting, &ALL_SYSTEMS).await;
    assert_eq!(store.read().await.unwrap(), [], "the API server has none of the kinds");
    // Like Kubernetes 1.28, the server serves admission policies only as v1beta1.
    define_kubernetes(&setting, "v1beta1");
    put_policy(&setting);
    put_binding(&setting);
    setting.server.define_kind(
        "policies.kubewarden.io/v1",
        "admissionpolicies",
        "AdmissionPolicy",
        true,
    );
    let spec = json!({"module": "registry://example.com/p:1", "rules": rules(), "mutating": false});
    put_resource(&setting, "admissionpolicies", "shop", spec);
    let gatekeeper = json!({
        "location": "metadata.labels.owner", "parameters": {"assign": {"value": "a"}},
    });
    setting
        .server
        .define_kind("mutations.gatekeeper.sh/v1", "assignmetadata", "AssignMetadata", false);
    setting
        .server
        .define_kind("mutations.gatekeeper.sh/v1alpha1", "assignimage", "AssignImage", false);
    put_resource(&setting, "assignmetadata", "", gatekeeper);
    let pods = json!([{"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}]);
    let image = json!({
        "applyTo": pods, "location": "spec.containers[name: *].image",
        "parameters": {"assignDomain": "mirror.example.com"},
    });
    put_resource(&setting, "assignimage", "", image);

    for (plural, kind) in [
        ("namespacedvalidatingpolicies", "NamespacedValidatingPolicy"),
        ("policyexceptions", "PolicyException"),
    ] {
        setting
            .server
            .define_kind("policies.kyverno.io/v1beta1", plural, kind, true);
    }
    let validations = json!([{"expression": "true"}]);
    let kyverno = json!({"matchConstraints": {"resourceRules": rules()}, "validations": validations,
                         "autogen": {"podControllers": {"controllers": []}}});
    put_resource(&setting, "namespacedvalidatingpolicies", "dock", kyverno);
    let kyverno = json!({"policyRefs": [{"name": "p", "kind": "NamespacedValidatingPolicy"}]});
    put_resource(&setting, "policyexceptions", "dock", kyverno);

    let files = store.read().await.unwrap();
    let paths: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
    assert_eq!(
        paths,
        [
            "kubernetes:admissionpolicies.policies.kubewarden.io/shop/p",
            "kubernetes:assignimage.mutations.gatekeeper.sh/p",
            "kubernetes:assignmetadata.mutations.gatekeeper.sh/p",
            "kubernetes:namespacedvalidatingpolicies.policies.kyverno.io/dock/p",
            "kubernetes:policyexceptions.policies.kyverno.io/dock/p",
            "kubernetes:validatingadmissionpolicies.admissionregistration.k8s.io/p",
            "kubernetes:validatingadmissionpolicybindings.admissionregistration.k8s.io/p",
        ]
    );
    let names = chain_stage_counts(files.clone());
    let expected = [
        ("gatekeeper-mutation", 1),
        ("dock/p", 1),
        ("namespaced-shop-p", 1),
        ("p", 1),
    ];
    assert_eq!(names, expected.map(|(name, stages)| (name.to_owned(), stages)));
    for file in &files {
        assert!(store.owns(&file.path), "{}", file.path.display());
        assert!(!file.text.contains("observedGeneration"), "{}", file.text);
        let change = FileChange::new(&file.path, Some(file.text.clone()), None);
        let error = store.commit(&[change]).await.unwrap_err().to_string();
        assert!(error.contains("is only read; change it with kubectl"), "{error}");
    }
    assert_eq!(store.path_for(&id("ValidatingAdmissionPolicy", "new")), None);
    for path in [
        "kubernetes:AdmissionChain/p",
        "validatingadmissionpolicies.yaml",
        "kubernetes:pods/p",
    ] {
        assert!(!store.owns(Path::new(path)), "{path}");
    }

    setting.server.delete("validatingadmissionpolicies", "", "p");
    let set = DefinitionSet::of_files(store.read().await.unwrap());
    let usable_set = set.usable_definitions(&files, OnBadDefinition::KeepLast);
    let bad_paths: Vec<_> = usable_set
        .bad_definitions
        .iter()
        .map(|definition| definition.path.display().to_string())
        .collect();
    assert_eq!(
        bad_paths,
        ["kubernetes:validatingadmissionpolicybindings.admissionregistration.k8s.io/p"]
    );
    assert_eq!(usable_set.served_set().chains().unwrap().len(), 3);
}

#[tokio::test]
async fn policies_disappear_when_their_kind_is_removed_and_return_with_it() {
    let setting = Setting::new();
    let store = open_store(&setting, &[PolicySystem::Gatekeeper, PolicySystem::Kubernetes]).await;
    wait_until_chains(&store, &[]).await;
    define_template(&setting);
    wait_until_chains(&store, &[("few", 0)]).await;
    setting.server.define_kind(CONSTRAINTS, "few", "Few", false);
    put_resource(&setting, "few", "", json!({}));
    wait_until_chains(&store, &[("few", 1)]).await;
    setting.server.put("few", json!({"metadata": {"name": "q"}}));
    wait_until_chains(&store, &[("few", 2)]).await;
    setting.server.delete("constrainttemplates", "", "few");
    setting.server.remove_kind("few");
    wait_until_chains(&store, &[]).await;

    define_kubernetes(&setting, "v1");
    put_policy(&setting);
    wait_until_chains(&store, &[("p", 0)]).await;
    put_binding(&setting);
    wait_until_chains(&store, &[("p", 1)]).await;
    let watched_plurals: BTreeSet<_> = ["few", "constrainttemplates", "validatingadmissionpolicies"]
        .into_iter()
        .filter(|plural| setting.server.count_requests("watch", plural) > 0)
        .collect();
    assert_eq!(watched_plurals.len(), 3, "{watched_plurals:?}");
}

#[tokio::test]
async fn policies_are_kept_while_the_api_server_is_unavailable() {
    let setting = Setting::new();
    define_kubernetes(&setting, "v1");
    put_policy(&setting);
    let store = open_store(&setting, &[PolicySystem::Kubernetes]).await;
    wait_until_chains(&store, &[("p", 0)]).await;
    setting.server.become_unavailable();
    tokio::time::timeout(TEST_TIMEOUT, store.wait_for_change())
        .await
        .unwrap();
    let read_result = store.read().await;
    assert!(
        matches!(read_result, Err(StoreError::Unreachable { .. })),
        "{read_result:?}"
    );
    setting.server.become_available();
    wait_until_chains(&store, &[("p", 0)]).await;
    setting.server.forbid("list", "validatingadmissionpolicies");
    let error = store.read().await.unwrap_err().to_string();
    assert!(
        error.contains("kubernetes:policies") && error.contains("`list` on `validatingadmissionpolicies`"),
        "{error}"
    );
    setting.server.allow("list", "validatingadmissionpolicies");
    wait_until_chains(&store, &[("p", 0)]).await;
}
