//! Reads OpenKruise's SidecarSets, which the stock plugin `sidecar-injector` injects.
//!
//! A SidecarSet becomes a chain with one stage, which is called when Pods are created. If the SidecarSet is paused, the
//! chain has no stage. Unlike OpenKruise, this program does not update existing Pods, and warns about it. A SidecarSet
//! can be the canary of another one, its base, and is then injected in its place.

mod canary;

use admittance_admission::{
    FailurePolicy, LabelSelector, Matcher, ModuleReference, NamespaceSelector, Operation, ResourcePattern, Rule,
};
use serde_json::{Map, json};

use self::canary::{Canary, add_precedences};
use super::{DocumentForm, DocumentKind, FormContent, FormDocuments, TypedDocument};
use crate::{
    Definitions, PluginDefinition,
    document::{Fields, Mistake, Mistakes, Node, readers},
    forms::kubernetes::read_name,
    model::{ChainDefinition, StageDefinition},
    names,
    selectors::{self, LabelSyntax},
};

/// The fields of a SidecarSet that are injected into Pods. Their content is checked by the plugin.
const INJECTED_FIELDS: [&str; 5] = [
    "containers",
    "initContainers",
    "volumes",
    "imagePullSecrets",
    "patchPodMetadata",
];

static KINDS: [DocumentKind; 1] = [DocumentKind::new(
    "SidecarSet",
    &["apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"],
)];

#[derive(Debug)]
pub(super) struct OpenKruise;

impl DocumentForm for OpenKruise {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        let (chain, canary) = read(&document.root)?;
        let content = FormContent::of_chain(chain);
        Some(match canary {
            Some(canary) => content.with_part(canary),
            None => content,
        })
    }

    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, mistakes: &mut Mistakes) {
        let canaries = all.parts::<Canary>();
        for canary in &canaries {
            canary.check(&canaries, mistakes);
        }
        let mut chains: Vec<_> = all.chains().collect();
        add_precedences(&canaries, &mut chains);
        defined.chains.extend(chains);
    }
}

fn read(root: &Node<'_>) -> Option<(ChainDefinition, Option<Canary>)> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let metadata = fields.required("metadata", "name the SidecarSet: `metadata: { name: ... }`");
    let name = metadata.as_ref().and_then(|metadata| read_name(metadata));
    let fix = "write what is injected, and into which Pods";
    let mut spec = fields.get_required("spec", fix, Node::object)?;
    let mut warnings = Vec::new();
    let selector = read_selector(&mut spec);
    // In some releases, the namespaces in `v1beta1` are in `specificNamespace`, in others directly in the spec.
    let namespaces = match spec.get_optional("specificNamespace", Node::object) {
        Some(mut specific) => read_namespaces(&mut specific),
        None => read_namespaces(&mut spec),
    };
    let mut injected = Map::new();
    injected.insert("name".to_owned(), json!(name));
    for (field, node) in spec.present_fields(&INJECTED_FIELDS) {
        if let Some(entries) = node.list() {
            injected.insert(field.to_owned(), node.json());
            entries.iter().for_each(|entry| warn_of_upgrades(entry, &mut warnings));
        }
    }
    if !["containers", "initContainers"].iter().any(|list| spec.has(list)) {
        spec.node()
            .add_mistake("nothing is injected", "write `containers` or `initContainers`");
    }
    let is_paused = spec.get_or_default("injectionStrategy", |node| read_is_paused(node, &mut warnings));
    let is_updated = warn_of_updates(&mut spec, &mut warnings);
    spec.ignore(&["revisionHistoryLimit", "customVersion"]);
    let name = name?;
    let canary = canary::read(&metadata?, &name, &mut warnings);
    if let Some(canary) = &canary {
        canary.check_itself(is_updated, root);
    }
    let mut plugin = PluginDefinition::new(ModuleReference::stock("sidecar-injector"));
    plugin.settings = json!({ "sidecarSet": injected });
    let mut stage = StageDefinition::new(name.as_str(), plugin);
    stage.spec.namespace_selector = namespaces;
    stage.spec.object_selector = selector;
    // In OpenKruise, the webhook that injects SidecarSets has this failure policy by default.
    stage.spec.failure_policy = FailurePolicy::Ignore;
    stage.location = root.location();
    let rule = Rule {
        api_groups: Matcher::Only(vec![String::new()]),
        api_versions: Matcher::Only(vec!["v1".to_owned()]),
        resources: ResourcePattern::parse("pods").into_iter().collect(),
        ..Rule::for_operations([Operation::Create])
    };
    let stages = if is_paused { Vec::new() } else { vec![stage] };
    let chain = ChainDefinition {
        location: root.location(),
        warnings,
        ..ChainDefinition::new(chain_name(&name), vec![rule], stages)
    };
    Some((chain, canary))
}

/// Returns the chain's name. It begins like the name of OpenKruise's webhook configuration, so that the chain has the
/// same place among other chains, which are called in alphabetical order.
fn chain_name(name: &str) -> String {
    format!("kruise-sidecarset-{name}")
}

/// Reads the label selector for Pods. As in OpenKruise, an empty one, which selects every Pod, is a mistake.
fn read_selector(spec: &mut Fields<'_>) -> LabelSelector {
    let fix = "select the Pods by their labels: `selector: { matchLabels: { app: web } }`";
    let mistakes_before = spec.node().mistake_count();
    let node = spec.required("selector", fix);
    let selector = selectors::read_labels_of_field(spec, "selector", LabelSyntax::Kubernetes);
    if let Some(node) = node
        && selector.is_empty()
        && spec.node().mistake_count() == mistakes_before
    {
        node.add_mistake("the selector is empty", fix);
    }
    selector
}

fn read_namespaces(spec: &mut Fields<'_>) -> Option<NamespaceSelector> {
    let has_both = spec.has("namespace") && spec.has("namespaceSelector");
    let namespace = spec.get_optional("namespace", readers::parse_with(names::check_subdomain));
    let labels = selectors::read_labels_of_field(spec, "namespaceSelector", LabelSyntax::Kubernetes);
    if has_both {
        let message = "it has a namespace and a selector of namespaces";
        spec.node().add_mistake(message, "keep one of them");
    }
    match namespace {
        Some(namespace) => Some(NamespaceSelector::In(vec![namespace])),
        None => selectors::namespaces_with_labels(labels),
    }
}

/// Reads `injectionStrategy`. Returns whether the injection is paused; a fixed revision only causes a warning.
fn read_is_paused(node: &Node<'_>, warnings: &mut Vec<Mistake>) -> Option<bool> {
    let mut fields = node.object()?;
    let is_paused = fields.get("paused", false, Node::boolean);
    if let Some(revision) = fields.optional("revision") {
        let message = "earlier revisions are not kept here, so what this document says is injected";
        warnings.push(revision.mistake(message, "write what the revision injects, or remove it"));
    }
    Some(is_paused)
}

/// Returns whether OpenKruise would update existing Pods. If so, warns that this program does not.
fn warn_of_updates(spec: &mut Fields<'_>, warnings: &mut Vec<Mistake>) -> bool {
    let message = "containers are injected when a Pod is created; Pods that exist are not updated";
    let fix = "write `updateStrategy: { type: NotUpdate }`, and restart workloads after a change";
    let node = match spec.optional("updateStrategy") {
        Some(strategy) => {
            let kind = strategy
                .object()
                .and_then(|strategy| strategy.ignoring_others().optional("type"));
            if kind.and_then(|kind| kind.string()) == Some("NotUpdate") {
                return false;
            }
            strategy
        }
        None => spec.node().clone(),
    };
    warnings.push(node.mistake(message, fix));
    true
}

/// Warns about the upgrade strategy `HotUpgrade`. OpenKruise then injects the container twice, so that it can upgrade
/// the container without interruption. This program injects it once.
fn warn_of_upgrades(container: &Node<'_>, warnings: &mut Vec<Mistake>) {
    let strategy = child_field(container, "upgradeStrategy");
    if let Some(kind) = strategy.and_then(|strategy| child_field(&strategy, "upgradeType"))
        && kind.json() == "HotUpgrade"
    {
        let message = "a hot upgrade needs OpenKruise; the container is injected once, with its own image";
        warnings.push(kind.mistake(message, "write ColdUpgrade"));
    }
}

/// Returns a field of an object. The remaining fields are not reported as unknown here, because the plugin checks them.
fn child_field<'a>(node: &Node<'a>, name: &str) -> Option<Node<'a>> {
    let mut children = node.children().into_iter();
    children.find(|(key, _)| *key == Some(name)).map(|(_, node)| node)
}

#[cfg(test)]
mod tests;
