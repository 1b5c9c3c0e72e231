//! Reads Gatekeeper's `Config` and `SyncSet`: the kinds in the cluster that policies may read, and excluded namespaces.

use admittance_admission::{ClusterKind, GroupVersionKind};

use crate::{
    document::{Node, readers},
    forms::kubernetes::{KEPT_METADATA, read_head, read_labels},
};

#[derive(Debug)]
pub(super) struct SyncDocument {
    pub(super) kinds: Vec<ClusterKind>,
    /// The namespaces whose requests no constraint checks. An entry may be a glob, such as `kube-*`.
    pub(super) excluded_namespaces: Vec<String>,
    /// The namespaces whose objects no mutator changes. An entry may be a glob, such as `kube-*`.
    pub(super) excluded_from_mutation: Vec<String>,
}

pub(super) fn read_config(root: &Node<'_>) -> Option<SyncDocument> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let spec = fields.get_optional("spec", Node::object);
    let mut metadata = fields.get_required("metadata", "write `metadata: { name: config }`", Node::object)?;
    metadata.ignore(&["name", "namespace"]);
    read_labels(&mut metadata);
    metadata.ignore(&KEPT_METADATA);
    let mut sync = SyncDocument {
        kinds: Vec::new(),
        excluded_namespaces: Vec::new(),
        excluded_from_mutation: Vec::new(),
    };
    if let Some(mut spec) = spec {
        if let Some(mut inner) = spec.get_optional("sync", Node::object) {
            sync.kinds = inner.get_or_default("syncOnly", readers::list_of(read_cluster_kind));
        }
        for entry in spec.get("match", Vec::new(), Node::list) {
            read_exclusion(&entry, &mut sync);
        }
        // These fields configure Gatekeeper itself. They have no effect on this program, so they are ignored.
        spec.ignore(&["validation", "readiness"]);
    }
    Some(sync)
}

pub(super) fn read_sync_set(root: &Node<'_>) -> Option<(String, SyncDocument)> {
    let (name, mut spec) = read_head(root, "write `spec: { gvks: [...] }`")?;
    let fix = "list the kinds, each with `group`, `version` and `kind`";
    let kinds = spec.get_required("gvks", fix, readers::list_of(read_cluster_kind));
    Some((
        name?,
        SyncDocument {
            kinds: kinds?,
            excluded_namespaces: Vec::new(),
            excluded_from_mutation: Vec::new(),
        },
    ))
}

fn read_cluster_kind(node: &Node<'_>) -> Option<ClusterKind> {
    let kind = read_kind(node)?;
    Some(ClusterKind::new(kind.api_version(), kind.kind))
}

pub(super) fn read_kind(node: &Node<'_>) -> Option<GroupVersionKind> {
    let mut fields = node.object()?;
    let group = fields.get_or_default("group", |node| node.string().map(str::to_owned));
    let version = fields.get_required("version", "write the version, `v1`", readers::text);
    let kind = fields.get_required("kind", "write the kind, `Ingress`", readers::text);
    Some(GroupVersionKind {
        group,
        version: version?,
        kind: kind?,
    })
}

fn read_exclusion(node: &Node<'_>, sync: &mut SyncDocument) {
    let Some(mut fields) = node.object() else {
        return;
    };
    let namespaces = fields.get_or_default("excludedNamespaces", Node::strings);
    let processes = fields.get_or_default("processes", Node::strings);
    for (webhook, excluded) in [
        ("webhook", &mut sync.excluded_namespaces),
        ("mutation-webhook", &mut sync.excluded_from_mutation),
    ] {
        if processes.iter().any(|process| process == "*" || process == webhook) {
            excluded.extend(namespaces.iter().cloned());
        }
    }
}
