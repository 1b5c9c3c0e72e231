//! Tests chains stored as resources, the statuses that the leader writes to them, and policies for other systems.

use std::{fs, sync::Arc};

use admittance_tests::Admittance;
use serde_json::{Value, json};

use crate::{
    cluster::{ClusterUser, TestCluster},
    process::wait_until,
    registration::Registration,
    scene::{GOOD_IMAGE, Scene, chain, pod, validating_chain},
};

/// The name of the Service to which webhook configurations refer. In most scenarios, no server listens behind this
/// Service. The API server accepts requests nevertheless, because the failure policy of the webhooks is `Ignore`.
pub(super) const SERVICE_NAME: &str = "hooks";

pub(crate) const CHAINS_PATH: &str = "/apis/admittance.dev/v1alpha1/admissionchains";

pub(crate) fn denying_chain(scene: &Scene, message: &str) -> Value {
    let expression = "object.spec.containers.all(c, c.image != 'bad')";
    // kubectl 1.20 prints the message of a denial only for some reasons. `Forbidden` is one of them.
    let rule = json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let stage = json!({"name": "images", "cel": {"validations": [rule]}});
    // The rule has no `apiGroups`, although a rule for Pods usually has `apiGroups: [""]`. This old API server was
    // compiled with a newer version of Go than it was written for. Because of that, it would read the empty string as
    // null.
    let rules = json!([{"operations": ["CREATE"], "resources": ["pods"]}]);
    validating_chain(chain(&scene.namespace, rules, json!([stage])))
}

/// Applies documents without kubectl's validation, because kubectl 1.20 does not know some of their fields. The API
/// server drops these fields.
async fn apply(cluster: &TestCluster, documents: &str) {
    let arguments = ["apply", "--validate=false", "-f", "-"];
    let kubectl = cluster.kubectl().unwrap();
    kubectl
        .run_with_input(&arguments, documents)
        .await
        .unwrap()
        .assert_success();
}

pub(crate) async fn install_resources(cluster: &TestCluster, config: &Value) {
    let crds = Admittance::run(["kubernetes", "crds"]).await.unwrap();
    assert_eq!(crds.code, Some(0), "{}", crds.stderr);
    apply(cluster, &crds.stdout).await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admittance.yaml");
    fs::write(&path, config.to_string()).unwrap();
    let config = path.to_str().unwrap();
    let identity_options = ["--name", SERVICE_NAME, "--namespace", "default"];
    let arguments = [
        "kubernetes",
        "manifests",
        "--kubernetes-version=1.20",
        "--config",
        config,
    ];
    let manifests_output = Admittance::run([&arguments[..], &identity_options[..]].concat())
        .await
        .unwrap();
    assert_eq!(manifests_output.code, Some(0), "{}", manifests_output.stderr);
    let documents = manifests_output.stdout.split("\n---\n");
    let roles: Vec<_> = documents
        .filter(|document| document.contains("\nkind: Role\n") || document.contains("\nkind: ClusterRole\n"))
        .collect();
    assert_eq!(roles.len(), 2, "{}", manifests_output.stdout);
    apply(cluster, &roles.join("\n---\n")).await;
    for (kind, name) in [
        ("Role", SERVICE_NAME.to_owned()),
        ("ClusterRole", format!("default-{SERVICE_NAME}")),
    ] {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"),
            "kind": format!("{kind}Binding"),
            "metadata": {"name": SERVICE_NAME, "namespace": "default"},
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": ClusterUser::Admittance.name()}],
        });
        apply(cluster, &binding.to_string()).await;
    }
}

async fn start_scene(cluster: Arc<TestCluster>) -> Scene {
    let mut dialect = json!({"kubernetes": {"webhookConfigurations": {
        "service": format!("{SERVICE_NAME}.default"), "failurePolicy": "Ignore",
    }}});
    let definitions = json!([{"kubernetes": {"policies": ["Gatekeeper"]}}]);
    let config = json!({"dialect": dialect, "cluster": {}, "definitions": definitions});
    install_resources(&cluster, &config).await;
    // The server's certificate comes from a file, and not from the program itself. So the configuration also has to
    // name a file with the CA bundle, which the leader writes into the webhook configurations.
    dialect["kubernetes"]["webhookConfigurations"]["caBundle"] = json!("certs/ca.pem");
    let kubeconfig = cluster.kubeconfig(ClusterUser::Admittance);
    let more = json!({"cluster": {"kubeconfig": kubeconfig}, "definitions": definitions});
    Scene::start_with_dialect(cluster, dialect, more, &[]).await
}

async fn wait_for_condition(scene: &Scene, name: &str, condition: &str) -> Value {
    wait_until(&format!("{condition} of {name}"), async || {
        let status = scene.get(&format!("admissionchain {name}")).await["status"].clone();
        let conditions = status["conditions"].as_array()?;
        let is_true = |entry: &&Value| entry["type"] == condition && entry["status"] == "True";
        conditions.iter().find(is_true)?;
        Some(status)
    })
    .await
}

async fn wait_until_refused(scene: &Scene, words: &str) {
    wait_until(words, async || {
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        let output = scene.run_with_object(&arguments, &pod("bad", "bad")).await;
        output.stderr.contains(words).then_some(())
    })
    .await;
}

pub(crate) async fn chains_are_written_with_kubectl(cluster: Arc<TestCluster>) {
    let scene = start_scene(Arc::clone(&cluster)).await;
    let name = scene.namespace.clone();
    let (group, resources) = ("admittance.dev", ["admissionchains"]);
    let definitions = json!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": resources,
    }]);
    let checking = Registration::validating("/definitions")
        .with_suffix("-definitions")
        .with_rules(definitions);
    scene.register(&checking).await;
    scene.register(&Registration::validating("/validate")).await;

    scene.apply(&denying_chain(&scene, "by a chain")).await.assert_success();
    wait_for_condition(&scene, &name, "Live").await;
    wait_until_refused(&scene, "by a chain").await;
    scene.create(&pod("good", GOOD_IMAGE)).await.assert_success();
    for names in ["admissionchains", "achain", "admittance"] {
        let listing = scene.run(&format!("get {names}")).await.assert_success();
        let has_text = |text: &str| listing.stdout.contains(text);
        assert!(has_text("ACCEPTED") && has_text(&name), "{}", listing.stdout);
    }

    let mut bad = denying_chain(&scene, "never said");
    bad["spec"]["stages"][0]["cel"]["validations"][0]["expression"] = json!("object.");
    scene
        .run_with_object(&["apply", "--dry-run=server", "-f", "-"], &bad)
        .await
        .assert_failure_with(&["spec.stages[0].cel.validations[0].expression"]);

    let rules = async || {
        let output = scene
            .run(&format!(
                "get validatingwebhookconfiguration {SERVICE_NAME} --output=json"
            ))
            .await;
        let webhooks = output
            .is_success
            .then(|| output.json()["webhooks"].clone())?
            .as_array()?
            .clone();
        let rules = webhooks
            .iter()
            .flat_map(|webhook| webhook["rules"].as_array().cloned().unwrap_or_default());
        Some(rules.filter(|rule| rule["resources"] == json!(["pods"])).count())
    };
    wait_until("the rule of the chain", async || (rules().await? == 1).then_some(())).await;
    scene
        .run(&format!("delete admissionchain {name}"))
        .await
        .assert_success();
    wait_until("the end of the rule", async || (rules().await? == 0).then_some(())).await;
    scene.create(&pod("free", "bad")).await.assert_success();
}

pub(super) fn crd(group: &str, version: &str, plural: &str, kind: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "scope": scope,
            "versions": [{
                "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

pub(crate) async fn policies_of_gatekeeper_are_read(cluster: Arc<TestCluster>) {
    let scene = start_scene(Arc::clone(&cluster)).await;
    scene.register(&Registration::validating("/validate")).await;
    let apply = async |object: Value| {
        // The API server serves a new kind a moment after its CustomResourceDefinition is created.
        wait_until("what is applied", async || {
            scene.apply(&object).await.is_success.then_some(())
        })
        .await;
    };
    let (templates, constraints) = ("templates.gatekeeper.sh", "constraints.gatekeeper.sh");
    apply(crd(
        templates,
        "v1",
        "constrainttemplates",
        "ConstraintTemplate",
        "Cluster",
    ))
    .await;
    let validations = json!([{
        "expression": "object.spec.containers.all(c, c.image != 'bad')", "message": "by a constraint",
    }]);
    apply(json!({
        "apiVersion": format!("{templates}/v1"),
        "kind": "ConstraintTemplate",
        "metadata": {"name": "images"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "Images"}}},
            "targets": [{
                "target": "admission.k8s.gatekeeper.sh",
                "code": [{"engine": "K8sNativeValidation", "source": {"validations": validations}}],
            }],
        },
    }))
    .await;
    // In a real cluster, Gatekeeper creates the kind `Images` for this template. Gatekeeper does not run here, so the
    // test creates the kind itself.
    apply(crd(constraints, "v1beta1", "images", "Images", "Cluster")).await;
    let constraint = json!({
        "apiVersion": format!("{constraints}/v1beta1"),
        "kind": "Images",
        "metadata": {"name": "not-bad"},
        "spec": {"match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}},
    });
    apply(constraint).await;
    wait_until_refused(&scene, "[not-bad] by a constraint").await;
    scene.create(&pod("good", GOOD_IMAGE)).await.assert_success();

    // Deleting a CustomResourceDefinition deletes all objects of its kind.
    for name in [
        format!("images.{constraints}"),
        format!("constrainttemplates.{templates}"),
    ] {
        scene
            .run(&format!("delete customresourcedefinition {name}"))
            .await
            .assert_success();
    }
    wait_until("the end of the constraint", async || {
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        scene
            .run_with_object(&arguments, &pod("bad", "bad"))
            .await
            .is_success
            .then_some(())
    })
    .await;
}
