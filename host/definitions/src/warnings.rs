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
mod tests {
    use crate::load_text;

    /// (phase, rule, whether ephemeral containers are forgotten)
    const TABLE: [(&str, &str, bool); 12] = [
        (
            "Validating",
            "operations: [CREATE, UPDATE], resources: [pods]",
            true,
        ),
        ("Validating", "operations: [CREATE], resources: [pods]", true),
        ("Validating", "operations: ['*'], resources: ['*']", true),
        ("Validating", "operations: [CREATE], resources: ['pods/*']", true),
        (
            "Mutating",
            "operations: [CREATE, UPDATE], resources: [pods]",
            true,
        ),
        ("Mutating", "operations: [CREATE], resources: [pods]", false),
        (
            "Validating",
            "operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]",
            false,
        ),
        ("Validating", "operations: [UPDATE], resources: ['pods/*']", false),
        (
            "Validating",
            "operations: [CREATE, UPDATE], resources: ['*/*']",
            false,
        ),
        ("Validating", "operations: [DELETE], resources: [pods]", false),
        (
            "Validating",
            "operations: [CREATE, UPDATE], kinds: [application]",
            false,
        ),
        (
            "Validating",
            "operations: [CREATE, UPDATE], apiGroups: [apps], resources: ['*']",
            false,
        ),
    ];

    #[test]
    fn rules_that_forget_ephemeral_containers() {
        for (phase, rule, forgets) in TABLE {
            let text = format!(
                "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: images }}\n\
                 spec:\n  phase: {phase}\n  rules: [{{ {rule} }}]\n  \
                 stages: [{{ name: tags, plugin: {{ source: 'file:a.wasm' }} }}]\n"
            );
            let chains = load_text("images.yaml", &text).unwrap();
            let warnings: Vec<_> = chains.iter().flat_map(super::ChainDefinition::warnings).collect();
            assert_eq!(warnings.len(), usize::from(forgets), "{rule}: {warnings:?}");
            for warning in warnings {
                let text = warning.to_string();
                assert!(
                    text.starts_with("images.yaml:1:1: chain images, tags: "),
                    "{text}"
                );
                assert!(
                    text.contains("add pods/ephemeralcontainers to `resources`"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn each_webhook_of_a_configuration_has_its_own_rules() {
        let webhook = |name: &str, resources: &str| {
            format!(
                "- name: {name}.example.com\n  plugin: {{ source: 'file:a.wasm' }}\n  sideEffects: None\n  \
                 admissionReviewVersions: [v1]\n  rules: [{{ operations: [CREATE, UPDATE], apiGroups: [''], \
                 apiVersions: [v1], resources: [{resources}] }}]\n"
            )
        };
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{ name: policies }}\nwebhooks:\n{}{}",
            webhook("a", "pods"),
            webhook("b", "pods, pods/ephemeralcontainers")
        );
        let chains = load_text("policies.yaml", &text).unwrap();
        let [warning] = chains[0].warnings().try_into().unwrap();
        assert!(
            warning.message.starts_with("chain policies, a.example.com: "),
            "{warning}"
        );
    }
}
