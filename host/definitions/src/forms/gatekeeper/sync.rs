//! Reads `Config` and `SyncSet`: the kinds of the cluster that policies may read, and the namespaces that are excluded.

use admittance_admission::{ClusterKind, GroupVersionKind};

use crate::{
    document::{Mistakes, Node, readers},
    forms::kubernetes::{KEPT_METADATA, read_head, read_labels},
};

#[derive(Debug)]
pub(super) struct SyncDocument {
    pub(super) kinds: Vec<ClusterKind>,
    /// The namespaces without constraints at admission. A name may be a glob, here and below.
    pub(super) excluded_namespaces: Vec<String>,
    pub(super) excluded_from_mutation: Vec<String>,
}

pub(super) fn read_config(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<SyncDocument> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let mut metadata = fields.get_required(
        "metadata",
        "write `metadata: { name: config }`",
        Node::object,
        mistakes,
    )?;
    metadata.ignore(&["name", "namespace"]);
    read_labels(&mut metadata, mistakes);
    metadata.ignore(&KEPT_METADATA);
    metadata.finish(mistakes);
    let mut sync = SyncDocument {
        kinds: Vec::new(),
        excluded_namespaces: Vec::new(),
        excluded_from_mutation: Vec::new(),
    };
    if let Some(mut spec) = fields.get_optional("spec", Node::object, mistakes) {
        if let Some(mut inner) = spec.get_optional("sync", Node::object, mistakes) {
            sync.kinds = inner.get_or_default("syncOnly", readers::list_of(read_cluster_kind), mistakes);
            inner.finish(mistakes);
        }
        for entry in spec.get("match", Vec::new(), Node::list, mistakes) {
            read_exclusion(&entry, &mut sync, mistakes);
        }
        // Traces and readiness concern Gatekeeper's own program.
        spec.ignore(&["validation", "readiness"]);
        spec.finish(mistakes);
    }
    fields.finish(mistakes);
    Some(sync)
}

pub(super) fn read_sync_set(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<(String, SyncDocument)> {
    let (name, mut spec) = read_head(root, "write `spec: { gvks: [...] }`", mistakes)?;
    let fix = "list the kinds, each with `group`, `version` and `kind`";
    let kinds = spec.get_required("gvks", fix, readers::list_of(read_cluster_kind), mistakes);
    spec.finish(mistakes);
    Some((
        name?,
        SyncDocument {
            kinds: kinds?,
            excluded_namespaces: Vec::new(),
            excluded_from_mutation: Vec::new(),
        },
    ))
}

fn read_cluster_kind(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClusterKind> {
    let kind = read_kind(node, mistakes)?;
    Some(ClusterKind::new(kind.api_version(), kind.kind))
}

pub(super) fn read_kind(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<GroupVersionKind> {
    let mut fields = node.object(mistakes)?;
    let group = fields.get_or_default(
        "group",
        |node, mistakes| node.string(mistakes).map(str::to_owned),
        mistakes,
    );
    let version = fields.get_required("version", "write the version, `v1`", readers::text, mistakes);
    let kind = fields.get_required("kind", "write the kind, `Ingress`", readers::text, mistakes);
    fields.finish(mistakes);
    Some(GroupVersionKind {
        group,
        version: version?,
        kind: kind?,
    })
}

/// Reads an entry of `match`, and excludes its namespaces from the processes that it lists.
fn read_exclusion(node: &Node<'_>, sync: &mut SyncDocument, mistakes: &mut Mistakes) {
    let Some(mut fields) = node.object(mistakes) else {
        return;
    };
    let namespaces = fields.get_or_default("excludedNamespaces", Node::strings, mistakes);
    let processes = fields.get_or_default("processes", Node::strings, mistakes);
    fields.finish(mistakes);
    for (webhook, excluded) in [
        ("webhook", &mut sync.excluded_namespaces),
        ("mutation-webhook", &mut sync.excluded_from_mutation),
    ] {
        if processes
            .iter()
            .any(|process| process == "*" || process == webhook)
        {
            excluded.extend(namespaces.iter().cloned());
        }
    }
}
