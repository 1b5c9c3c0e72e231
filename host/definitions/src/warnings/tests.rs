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
