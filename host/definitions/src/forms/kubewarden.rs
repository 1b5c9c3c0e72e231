//! Reads Kubewarden's policies: `ClusterAdmissionPolicy`, `AdmissionPolicy`, and groups of them.
//!
//! A policy becomes a chain with one stage. The chain is named like Kubewarden's webhook for the policy.

use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{
    Denial, FailurePolicy, ImageGrant, MatchPolicy, Mode, ModuleReference, NamespaceSelector, Phase, Reinvocation,
    SideEffects, StageSpec,
};
use serde_json::{Map, Value as Json};

use super::{DocumentForm, DocumentKind, FormContent, TypedDocument};
use crate::{
    GroupDefinition, HookDefinition, MemberDefinition, Mistake, PluginDefinition, conditions,
    document::{Fields, Node, readers},
    forms::kubernetes::{KEPT_METADATA, read_kind, read_labels},
    group,
    model::{ChainDefinition, StageDefinition},
    names, plugin, rules,
    selectors::{self, LabelSyntax},
};

const VERSIONS: &[&str] = &["policies.kubewarden.io/v1"];

static KINDS: [DocumentKind; 4] = [
    DocumentKind::new("ClusterAdmissionPolicy", VERSIONS),
    DocumentKind::namespaced("AdmissionPolicy", VERSIONS),
    DocumentKind::new("ClusterAdmissionPolicyGroup", VERSIONS),
    DocumentKind::namespaced("AdmissionPolicyGroup", VERSIONS),
];

#[derive(Debug)]
pub(super) struct Kubewarden;

impl DocumentForm for Kubewarden {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        let policy = PolicyKind {
            is_namespaced: document.kind.is_namespaced,
            is_group: document.kind.name.ends_with("Group"),
        };
        read(&document.root, policy).map(FormContent::of_chain)
    }
}

#[derive(Clone, Copy)]
struct PolicyKind {
    is_namespaced: bool,
    is_group: bool,
}

/// The timeout of a policy without `timeoutEvalSeconds`, as in Kubewarden's policy server.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The scheme that is added to a module reference without one.
const REGISTRY_PREFIX: &str = "registry://";

const MODES: [(&str, Mode); 2] = [("protect", Mode::Enforce), ("monitor", Mode::Audit)];

fn read(root: &Node<'_>, policy: PolicyKind) -> Option<ChainDefinition> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let fix = "name the policy: `metadata: { name: ... }`";
    let read_names = |node: &Node<'_>| read_metadata(node, policy.is_namespaced);
    let names = fields.get_required("metadata", fix, read_names);
    let spec = fields.get_required("spec", "write the policy's module and rules", Node::object);
    let (stage_name, namespace) = names.clone().unwrap_or_default();
    let mut warnings = Vec::new();
    let (phase, mut stage) = read_spec(spec?, stage_name, policy, &mut warnings)?;
    let group = if policy.is_group { "group-" } else { "" };
    let name = match names? {
        (name, Some(namespace)) => format!("namespaced-{group}{namespace}-{name}"),
        (name, None) => format!("clusterwide-{group}{name}"),
    };
    stage.location = root.location();
    if let Some(namespace) = namespace {
        stage.spec.namespace_selector = Some(NamespaceSelector::In(vec![namespace]));
    }
    let rules = stage.spec.rules.clone();
    // Kubewarden never calls a policy without rules, but a stage without rules would be called for every request.
    let stages = if rules.is_empty() { Vec::new() } else { vec![stage] };
    Some(ChainDefinition {
        phase,
        location: root.location(),
        warnings,
        ..ChainDefinition::new(name, rules, stages)
    })
}

pub(super) fn read_metadata(metadata: &Node<'_>, is_namespaced: bool) -> Option<(String, Option<String>)> {
    let mut fields = metadata.object()?;
    let name_reader = || readers::parse_with(names::check_subdomain);
    let name = fields.get_required("name", "name the policy", name_reader());
    let namespace = if is_namespaced {
        fields
            .get_required("namespace", "name the namespace whose objects it is for", name_reader())
            .map(Some)
    } else {
        fields.ignore(&["namespace"]);
        Some(None)
    };
    read_labels(&mut fields);
    fields.ignore(&KEPT_METADATA);
    Some((name?, namespace?))
}

fn read_spec(
    mut fields: Fields<'_>,
    name: String,
    policy_kind: PolicyKind,
    warnings: &mut Vec<Mistake>,
) -> Option<(Phase, StageDefinition)> {
    fields.ignore(&["backgroundAudit"]);
    if let Some(server) = fields.optional("policyServer")
        && server.string().is_some_and(|server| server != "default")
    {
        let message = format!("policy {name}: `policyServer` has no meaning here: this program runs every policy");
        let fix = "remove it, or give the policies of a server a program of their own";
        warnings.push(server.mistake(message, fix));
    }
    let called = if policy_kind.is_group {
        let group = read_group(&mut fields, warnings);
        group.map(|group| (Phase::Validating, HookDefinition::from(group)))
    } else {
        let phase = if fields.get("mutating", false, Node::boolean) {
            Phase::Mutating
        } else {
            Phase::Validating
        };
        let plugin = read_plugin(&mut fields);
        plugin.map(|plugin| (phase, HookDefinition::from(plugin)))
    };
    let match_policy = fields.get("matchPolicy", MatchPolicy::Equivalent, Node::word);
    let read_rules = |node: &Node<'_>| Some(rules::read_kubernetes(node, match_policy, false));
    let mut spec = StageSpec::new(name);
    let rules = fields.get_required("rules", "say which requests it is for", read_rules);
    if !policy_kind.is_namespaced {
        let namespaces = selectors::read_labels_of_field(&mut fields, "namespaceSelector", LabelSyntax::Kubernetes);
        spec.namespace_selector = selectors::namespaces_with_labels(namespaces);
    }
    spec.object_selector = selectors::read_labels_of_field(&mut fields, "objectSelector", LabelSyntax::Kubernetes);
    spec.match_conditions = conditions::read(&mut fields);
    spec.failure_policy = fields.get("failurePolicy", FailurePolicy::Fail, Node::word);
    spec.timeout = read_seconds(&mut fields, "timeoutSeconds", 2..=30, DEFAULT_TIMEOUT);
    if !policy_kind.is_group {
        spec.timeout = spec.timeout.min(read_evaluation_timeout(&mut fields));
    }
    spec.mode = fields.get("mode", Mode::Enforce, readers::one_of("mode", &MODES));
    spec.side_effects = fields.get("sideEffects", SideEffects::None, Node::word);
    spec.reinvocation = Reinvocation::Never;
    if !policy_kind.is_group {
        spec.message = fields.get_optional("message", readers::text).map(Into::into);
    }
    spec.rules = rules?;
    let (phase, hook) = called?;
    Some((
        phase,
        StageDefinition {
            spec,
            ..StageDefinition::new("", hook)
        },
    ))
}

fn read_plugin(fields: &mut Fields<'_>) -> Option<PluginDefinition> {
    let fix = "write where the policy is, `registry://ghcr.io/kubewarden/policies/pod-privileged:v1.0.0`";
    let source = fields.get_required("module", fix, read_module);
    let settings = fields.get("settings", Json::Object(Map::new()), readers::json_object);
    let kinds = fields.get("contextAwareResources", Vec::new(), Node::list);
    let cluster = kinds.iter().filter_map(|kind| read_kind(kind)).collect();
    let mut plugin = PluginDefinition::new(source?);
    plugin.settings = settings;
    plugin.allow.cluster = cluster;
    // As in Kubewarden, every policy may read images from all registries.
    plugin.allow.images = vec![ImageGrant::ALL];
    Some(plugin)
}

fn read_group(fields: &mut Fields<'_>, warnings: &mut Vec<Mistake>) -> Option<GroupDefinition> {
    let parts = group::read_parts(fields, "policies", read_member);
    let message = fields.get_required("message", "write what clients are told", readers::text);
    let parts = parts?;
    // An expression of Kubewarden may leave out policies of its group, so an unused policy causes only a warning.
    warnings.extend(parts.unused_members.iter().map(|(name, node)| {
        let fix = format!("write `{name}()` in the expression, or remove the policy");
        node.mistake("the expression does not use it", fix)
    }));
    Some(GroupDefinition {
        members: parts.members,
        expression: parts.expression,
        // In Kubewarden, the denial of a group has no status code. kube-apiserver returns 400 for such a denial.
        denial: Denial::new(400, "", message?),
        members_path: "spec.policies",
    })
}

fn read_member(name: &str, node: &Node<'_>) -> Option<MemberDefinition> {
    let mut fields = node.object()?;
    let plugin = read_plugin(&mut fields);
    let timeout = read_evaluation_timeout(&mut fields);
    Some(MemberDefinition {
        name: name.into(),
        plugin: plugin?,
        timeout: Some(timeout),
        location: node.location(),
    })
}

fn read_evaluation_timeout(fields: &mut Fields<'_>) -> Duration {
    read_seconds(fields, "timeoutEvalSeconds", 1..=30, EVALUATION_TIMEOUT)
}

pub(super) fn read_seconds(
    fields: &mut Fields<'_>,
    name: &'static str,
    range: RangeInclusive<u8>,
    default: Duration,
) -> Duration {
    let seconds = fields.get_optional(name, readers::integer(range));
    seconds.map_or(default, |seconds: u8| Duration::from_secs(seconds.into()))
}

/// Reads a module reference. A reference without a scheme is that of an artifact in a registry.
fn read_module(node: &Node<'_>) -> Option<ModuleReference> {
    let text = node.text()?;
    if text.contains("://") {
        return plugin::read_source(node);
    }
    node.accept(format!("{REGISTRY_PREFIX}{text}").parse())
}

#[cfg(test)]
mod tests;
