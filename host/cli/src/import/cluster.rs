//! The policies of a cluster.

use admittance_cluster::Cluster;
use admittance_definitions::DefinitionFile;
use serde_json::{Value as Json, json};

use crate::cluster::ClusterArguments;

/// A kind of policies: the versions of its API, the newest first, its plural and its name.
type Kind = (&'static [&'static str], &'static str, &'static str);

const OF_KUBERNETES: &[&str] = &[
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
];

const OF_MUTATION: &[&str] = &[
    "mutations.gatekeeper.sh/v1",
    "mutations.gatekeeper.sh/v1beta1",
    "mutations.gatekeeper.sh/v1alpha1",
];

const KINDS: [Kind; 20] = [
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
    (
        &["templates.gatekeeper.sh/v1", "templates.gatekeeper.sh/v1beta1"],
        "constrainttemplates",
        TEMPLATE,
    ),
    (&["config.gatekeeper.sh/v1alpha1"], "configs", "Config"),
    (&["syncset.gatekeeper.sh/v1alpha1"], "syncsets", "SyncSet"),
    (
        &[
            "expansion.gatekeeper.sh/v1beta1",
            "expansion.gatekeeper.sh/v1alpha1",
        ],
        "expansiontemplate",
        "ExpansionTemplate",
    ),
    // The plurals are those of its CustomResourceDefinitions.
    (OF_MUTATION, "assign", "Assign"),
    (OF_MUTATION, "assignimage", "AssignImage"),
    (OF_MUTATION, "assignmetadata", "AssignMetadata"),
    (OF_MUTATION, "modifyset", "ModifySet"),
    (
        &["apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"],
        "sidecarsets",
        "SidecarSet",
    ),
    (
        &["bkbcs.tencent.com/v2"],
        "admissionwebhookconfigurations",
        "AdmissionWebhookConfiguration",
    ),
];

/// A template of Gatekeeper, which defines a kind of constraints.
const TEMPLATE: &str = "ConstraintTemplate";

/// The version of the kinds that templates define.
const CONSTRAINTS: &str = "constraints.gatekeeper.sh/v1beta1";

/// A text for each kind that the cluster has, a list of its objects.
pub(super) async fn read(arguments: &ClusterArguments) -> crate::Result<Vec<DefinitionFile>> {
    let cluster = arguments.connect().await?;
    let mut lists = Vec::new();
    for (versions, plural, kind) in KINDS {
        for version in versions {
            let path = format!("/apis/{version}/{plural}");
            if let Some(items) = list(&cluster, &path).await? {
                if kind == TEMPLATE {
                    lists.extend(constraints(&cluster, &items).await?);
                }
                lists.push(as_file(version, kind, &path, items));
                break;
            }
        }
    }
    Ok(lists)
}

/// The constraints of these templates.
async fn constraints(cluster: &Cluster, templates: &[Json]) -> crate::Result<Vec<DefinitionFile>> {
    let mut lists = Vec::new();
    for template in templates {
        let kind = template.pointer("/spec/crd/spec/names/kind");
        let Some(kind) = kind.and_then(Json::as_str) else {
            continue;
        };
        let path = format!("/apis/{CONSTRAINTS}/{}", kind.to_lowercase());
        // There is no such kind for a template that Gatekeeper refused.
        if let Some(items) = list(cluster, &path).await? {
            lists.push(as_file(CONSTRAINTS, kind, &path, items));
        }
    }
    Ok(lists)
}

/// The objects at a path; `None` if the API server has no such kind.
async fn list(cluster: &Cluster, path: &str) -> crate::Result<Option<Vec<Json>>> {
    let Some(body) = cluster.read(path).await?.found(path)? else {
        return Ok(None);
    };
    let mut answer: Json = serde_json::from_slice(&body).unwrap_or_default();
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
