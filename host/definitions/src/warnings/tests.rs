use crate::{certificates, load_text};

/// (phase of the chain, its rule, whether the warning about ephemeral containers is expected)
const RULES: [(&str, &str, bool); 12] = [
    ("Validating", "operations: [CREATE, UPDATE], resources: [pods]", true),
    ("Validating", "operations: [CREATE], resources: [pods]", true),
    ("Validating", "operations: ['*'], resources: ['*']", true),
    ("Validating", "operations: [CREATE], resources: ['pods/*']", true),
    ("Mutating", "operations: [CREATE, UPDATE], resources: [pods]", true),
    ("Mutating", "operations: [CREATE], resources: [pods]", false),
    (
        "Validating",
        "operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]",
        false,
    ),
    ("Validating", "operations: [UPDATE], resources: ['pods/*']", false),
    ("Validating", "operations: [CREATE, UPDATE], resources: ['*/*']", false),
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
fn rules_without_ephemeral_containers_cause_warnings() {
    for (phase, rule, forgets) in RULES {
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
            assert!(text.starts_with("images.yaml:1:1: chain images, tags: "), "{text}");
            assert!(text.contains("add pods/ephemeralcontainers to `resources`"), "{text}");
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

#[test]
fn rules_that_match_nothing_cause_warnings() {
    for (rule, expected) in [
        (
            "resources: [Deployment]",
            Some(
                "`Deployment` in `resources` matches no request: resources are in lower case and plural; write deployments, or write Deployment in `kinds`",
            ),
        ),
        (
            "resources: [Ingress/status]",
            Some(
                "`Ingress/status` in `resources` matches no request: resources are in lower case and plural; write ingresses, or write Ingress in `kinds`",
            ),
        ),
        (
            "resources: [service]",
            Some("write services, or write service in `kinds`"),
        ),
        (
            "apiVersions: [apps/v1], resources: [deployments]",
            Some(
                "`apps/v1` in `apiVersions` matches no request: it is a group and a version; write apps in `apiGroups` and v1 in `apiVersions`",
            ),
        ),
        (
            "apiGroups: [apps/v1], resources: [deployments]",
            Some("`apps/v1` in `apiGroups` matches no request"),
        ),
        (
            "apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]",
            None,
        ),
        ("kinds: [Deployment]", None),
        ("resources: ['*/scale']", None),
    ] {
        for level in ["chain", "stage"] {
            let (chain, stage) = match level {
                "chain" => (rule, "kinds: [a]"),
                _ => ("kinds: [a]", rule),
            };
            let text = format!(
                "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\nspec:\n  \
                 rules: [{{ operations: [CREATE], {chain} }}]\n  stages: [{{ name: s, rules: [{{ operations: \
                 [CREATE], {stage} }}], plugin: {{ source: 'file:a.wasm' }} }}]\n"
            );
            let chains = load_text("c.yaml", &text).unwrap();
            let warnings: Vec<_> = chains.iter().flat_map(super::ChainDefinition::warnings).collect();
            let warning = warnings
                .iter()
                .map(ToString::to_string)
                .find(|text| text.contains("matches no request"));
            match (warning, expected) {
                (None, None) => {}
                (Some(text), Some(part)) if text.contains(part) => {}
                (warning, _) => panic!("{level}: {rule}: {warning:?}"),
            }
        }
    }
}

#[test]
fn a_rule_entry_that_matches_nothing_is_reported_with_its_location() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("chain.yaml");
    let text = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: c }\nspec:\n  rules:\n  - \
                operations: [CREATE]\n    resources: [pods, Job]\n  stages: [{ name: s, plugin: { source: \
                'file:a.wasm' } }]\n";
    std::fs::write(&file, text).unwrap();
    let chains = load_text(file.to_str().unwrap(), text).unwrap();
    let warnings: Vec<String> = chains[0].warnings().iter().map(ToString::to_string).collect();
    let prefix = format!("{}:7:23: spec.rules[0].resources[1]: chain c: `Job` in", file.display());
    assert!(
        warnings.iter().any(|warning| warning.starts_with(&prefix)),
        "{warnings:?}"
    );
}

#[test]
fn a_ca_with_a_short_rsa_key_is_reported_with_the_key_size() {
    let short = include_str!("../../../webhook/tests/webhook/short_key/ca.pem");
    for (bundle, expected) in [
        (certificates::ca_bundle(), false),
        (
            certificates::encode_base64(&[certificates::ca_pem(), short].concat()),
            true,
        ),
    ] {
        let text = format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\nspec:\n  rules: [{{ \
             operations: [CREATE], kinds: [a] }}]\n  stages: [{{ name: s, webhook: {{ protocol: BcsResource, caBundle: \
             {bundle}, url: 'https://hooks.example/a' }} }}]\n"
        );
        let chains = load_text("c.yaml", &text).unwrap();
        let warnings: Vec<String> = chains[0].warnings().iter().map(ToString::to_string).collect();
        let is_reported = warnings
            .iter()
            .any(|warning| warning.contains("chain c, s: certificate 2 in `caBundle` has an RSA key of 1024 bits"));
        assert_eq!(is_reported, expected, "{warnings:?}");
    }
}
