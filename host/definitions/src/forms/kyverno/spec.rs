//! Reads the specification of a policy.

use std::sync::Arc;

use admittance_admission::{FailurePolicy, NamespaceSelector, Phase, Reinvocation, StageSpec};
use admittance_conditions::{Action, Binding, Policy, Wording};

use super::autogen::{self, Level};
use crate::{
    CelDefinition, Location, Mistake, cel,
    document::{Fields, Mistakes, Node},
    forms::{
        kubernetes::policy::{self, Constraints},
        kubewarden::{read_metadata, read_seconds},
    },
    model::{ChainDefinition, StageDefinition},
    selectors::namespaces_with,
};

/// The properties of a policy that follow from its kind.
#[derive(Clone, Copy)]
pub(super) struct Scope {
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

pub(super) fn read(root: &Node<'_>, scope: Scope, mistakes: &mut Mistakes) -> Option<ChainDefinition> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let fix = "name the policy: `metadata: { name: ... }`";
    let read_names =
        |node: &Node<'_>, mistakes: &mut Mistakes| read_metadata(node, scope.is_namespaced, mistakes);
    let names = fields.get_required("metadata", fix, read_names, mistakes);
    let fix = "write which requests the policy is for, and its expressions";
    let node = fields.required("spec", fix, mistakes);
    fields.finish(mistakes);
    let node = node?;
    let mut fields = node.object(mistakes)?;
    let (name, namespace) = names.clone().unwrap_or_default();
    let fix = "say which requests the policy is for: `matchConstraints: { resourceRules: [...] }`";
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| policy::read_constraints(node, true, mistakes);
    let constraints = fields.get_required("matchConstraints", fix, read, mistakes);
    let mut warnings = Vec::new();
    let controllers = read_autogen(&mut fields, &mut warnings, mistakes);
    let is_for_admission = read_evaluation(&mut fields, &mut warnings, mistakes);
    if let Some(node) = fields
        .optional("auditAnnotations")
        .filter(|_| scope.phase == Phase::Mutating)
    {
        let message = "annotations of mutations are for Kyverno's reports, and not written";
        warnings.push(node.mistake(message, "remove them"));
    }
    let settings = read_settings(&mut fields, scope, (name, namespace), mistakes);
    let levels = match &constraints {
        Some(constraints) => autogen::levels(constraints, controllers.as_deref()),
        None => Vec::new(),
    };
    let before = mistakes.len();
    let namespace = settings.namespace.as_deref();
    let policy = read_policy(&mut fields, scope, namespace, Level::Object, mistakes);
    let is_valid = mistakes.len() == before;
    fields.finish(mistakes);
    names?;
    let mut stages = vec![settings.stage(Level::Object, constraints?, policy, root.location())];
    for (level, constraints) in levels {
        // A mistake in an expression is in all of its variants, and is reported once.
        if is_valid && let Some(mut fields) = node.object(mistakes) {
            let policy = read_policy(&mut fields, scope, namespace, level, mistakes);
            stages.push(settings.stage(level, constraints, policy, root.location()));
        }
    }
    if !is_for_admission {
        stages.clear();
    }
    let rules = stages.iter().flat_map(|stage| stage.spec.rules.clone()).collect();
    Some(ChainDefinition {
        phase: scope.phase,
        source: root.location(),
        warnings,
        ..ChainDefinition::new(settings.chain_name(), rules, stages)
    })
}

fn read_settings(
    fields: &mut Fields<'_>,
    scope: Scope,
    (name, namespace): (String, Option<String>),
    mistakes: &mut Mistakes,
) -> Settings {
    let mut spec = StageSpec::new("");
    spec.failure_policy = fields.get("failurePolicy", FailurePolicy::Fail, Node::word, mistakes);
    let webhook = fields
        .optional("webhookConfiguration")
        .and_then(|node| node.object(mistakes));
    spec.timeout = policy::TIMEOUT;
    if let Some(mut fields) = webhook {
        spec.timeout = read_seconds(&mut fields, "timeoutSeconds", 1..=30, policy::TIMEOUT, mistakes);
        fields.finish(mistakes);
    }
    spec.reinvocation = Reinvocation::Never;
    let foreign: &[&'static str] = match scope.phase {
        Phase::Validating => &["mutations", "reinvocationPolicy", "targetMatchConstraints"],
        Phase::Mutating => &["validations", "validationActions"],
    };
    for &field in foreign {
        let message = "a policy of this kind has no such field";
        fields.refuse(field, message, "remove it", mistakes);
    }
    let mut actions = Vec::new();
    match scope.phase {
        Phase::Validating => {
            actions = fields.get("validationActions", actions, policy::read_actions, mistakes);
            if actions.is_empty() {
                actions.push(Action::Deny);
            }
        }
        Phase::Mutating => {
            spec.reinvocation = fields.get("reinvocationPolicy", Reinvocation::Never, Node::word, mistakes);
            spec.reinvoked_by_itself = true;
            let message = "objects other than that of the request are not changed here";
            let fix = "keep policies that change existing objects in Kyverno";
            for field in ["targetMatchConstraints", "targetMatchConditions"] {
                fields.refuse(field, message, fix, mistakes);
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
    scope: Scope,
    namespace: Option<&str>,
    level: Level,
    mistakes: &mut Mistakes,
) -> Policy {
    let before = mistakes.len();
    let rewrite = |role, text: &str| level.rewrite(scope.phase, role, text);
    let policy = cel::read_kyverno(fields, namespace, &rewrite, mistakes);
    if mistakes.len() == before {
        policy::refuse_empty(&policy, scope.phase, fields.node(), mistakes);
    }
    policy
}

/// Reads `autogen`: the resources that create Pods to which the policy applies too; `None` for all of them.
fn read_autogen(
    fields: &mut Fields<'_>,
    warnings: &mut Vec<Mistake>,
    mistakes: &mut Mistakes,
) -> Option<Vec<String>> {
    let mut fields = fields.optional("autogen")?.object(mistakes)?;
    for field in ["validatingAdmissionPolicy", "mutatingAdmissionPolicy"] {
        let node = fields.optional(field);
        if let Some(node) = node.filter(|node| is_enabled(node, mistakes) == Some(true)) {
            let message = "no policy of Kubernetes is generated: the policy itself is run here";
            warnings.push(node.mistake(message, "remove it"));
        }
    }
    let controllers = fields.optional("podControllers");
    let controllers = controllers.and_then(|node| {
        let mut fields = node.object(mistakes)?;
        let controllers = fields.get_optional("controllers", Node::strings, mistakes);
        fields.finish(mistakes);
        controllers
    });
    fields.finish(mistakes);
    controllers
}

/// Reads `enabled` of a part of a policy.
fn is_enabled(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<bool> {
    let mut fields = node.object(mistakes)?;
    let enabled = fields.get_optional("enabled", Node::boolean, mistakes);
    fields.finish(mistakes);
    enabled
}

/// Reads `evaluation`: whether the policy applies to requests.
fn read_evaluation(fields: &mut Fields<'_>, warnings: &mut Vec<Mistake>, mistakes: &mut Mistakes) -> bool {
    let Some(mut fields) = fields
        .optional("evaluation")
        .and_then(|node| node.object(mistakes))
    else {
        return true;
    };
    if let Some(node) = fields.optional("mode")
        && let Some(mode) = node.string(mistakes)
        && !matches!(mode, "" | "Kubernetes")
    {
        let message = "a policy for JSON payloads is never called: requests have objects of Kubernetes";
        node.wrong(
            message,
            "write `mode: Kubernetes`, or keep it for Kyverno's command",
            mistakes,
        );
    }
    // Audits evaluate every chain, whether or not Kyverno scans in the background.
    if let Some(node) = fields.optional("background") {
        is_enabled(&node, mistakes);
    }
    // Requests of Kyverno's own controllers do not come from here.
    fields.ignore(&["skipBackgroundRequests"]);
    if let Some(node) = fields.optional("useServerSideApply")
        && node.boolean(mistakes) == Some(true)
    {
        let message =
            "a change of a list or map that is only replaced as a whole is refused, as by kube-apiserver";
        warnings.push(node.mistake(message, "write such changes as `JSONPatch`"));
    }
    let existing = fields.optional("mutateExisting");
    if let Some(node) = existing.filter(|node| is_enabled(node, mistakes) == Some(true)) {
        let message = "objects that exist already are not changed here";
        warnings.push(node.mistake(message, "keep policies that change existing objects in Kyverno"));
    }
    let admission = fields.optional("admission");
    let disabled = admission.filter(|node| is_enabled(node, mistakes) == Some(false));
    fields.finish(mistakes);
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
        level: Level,
        constraints: Constraints,
        policy: Policy,
        location: Location,
    ) -> StageDefinition {
        let mut spec = self.spec.clone();
        spec.name = level.stage_name().unwrap_or(&self.name).into();
        spec.rules = constraints.rules;
        spec.exclude_rules = constraints.exclude;
        spec.object_selector = constraints.objects;
        spec.namespace_selector = match &self.namespace {
            Some(namespace) => Some(NamespaceSelector::In(vec![namespace.clone()])),
            None => namespaces_with(constraints.namespaces),
        };
        let hook = CelDefinition {
            policy: Arc::new(policy),
            binding: Binding {
                wording: Wording::Kyverno {
                    policy: self.name.clone(),
                },
                actions: self.actions.clone(),
                failure_policy: self.failure_policy,
                ..Binding::default()
            },
            written: Arc::default(),
        };
        StageDefinition {
            spec,
            location,
            ..StageDefinition::new("", hook)
        }
    }
}
