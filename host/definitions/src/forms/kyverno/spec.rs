//! Reads the `spec` of Kyverno's policies.

use std::sync::Arc;

use admittance_admission::{FailurePolicy, NamespaceSelector, Phase, Reinvocation, StageSpec, enumerated};
use admittance_conditions::{Action, Binding, CompiledPolicy, MessageWording};

use super::autogen::{self, PodPlacement};
use crate::{
    CelDefinition, Location, Mistake, cel,
    document::{Fields, Node, quoted},
    forms::{
        kubernetes::policy::{self, MatchConstraints},
        kubewarden::{read_metadata, read_seconds},
    },
    model::{ChainDefinition, StageDefinition},
    selectors::namespaces_with_labels,
};

#[derive(Clone, Copy)]
pub(super) struct PolicyScope {
    pub(super) phase: Phase,
    pub(super) is_namespaced: bool,
}

struct Settings {
    name: String,
    namespace: Option<String>,
    actions: Vec<Action>,
    failure_policy: FailurePolicy,
    spec: StageSpec,
}

pub(super) fn read(root: &Node<'_>, scope: PolicyScope) -> Option<ChainDefinition> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let fix = "name the policy: `metadata: { name: ... }`";
    let read_names = |node: &Node<'_>| read_metadata(node, scope.is_namespaced);
    let names = fields.get_required("metadata", fix, read_names);
    let fix = "write which requests the policy is for, and its expressions";
    let node = fields.required("spec", fix)?;
    let mut fields = node.object()?;
    let (name, namespace) = names.clone().unwrap_or_default();
    let fix = "say which requests the policy is for: `matchConstraints: { resourceRules: [...] }`";
    let read_match = |node: &Node<'_>| policy::read_constraints(node, true);
    let constraints = fields.get_required("matchConstraints", fix, read_match);
    let mut warnings = Vec::new();
    let controllers = read_autogen(&mut fields, &mut warnings);
    let is_for_admission = read_evaluation(&mut fields, &mut warnings);
    if let Some(node) = fields
        .optional("auditAnnotations")
        .filter(|_| scope.phase == Phase::Mutating)
    {
        let message = "annotations of mutations are for Kyverno's reports, and not written";
        warnings.push(node.mistake(message, "remove them"));
    }
    let settings = read_settings(&mut fields, scope, (name, namespace));
    let placements = match &constraints {
        Some(constraints) => autogen::placements(constraints, controllers.as_deref()),
        None => Vec::new(),
    };
    let mistakes_before = fields.node().mistake_count();
    let namespace = settings.namespace.as_deref();
    let policy = read_policy(&mut fields, scope, namespace, PodPlacement::Object);
    let is_valid = fields.node().mistake_count() == mistakes_before;
    names?;
    let mut stages = vec![settings.stage(PodPlacement::Object, constraints?, policy, root.location())];
    for (placement, constraints) in placements {
        // A policy for Pods gets one more stage for each place at which an object can contain a Pod template. The
        // policy is read again for each of these stages, because its expressions are rewritten for the place. If the
        // first reading has found mistakes, the policy is not read again, so that the mistakes are not reported twice.
        if is_valid && let Some(fields) = node.object() {
            let mut fields = fields.ignoring_others();
            let policy = read_policy(&mut fields, scope, namespace, placement);
            stages.push(settings.stage(placement, constraints, policy, root.location()));
        }
    }
    if !is_for_admission {
        stages.clear();
    }
    let rules = stages.iter().flat_map(|stage| stage.spec.rules.clone()).collect();
    Some(ChainDefinition {
        phase: scope.phase,
        location: root.location(),
        warnings,
        ..ChainDefinition::new(settings.chain_name(), rules, stages)
    })
}

fn read_settings(fields: &mut Fields<'_>, scope: PolicyScope, (name, namespace): (String, Option<String>)) -> Settings {
    let mut spec = StageSpec::new("");
    spec.failure_policy = fields.get("failurePolicy", FailurePolicy::Fail, Node::word);
    let webhook = fields.optional("webhookConfiguration").and_then(|node| node.object());
    spec.timeout = policy::TIMEOUT;
    if let Some(mut fields) = webhook {
        spec.timeout = read_seconds(&mut fields, "timeoutSeconds", 1..=30, policy::TIMEOUT);
    }
    spec.reinvocation = Reinvocation::Never;
    let foreign: &[&'static str] = match scope.phase {
        Phase::Validating => &["mutations", "reinvocationPolicy", "targetMatchConstraints"],
        Phase::Mutating => &["validations", "validationActions"],
    };
    for &field in foreign {
        fields.refuse(field, "a policy of this kind has no such field", "remove it");
    }
    let mut actions = Vec::new();
    match scope.phase {
        Phase::Validating => {
            actions = fields.get("validationActions", actions, policy::read_actions);
            if actions.is_empty() {
                actions.push(Action::Deny);
            }
        }
        Phase::Mutating => {
            spec.reinvocation = fields.get("reinvocationPolicy", Reinvocation::Never, Node::word);
            spec.reinvoked_by_itself = true;
            let message = "objects other than that of the request are not changed here";
            let fix = "keep policies that change existing objects in Kyverno";
            for field in ["targetMatchConstraints", "targetMatchConditions"] {
                fields.refuse(field, message, fix);
            }
        }
    }
    Settings {
        name,
        namespace,
        actions,
        failure_policy: spec.failure_policy,
        spec,
    }
}

fn read_policy(
    fields: &mut Fields<'_>,
    scope: PolicyScope,
    namespace: Option<&str>,
    placement: PodPlacement,
) -> CompiledPolicy {
    let mistakes_before = fields.node().mistake_count();
    let rewrite = |role, text: &str| placement.rewrite(scope.phase, role, text);
    let policy = cel::read_kyverno(fields, namespace, &rewrite);
    if fields.node().mistake_count() == mistakes_before {
        policy::refuse_empty(&policy, scope.phase, fields.node());
    }
    policy
}

/// Reads `autogen`, which lists resources that create Pods, such as `deployments`. A policy for Pods is extended to
/// these resources. Returns `None` if it is extended to all resources that create Pods.
fn read_autogen(fields: &mut Fields<'_>, warnings: &mut Vec<Mistake>) -> Option<Vec<String>> {
    let mut fields = fields.optional("autogen")?.object()?;
    for field in ["validatingAdmissionPolicy", "mutatingAdmissionPolicy"] {
        let node = fields.optional(field);
        if let Some(node) = node.filter(|node| is_enabled(node) == Some(true)) {
            let message = "no policy of Kubernetes is generated: the policy itself is run here";
            warnings.push(node.mistake(message, "remove it"));
        }
    }
    let mut pod_controllers = fields.optional("podControllers")?.object()?;
    let read_entry = |entry: &Node<'_>| read_controller(entry, warnings);
    pod_controllers.optional("controllers")?.list_of(read_entry)
}

/// Reads the name of a resource that creates Pods. As in Kyverno, an unknown name has no effect.
fn read_controller(node: &Node<'_>, warnings: &mut Vec<Mistake>) -> Option<String> {
    let name = node.string()?;
    let controllers = autogen::controllers();
    if !controllers.contains(&name) {
        let message = format!("{} creates no Pods, and has no effect, as in Kyverno", quoted(name));
        let fix = format!("write {}", enumerated(controllers.into_iter(), "or"));
        warnings.push(node.mistake(message, fix));
    }
    Some(name.to_owned())
}

fn is_enabled(node: &Node<'_>) -> Option<bool> {
    node.object()?.get_optional("enabled", Node::boolean)
}

/// Reads the field `evaluation`. Returns true if the policy applies to requests, and false if it is only for other
/// uses, such as Kyverno's background scans.
fn read_evaluation(fields: &mut Fields<'_>, warnings: &mut Vec<Mistake>) -> bool {
    let Some(mut fields) = fields.optional("evaluation").and_then(|node| node.object()) else {
        return true;
    };
    if let Some(node) = fields.optional("mode")
        && let Some(mode) = node.string()
        && !matches!(mode, "" | "Kubernetes")
    {
        let message = "a policy for JSON payloads is never called: requests have objects of Kubernetes";
        node.add_mistake(message, "write `mode: Kubernetes`, or keep it for Kyverno's command");
    }
    // The field `background` is ignored here. Audits evaluate each chain, even if its policy disables background scans.
    if let Some(node) = fields.optional("background") {
        is_enabled(&node);
    }
    // The field is about requests that Kyverno's own controllers send. These requests do not come through this program.
    fields.ignore(&["skipBackgroundRequests"]);
    if let Some(node) = fields.optional("useServerSideApply")
        && node.boolean() == Some(true)
    {
        let message = "a change of a list or map that is only replaced as a whole is refused, as by kube-apiserver";
        warnings.push(node.mistake(message, "write such changes as `JSONPatch`"));
    }
    let existing = fields.optional("mutateExisting");
    if let Some(node) = existing.filter(|node| is_enabled(node) == Some(true)) {
        let message = "objects that exist already are not changed here";
        warnings.push(node.mistake(message, "keep policies that change existing objects in Kyverno"));
    }
    let admission = fields.optional("admission");
    let disabled = admission.filter(|node| is_enabled(node) == Some(false));
    if let Some(node) = &disabled {
        let message = "the policy is not for requests, so it does nothing here";
        warnings.push(node.mistake(message, "remove the policy, or `admission`"));
    }
    disabled.is_none()
}

impl Settings {
    fn chain_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    fn stage(
        &self,
        placement: PodPlacement,
        constraints: MatchConstraints,
        policy: CompiledPolicy,
        location: Location,
    ) -> StageDefinition {
        let mut spec = self.spec.clone();
        spec.name = placement.stage_name().unwrap_or(&self.name).into();
        spec.rules = constraints.rules;
        spec.exclude_rules = constraints.exclude_rules;
        spec.object_selector = constraints.object_labels;
        spec.namespace_selector = match &self.namespace {
            Some(namespace) => Some(NamespaceSelector::In(vec![namespace.clone()])),
            None => namespaces_with_labels(constraints.namespace_labels),
        };
        let hook = CelDefinition {
            policy: Arc::new(policy),
            binding: Binding {
                wording: MessageWording::Kyverno {
                    policy: self.name.clone(),
                },
                actions: self.actions.clone(),
                failure_policy: self.failure_policy,
                ..Binding::default()
            },
            expressions: Arc::default(),
        };
        StageDefinition {
            spec,
            location,
            ..StageDefinition::new("", hook)
        }
    }
}
