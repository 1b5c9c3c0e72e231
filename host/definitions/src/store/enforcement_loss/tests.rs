use super::*;
use crate::{DefinitionFile, DefinitionSet, certificates};

/// A chain with stages of every kind, and an exception to one of its stages.
const BEFORE: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  phase: Validating
  stages:
    - name: images
      plugin:
        source: file:images.wasm
        settings: { registries: [a.example, b.example], prefix: shop/, limits: { size: 10 } }
      namespaceSelector: { operator: NotIn, values: [kube-system] }
      matchConditions: [ { name: c, expression: 'true' } ]
    - name: labels
      cel:
        validations: [ { expression: '1 == 1' }, { expression: '2 == 2' } ]
    - name: trusted
      group:
        expression: a() && b()
        message: denied
        plugins: { a: { source: 'file:a.wasm', settings: { keys: [k] } }, b: { source: 'file:b.wasm' } }
    - name: remote
      webhook: { url: 'https://hooks.example/a', protocol: AdmissionReview }
    - name: local
      webhook: { protocol: AdmissionReview, caBundle: BUNDLE, service: { namespace: m, name: s, path: /b } }
  rules:
    - { operations: [CREATE, UPDATE], resources: [pods, services] }
    - { operations: [DELETE], resources: [pods] }
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionException
metadata: { name: legacy }
spec:
  owner: shop
  reason: it moves
  expires: 2099-01-31
  stages: [pods/images]
  namespaces: [legacy]
";

#[test]
fn changes_that_enforce_less_count_as_losses() {
    let definitions = |text: &str| {
        let text = text.replace("BUNDLE", &certificates::ca_bundle());
        let files = vec![DefinitionFile::file("f.yaml", text)];
        DefinitionSet::of_files(files).definitions().unwrap()
    };
    let before = definitions(BEFORE);
    // (part of the definitions' text, its replacement, whether the result enforces less)
    for (part, instead, expected) in [
        ("name: pods", "name: others", true),
        ("phase: Validating", "phase: Mutating", true),
        ("- name: images", "- name: others", true),
        ("\n    - { operations: [DELETE], resources: [pods] }", "", true),
        ("[CREATE, UPDATE]", "[CREATE]", true),
        ("[pods, services]", "[pods]", true),
        (
            "[DELETE], resources: [pods]",
            "[DELETE], resources: [pods], kinds: [Pod]",
            true,
        ),
        (
            "  rules:\n",
            "  rules:\n    - { operations: [CONNECT], resources: [pods] }\n",
            false,
        ),
        ("[kube-system]", "[kube-system, shop]", true),
        ("name: c, expression: 'true'", "name: c, expression: 'false'", true),
        (
            "- name: labels\n",
            "- name: labels\n      failurePolicy: Ignore\n",
            true,
        ),
        ("- name: labels\n", "- name: labels\n      failurePolicy: Fail\n", false),
        ("- name: labels\n", "- name: labels\n      mode: Audit\n", true),
        (
            "- name: labels\n",
            "- name: labels\n      rules: [ { operations: [CREATE], resources: [pods] } ]\n",
            true,
        ),
        ("file:images.wasm", "file:images_2.wasm", false),
        ("b.example]", "c.example]", false),
        ("b.example]", "b.example, c.example]", false),
        (", b.example]", "]", true),
        ("shop/", "shop/web/", false),
        ("shop/", "sh", true),
        (", prefix: shop/", "", true),
        ("limits: { size: 10 }", "limits: { size: 20 }", false),
        ("limits: { size: 10 }", "limits: { }", true),
        ("limits: { size: 10 }", "limits: ", true),
        ("limits: { size: 10 }", "limits: 1", true),
        (", { expression: '2 == 2' }", "", true),
        ("'2 == 2'", "'2 == 3'", true),
        ("a() && b()", "a() || b()", true),
        ("[k]", "[]", true),
        ("file:b.wasm", "file:b_2.wasm", false),
        ("hooks.example/a", "hooks.example/b", false),
        (
            "hooks.example/a', protocol: AdmissionReview",
            "hooks.example/a', protocol: BcsResource",
            true,
        ),
        (
            "url: 'https://hooks.example/a'",
            "url: 'https://hooks.example/a', caBundle: BUNDLE",
            true,
        ),
        (", path: /b", "", true),
        ("namespaces: [legacy]", "namespaces: [legacy, shop]", true),
        ("pods/images", "pods/*", true),
        ("2099-01-31", "2099-02-28", true),
        ("reason: it moves", "reason: it moved", false),
        (
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n",
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: more }\nspec: { rules: [ { \
             operations: [CREATE], resources: [pods] } ], stages: [ { name: s, plugin: { source: 'file:s.wasm' } } ] }\n\
             ---\napiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n",
            false,
        ),
        (
            "metadata: { name: pods }",
            "# a comment\nmetadata: { name: pods }",
            false,
        ),
    ] {
        assert_eq!(BEFORE.matches(part).count(), 1, "{part}");
        let now = definitions(&BEFORE.replace(part, instead));
        assert_eq!(enforces_less(&before, &now), expected, "{part} -> {instead}");
    }
    assert!(enforces_less(&Definitions::default(), &before), "an exception is new");
    let (chain, _) = BEFORE.split_once("---").unwrap();
    assert!(enforces_less(&definitions(chain), &before), "an exception is new");
    assert!(!enforces_less(&Definitions::default(), &definitions(chain)));
}
