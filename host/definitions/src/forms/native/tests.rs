use admittance_admission::{
    ClusterKind, Grants, HttpGrant, HttpOrigin, LabelOperator, LabelRequirement, LabelSelector, Matcher,
    NamespaceSelector, Operation, Protocol, ResourcePattern, ReviewVersion, Rule, Scope, ServiceNaming, WebhookTarget,
};
use serde_json::json;

use super::*;
use crate::{ModuleReference, PluginDefinition, WebhookDefinition, certificates, load_text};

mod mistakes;

const RULE: &str = "{ operations: [CREATE], resources: [pods] }";
const STAGE: &str = "{ name: a, plugin: { source: file:a.wasm } }";

/// Reads the file `chains/f.yaml`, which contains a chain with this rule on line 6 and this stage on line 8.
fn read(rule: &str, stage: &str) -> Result<ChainDefinition, String> {
    let text = format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: pods }}\nspec:\n  \
         rules:\n    - {rule}\n  stages:\n    - {stage}\n"
    );
    load_text("chains/f.yaml", &text)
        .map(|mut chains| chains.remove(0))
        .map_err(|mistakes| mistakes.to_string().replace("chains/f.yaml:", ""))
}

fn read_rule(rule: &str) -> Result<Rule, String> {
    read(rule, STAGE).map(|mut chain| chain.rules.remove(0))
}

fn read_stage(stage: &str) -> Result<StageDefinition, String> {
    read(RULE, stage).map(|mut chain| chain.stages.remove(0))
}

fn word_matcher(words: &[&str]) -> Matcher<String> {
    Matcher::Only(words.iter().map(|word| (*word).to_owned()).collect())
}

fn resources(entries: &[&str]) -> Vec<ResourcePattern> {
    entries
        .iter()
        .map(|entry| ResourcePattern::parse(entry).unwrap())
        .collect()
}

#[test]
fn a_chain_is_read_with_all_its_fields() {
    let text = format!(
        r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: pods
  labels: {{ team: a }}
spec:
  rules:
    - operations: [CREATE, UPDATE]
      apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
  stages:
    - name: sidecar
      plugin:
        source: file:sidecar_injector.wasm
        digest: sha256:{digest}
        settings: {{ containers: [ {{ name: log }} ], limit: 1.5 }}
        allow: {{ cluster: ["v1/Node", apps/v1/Deployment], http: ["https://policy.example.com", {{ origin: "https://scan.example:8443", methods: [GET], paths: [/v1/], networks: [10.0.0.0/8], credential: scan }}], images: [ghcr.io/acme], environment: {{ ZONE: a }} }}
        memory: 64MiB
      namespaceSelector: {{ operator: NotIn, values: [kube-system] }}
      objectSelector: {{ matchLabels: {{ inject: "true" }} }}
      failurePolicy: Fail
      timeout: 250ms
      mode: Audit
    - name: images
      webhook:
        protocol: AdmissionReview
        service: {{ namespace: image-webhook, name: image-webhook, path: /images, port: 8443 }}
        caBundle: {bundle}
      failurePolicy: Ignore
"#,
        digest = "0f".repeat(32),
        bundle = certificates::ca_bundle(),
    );
    let chains = load_text("chains/pods.yaml", &text).unwrap();
    let location = |line, column| Location {
        file: "chains/pods.yaml".into(),
        line,
        column,
    };
    let mut sidecar = StageSpec::new("sidecar");
    sidecar.namespace_selector = Some(NamespaceSelector::NotIn(vec!["kube-system".into()]));
    sidecar.object_selector = LabelSelector::new(vec![
        LabelRequirement::new("inject", LabelOperator::In, vec!["true".into()]).unwrap(),
    ]);
    sidecar.failure_policy = FailurePolicy::Fail;
    sidecar.timeout = Duration::from_millis(250);
    sidecar.mode = Mode::Audit;
    let mut images = StageSpec::new("images");
    images.failure_policy = FailurePolicy::Ignore;
    images.timeout = Duration::from_secs(1);
    images.mode = Mode::Enforce;
    let expected = ChainDefinition {
        name: "pods".into(),
        namespace: None,
        phase: Phase::Mutating,
        location: location(2, 1),
        rules: vec![Rule {
            operations: Matcher::Only(vec![Operation::Create, Operation::Update]),
            api_groups: word_matcher(&[""]),
            api_versions: word_matcher(&["v1"]),
            resources: resources(&["pods"]),
            scope: Scope::Any,
            kinds: Matcher::Any,
            match_policy: MatchPolicy::Equivalent,
            names: Vec::new(),
        }],
        warnings: Vec::new(),
        idle_stages: Vec::new(),
        stages: vec![
            StageDefinition {
                spec: sidecar,
                hook: PluginDefinition {
                    source: ModuleReference::File("chains/sidecar_injector.wasm".into()),
                    digest: Some([0x0f; 32].into()),
                    settings: json!({"containers": [{"name": "log"}], "limit": 1.5}),
                    allow: Grants {
                        cluster: [
                            ClusterKind::new("v1", "Node"),
                            ClusterKind::new("apps/v1", "Deployment"),
                        ]
                        .into(),
                        http: vec![
                            HttpGrant::from("https://policy.example.com".parse::<HttpOrigin>().unwrap()),
                            HttpGrant {
                                origin: "https://scan.example:8443".parse().unwrap(),
                                methods: ["GET".to_owned()].into(),
                                paths: vec!["/v1/".parse().unwrap()],
                                networks: vec!["10.0.0.0/8".parse().unwrap()],
                                credential: Some("scan".to_owned()),
                            },
                        ],
                        images: vec!["ghcr.io/acme".parse().unwrap()],
                        environment: [("ZONE".into(), "a".into())].into(),
                        ..Grants::default()
                    },
                    memory: Some(64 << 20),
                    refresh: None,
                    read_from: Vec::new(),
                }
                .into(),
                candidate: None,
                location: location(14, 7),
            },
            StageDefinition {
                spec: images,
                hook: WebhookDefinition {
                    protocol: Protocol::AdmissionReview {
                        versions: vec![ReviewVersion::V1],
                    },
                    target: WebhookTarget::Service {
                        namespace: "image-webhook".into(),
                        name: "image-webhook".into(),
                        port: 8443,
                        path: "/images".into(),
                        naming: ServiceNaming::Kubernetes,
                    },
                    ca_bundle: crate::client::parse_ca_bundle(&certificates::ca_bundle()).ok(),
                }
                .into(),
                candidate: None,
                location: location(26, 7),
            },
        ],
    };
    assert_eq!(chains, [expected]);
}

#[test]
fn a_rule_is_read_with_its_defaults() {
    let all = || crate::model::any_rule();
    let create = Matcher::Only(vec![Operation::Create]);
    let table = [
        (
            "{ operations: [create, Delete], resources: ['*'] }",
            Rule {
                operations: Matcher::Only(vec![Operation::Create, Operation::Delete]),
                resources: resources(&["*"]),
                ..all()
            },
        ),
        ("{ operations: ['*'], resources: ['*/*'] }", all()),
        (
            "{ operations: [CREATE], kinds: [application, Deployment] }",
            Rule {
                operations: create.clone(),
                kinds: word_matcher(&["application", "Deployment"]),
                ..all()
            },
        ),
        (
            "{ operations: [CREATE], kinds: ['*'], scope: Namespaced }",
            Rule {
                operations: create.clone(),
                scope: Scope::Namespaced,
                ..all()
            },
        ),
        (
            "{ operations: [CREATE], apiGroups: ['', apps], apiVersions: ['*'], resources: [pods/*, pods, '*/status'], scope: '*' }",
            Rule {
                operations: create,
                api_groups: word_matcher(&["", "apps"]),
                resources: resources(&["pods/*", "pods", "*/status"]),
                ..all()
            },
        ),
    ];
    for (text, expected) in table {
        assert_eq!(read_rule(text), Ok(expected), "{text}");
    }
}

/// Each row contains fields of the chain's `spec`, fields of its stage, and the resulting phase, match policy, side
/// effects and reinvocation policy.
#[test]
fn omitted_phases_and_policies_have_defaults() {
    let table = [
        ("", "", "Mutating Equivalent None Never"),
        (
            "phase: Validating",
            "sideEffects: Unknown",
            "Validating Equivalent Unknown Never",
        ),
        (
            "matchPolicy: Exact",
            "sideEffects: NoneOnDryRun, reinvocationPolicy: IfNeeded",
            "Mutating Exact NoneOnDryRun IfNeeded",
        ),
        (
            "matchPolicy: Equivalent",
            "sideEffects: Some, reinvocationPolicy: Never",
            "Mutating Equivalent Some Never",
        ),
    ];
    for (of_chain, of_stage, expected) in table {
        let text = format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: a }}\nspec:\n  \
             rules: [ {RULE} ]\n  stages: [ {{ name: a, plugin: {{ source: file:a }}, rules: [ {RULE} ], {of_stage} }} ]\n  \
             {of_chain}"
        );
        let chain = load_text("f", &text).unwrap().remove(0);
        let [stage] = chain.stages.as_slice() else {
            panic!("{text}");
        };
        assert_eq!(stage.spec.rules, chain.rules, "{text}");
        let summary = format!(
            "{} {} {} {}",
            chain.phase,
            chain.rules.first().unwrap().match_policy.as_str(),
            stage.spec.side_effects.as_str(),
            stage.spec.reinvocation.as_str()
        );
        assert_eq!(summary, expected, "{text}");
    }
}

#[test]
fn a_stage_may_have_rules_in_addition_to_the_rules_of_its_chain() {
    let stage = read_stage(
        "{ name: a, plugin: { source: file:a }, rules: [ { operations: [UPDATE], kinds: [pod] }, { operations: \
         ['*'], resources: [pods] } ] }",
    )
    .unwrap();
    let expected = [
        Rule {
            operations: Matcher::Only(vec![Operation::Update]),
            kinds: word_matcher(&["pod"]),
            ..crate::model::any_rule()
        },
        Rule {
            resources: resources(&["pods"]),
            ..crate::model::any_rule()
        },
    ];
    assert_eq!(stage.spec.rules, expected);
}

#[test]
fn a_plugin_is_read_with_its_defaults() {
    // (`plugin` of a stage, resulting values)
    let table = [
        ("{ source: file:a.wasm }", "file:chains/a.wasm None {} None"),
        (
            "{ source: file:../a.wasm, memory: 1GiB }",
            "file:chains/../a.wasm None {} Some(1073741824)",
        ),
        (
            "{ source: 'file:/srv/a.wasm', settings: {} }",
            "file:/srv/a.wasm None {} None",
        ),
        (
            "{ source: 'file:///srv/a.wasm', settings: { a: [on, 1] } }",
            "file:/srv/a.wasm None {\"a\":[true,1]} None",
        ),
    ];
    for (text, expected) in table {
        let stage = read_stage(&format!("{{ name: a, plugin: {text} }}")).unwrap();
        let Some(plugin) = stage.hook.get::<PluginDefinition>() else {
            panic!("{text}");
        };
        let summary = format!(
            "{} {:?} {} {:?}",
            plugin.source, plugin.digest, plugin.settings, plugin.memory
        );
        assert_eq!(summary, expected, "{text}");
    }
}

#[test]
fn a_webhook_is_read_with_its_defaults() {
    let bundle = certificates::ca_bundle();
    let service = |path: &str, port, naming| WebhookTarget::Service {
        namespace: "m".into(),
        name: "s".into(),
        port,
        path: path.into(),
        naming,
    };
    let url = |url: &str| WebhookTarget::Url(url.parse().unwrap());
    let review = |versions: &[ReviewVersion]| Protocol::AdmissionReview {
        versions: versions.to_vec(),
    };
    let v1 = || review(&[ReviewVersion::V1]);
    let table = [
        (
            "protocol: AdmissionReview, url: 'https://h.example:8443/a/b'",
            v1(),
            url("https://h.example:8443/a/b"),
            0,
        ),
        (
            "protocol: AdmissionReview, url: 'HTTPS://h.example', caBundle: ''",
            v1(),
            url("https://h.example"),
            0,
        ),
        (
            "protocol: AdmissionReview, url: 'https://h.example', versions: [v1beta1, v1], caBundle: BUNDLE",
            review(&[ReviewVersion::V1Beta1, ReviewVersion::V1]),
            url("https://h.example"),
            1,
        ),
        (
            "protocol: AdmissionReview, service: { namespace: m, name: s }, caBundle: BUNDLE",
            v1(),
            service("/", 443, ServiceNaming::Kubernetes),
            1,
        ),
        (
            "protocol: AdmissionReview, service: { namespace: m, name: s, path: /a/b.c/, port: 1 }, caBundle: BUNDLE",
            v1(),
            service("/a/b.c/", 1, ServiceNaming::Kubernetes),
            1,
        ),
        (
            "protocol: BcsResource, service: { namespace: m, name: s, path: '/A_b?c=d', port: 65535 }, caBundle: BUNDLE",
            Protocol::BcsResource,
            service("/A_b?c=d", 65535, ServiceNaming::Bcs),
            1,
        ),
        (
            "protocol: BcsResource, url: 'http://h.example/?a=b'",
            Protocol::BcsResource,
            url("http://h.example/?a=b"),
            0,
        ),
    ];
    for (text, protocol, target, certificates) in table {
        let stage = format!("{{ name: a, webhook: {{ {} }} }}", text.replace("BUNDLE", &bundle));
        let stage_definition = read_stage(&stage).unwrap();
        let webhook: &WebhookDefinition = stage_definition.hook.get().unwrap();
        assert_eq!(webhook.protocol, protocol, "{text}");
        assert_eq!(webhook.target, target, "{text}");
        assert_eq!(webhook.ca_bundle.as_ref().map_or(0, Vec::len), certificates, "{text}");
    }
}

#[test]
fn a_ca_bundle_may_have_line_breaks() {
    let bundle = certificates::ca_bundle();
    let (first, second) = bundle.split_at(64);
    let stage = format!(
        "name: a\n      webhook:\n        protocol: BcsResource\n        url: https://h.example\n        \
         caBundle: |\n          {first}\n          {second}\n"
    );
    let stage_definition = read_stage(&stage).unwrap();
    let webhook: &WebhookDefinition = stage_definition.hook.get().unwrap();
    assert_eq!(webhook.ca_bundle.as_ref().unwrap().len(), 1);
}

#[test]
fn namespace_selectors_by_name_and_by_label_are_read() {
    let requirement = |key: &str, operator, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        LabelRequirement::new(key, operator, values).unwrap()
    };
    let table = [
        (
            "{ operator: In, values: [a, b] }",
            NamespaceSelector::In(vec!["a".into(), "b".into()]),
        ),
        ("{}", NamespaceSelector::Labels(LabelSelector::default())),
        (
            "{ matchLabels: { team: a }, matchExpressions: [ { key: tier, operator: NotIn, values: [x] }, { key: w, operator: Exists } ] }",
            NamespaceSelector::Labels(LabelSelector::new(vec![
                requirement("team", LabelOperator::In, &["a"]),
                requirement("tier", LabelOperator::NotIn, &["x"]),
                requirement("w", LabelOperator::Exists, &[]),
            ])),
        ),
    ];
    for (text, expected) in table {
        let stage = format!("{{ name: a, plugin: {{ source: file:a }}, namespaceSelector: {text} }}");
        assert_eq!(
            read_stage(&stage).unwrap().spec.namespace_selector,
            Some(expected),
            "{text}"
        );
    }
}

/// `kubectl get -o yaml` prints fields that an API server has added. They are ignored, but mistakes in all other fields
/// are reported.
#[test]
fn fields_that_the_api_server_adds_are_ignored() {
    let text = |kind: &str, more: &str| {
        format!(
            "apiVersion: v1
kind: List
metadata: {{ resourceVersion: '' }}
items:
  - apiVersion: admittance.dev/v1alpha1
    kind: {kind}
    metadata:
      name: pods
      namespace: shop
      uid: 0c4f
      generation: 2
      resourceVersion: '7'
      creationTimestamp: null
      managedFields: [ {{ manager: kubectl }} ]
      {more}
    spec: {{ rules: [ {RULE} ], stages: [ {STAGE} ] }}
    status: {{ conditions: [] }}
"
        )
    };
    let chains = load_text("f.yaml", &text("NamespacedAdmissionChain", "finalizers: [a]")).unwrap();
    assert_eq!(chains[0].name, "shop/pods");
    let mistakes = load_text("f.yaml", &text("NamespacedAdmissionChain", "lables: {}"))
        .unwrap_err()
        .to_string();
    assert!(
        mistakes.contains("did you mean `labels`?") && !mistakes.contains("status"),
        "{mistakes}"
    );
}
