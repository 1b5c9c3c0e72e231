//! The Kubernetes form: `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration`.
//!
//! The document is what a Kubernetes API server holds, prints and takes. What the server accepts is
//! accepted, but for the few things with which every call would fail. `plugin` in place of
//! `clientConfig`, `timeout` and `mode` are additions.

pub(crate) mod openapi;
pub(crate) mod policy;
pub(crate) mod resource;
pub(crate) mod rules;
pub(crate) mod typing;
mod webhook;

use std::collections::HashMap;

use admittance_admission::{ClusterKind, Phase, is_dns_label};

use crate::{
    document::{Mistakes, Node, quoted, readers},
    model::{ChainDefinition, StageDefinition},
    names,
};

pub(crate) use self::webhook::Version;

/// What an API server, its clients and BCS write into `metadata` beside name and namespace. None of it means
/// anything here.
pub(crate) const KEPT_METADATA: [&str; 14] = [
    "annotations",
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A chain, as far as it could be read; missing parts were reported.
pub(crate) fn read(
    root: &Node<'_>,
    phase: Phase,
    version: Version,
    mistakes: &mut Mistakes,
) -> Option<ChainDefinition> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind"]);
    let fix = "name the configuration: `metadata: { name: ... }`";
    let name = fields.get_required("metadata", fix, read_name, mistakes);
    let webhooks = fields.get("webhooks", Vec::new(), Node::list, mistakes);
    let mut seen = HashMap::new();
    let stages: Vec<StageDefinition> = webhooks
        .iter()
        .filter_map(|webhook| webhook::read(webhook, phase, version, &mut seen, mistakes))
        // Without rules it is never called; without rules here it would always be.
        .filter(|stage| !stage.spec.rules.is_empty())
        .collect();
    fields.finish(mistakes);
    Some(ChainDefinition {
        name: name?,
        namespace: None,
        phase,
        source: root.location(),
        rules: stages.iter().flat_map(|stage| stage.spec.rules.clone()).collect(),
        stages,
        warnings: Vec::new(),
        idle: Vec::new(),
    })
}

pub(crate) fn read_name(metadata: &Node<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let mut fields = metadata.object(mistakes)?;
    let read = readers::parse_with(names::subdomain);
    let name = fields.get_required("name", "write its name", read, mistakes);
    // The API server passes over a namespace where there is none.
    fields.ignore(&["namespace"]);
    fields.ignore(&KEPT_METADATA);
    fields.finish(mistakes);
    name
}

/// A kind of objects that is read from the cluster: `{ apiVersion: v1, kind: ConfigMap }`.
pub(crate) fn read_kind(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClusterKind> {
    let mut fields = node.object(mistakes)?;
    let version = fields.get_required("apiVersion", "write `v1` or `apps/v1`", readers::text, mistakes);
    let kind = fields.get_required("kind", "write the kind, `ConfigMap`", readers::text, mistakes);
    fields.finish(mistakes);
    let parsed = format!("{}/{}", version?, kind?).parse();
    let kind: ClusterKind = node.accept(parsed, mistakes)?;
    if !is_dns_label(&kind.kind().to_ascii_lowercase()) {
        let message = format!("{} is not a kind", quoted(kind.kind()));
        node.wrong(message, "write letters and digits, `ConfigMap`", mistakes);
    }
    Some(kind)
}

#[cfg(test)]
mod tests;
