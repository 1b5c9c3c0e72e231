//! Warnings about valid but probably unintended settings.

use admittance_admission::{GroupVersionResource, Operation, Phase, Scope};

use crate::{ChainDefinition, Mistake, StageDefinition};

/// The subresource through which containers are added to a running Pod. Its requests have the whole Pod as
/// their object.
const EPHEMERAL_CONTAINERS: &str = "ephemeralcontainers";

impl ChainDefinition {
    /// What is valid, and probably not what was meant: a chain that sees Pods, and not the containers that
    /// are added to them later.
    pub fn warnings(&self) -> Vec<Mistake> {
        let stages: Vec<_> = self
            .stages
            .iter()
            .filter(|stage| self.misses_ephemeral_containers(stage))
            .map(|stage| &*stage.spec.name)
            .collect();
        if stages.is_empty() {
            return Vec::new();
        }
        vec![Mistake {
            location: self.source.clone(),
            path: String::new(),
            message: format!(
                "chain {}, {}: the rules match pods and not pods/{EPHEMERAL_CONTAINERS}, so a container that is \
                 added to a running Pod (kubectl debug) is not seen",
                self.name,
                stages.join(", ")
            ),
            fix: format!("add pods/{EPHEMERAL_CONTAINERS} to `resources`, with the operation UPDATE"),
        }]
    }

    /// A stage that only completes new Pods, as one that injects a sidecar, is for CREATE alone.
    fn misses_ephemeral_containers(&self, stage: &StageDefinition) -> bool {
        let updates = self.sees_pods(stage, Operation::Update, None);
        let judges = self.phase == Phase::Validating && self.sees_pods(stage, Operation::Create, None);
        (updates || judges) && !self.sees_pods(stage, Operation::Update, Some(EPHEMERAL_CONTAINERS))
    }

    fn sees_pods(&self, stage: &StageDefinition, operation: Operation, subresource: Option<&str>) -> bool {
        let pods = GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
        };
        let is_seen = |rules: &[admittance_admission::Rule]| {
            rules
                .iter()
                .any(|rule| rule.scope != Scope::Cluster && rule.covers(operation, &pods, subresource, "Pod"))
        };
        is_seen(&self.rules) && (stage.spec.rules.is_empty() || is_seen(&stage.spec.rules))
    }
}

#[cfg(test)]
mod tests;
