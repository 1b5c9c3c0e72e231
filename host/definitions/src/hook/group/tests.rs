use std::time::Duration;

use admittance_admission::{Phase, StageSpec};
use serde_json::json;

use crate::{ChainDefinition, GroupDefinition, load_text, module_location, setting_location};

fn native(group: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: images }}\nspec:\n  \
         rules: [{{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] }}]\n  \
         stages:\n    - name: trusted\n      group:\n{group}"
    )
}

fn kubewarden(kind: &str, spec: &str) -> String {
    format!(
        "apiVersion: policies.kubewarden.io/v1\nkind: {kind}\nmetadata: {{ name: trusted, namespace: shop }}\nspec:\n  \
         rules: [{{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] }}]\n{spec}"
    )
}

fn load_one(text: &str) -> ChainDefinition {
    let chains = load_text("groups.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    chain
}

fn group(chain: &ChainDefinition) -> &GroupDefinition {
    chain.stages[0].hook.get().unwrap()
}

const NATIVE: &str = "        \
        expression: signed() || internal()
        message: the image is not trusted
        plugins:
          signed:
            source: oci://registry.example.com/signed:1
            settings: { keys: [a] }
            allow: { cluster: [v1/Namespace] }
            timeout: 200ms
          internal: { source: oci://registry.example.com/internal:1, memory: 8MiB }
";

#[test]
fn a_group_in_a_native_stage_has_members_and_an_expression() {
    let chain = load_one(&native(NATIVE));
    let definition = group(&chain);
    assert_eq!(definition.expression.text(), "signed() || internal()");
    assert_eq!(
        (definition.denial.code(), &*definition.denial.message),
        (403, "the image is not trusted")
    );
    let [signed, internal] = &*definition.members else {
        panic!("{definition:?}")
    };
    assert_eq!((&*signed.name, &*internal.name), ("signed", "internal"));
    assert_eq!(signed.plugin.settings, json!({"keys": ["a"]}));
    assert_eq!(signed.timeout, Some(Duration::from_millis(200)));
    assert_eq!(signed.plugin.allow.cluster.len(), 1);
    assert_eq!((internal.timeout, internal.plugin.memory), (None, Some(8 << 20)));
    let parts: Vec<_> = chain.stages[0]
        .plugins()
        .map(|(part, _)| (part.path, part.is_member))
        .collect();
    let paths = [".group.plugins.signed", ".group.plugins.internal"];
    assert_eq!(parts, paths.map(|path| (path.to_owned(), true)));
}

#[test]
fn a_rejected_setting_of_a_group_member_is_located() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("chain.yaml");
    std::fs::write(&file, native(NATIVE)).unwrap();
    let chains = crate::load(&[file]).unwrap();
    let signed = &group(&chains[0]).members[0];
    let location = setting_location(&signed.location, false, "/keys/0", None).unwrap();
    assert_eq!(location.line, signed.location.line + 1);
    let location = module_location(&signed.location, false).unwrap();
    assert_eq!(location.line, signed.location.line);
}

#[test]
fn the_module_of_a_kubewarden_policy_is_located() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let text = kubewarden("ClusterAdmissionPolicy", "  module: file:///policy.wasm\n");
    std::fs::write(&file, text.replace(", namespace: shop", "")).unwrap();
    let chains = crate::load(&[file]).unwrap();
    let stage = &chains[0].stages[0].location;
    assert_eq!((stage.line, module_location(stage, false).unwrap().line), (1, 6));
}

#[test]
fn mistakes_in_a_group_are_reported() {
    let plugin = "          a: { source: file:/a.wasm }\n";
    let with = |expression: &str, plugins: &str| {
        native(&format!(
            "        expression: {expression}\n        message: m\n        plugins:\n{plugins}"
        ))
    };
    for (text, says) in [
        (
            with("a() || b()", plugin),
            &[
                "groups.yaml:9:",
                "group.expression: compilation failed at line 1, column 9: there is no `b`",
            ][..],
        ),
        (
            with("a()", &format!("{plugin}          b: {{ source: file:/b.wasm }}\n")),
            &[
                "groups.yaml:13:",
                "group.plugins.b: the expression does not use it; write `b()`",
            ],
        ),
        (with("a() + 1", plugin), &["an expression of a group is boolean"]),
        (with("'1'", plugin), &["an expression of a group is boolean"]),
        (
            with("a()", "          {}\n"),
            &["the group has 0 members; write 1 to 64"],
        ),
        (
            with("a()", "          a-b: { source: file:/a.wasm }\n"),
            &["group.plugins.a-b: \"a-b\" is not an identifier", "there is no `a`"],
        ),
        (
            with("a()", "          a: { source: file:/a.wasm, mutating: true }\n"),
            &["group.plugins.a.mutating: unknown field"],
        ),
        (
            native("        expression: a()\n        plugins: {}\n"),
            &["group.message: missing; write what clients are told"],
        ),
        (
            native("        message: m\n"),
            &["group.expression: missing", "group.plugins: missing"],
        ),
        (
            with("a()", plugin) + "      candidate: { source: file:/b.wasm }\n",
            &["candidate is compared with a plugin, and the stage has none"],
        ),
    ] {
        let mistakes = load_text("groups.yaml", &text).unwrap_err().to_string();
        for part in says {
            assert!(mistakes.contains(part), "{part}\n{mistakes}");
        }
    }
}

const POLICIES: &str = "  \
  expression: |
    sigstore_pgp() || (sigstore_gh_action() && !reject_latest_tag())
  message: image is not signed
  policies:
    sigstore_pgp:
      module: ghcr.io/kubewarden/policies/verify-image-signatures:v0.2.8
      settings: { modifyImagesWithDigest: false }
    sigstore_gh_action:
      module: registry://ghcr.io/kubewarden/policies/verify-image-signatures:v0.2.8
      timeoutEvalSeconds: 7
    reject_latest_tag:
      module: registry://ghcr.io/kubewarden/policies/trusted-repos:v0.1.12
      contextAwareResources: [{ apiVersion: v1, kind: Namespace }]
";

#[test]
fn a_policy_group_of_kubewarden_becomes_one_stage() {
    for (kind, name) in [
        ("ClusterAdmissionPolicyGroup", "clusterwide-group-trusted"),
        ("AdmissionPolicyGroup", "namespaced-group-shop-trusted"),
    ] {
        let chain = load_one(&kubewarden(
            kind,
            &format!("{POLICIES}  mode: monitor\n  timeoutSeconds: 12\n"),
        ));
        assert_eq!((&*chain.name, chain.phase), (name, Phase::Validating));
        assert!(chain.warnings.is_empty(), "{:?}", chain.warnings);
        let stage = &chain.stages[0];
        assert_eq!(stage.spec.timeout, Duration::from_secs(12));
        assert_eq!(stage.spec.mode.as_str(), "Audit");
        assert_eq!(stage.spec.message, None);
        assert_eq!(stage.spec.namespace_selector.is_some(), kind == "AdmissionPolicyGroup");
        let group = group(&chain);
        assert_eq!(
            (group.denial.code(), &*group.denial.message),
            (400, "image is not signed")
        );
        assert_eq!(group.members_path, "spec.policies");
        let members = group.members.iter().map(|member| {
            let plugin = &member.plugin;
            (
                &*member.name,
                member.timeout.unwrap().as_secs(),
                plugin.allow.cluster.len(),
            )
        });
        let expected = [
            ("sigstore_pgp", 2, 0),
            ("sigstore_gh_action", 7, 0),
            ("reject_latest_tag", 2, 1),
        ];
        assert_eq!(members.collect::<Vec<_>>(), expected);
        assert_ne!(stage.spec, StageSpec::new("trusted"));
    }
}

#[test]
fn mistakes_in_a_policy_group_are_reported() {
    let document = |spec: &str| kubewarden("ClusterAdmissionPolicyGroup", spec);
    for (spec, says) in [
        (
            POLICIES.replace("  message: image is not signed\n", ""),
            "spec.message: missing",
        ),
        (
            POLICIES.replace("reject_latest_tag()", "nothing()"),
            "there is no `nothing`",
        ),
        (format!("{POLICIES}  mutating: true\n"), "spec.mutating: unknown field"),
        (format!("{POLICIES}  module: a\n"), "spec.module: unknown field"),
        (
            POLICIES.replace("module: ghcr", "modul: ghcr"),
            "spec.policies.sigstore_pgp.module: missing",
        ),
    ] {
        let mistakes = load_text("groups.yaml", &document(&spec)).unwrap_err().to_string();
        assert!(mistakes.contains(says), "{says}\n{mistakes}");
    }
    // Kubewarden accepts a group whose expression leaves out one of its policies, so this is only a warning.
    let chain = load_one(&document(&POLICIES.replace(" && !reject_latest_tag()", "")));
    let [warning] = &*chain.warnings else {
        panic!("{:?}", chain.warnings)
    };
    assert_eq!(warning.path, "spec.policies.reject_latest_tag");
    assert_eq!(warning.message, "the expression does not use it");
}
