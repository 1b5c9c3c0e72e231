use std::time::Duration;

use admittance::definitions::load_text;

use super::{
    exclusions::{EXCLUSIONS, Exclusion},
    webhook::namespace_selector,
    *,
};

fn registration() -> WebhookRegistration {
    WebhookRegistration {
        name: "hooks".to_owned(),
        namespace: "hooks-system".to_owned(),
        ..WebhookRegistration::default()
    }
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the text of a chain. Its stages call webhooks instead of plugins, so that these tests need no module files.
fn chain_text(name: &str, phase: &str, rules: &str, stages: &[&str]) -> String {
    let lines = stages.iter().enumerate().map(|(index, stage)| {
        format!(
            "    - {{ name: s{index}, webhook: {{ protocol: AdmissionReview, url: \"https://a.example\" }}, {stage} }}\n"
        )
    });
    let stages: String = lines.collect();
    format!(
        "---\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\n\
         spec:\n  phase: {phase}\n  rules: [ {rules} ]\n  stages:\n{stages}"
    )
}

const PODS: &str = "{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }";

fn registered_webhooks(text: &str, registration: &WebhookRegistration) -> Vec<RegisteredWebhook> {
    let loaded_chains = load_text("chains.yaml", text).unwrap();
    let chains: Vec<_> = loaded_chains.iter().map(RegisteredChain::from).collect();
    RegisteredWebhook::for_all_chains(&chains, registration, REQUEST_TIMEOUT)
}

fn registered_configurations(text: &str, registration: &WebhookRegistration) -> Vec<Json> {
    configurations(registration, &registered_webhooks(text, registration), "the CA")
}

fn first_webhook(rules: &str, stages: &[&str]) -> Json {
    let text = chain_text("c", "Mutating", rules, stages);
    let configurations = registered_configurations(&text, &registration());
    configurations[0]["webhooks"][0].clone()
}

#[test]
fn the_fields_of_a_webhook_follow_from_its_stages() {
    // (stages of a chain, name of a field of the chain's webhook, expected value of this field)
    // In Kubernetes, `timeoutSeconds` is from 1 to 30, and `sideEffects` is `None` or `NoneOnDryRun`.
    let table: [(&[&str], &str, Json); 16] = [
        (&["timeout: 250ms"], "timeoutSeconds", 1.into()),
        (&["timeout: 750ms"], "timeoutSeconds", 1.into()),
        (&["timeout: 751ms"], "timeoutSeconds", 2.into()),
        (&["timeout: 1s"], "timeoutSeconds", 2.into()),
        (&["timeout: 1s", "timeout: 1500ms"], "timeoutSeconds", 3.into()),
        // `limits.requestTimeout` limits the two stages to 10 s together. The timeout of the webhook is 250 ms longer,
        // because the answer takes time too, and 10.25 s are rounded up.
        (&["timeout: 30s", "timeout: 30s"], "timeoutSeconds", 11.into()),
        (&["timeout: 1s"], "failurePolicy", "Fail".into()),
        (
            &["failurePolicy: Ignore", "timeout: 1s"],
            "failurePolicy",
            "Fail".into(),
        ),
        (
            &["failurePolicy: Ignore", "failurePolicy: Ignore"],
            "failurePolicy",
            "Ignore".into(),
        ),
        (
            &["mode: Audit", "failurePolicy: Ignore"],
            "failurePolicy",
            "Ignore".into(),
        ),
        (&["timeout: 1s"], "sideEffects", "None".into()),
        (
            &["timeout: 1s", "sideEffects: NoneOnDryRun"],
            "sideEffects",
            "NoneOnDryRun".into(),
        ),
        (&["sideEffects: Some"], "sideEffects", "NoneOnDryRun".into()),
        (&["timeout: 1s"], "reinvocationPolicy", "Never".into()),
        (
            &["timeout: 1s", "reinvocationPolicy: IfNeeded"],
            "reinvocationPolicy",
            "IfNeeded".into(),
        ),
        (&["timeout: 1s"], "matchPolicy", "Equivalent".into()),
    ];
    for (stages, field, expected) in table {
        assert_eq!(first_webhook(PODS, stages)[field], expected, "{stages:?}");
    }
}

#[test]
fn a_webhook_has_the_rules_of_its_chains() {
    for (rule, expected) in [
        (
            PODS,
            json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}),
        ),
        (
            "{ operations: [UPDATE, DELETE, CONNECT], resources: [pods/exec, deployments/*, \"*/scale\"], scope: Namespaced }",
            json!({"operations": ["UPDATE", "DELETE", "CONNECT"], "apiGroups": ["*"], "apiVersions": ["*"],
                "resources": ["pods/exec", "deployments/*", "*/scale"], "scope": "Namespaced"}),
        ),
        (
            "{ operations: [\"*\"], resources: [\"*\"], scope: Cluster }",
            json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Cluster"}),
        ),
        (
            "{ operations: [CREATE], resources: [pods], kinds: [Pod] }",
            json!({"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"], "scope": "*"}),
        ),
    ] {
        assert_eq!(first_webhook(rule, &["timeout: 1s"])["rules"], json!([expected]));
    }
    let by_kind = chain_text(
        "c",
        "Mutating",
        "{ operations: [CREATE], kinds: [Pod] }",
        &["timeout: 1s"],
    );
    let chains = load_text("chains.yaml", &by_kind).unwrap();
    let problem = RegisteredChain::from(&chains[0]).problem().unwrap();
    for part in ["the chain c", "list `resources`"] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
    assert_eq!(registered_configurations(&by_kind, &registration()), [] as [Json; 0]);
}

#[test]
fn webhooks_are_registered_for_each_phase_or_for_each_chain() {
    let jobs = "{ operations: [CREATE], apiGroups: [batch], apiVersions: [v1], resources: [jobs] }";
    let text = [
        chain_text("a", "Mutating", PODS, &["timeout: 1s"]),
        chain_text(
            "b",
            "Mutating",
            &format!("{PODS}, {jobs}"),
            &["failurePolicy: Ignore, timeout: 3s"],
        ),
        chain_text("v", "Validating", PODS, &["failurePolicy: Ignore"]),
    ]
    .concat();
    // The expected name, path, number of rules, failure policy and timeout of a webhook.
    type Row<'a> = (&'a str, &'a str, usize, &'a str, u64);
    let mutate: &[Row<'_>] = &[("mutate.hooks.hooks-system", "/mutate", 2, "Fail", 5)];
    let validate: &[Row<'_>] = &[("validate.hooks.hooks-system", "/validate", 1, "Ignore", 2)];
    let mutate_each: &[Row<'_>] = &[
        ("a.mutate.hooks.hooks-system", "/mutate/a", 1, "Fail", 2),
        ("b.mutate.hooks.hooks-system", "/mutate/b", 2, "Ignore", 4),
    ];
    let validate_each: &[Row<'_>] = &[("v.validate.hooks.hooks-system", "/validate/v", 1, "Ignore", 2)];
    for (per_chain, expected) in [(false, [mutate, validate]), (true, [mutate_each, validate_each])] {
        let registration = WebhookRegistration {
            per_chain,
            ..registration()
        };
        let configurations = registered_configurations(&text, &registration);
        let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        assert_eq!(configurations.len(), 2);
        for ((configuration, kind), expected) in configurations.iter().zip(kinds).zip(expected) {
            assert_eq!(configuration["kind"], kind);
            assert_eq!(configuration["metadata"]["name"], "hooks");
            let webhooks = configuration["webhooks"].as_array().unwrap();
            let rows: Vec<Row<'_>> = webhooks
                .iter()
                .map(|webhook| {
                    let service = &webhook["clientConfig"]["service"];
                    assert_eq!(service["name"], "hooks");
                    assert_eq!(service["namespace"], "hooks-system");
                    (
                        webhook["name"].as_str().unwrap(),
                        service["path"].as_str().unwrap(),
                        webhook["rules"].as_array().unwrap().len(),
                        webhook["failurePolicy"].as_str().unwrap(),
                        webhook["timeoutSeconds"].as_u64().unwrap(),
                    )
                })
                .collect();
            assert_eq!(rows, expected);
            let reinvoked = webhooks
                .iter()
                .all(|webhook| webhook.get("reinvocationPolicy").is_some());
            assert_eq!(reinvoked, kind.starts_with("Mutating"));
        }
    }
}

#[test]
fn chains_of_namespaces_have_separate_webhooks() {
    let everything = "{ operations: [\"*\"], resources: [\"*/*\"] }";
    let in_namespace = |namespace: &str, name: &str, rules: &str, stages: &[&str]| {
        chain_text(name, "Mutating", rules, stages)
            .replace("kind: AdmissionChain", "kind: NamespacedAdmissionChain")
            .replace("metadata: {", &format!("metadata: {{ namespace: {namespace},"))
    };
    let ignored = "failurePolicy: Ignore, timeout: 1s";
    let cluster_chain = chain_text("pods", "Mutating", PODS, &[ignored]);
    let namespaced_chains = [
        in_namespace("shop", "all", everything, &["timeout: 3s"]),
        in_namespace("web", "pods", PODS, &[ignored]),
        in_namespace("bank", "pods", PODS, &[ignored]),
    ];
    let all_chains = [cluster_chain.clone(), namespaced_chains.concat()].concat();
    // The expected name, path, namespaces, resources, failure policy and timeout of a webhook.
    type Row = (
        &'static str,
        &'static str,
        &'static [&'static str],
        &'static str,
        &'static str,
        u64,
    );
    let single_webhook: &[Row] = &[("mutate.hooks.hooks-system", "/mutate", &[], "pods", "Ignore", 2)];
    let namespaced: [Row; 2] = [
        (
            "bank.mutate-namespaced.hooks.hooks-system",
            "/mutate-namespaced",
            &["bank", "web"],
            "pods",
            "Ignore",
            2,
        ),
        (
            "shop.mutate-namespaced.hooks.hooks-system",
            "/mutate-namespaced",
            &["shop"],
            "*/*",
            "Fail",
            4,
        ),
    ];
    let cluster: Row = ("mutate.hooks.hooks-system", "/mutate-cluster", &[], "pods", "Ignore", 2);
    let webhook_per_chain: &[Row] = &[
        (
            "bank.pods.mutate-namespaced.hooks.hooks-system",
            "/mutate/bank/pods",
            &["bank"],
            "pods",
            "Ignore",
            2,
        ),
        (
            "pods.mutate.hooks.hooks-system",
            "/mutate/pods",
            &[],
            "pods",
            "Ignore",
            2,
        ),
        (
            "shop.all.mutate-namespaced.hooks.hooks-system",
            "/mutate/shop/all",
            &["shop"],
            "*/*",
            "Fail",
            4,
        ),
        (
            "web.pods.mutate-namespaced.hooks.hooks-system",
            "/mutate/web/pods",
            &["web"],
            "pods",
            "Ignore",
            2,
        ),
    ];
    let all = [&[cluster][..], &namespaced].concat();
    for (text, per_chain, expected) in [
        (&cluster_chain, false, single_webhook),
        (&namespaced_chains.concat(), false, &namespaced),
        (&all_chains, false, &all),
        (&all_chains, true, webhook_per_chain),
    ] {
        let registration = WebhookRegistration {
            per_chain,
            ..registration()
        };
        let configurations = registered_configurations(text, &registration);
        let webhooks = configurations[0]["webhooks"].as_array().unwrap();
        assert_eq!(webhooks.len(), expected.len(), "{webhooks:#?}");
        for (webhook, (name, path, namespaces, resources, failure_policy, timeout)) in webhooks.iter().zip(expected) {
            assert_eq!(webhook["name"], *name);
            assert_eq!(webhook["clientConfig"]["service"]["path"], *path);
            let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
            assert_eq!(expressions[0]["operator"], "NotIn", "{name}");
            let only = expressions.get(2).cloned().unwrap_or_default();
            let (operator, scope) = match namespaces {
                [] => (Json::Null, "*"),
                _ => ("In".into(), "Namespaced"),
            };
            assert_eq!(only["operator"], operator, "{name}");
            assert_eq!(
                only["values"].as_array().map_or(&[][..], Vec::as_slice),
                *namespaces,
                "{name}"
            );
            assert_eq!(webhook["rules"].as_array().unwrap().len(), 1, "{name}");
            assert_eq!(webhook["rules"][0]["resources"], json!([resources]), "{name}");
            assert_eq!(webhook["rules"][0]["scope"], scope, "{name}");
            assert_eq!(webhook["failurePolicy"], *failure_policy, "{name}");
            assert_eq!(webhook["timeoutSeconds"], *timeout, "{name}");
        }
    }
}

#[test]
fn webhooks_exclude_requests_that_the_cluster_depends_on() {
    let none: &[&str] = &[];
    let all: &[&str] = &["exclude-leases", "exclude-authentication", "exclude-authorization"];
    // (rule of a chain, expected match conditions of its webhook, whether the rule matches nodes)
    for (rule, expected, nodes) in [
        (PODS, none, false),
        ("{ operations: [\"*\"], resources: [\"*\"] }", all, true),
        ("{ operations: [\"*\"], resources: [\"*/*\"] }", all, true),
        (
            "{ operations: [\"*\"], resources: [\"*\"], scope: Namespaced }",
            &["exclude-leases"],
            false,
        ),
        (
            "{ operations: [\"*\"], resources: [\"*\"], scope: Cluster }",
            &["exclude-authentication", "exclude-authorization"],
            true,
        ),
        (
            "{ operations: [UPDATE], apiGroups: [coordination.k8s.io], resources: [leases] }",
            &["exclude-leases"],
            false,
        ),
        (
            "{ operations: [UPDATE], apiGroups: [\"\"], resources: [nodes/status] }",
            none,
            true,
        ),
        (
            "{ operations: [UPDATE], apiGroups: [apps], resources: [\"*\"] }",
            none,
            false,
        ),
    ] {
        let text = chain_text("c", "Mutating", rule, &["timeout: 1s"]);
        let registration = registration();
        let webhooks = registered_webhooks(&text, &registration);
        assert_eq!(webhooks[0].may_match_nodes(), nodes, "{rule}");
        let document = webhooks[0].document(&registration, "the CA");
        let conditions = document.get("matchConditions").and_then(Json::as_array).cloned();
        let names: Vec<_> = conditions
            .iter()
            .flatten()
            .map(|condition| condition["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, expected, "{rule}");
        let old = WebhookRegistration {
            has_match_conditions: false,
            ..registration
        };
        assert!(webhooks[0].document(&old, "the CA").get("matchConditions").is_none());
    }
}

#[tokio::test]
async fn match_conditions_exclude_requests_that_the_cluster_depends_on() {
    use admittance::admission::{Deadline, GroupVersionKind, GroupVersionResource, NoAuthorizer, Operation, Request};
    use admittance_conditions::{CelConditions, MatchCondition};
    let compile = |exclusion: &Exclusion| MatchCondition::compile(exclusion.name, exclusion.expression);
    let conditions: CelConditions = EXCLUSIONS.iter().map(compile).collect::<Result<_, _>>().unwrap();
    for (group, resource, excluded) in [
        ("", "pods", None),
        ("coordination.k8s.io", "leases", Some("exclude-leases")),
        ("coordination.k8s.io", "leasecandidates", None),
        ("example.com", "leases", None),
        ("authentication.k8s.io", "tokenreviews", Some("exclude-authentication")),
        (
            "authorization.k8s.io",
            "subjectaccessreviews",
            Some("exclude-authorization"),
        ),
    ] {
        let resource = GroupVersionResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
        };
        let request = Request::new(Operation::Create, GroupVersionKind::default(), resource.clone());
        let deadline = Deadline::after(Duration::from_secs(60));
        let evaluation = conditions.evaluate(&request, &NoAuthorizer, deadline).await;
        let first_false = evaluation.unwrap();
        assert_eq!(first_false.as_deref(), excluded, "{resource}");
    }
}

#[test]
fn each_excluded_namespace_is_listed_once() {
    let exclude = ["calico-system", "kube-system"].map(str::to_owned);
    for (includes_kube_system, exclude, names) in [
        (
            false,
            &exclude[..],
            &["hooks-system", "kube-system", "kube-node-lease", "calico-system"][..],
        ),
        (
            true,
            &exclude[..1],
            &["hooks-system", "kube-node-lease", "calico-system"],
        ),
        (true, &[], &["hooks-system", "kube-node-lease"]),
    ] {
        let selector = namespace_selector(
            &WebhookRegistration {
                excluded_namespaces: exclude.to_vec(),
                includes_kube_system,
                ..registration()
            },
            &BTreeSet::new(),
        );
        let expected = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names},
            {"key": "admittance.dev/ignore", "operator": "DoesNotExist"},
        ]});
        assert_eq!(selector, expected);
    }
}
