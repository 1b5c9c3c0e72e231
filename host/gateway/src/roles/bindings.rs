//! Derives the role bindings that a cluster should have from the grants for the cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::rules::{self, AllowedRights, MANAGED_BY_LABEL, RBAC_GROUP};
use crate::accounts::{GrantedBinding, GrantedRole, RegisteredCluster};

/// The label of the objects that a gateway writes into a cluster. The value is a hash that identifies the cluster.
const CLUSTER_LABEL: &str = "admittance.dev/cluster";
/// The annotation of a role binding with the name of the user to whom it gives a role.
const USER_ANNOTATION: &str = "admittance.dev/user";
/// The number of hexadecimal digits in the hashes that names and labels of bindings contain.
const HASH_LENGTH: usize = 32;

#[derive(Debug)]
pub(super) struct WantedBindings {
    pub(super) bindings: BTreeMap<String, Value>,
    pub(super) roles: BTreeSet<GrantedRole>,
}

pub(super) fn collection_path(namespace: Option<&str>) -> String {
    match namespace {
        Some(name) => format!("/apis/{RBAC_GROUP}/v1/namespaces/{name}/rolebindings"),
        None => format!("/apis/{RBAC_GROUP}/v1/clusterrolebindings"),
    }
}

pub(super) fn binding_path(binding: &Value) -> Option<String> {
    let text = |pointer| binding.pointer(pointer).and_then(Value::as_str);
    let collection = collection_path(text("/metadata/namespace"));
    Some(format!("{collection}/{}", text("/metadata/name")?))
}

pub(super) fn is_managed(object: &Value) -> bool {
    let (label, value) = MANAGED_BY_LABEL;
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(label)?.as_str()) == Some(value)
}

/// Returns the labels of the objects that a gateway writes into this cluster. The value of [`CLUSTER_LABEL`] is a hash
/// of the cluster's random identifier. Another installation of the gateway gives the same cluster another identifier,
/// so the labels of its objects differ.
fn binding_labels(cluster: &RegisteredCluster) -> [(&'static str, String); 2] {
    let (managed_by, value) = MANAGED_BY_LABEL;
    [
        (managed_by, value.to_owned()),
        (CLUSTER_LABEL, hash(&[&cluster.identifier])),
    ]
}

pub(super) fn label_selector_query(cluster: &RegisteredCluster) -> String {
    let labels = binding_labels(cluster).map(|(label, value)| format!("{label}={value}"));
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("labelSelector", &labels.join(",")).finish()
}

pub(super) fn wanted_bindings(
    cluster: &RegisteredCluster,
    grants: &BTreeSet<GrantedBinding>,
    allowed: &AllowedRights,
) -> WantedBindings {
    let granted = || grants.iter().filter(|grant| allowed.check_role(grant.role).is_ok());
    let bindings = granted().filter_map(|grant| {
        let binding = binding_for(cluster, grant);
        Some((binding_path(&binding)?, binding))
    });
    WantedBindings {
        bindings: bindings.collect(),
        roles: granted().map(|grant| grant.role).collect(),
    }
}

fn binding_for(cluster: &RegisteredCluster, grant: &GrantedBinding) -> Value {
    let (user, role) = (grant.user.as_str(), grant.role.as_str());
    let name = format!("admittance-{}", hash(&[&cluster.identifier, user, role]));
    let kind = match grant.namespace {
        Some(_) => "RoleBinding",
        None => "ClusterRoleBinding",
    };
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), name.into());
    metadata.extend(
        grant
            .namespace
            .iter()
            .map(|name| ("namespace".to_owned(), name.as_str().into())),
    );
    metadata.insert("labels".to_owned(), json!(BTreeMap::from(binding_labels(cluster))));
    metadata.insert("annotations".to_owned(), json!({USER_ANNOTATION: user}));
    json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"),
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": rules::cluster_role_name(grant.role)},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": grant.user.impersonated_name()}],
    })
}

/// Returns whether a stored binding is equal to the wanted binding in every field that the gateway sets.
pub(super) fn is_current(stored: &Value, expected: &Value) -> bool {
    let user = |binding: &Value| {
        let annotations = binding.pointer("/metadata/annotations")?;
        annotations.get(USER_ANNOTATION).cloned()
    };
    ["roleRef", "subjects"]
        .iter()
        .all(|field| stored.get(field) == expected.get(field))
        && user(stored) == user(expected)
}

fn hash(parts: &[&str]) -> String {
    // The parts contain no zero byte. So two different lists of parts never give the same text when they are joined.
    let mut digest = hex::encode(Sha256::digest(parts.join("\0")));
    digest.truncate(HASH_LENGTH);
    digest
}
