//! The manifests of `admittance kubernetes manifests`, applied to the API server.
//!
//! The cluster has no node, so this program does a kubelet's work: it creates the Deployment's mounts and starts its
//! command. The Service refers to `localhost` (`type: ExternalName`) instead of Pods, so that the API server calls the
//! Service by its name and verifies the certificate for that name.

use std::{fs, path::Path, sync::Arc};

use admittance_tests::{Admittance, Serve, repository};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    cluster::TestCluster,
    kubectl::Kubectl,
    process::wait_until,
    scene::{GOOD_IMAGE, compiled_store, containers, pod},
};

const NAMESPACE: &str = "admittance-system";
const BAD_IMAGE: &str = "registry.example.com/web:latest";

pub(crate) async fn pods_of_the_manifests_change_and_deny_requests(cluster: Arc<TestCluster>) {
    let kubectl = cluster.kubectl().unwrap();
    let config = repository().join("docs/examples/kubernetes/admittance.yaml");
    let manifests_output = Admittance::run([
        "kubernetes",
        "manifests",
        "--kubernetes-version=1.20",
        "--network-policy",
        "--config",
        config.to_str().unwrap(),
    ])
    .await
    .unwrap();
    assert_eq!(manifests_output.code, Some(0), "{}", manifests_output.stderr);
    let (webhooks, first): (Vec<_>, Vec<_>) = manifests_output
        .stdout
        .split("\n---\n")
        .partition(|document| document.contains("WebhookConfiguration"));
    for _ in 0..2 {
        apply(&kubectl, &first.join("\n---\n")).await;
    }

    let directory = tempfile::tempdir().unwrap();
    let deployment = get(&kubectl, "deployment admittance").await;
    let spec = &deployment["spec"]["template"]["spec"];
    mount_volumes(&kubectl, spec, directory.path()).await;
    let program = start_program(spec, directory.path()).await;
    let url = program.tls_url("");
    let (_, port) = url.rsplit_once(':').unwrap();

    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "admittance", "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    run(&kubectl, &format!("delete service admittance --namespace {NAMESPACE}")).await;
    apply(&kubectl, &service.to_string()).await;
    let webhooks = webhooks.join("\n---\n");
    assert_eq!(webhooks.matches("port: 443").count(), 2, "{webhooks}");
    apply(&kubectl, &webhooks.replace("port: 443", &format!("port: {port}"))).await;

    run(&kubectl, "create namespace shop").await;
    wait_until("the refusal of a Pod", async || {
        let output = create(&kubectl, "shop", &pod("bad", BAD_IMAGE), &["--dry-run=server"]).await;
        output
            .stderr
            .contains("admission webhook \"validate.admittance.admittance-system\" denied the request")
            .then_some(())
    })
    .await;
    wait_until("a Pod with a sidecar", async || {
        let arguments = ["--dry-run=server", "--output=json"];
        let output = create(&kubectl, "shop", &pod("good", GOOD_IMAGE), &arguments).await;
        (containers(&output.json()) == ["web", "log-agent"]).then_some(())
    })
    .await;

    // Kubernetes 1.20 does not set the label by which the webhooks select namespaces. The command prints how to add it.
    assert!(
        manifests_output.stderr.contains("admittance.dev/ignore=true"),
        "{}",
        manifests_output.stderr
    );
    run(&kubectl, "label namespace kube-system admittance.dev/ignore=true").await;
    for namespace in ["kube-system", NAMESPACE] {
        wait_until("a namespace that is excluded", async || {
            let arguments = ["--dry-run=server", "--output=json"];
            let output = create(&kubectl, namespace, &pod("left-alone", BAD_IMAGE), &arguments).await;
            output
                .is_success
                .then(|| assert_eq!(containers(&output.json()), ["web"], "{namespace}"))
        })
        .await;
    }
}

/// Does the kubelet's work for a Pod: creates the directories that it mounts, below `root`.
async fn mount_volumes(kubectl: &Kubectl, spec: &Value, root: &Path) {
    let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
    for mount in mounts {
        let path = mount["mountPath"].as_str().unwrap().trim_start_matches('/');
        let directory = root.join(path);
        fs::create_dir_all(&directory).unwrap();
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let sources = match &volume["projected"]["sources"] {
            Value::Array(sources) => sources.clone(),
            _ => vec![volume.clone()],
        };
        for source in sources {
            let object = match (&source["configMap"]["name"], &source["secret"]["secretName"]) {
                (Value::String(name), _) => get(kubectl, &format!("configmap {name}")).await,
                (_, Value::String(name)) => get(kubectl, &format!("secret {name}")).await,
                _ => continue,
            };
            let decoded = |text: &str| BASE64_STANDARD.decode(text).unwrap();
            let is_secret = object["kind"] == "Secret";
            for (field, is_encoded) in [("data", is_secret), ("binaryData", true)] {
                for (name, value) in object[field].as_object().into_iter().flatten() {
                    let text = value.as_str().unwrap();
                    let content = if is_encoded {
                        decoded(text)
                    } else {
                        text.as_bytes().to_vec()
                    };
                    fs::write(directory.join(name), content).unwrap();
                }
            }
        }
    }
}

async fn start_program(spec: &Value, root: &Path) -> Admittance {
    let arguments = &spec["containers"][0]["args"];
    assert_eq!(arguments[0], "serve");
    assert_eq!(arguments[1], "--config");
    assert_eq!(arguments.as_array().unwrap().len(), 3, "{arguments}");
    let config = arguments[2].as_str().unwrap().trim_start_matches('/');
    let serve = Serve::new(root.join(config)).unwrap().store(compiled_store());
    serve.start().await.unwrap()
}

async fn apply(kubectl: &Kubectl, documents: &str) {
    let output = kubectl
        .run_with_input(&["apply", "--server-side", "-f", "-"], documents)
        .await
        .unwrap()
        .assert_success();
    assert!(!output.stderr.contains("Warning"), "{}", output.stderr);
}

async fn run(kubectl: &Kubectl, arguments: &str) {
    let arguments: Vec<_> = arguments.split(' ').collect();
    kubectl.run(&arguments).await.unwrap().assert_success();
}

async fn get(kubectl: &Kubectl, resource: &str) -> Value {
    let mut arguments = vec!["get", "--namespace", NAMESPACE, "--output=json"];
    arguments.extend(resource.split(' '));
    kubectl.run(&arguments).await.unwrap().json()
}

async fn create(kubectl: &Kubectl, namespace: &str, object: &Value, more: &[&str]) -> crate::kubectl::KubectlOutput {
    let mut arguments = vec!["create", "--namespace", namespace, "-f", "-"];
    arguments.extend(more);
    kubectl.run_with_input(&arguments, &object.to_string()).await.unwrap()
}
