use std::time::Duration;

use admittance_admission::{
    FailurePolicy, Grants, LabelOperator, LabelRequirement, LabelSelector, MatchPolicy, Matcher, Mode,
    NamespaceSelector, Operation, Protocol, Reinvocation, ResourcePattern, ReviewVersion, Rule, Scope, ServiceNaming,
    SideEffects, StageSpec, WebhookTarget,
};
use serde_json::json;

use super::*;
use crate::{Location, ModuleReference, PluginDefinition, WebhookDefinition, certificates, load_text};

mod validation;

/// The fields of a webhook. In a document, each has its own line, and the first is on line 5.
const WEBHOOK: [(&str, &str); 5] = [
    ("name", "a.hooks.example"),
    ("clientConfig", "{ url: 'https://h.example' }"),
    ("sideEffects", "None"),
    ("admissionReviewVersions", "[v1]"),
    (
        "rules",
        "[ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
    ),
];

/// Returns a webhook configuration with one webhook. Each line `field: value` in `change` adds or replaces a field of
/// this webhook. If `change` begins with `- `, it is a second webhook instead, and the first one stays unchanged.
fn configuration(phase: &str, version: &str, change: &str) -> String {
    let (first_change, second_webhook) = if change.starts_with("- ") {
        ("", change)
    } else {
        (change, "")
    };
    let is_of = |line: &str, field: &str| line.split(':').next() == Some(field);
    let field_lines = WEBHOOK.iter().map(|(field, value)| {
        first_change
            .lines()
            .find(|line| is_of(line, field))
            .map_or_else(|| format!("{field}: {value}"), str::to_owned)
    });
    let added_lines = first_change
        .lines()
        .filter(|line| !WEBHOOK.iter().any(|(field, _)| is_of(line, field)))
        .map(str::to_owned);
    let webhook: Vec<String> = field_lines.chain(added_lines).collect();
    let second: String = second_webhook.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: admissionregistration.k8s.io/{version}\nkind: {phase}WebhookConfiguration\n\
         metadata: {{ name: c }}\nwebhooks:\n  - {}\n{second}",
        webhook.join("\n    ")
    )
}

fn read(phase: &str, version: &str, change: &str) -> Result<ChainDefinition, String> {
    let text = configuration(phase, version, change).replace("BUNDLE", &certificates::ca_bundle());
    load_text("f", &text)
        .map(|mut chains| chains.remove(0))
        .map_err(|mistakes| mistakes.to_string())
}

/// Returns the mistakes in a validating `v1` configuration with this change. To keep the expected messages short, the
/// name of the file and the path `webhooks[0]` are removed from each message.
fn mistakes_after(change: &str) -> String {
    match read("Validating", "v1", change) {
        Ok(_) => String::new(),
        Err(mistakes) => {
            let lines = mistakes.lines().map(|line| {
                line.trim_start_matches("f:")
                    .replacen("webhooks[0]: ", "", 1)
                    .replacen("webhooks[0]", "", 1)
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

fn location(line: u32, column: u32) -> Location {
    Location {
        file: "hooks/f.yaml".into(),
        line,
        column,
    }
}

fn word_matcher(words: &[&str]) -> Matcher<String> {
    Matcher::Only(words.iter().map(|word| (*word).to_owned()).collect())
}

fn pods_rule(operations: &[Operation], match_policy: MatchPolicy) -> Rule {
    Rule {
        operations: Matcher::Only(operations.to_vec()),
        api_groups: word_matcher(&[""]),
        api_versions: word_matcher(&["v1"]),
        resources: vec![ResourcePattern::parse("pods").unwrap()],
        scope: Scope::Any,
        kinds: Matcher::Any,
        match_policy,
        names: Vec::new(),
    }
}

fn label(key: &str, operator: LabelOperator, values: &[&str]) -> LabelRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    LabelRequirement::new(key, operator, values).unwrap()
}

/// The document comes from an API server, which has added fields such as `managedFields`. They are ignored.
#[test]
fn a_webhook_configuration_becomes_a_chain() {
    let text = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{{"apiVersion":"admissionregistration.k8s.io/v1"}}'
  creationTimestamp: "2026-07-23T10:00:00Z"
  generation: 3
  labels: {{ app: injector }}
  managedFields:
  - apiVersion: admissionregistration.k8s.io/v1
    fieldsType: FieldsV1
    fieldsV1: {{ "f:webhooks": {{ .: {{}} }} }}
    manager: kubectl
    operation: Update
  name: injector
  resourceVersion: "4711"
  uid: 0f6a6d3e-6c0f-4d8e-9f5e-1d2c3b4a5f60
webhooks:
- admissionReviewVersions: [v2, v1, v1beta1]
  clientConfig:
    caBundle: {bundle}
    service: {{ name: injector, namespace: hooks, path: /mutate, port: 443 }}
  failurePolicy: Fail
  matchPolicy: Equivalent
  name: sidecar.hooks.example
  namespaceSelector:
    matchExpressions:
    - {{ key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system] }}
  objectSelector:
    matchLabels: {{ inject: "true" }}
  reinvocationPolicy: IfNeeded
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: "*"
  sideEffects: NoneOnDryRun
  timeoutSeconds: 5
- admissionReviewVersions: [v1]
  clientConfig: {{ url: "https://never.example" }}
  name: never.hooks.example
  sideEffects: None
- name: defaults.hooks.example
  matchPolicy: Exact
  namespaceSelector: {{}}
  objectSelector: {{}}
  plugin:
    source: file:defaults.wasm
    settings: {{ level: 2 }}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [UPDATE]
    resources: [pods]
  timeout: 250ms
  mode: Audit
"#,
        bundle = certificates::ca_bundle()
    );
    let create = pods_rule(&[Operation::Create], MatchPolicy::Equivalent);
    let update = pods_rule(&[Operation::Update], MatchPolicy::Exact);
    let mut sidecar = StageSpec::new("sidecar.hooks.example");
    sidecar.rules = vec![create.clone()];
    sidecar.namespace_selector = Some(NamespaceSelector::Labels(LabelSelector::new(vec![label(
        "kubernetes.io/metadata.name",
        LabelOperator::NotIn,
        &["kube-system"],
    )])));
    sidecar.object_selector = LabelSelector::new(vec![label("inject", LabelOperator::In, &["true"])]);
    sidecar.failure_policy = FailurePolicy::Fail;
    sidecar.timeout = Duration::from_secs(5);
    sidecar.mode = Mode::Enforce;
    sidecar.side_effects = SideEffects::NoneOnDryRun;
    sidecar.reinvocation = Reinvocation::IfNeeded;
    let mut defaults = StageSpec::new("defaults.hooks.example");
    defaults.rules = vec![update.clone()];
    defaults.failure_policy = FailurePolicy::Fail;
    defaults.timeout = Duration::from_millis(250);
    defaults.mode = Mode::Audit;
    defaults.side_effects = SideEffects::None;
    defaults.reinvocation = Reinvocation::Never;
    let expected = ChainDefinition {
        name: "injector".into(),
        namespace: None,
        phase: Phase::Mutating,
        location: location(1, 1),
        rules: vec![create, update],
        warnings: Vec::new(),
        idle_stages: Vec::new(),
        stages: vec![
            StageDefinition {
                spec: sidecar,
                hook: WebhookDefinition {
                    protocol: Protocol::AdmissionReview {
                        versions: vec![ReviewVersion::V1, ReviewVersion::V1Beta1],
                    },
                    target: WebhookTarget::Service {
                        namespace: "hooks".into(),
                        name: "injector".into(),
                        port: 443,
                        path: "/mutate".into(),
                        naming: ServiceNaming::Kubernetes,
                    },
                    ca_bundle: crate::client::parse_ca_bundle(&certificates::ca_bundle()).ok(),
                }
                .into(),
                candidate: None,
                location: location(19, 3),
            },
            StageDefinition {
                spec: defaults,
                hook: PluginDefinition {
                    source: ModuleReference::File("hooks/defaults.wasm".into()),
                    digest: None,
                    settings: json!({"level": 2}),
                    allow: Grants::default(),
                    memory: None,
                    refresh: None,
                    read_from: Vec::new(),
                }
                .into(),
                candidate: None,
                location: location(44, 3),
            },
        ],
    };
    assert_eq!(load_text("hooks/f.yaml", &text).unwrap(), [expected]);
}

/// An unset field gets the same default as in kube-apiserver. The defaults of `v1` and `v1beta1` differ.
#[test]
fn unset_fields_have_the_defaults_of_their_version() {
    let only = "sideEffects:\nadmissionReviewVersions:";
    let plugin = "clientConfig:\nplugin: { source: file:a.wasm }\nsideEffects:\nadmissionReviewVersions:";
    // (version, change of the webhook, phase, resulting settings)
    // The settings are failure policy, match policy, timeout, side effects, reinvocation policy and review versions.
    let table = [
        ("v1", "", "Mutating", "Fail Equivalent 10s None Never [V1]"),
        ("v1", "", "Validating", "Fail Equivalent 10s None Never [V1]"),
        ("v1", plugin, "Mutating", "Fail Equivalent 10s None Never []"),
        ("v1beta1", only, "Mutating", "Ignore Exact 30s Unknown Never [V1Beta1]"),
        ("v1beta1", "", "Validating", "Ignore Exact 30s None Never [V1]"),
        ("v1beta1", plugin, "Mutating", "Ignore Exact 30s None Never []"),
        (
            "v1beta1",
            "failurePolicy: Fail\nmatchPolicy: Equivalent\ntimeoutSeconds: 7\nsideEffects: Some\nreinvocationPolicy: IfNeeded",
            "Mutating",
            "Fail Equivalent 7s Some IfNeeded [V1]",
        ),
    ];
    for (version, change, phase, expected) in table {
        let chain = read(phase, version, change).unwrap();
        assert_eq!(chain.phase.as_str(), phase);
        let stage = chain.stages.first().unwrap();
        let versions = match stage.hook.get() {
            Some(WebhookDefinition {
                protocol: Protocol::AdmissionReview { versions },
                ca_bundle: None,
                ..
            }) => versions.clone(),
            _ => Vec::new(),
        };
        let summary = format!(
            "{} {} {:?} {} {} {versions:?}",
            stage.spec.failure_policy,
            stage.spec.rules.first().unwrap().match_policy.as_str(),
            stage.spec.timeout,
            stage.spec.side_effects.as_str(),
            stage.spec.reinvocation.as_str(),
        );
        assert_eq!(summary, expected, "{version} {phase} {change}");
    }
}

#[test]
fn a_service_without_ca_bundle_is_verified_with_the_operating_systems_cas() {
    for bundle in ["", ", caBundle: ''", ", caBundle: null"] {
        let change = format!("clientConfig: {{ service: {{ namespace: ns, name: m }}{bundle} }}");
        let stage = read("Mutating", "v1", &change).unwrap().stages.remove(0);
        let Some(webhook) = stage.hook.get::<WebhookDefinition>() else {
            panic!("no webhook");
        };
        assert_eq!(webhook.ca_bundle, None, "{bundle}");
    }
}

#[test]
fn empty_queries_and_fragments_of_urls_are_dropped() {
    for url in ["https://h.example/a", "https://h.example/a?", "HTTPS://h.example/a#"] {
        let change = format!("clientConfig: {{ url: '{url}' }}");
        let stage = read("Mutating", "v1", &change).unwrap().stages.remove(0);
        let Some(webhook) = stage.hook.get::<WebhookDefinition>() else {
            panic!("no webhook");
        };
        let expected = WebhookTarget::Url("https://h.example/a".parse().unwrap());
        assert_eq!(webhook.target, expected, "{url}");
    }
}

#[test]
fn resources_match_as_in_the_api_server() {
    let table = [
        ("[a/]", &["a"][..]),
        ("['*/']", &["*"]),
        ("[/b]", &[]),
        ("[a, '*', a/b]", &["a", "*", "a/b"]),
    ];
    for (resources, expected) in table {
        let change =
            format!("rules: [ {{ operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: {resources} }} ]");
        let rule = read("Mutating", "v1", &change).unwrap().rules.remove(0);
        let expected: Vec<_> = expected
            .iter()
            .map(|entry| ResourcePattern::parse(entry).unwrap())
            .collect();
        assert_eq!(rule.resources, expected, "{resources}");
        assert_eq!(rule.operations, Matcher::Any);
        assert_eq!(rule.api_groups, Matcher::Any);
        assert_eq!(rule.api_versions, Matcher::Any);
    }
}

#[test]
fn a_webhook_without_rules_gets_no_stage() {
    for change in ["rules:", "rules: []"] {
        let chain = read("Mutating", "v1", change).unwrap();
        assert_eq!((chain.rules, chain.stages), (Vec::new(), Vec::new()), "{change}");
    }
    for webhooks in ["", "webhooks: []", "webhooks:"] {
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {{ name: a, \
             namespace: b }}\n{webhooks}"
        );
        let chains = load_text("f", &text).unwrap();
        assert_eq!(chains.len(), 1);
        assert_eq!((&chains[0].rules, &chains[0].stages), (&Vec::new(), &Vec::new()));
    }
}

#[test]
fn side_effects_and_review_versions_are_optional_for_a_plugin() {
    let plugin = "clientConfig:\nplugin: { source: file:a.wasm }\n";
    // (changes of a webhook that calls a plugin, expected mistakes)
    let table = [
        ("sideEffects:\nadmissionReviewVersions:", ""),
        ("timeoutSeconds: 30", ""),
        ("timeout: 1ms", ""),
        (
            "timeoutSeconds: 1\ntimeout: 1s",
            "12:14: .timeout: the webhook has `timeoutSeconds` and `timeout`; keep one of them",
        ),
        ("timeout: 31s", "11:14: .timeout: 31s is out of range; write 1ms to 30s"),
        ("timeout: 10", "11:14: .timeout: 10 has no unit; write 10ms or 10s"),
        (
            "mode: audit",
            "11:11: .mode: \"audit\" is not a valid mode; case matters: write Audit",
        ),
        (
            "clientConfig: { url: 'https://h.example' }",
            "5:5: the webhook has a clientConfig and a plugin; keep one of them, or make two webhooks",
        ),
        (
            "plugin: { source: a.wasm, memory: 1 }",
            "10:23: .plugin.source: \"a.wasm\" does not say where the module is; write `file:a.wasm`\n\
             10:39: .plugin.memory: 1 is out of range; write 1MiB to 4GiB",
        ),
        (
            "admissionReviewVersions: [v1, v1]",
            "8:35: .admissionReviewVersions[1]: the version is listed twice; remove one of them",
        ),
    ];
    for (change, expected) in table {
        let webhook_lines: Vec<&str> = plugin
            .lines()
            .filter(|line| !change.starts_with(line.split(' ').next().unwrap()))
            .chain(change.lines())
            .collect();
        let message = mistakes_after(&webhook_lines.join("\n"));
        assert_eq!(message, expected, "{change}");
    }
}

#[test]
fn mistakes_outside_the_webhooks_are_reported() {
    let table = [
        (
            "",
            "1:1: metadata: missing; name the configuration: `metadata: { name: ... }`",
        ),
        ("metadata: {}", "3:11: metadata.name: missing; write its name"),
        (
            "metadata: { name: A, labls: {} }\nwebhook: []",
            "3:19: metadata.name: \"A\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit\n\
             3:22: metadata.labls: unknown field; did you mean `labels`?\n\
             4:1: webhook: unknown field; did you mean `webhooks`?",
        ),
        (
            "metadata: { name: a }\nwebhooks: {}",
            "4:11: webhooks: an object where a list is expected",
        ),
        (
            "metadata: { name: a }\nwebhooks: [ {} ]",
            "4:13: webhooks[0].admissionReviewVersions: missing; list v1, v1beta1 or both\n\
             4:13: webhooks[0].clientConfig: missing; write where the webhook is, or `plugin` in its place\n\
             4:13: webhooks[0].name: missing; name the webhook, `pods.hooks.example.com`\n\
             4:13: webhooks[0].sideEffects: missing; write None or NoneOnDryRun",
        ),
        (
            "metadata: { name: a }\nwebhooks: [ a ]",
            "4:13: webhooks[0]: a string where an object is expected; write `field: value`",
        ),
    ];
    for (text, expected) in table {
        let text = format!("apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n{text}");
        let message = load_text("f", &text).unwrap_err().to_string().replace("f:", "");
        assert_eq!(message, expected, "{text}");
    }
    let wrong = read("Mutating", "v1", "reinvocationPolicy: Sometimes").unwrap_err();
    assert_eq!(
        wrong,
        "f:10:25: webhooks[0].reinvocationPolicy: \"Sometimes\" is not a valid reinvocation policy; write Never or IfNeeded"
    );
}
