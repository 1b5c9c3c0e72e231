//! Adds stages to a policy for Pods, so that it also applies to resources that create Pods, such as Deployments.

use admittance_admission::{Matcher, Phase, ResourcePattern, Rule};
use admittance_conditions::Role;

use crate::forms::kubernetes::policy::MatchConstraints;

/// The place of a Pod or a Pod template in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodPlacement {
    /// No Pod template: the object is the Pod itself, or an object of another kind for which the policy is written.
    Object,
    /// The object contains the Pod template in its `spec`, as a Deployment does.
    Template,
    /// The Pod template is in the Job template of a CronJob.
    JobTemplate,
}

/// The resources that create Pods: the name and API group of each, and where it contains the Pod template.
const CONTROLLERS: [(&str, &str, PodPlacement); 6] = [
    ("daemonsets", "apps", PodPlacement::Template),
    ("deployments", "apps", PodPlacement::Template),
    ("replicasets", "apps", PodPlacement::Template),
    ("statefulsets", "apps", PodPlacement::Template),
    ("jobs", "batch", PodPlacement::Template),
    ("cronjobs", "batch", PodPlacement::JobTemplate),
];

pub(super) fn controllers() -> [&'static str; 6] {
    CONTROLLERS.map(|(name, ..)| name)
}

/// A policy for Pods is extended to resources that create Pods, such as Deployments. Returns the places where these
/// resources have their Pod template, each with the constraints that match the resources. `controllers` lists the names
/// of the resources, such as `deployments`; `None` stands for all resources that create Pods.
pub(super) fn placements(
    constraints: &MatchConstraints,
    controllers: Option<&[String]>,
) -> Vec<(PodPlacement, MatchConstraints)> {
    let Some(pods) = pods_only_rule(constraints) else {
        return Vec::new();
    };
    let rules = |placement: PodPlacement| {
        let is_chosen = |name: &&str| controllers.is_none_or(|names| names.iter().any(|controller| controller == name));
        let placement_controllers = CONTROLLERS.iter().filter(|controller| controller.2 == placement);
        let chosen_controllers: Vec<_> = placement_controllers
            .filter(|controller| is_chosen(&controller.0))
            .collect();
        let group_rule = |group: &str| Rule {
            api_groups: Matcher::Only(vec![group.to_owned()]),
            resources: chosen_controllers
                .iter()
                .filter(|controller| controller.1 == group)
                .filter_map(|controller| ResourcePattern::parse(controller.0).ok())
                .collect(),
            ..pods.clone()
        };
        let rules = ["apps", "batch"].map(group_rule);
        rules.into_iter().filter(|rule| !rule.resources.is_empty()).collect()
    };
    [PodPlacement::Template, PodPlacement::JobTemplate]
        .map(|placement| {
            let constraints = MatchConstraints {
                rules: rules(placement),
                namespace_labels: constraints.namespace_labels.clone(),
                ..MatchConstraints::default()
            };
            (placement, constraints)
        })
        .into_iter()
        .filter(|(_, constraints)| !constraints.rules.is_empty())
        .collect()
}

/// Returns the policy's rule if it matches all Pods, whatever their labels and names, and nothing else.
fn pods_only_rule(constraints: &MatchConstraints) -> Option<&Rule> {
    let [rule] = constraints.rules.as_slice() else {
        return None;
    };
    let only = |text: &str| Matcher::Only(vec![text.to_owned()]);
    let is_pods = rule.resources.iter().map(ToString::to_string).eq(["pods"]);
    let is_alone =
        constraints.exclude_rules.is_empty() && constraints.object_labels.is_empty() && rule.names.is_empty();
    let is_core = rule.api_groups == only("") && rule.api_versions == only("v1");
    (is_alone && is_core && is_pods).then_some(rule)
}

impl PodPlacement {
    /// Returns the path in the object at which the fields of the Pod begin, with a trailing dot. If the object is the
    /// Pod itself, the path is empty.
    fn path(self) -> &'static str {
        match self {
            Self::Object => "",
            Self::Template => "spec.template.",
            Self::JobTemplate => "spec.jobTemplate.spec.template.",
        }
    }

    /// Returns the name of the stage that is added to a policy for Pod templates at this place. Returns `None` for the
    /// policy's own stage, which is named after the policy.
    pub(super) fn stage_name(self) -> Option<&'static str> {
        match self {
            Self::Object => None,
            Self::Template => Some("autogen-defaults"),
            Self::JobTemplate => Some("autogen-cronjobs"),
        }
    }

    /// Rewrites an expression for objects that contain a Pod template at this place, as Kyverno does. `role` is `None`
    /// if the expression is a match condition.
    pub(super) fn rewrite(self, phase: Phase, role: Option<Role>, text: &str) -> String {
        let is_rewritten = match phase {
            Phase::Validating => true,
            Phase::Mutating => matches!(role, None | Some(Role::ApplyConfiguration)),
        };
        if self == Self::Object || !is_rewritten {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for variable in ["object", "oldObject", "Object"] {
            for part in ["spec", "metadata"] {
                let (from, to) = (
                    format!("{variable}.{part}"),
                    format!("{variable}.{}{part}", self.path()),
                );
                text = replace_path(&text, &from, &to);
            }
        }
        match role {
            Some(Role::ApplyConfiguration) => self.wrap_object_literal(&text).unwrap_or(text),
            _ => text,
        }
    }

    /// Wraps a change of a Pod, such as `Object{spec: ...}`, into a change of the object that contains the Pod.
    fn wrap_object_literal(self, text: &str) -> Option<String> {
        let rest = text.trim().strip_prefix("Object")?.trim_start().strip_prefix('{')?;
        let mut depth = 1;
        let (end, _) = rest.char_indices().find(|(_, character)| {
            depth += match character {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        })?;
        let (fields, rest) = rest.split_at_checked(end)?;
        let mut wrapped = format!("{{{fields}}}");
        let names: Vec<&str> = self.path().split_terminator('.').collect();
        for end in (1..=names.len()).rev() {
            let (Some(path), Some(name)) = (names.get(..end), names.get(end - 1)) else {
                break;
            };
            wrapped = format!("{{{name}: Object.{}{wrapped}}}", path.join("."));
        }
        Some(format!("Object{wrapped}{}", rest.strip_prefix('}')?))
    }
}

/// Replaces the beginning `from` of paths with `to`. A path to the namespace, such as `object.metadata.namespace`, is
/// kept, because a Pod template has no namespace.
fn replace_path(text: &str, from: &str, to: &str) -> String {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut parts = text.split(from);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let namespace = part.strip_prefix(".namespace");
        let is_kept = replaced.ends_with(is_of_name) || namespace.is_some_and(|rest| !rest.starts_with(is_of_name));
        replaced.push_str(if is_kept { from } else { to });
        replaced.push_str(part);
    }
    replaced
}
