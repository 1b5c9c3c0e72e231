//! Makes the files of a control plane node: a static Pod, and webhooks in files of its API server (KEP-5793).
//!
//! A static Pod cannot refer to objects in the cluster, so the contents of ConfigMaps and Secrets become files.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use admittance_definitions::document::to_yaml;
use admittance_fleet::configurations;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value as Json, json};

use super::{
    Installation, PreparedInstallation,
    certificates::{Certificates, LOOPBACK},
    chart,
    layout::{CACHE, STATE},
    manifest::CommentedManifest,
};
use crate::files::{self, PUBLIC_MODE, SECRET_MODE};

/// The directory that kubelets read static Pods from.
const MANIFEST_DIRECTORY: &str = "etc/kubernetes/manifests";
const MOUNT_PATH: &str = "/etc/admittance";
/// The namespace in which static Pods of the control plane are.
const NAMESPACE: &str = "kube-system";
/// The suffix that the API server requires in names of webhook configurations and webhooks that it reads from files.
const WEBHOOK_SUFFIX: &str = "static.k8s.io";
/// The priority class of static Pods of the control plane.
const PRIORITY_CLASS: &str = "system-node-critical";

/// The files of a node: content and mode by path, relative to the root directory.
pub(super) type NodeFiles = BTreeMap<String, (Vec<u8>, u32)>;

fn node_directory(installation: &Installation) -> String {
    format!("etc/kubernetes/{}", installation.name)
}

pub(super) fn node_files(
    installation: &Installation,
    prepared: &PreparedInstallation,
    certificates: &Certificates,
) -> crate::Result<NodeFiles> {
    let directory = node_directory(installation);
    let mut files = NodeFiles::new();
    let manifests = chart::chart_manifests(installation, prepared, Some(certificates))?;
    for manifest in &manifests {
        files.extend(mounted_files(installation, &directory, manifest)?);
    }
    let deployment_manifest = manifests.iter().find(|manifest| manifest.kind() == "Deployment");
    let deployment = deployment_manifest.ok_or("the chart has no Deployment")?;
    let mut add = |path: String, object: &Json| {
        files.insert(path, (to_yaml(object).into_bytes(), PUBLIC_MODE));
    };
    add(
        format!("{MANIFEST_DIRECTORY}/{}.yaml", installation.name),
        &pod_manifest(installation, deployment.object["spec"]["template"].clone()),
    );
    let webhooks = prepared.registered_webhooks(installation)?;
    let mut plugins = Vec::new();
    for mut object in configurations(&installation.registration(), &webhooks, &certificates.authority) {
        let (plugin, name) = match object["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => ("MutatingAdmissionWebhook", "mutating"),
            _ => ("ValidatingAdmissionWebhook", "validating"),
        };
        call_by_url(&mut object, installation, prepared.configuration.webhook_port);
        let manifest_directory = format!("{directory}/admission/{name}");
        add(format!("{manifest_directory}/{}.yaml", installation.name), &object);
        plugins.push(json!({"name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": "",
            "staticManifestsDir": format!("/{manifest_directory}"),
        }}));
    }
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    });
    add(format!("{directory}/admission/configuration.yaml"), &configuration);
    if prepared.configuration.uses_cluster() {
        let roles: String = role_manifests(installation, prepared).iter().map(to_yaml).collect();
        files.insert(format!("{directory}/roles.yaml"), (roles.into_bytes(), PUBLIC_MODE));
    }
    Ok(files)
}

/// Returns the files that a ConfigMap or Secret stands for, at the paths where the Pod reads them.
fn mounted_files(
    installation: &Installation,
    directory: &str,
    manifest: &CommentedManifest,
) -> crate::Result<NodeFiles> {
    let is_secret = manifest.kind() == "Secret";
    if !is_secret && manifest.kind() != "ConfigMap" {
        return Ok(NodeFiles::new());
    }
    let name = manifest.object["metadata"]["name"].as_str().unwrap_or_default();
    let suffix = name
        .strip_prefix(&format!("{}-", installation.name))
        .unwrap_or_default();
    let subdirectory = if suffix.starts_with("module-") {
        "modules"
    } else {
        suffix
    };
    let mut files = NodeFiles::new();
    for (field, is_encoded) in [("data", is_secret), ("binaryData", true)] {
        for (key, value) in manifest.object[field].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            let content = if is_encoded {
                BASE64_STANDARD.decode(text)?
            } else {
                text.as_bytes().to_vec()
            };
            let mode = if is_secret { SECRET_MODE } else { PUBLIC_MODE };
            files.insert(format!("{directory}/{subdirectory}/{key}"), (content, mode));
        }
    }
    Ok(files)
}

/// Converts the Pod template of the Deployment to a static Pod, which cannot have a service account.
fn pod_manifest(installation: &Installation, mut pod: Json) -> Json {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = json!({
        "name": installation.name,
        "namespace": NAMESPACE,
        "labels": admittance_fleet::labels(&installation.name),
    });
    let spec = &mut pod["spec"];
    for unused in [
        "serviceAccountName",
        "automountServiceAccountToken",
        "topologySpreadConstraints",
    ] {
        spec.as_object_mut().and_then(|spec| spec.shift_remove(unused));
    }
    spec["hostNetwork"] = true.into();
    spec["priorityClassName"] = installation.priority_class.as_deref().unwrap_or(PRIORITY_CLASS).into();
    let host_path = json!({"path": format!("/{}", node_directory(installation)), "type": "Directory"});
    spec["volumes"] = json!([
        {"name": "files", "hostPath": host_path},
        {"name": "cache", "emptyDir": {}},
        {"name": "state", "emptyDir": {}},
    ]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([
        {"name": "files", "mountPath": MOUNT_PATH, "readOnly": true},
        {"name": "cache", "mountPath": CACHE},
        {"name": "state", "mountPath": STATE},
    ]);
    if let Some(Json::Array(variables)) = container.get_mut("env") {
        variables.retain(|variable| variable["name"] != "ADMITTANCE_SERVICE");
    }
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        container[probe]["httpGet"]["host"] = LOOPBACK.into();
    }
    pod
}

/// Changes the webhooks of a webhook configuration, so that the API server of each node calls the Pod on its own node.
/// Each webhook gets a URL with a loopback address instead of a Service.
fn call_by_url(object: &mut Json, installation: &Installation, port: u16) {
    object["metadata"]["name"] = format!("{}.{WEBHOOK_SUFFIX}", installation.name).into();
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let full_name = webhook["name"].as_str().unwrap_or_default();
        let name = full_name.strip_suffix(&installation.namespace).unwrap_or(full_name);
        webhook["name"] = format!("{name}{WEBHOOK_SUFFIX}").into();
        let client = &webhook["clientConfig"];
        let path = client["service"]["path"].as_str().unwrap_or_default();
        webhook["clientConfig"] = json!({
            "url": format!("https://{LOOPBACK}:{port}{path}"),
            "caBundle": client["caBundle"],
        });
    }
}

/// Returns the ClusterRole with the Pods' rights, and a binding of this role to a user. The user has the installation's
/// name. The kubeconfig of the static Pod must be for this user, because a static Pod cannot have a service account.
fn role_manifests(installation: &Installation, prepared: &PreparedInstallation) -> [Json; 2] {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let name = format!("{NAMESPACE}-{}", installation.name);
    let metadata = json!({"name": name, "labels": admittance_fleet::labels(&installation.name)});
    let rules = prepared.needs.cluster_rules();
    let user = json!({"apiGroup": group, "kind": "User", "name": installation.name});
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
    [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [user],
        }),
    ]
}

pub(super) fn installation_notes(installation: &Installation, prepared: &PreparedInstallation) -> Vec<String> {
    let directory = node_directory(installation);
    let mut notes = vec![format!(
        "copy the files to the root of each control plane node, and give those of the Pod to its user: \
         `chown -R 65532:65532 /{directory}`"
    )];
    if prepared.configuration.uses_cluster() {
        notes.push(format!(
            "the Pods need the cluster: put a kubeconfig of the user {} to /{directory}/cluster/kubeconfig, and apply \
             {directory}/roles.yaml",
            installation.name
        ));
    }
    notes
}

/// Writes the files of a node, and removes other files that an earlier run has written there. Otherwise the Pod would
/// still read chains that no longer belong to the installation.
pub(super) fn write_files(root: &Path, installation: &Installation, node: &NodeFiles) -> crate::Result<()> {
    for (name, (content, mode)) in node {
        files::replace_in_tree(&root.join(name), content, *mode)?;
    }
    let installation_directory = root.join(node_directory(installation));
    let written_paths: BTreeSet<PathBuf> = node.keys().map(|name| root.join(name)).collect();
    let directories: BTreeSet<&Path> = written_paths.iter().filter_map(|path| path.parent()).collect();
    for directory in directories {
        if directory == installation_directory || !directory.starts_with(&installation_directory) {
            continue;
        }
        for entry in fs::read_dir(directory).map_err(files::error_at(directory))? {
            let path = entry.map_err(files::error_at(directory))?.path();
            if path.is_file() && !written_paths.contains(&path) {
                fs::remove_file(&path).map_err(files::error_at(&path))?;
            }
        }
    }
    Ok(())
}
