use std::time::Duration;

use admittance_admission::{
    ClusterKind, FailurePolicy, MatchPolicy, Matcher, Mode, NamespaceSelector, Operation, Phase, StageSpec,
};
use serde_json::json;

use crate::{ChainDefinition, PluginDefinition, load_text};

fn load_one(text: &str) -> ChainDefinition {
    let chains = load_text("policies.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    chain
}

fn plugin(chain: &ChainDefinition) -> &PluginDefinition {
    chain.stages[0].hook.get().unwrap()
}

const FULL_POLICY: &str = r#"
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata:
  name: psp-capabilities
  annotations: { io.kubewarden.policy.category: PSP }
spec:
  policyServer: tenant-a
  module: registry://ghcr.io/kubewarden/policies/psp-capabilities:v0.1.9
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [CREATE, UPDATE]
  mutating: true
  mode: monitor
  backgroundAudit: false
  failurePolicy: Ignore
  matchPolicy: Exact
  timeoutSeconds: 20
  timeoutEvalSeconds: 5
  message: ask the platform team
  settings:
    allowed_capabilities: [CHOWN]
  contextAwareResources:
    - { apiVersion: apps/v1, kind: Deployment }
    - { apiVersion: v1, kind: Pod }
  namespaceSelector:
    matchExpressions:
      - { key: environment, operator: In, values: [prod, staging] }
  objectSelector: { matchLabels: { a: b } }
  matchConditions:
    - { name: not-a-node, expression: "!request.userInfo.username.startsWith('system:node:')" }
status: { policyStatus: active }
"#;

#[test]
fn a_policy_is_a_chain_of_one_stage() {
    let chain = load_one(FULL_POLICY);
    assert_eq!(
        (chain.name.as_str(), chain.phase),
        ("clusterwide-psp-capabilities", Phase::Mutating)
    );
    assert_eq!(chain.location.line, 2);
    let stage = &chain.stages[0];
    let StageSpec {
        name,
        rules,
        namespace_selector,
        object_selector,
        match_conditions,
        failure_policy,
        timeout,
        mode,
        message,
        ..
    } = &stage.spec;
    assert_eq!(&**name, "psp-capabilities");
    assert_eq!(chain.rules, *rules);
    assert_eq!(rules[0].match_policy, MatchPolicy::Exact);
    assert_eq!(
        rules[0].operations,
        Matcher::Only(vec![Operation::Create, Operation::Update])
    );
    assert!(matches!(namespace_selector, Some(NamespaceSelector::Labels(_))));
    assert!(!object_selector.is_empty());
    assert_ne!(*match_conditions, Default::default());
    assert_eq!((*failure_policy, *mode), (FailurePolicy::Ignore, Mode::Audit));
    assert_eq!(*timeout, Duration::from_secs(5));
    assert_eq!(message.as_deref(), Some("ask the platform team"));
    let plugin = plugin(&chain);
    let source = "oci://ghcr.io/kubewarden/policies/psp-capabilities:v0.1.9";
    assert_eq!(plugin.source.to_string(), source);
    assert_eq!(plugin.settings, json!({"allowed_capabilities": ["CHOWN"]}));
    let kinds = [ClusterKind::new("apps/v1", "Deployment"), ClusterKind::new("v1", "Pod")];
    assert_eq!(plugin.allow.cluster, kinds.into());
    let warnings = chain.warnings();
    let warning = warnings
        .iter()
        .find(|warning| warning.path == "spec.policyServer")
        .unwrap();
    assert_eq!(warning.location.line, 8);
    assert!(
        warning.message.contains("`policyServer` has no meaning here"),
        "{warning:?}"
    );
}

#[test]
fn a_namespaced_policy_applies_only_to_its_namespace() {
    let text = r#"
apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicy
metadata: { name: labels, namespace: team-a }
spec:
  policyServer: default
  module: ghcr.io/kubewarden/policies/safe-labels:v1.0.0
  rules: [{ apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE] }]
"#;
    let chain = load_one(text);
    assert_eq!(
        (chain.name.as_str(), chain.phase),
        ("namespaced-team-a-labels", Phase::Validating)
    );
    let spec = &chain.stages[0].spec;
    let namespaces = NamespaceSelector::In(vec!["team-a".to_owned()]);
    assert_eq!(spec.namespace_selector, Some(namespaces));
    assert_eq!((spec.failure_policy, spec.mode), (FailurePolicy::Fail, Mode::Enforce));
    assert_eq!(spec.timeout, Duration::from_secs(2));
    assert_eq!(spec.rules[0].match_policy, MatchPolicy::Equivalent);
    assert_eq!(
        plugin(&chain).source.to_string(),
        "oci://ghcr.io/kubewarden/policies/safe-labels:v1.0.0"
    );
    assert_eq!(plugin(&chain).settings, json!({}));
    assert_eq!(chain.warnings(), []);
}

#[test]
fn mistakes_in_a_policy_are_reported() {
    for (from, to, line, path, says) in [
        (
            "policies.kubewarden.io/v1",
            "policies.kubewarden.io/v1alpha2",
            2,
            "apiVersion",
            "is not a supported version",
        ),
        ("  mode: monitor", "  mode: watch", 16, "spec.mode", "watch"),
        (
            "timeoutEvalSeconds: 5",
            "timeoutEvalSeconds: 60",
            21,
            "spec.timeoutEvalSeconds",
            "60",
        ),
        (
            "kind: Pod }",
            "kind: a/b/Pod }",
            27,
            "spec.contextAwareResources[1]",
            "is not a valid kind",
        ),
        ("registry://ghcr.io", "http://ghcr.io", 9, "spec.module", "uses http"),
        (
            "    allowed_capabilities: [CHOWN]",
            "    - a",
            24,
            "spec.settings",
            "object",
        ),
        (
            "  mutating: true",
            "  mutating: maybe",
            15,
            "spec.mutating",
            "true or false",
        ),
        (
            "  mutating: true",
            "  mutatin: true",
            15,
            "spec.mutatin",
            "unknown field",
        ),
        ("  name: psp-capabilities", "  name: Psp", 5, "metadata.name", "Psp"),
        (
            "kind: ClusterAdmissionPolicy",
            "kind: AdmissionPolicy",
            5,
            "metadata.namespace",
            "missing",
        ),
    ] {
        let text = FULL_POLICY.replacen(from, to, 1);
        assert_ne!(text, FULL_POLICY);
        let mistakes = load_text("policies.yaml", &text).unwrap_err();
        let mistake = mistakes
            .iter()
            .find(|mistake| mistake.path == path)
            .unwrap_or_else(|| panic!("{path} of {mistakes}"));
        assert_eq!(mistake.location.line, line, "{mistake}");
        assert!(mistake.to_string().contains(says), "{mistake}");
    }
    let text = FULL_POLICY
        .replace("ClusterAdmissionPolicy", "AdmissionPolicy")
        .replace("  name: psp-capabilities", "  namespace: a\n  name: psp-capabilities");
    let mistakes = load_text("policies.yaml", &text).unwrap_err();
    assert!(
        mistakes.iter().any(|mistake| mistake.path == "spec.namespaceSelector"),
        "{mistakes}"
    );
}

#[test]
fn each_policy_of_a_list_becomes_a_chain() {
    let item = |name: &str| {
        format!(
            "  - metadata: {{ name: {name} }}
    spec:
      module: registry://r.example.com/a:1
      rules: [{{ apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE] }}]\n"
        )
    };
    let text = format!(
        "apiVersion: policies.kubewarden.io/v1\nkind: ClusterAdmissionPolicyList\nitems:\n{}{}",
        item("a"),
        item("b")
    );
    let chains = load_text("policies.yaml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let names: Vec<_> = chains.iter().map(|chain| chain.name.as_str()).collect();
    assert_eq!(names, ["clusterwide-a", "clusterwide-b"]);
}
