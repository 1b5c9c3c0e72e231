//! The policies of a cluster.

use std::path::PathBuf;

use admittance_cluster::{Cluster, ClusterConfig, ClusterSource};
use admittance_definitions::DefinitionFile;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value as Json, json};

/// A kind of policies: the versions of its API, the newest first, its plural and its name.
type Kind = (&'static [&'static str], &'static str, &'static str);

const OF_KUBERNETES: &[&str] = &[
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
];

const KINDS: [Kind; 12] = [
    (
        OF_KUBERNETES,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    ),
    (
        OF_KUBERNETES,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ),
    (
        OF_KUBERNETES,
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
    ),
    (
        OF_KUBERNETES,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
    ),
    (
        OF_KUBERNETES,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
    ),
    (
        OF_KUBERNETES,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        &["policies.kubewarden.io/v1"],
        "clusteradmissionpolicies",
        "ClusterAdmissionPolicy",
    ),
    (
        &["policies.kubewarden.io/v1"],
        "admissionpolicies",
        "AdmissionPolicy",
    ),
    (
        &["policies.kubewarden.io/v1"],
        "clusteradmissionpolicygroups",
        "ClusterAdmissionPolicyGroup",
    ),
    (
        &["policies.kubewarden.io/v1"],
        "admissionpolicygroups",
        "AdmissionPolicyGroup",
    ),
    (&["apps.kruise.io/v1alpha1"], "sidecarsets", "SidecarSet"),
    (
        &["bkbcs.tencent.com/v2"],
        "admissionwebhookconfigurations",
        "AdmissionWebhookConfiguration",
    ),
];

/// The largest list.
const LIMIT: usize = 64 << 20;

/// A text for each kind that the cluster has, a list of its objects.
pub(super) async fn read(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> crate::Result<Vec<DefinitionFile>> {
    let source = match (&kubeconfig, &context) {
        (None, None) => ClusterSource::Infer,
        _ => ClusterSource::Kubeconfig {
            path: kubeconfig,
            context,
        },
    };
    let cluster = Cluster::connect(&ClusterConfig { source }).await?;
    let mut lists = Vec::new();
    for (versions, plural, kind) in KINDS {
        for version in versions {
            let path = format!("/apis/{version}/{plural}");
            if let Some(items) = list(&cluster, &path).await? {
                lists.push(as_file(version, kind, &path, items));
                break;
            }
        }
    }
    Ok(lists)
}

/// The objects at a path; `None` if the API server has no such kind.
async fn list(cluster: &Cluster, path: &str) -> crate::Result<Option<Vec<Json>>> {
    let request = Request::get(path).body(Bytes::new())?;
    let response = cluster.forward(request).await?;
    let status = response.status();
    if status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let body = Limited::new(response.into_body(), LIMIT).collect().await;
    let body = body.map_err(|error| format!("{path}: {error}"))?.to_bytes();
    let mut answer: Json = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let message = answer.get("message").and_then(Json::as_str).unwrap_or_default();
        return Err(format!("{path}: the API server answered {status}: {message}").into());
    }
    match answer.get_mut("items").map(Json::take) {
        Some(Json::Array(items)) => Ok(Some(items)),
        _ => Err(format!("{path}: the API server did not answer a list").into()),
    }
}

/// A list whose items say what they are: those of the API server do not.
fn as_file(version: &str, kind: &str, path: &str, items: Vec<Json>) -> DefinitionFile {
    let said = |mut item: Json| {
        if let Json::Object(fields) = &mut item {
            fields.insert("apiVersion".to_owned(), version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
        item
    };
    let items: Vec<Json> = items.into_iter().map(said).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    DefinitionFile::file(format!("cluster{path}"), list.to_string())
}
