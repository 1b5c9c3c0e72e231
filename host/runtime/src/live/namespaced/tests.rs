use admittance_admission::ImageGrant;
use admittance_definitions::load_text;
use base64::{Engine, prelude::BASE64_STANDARD};

use admittance_definitions::PluginDefinition;

use super::*;

const CHAIN: &str = r#"
apiVersion: admittance.dev/v1alpha1
kind: NamespacedAdmissionChain
metadata: { name: pods, namespace: shop }
spec:
  rules: [ { operations: [CREATE], resources: [pods] } ]
  stages:
    - name: expressions
      cel: { validations: [ { expression: "object.metadata.name != 'bad'" } ] }
    - name: asks
      cel: { validations: [ { expression: "authorizer.group('').resource('pods').check('create').allowed()" } ] }
      matchConditions: [ { name: may, expression: "authorizer.path('/healthz').check('get').allowed()" } ]
    - name: plugin
      plugin:
        source: oci://registry.example.com/hooks/one:1
        allow:
          cluster: [v1/Secret, v1/ConfigMap]
          http: ["https://policy.example.com", { origin: "https://policy.example.com", credential: theirs }]
          images: [ghcr.io]
          environment: { A: b }
      candidate: { source: "https://example.com/x.wasm", share: 10% }
    - name: calls
      webhook: { protocol: AdmissionReview, url: "https://hooks.example.com/" }
    - name: theirs
      webhook: { protocol: AdmissionReview, service: { namespace: other, name: hook }, caBundle: "CA" }
    - name: own
      webhook: { protocol: AdmissionReview, service: { namespace: shop, name: hook }, caBundle: "CA" }
"#;

fn chain() -> ChainDefinition {
    let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
    let encoded = BASE64_STANDARD.encode(authority.cert.pem());
    let text = CHAIN.replace("\"CA\"", &encoded);
    load_text("chain.yaml", &text).unwrap().remove(0)
}

fn forbidden_paths(allowed: &NamespacedChains, chain: &ChainDefinition) -> Vec<String> {
    let mistakes = allowed.mistakes(chain);
    mistakes.into_iter().map(|mistake| mistake.path).collect()
}

#[test]
fn namespaced_chains_may_use_only_expressions_by_default() {
    let chain = chain();
    assert_eq!(
        (chain.name.as_str(), chain.namespace.as_deref()),
        ("shop/pods", Some("shop"))
    );
    let none = NamespacedChains::default();
    assert_eq!(
        forbidden_paths(&none, &chain),
        [
            "spec.stages[1].matchConditions",
            "spec.stages[1].cel",
            "spec.stages[2].plugin.source",
            "spec.stages[2].plugin.allow.cluster",
            "spec.stages[2].plugin.allow.cluster",
            "spec.stages[2].plugin.allow.http",
            "spec.stages[2].plugin.allow.http",
            "spec.stages[2].plugin.allow.images",
            "spec.stages[2].candidate.source",
            "spec.stages[2].candidate.allow.cluster",
            "spec.stages[2].candidate.allow.cluster",
            "spec.stages[2].candidate.allow.http",
            "spec.stages[2].candidate.allow.http",
            "spec.stages[2].candidate.allow.images",
            "spec.stages[3].webhook",
            "spec.stages[4].webhook",
            "spec.stages[5].webhook",
        ]
    );
    let text = none.mistakes(&chain)[2].to_string();
    assert!(
        text.contains("the module oci://registry.example.com/hooks/one:1 is not allowed in a chain of a namespace")
            && text.contains("`definitions[].kubernetes.namespaced.modules`"),
        "{text}"
    );
    let mut of_all = chain;
    of_all.namespace = None;
    assert!(none.mistakes(&of_all).is_empty());
}

#[test]
fn namespaced_chains_may_use_what_the_configuration_allows() {
    let chain = chain();
    let Some(plugin) = chain.stages[2].hook.get::<PluginDefinition>() else {
        panic!("stage 2 is a plugin");
    };
    let mut allowed = NamespacedChains {
        modules: vec!["oci://registry.example.com/hooks/*".parse().unwrap()],
        webhooks: NamespacedWebhooks::OwnServices,
        allow: Grants {
            cluster: [ClusterKind::any_access_review(), ClusterKind::new("v1", "ConfigMap")].into(),
            http: vec![plugin.allow.http[0].clone()],
            images: vec![ImageGrant::ALL],
            ..Grants::default()
        },
    };
    assert_eq!(
        forbidden_paths(&allowed, &chain),
        [
            "spec.stages[2].plugin.allow.cluster",
            "spec.stages[2].plugin.allow.http",
            "spec.stages[2].candidate.source",
            "spec.stages[2].candidate.allow.cluster",
            "spec.stages[2].candidate.allow.http",
            "spec.stages[3].webhook",
            "spec.stages[4].webhook",
        ]
    );
    allowed.modules.push("https://**".parse().unwrap());
    allowed.webhooks = NamespacedWebhooks::Any;
    allowed.allow = plugin.allow.clone();
    allowed.allow.cluster.insert(ClusterKind::any_access_review());
    assert_eq!(forbidden_paths(&allowed, &chain), [""; 0]);
}
