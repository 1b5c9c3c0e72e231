//! Tests of mistakes in webhook configurations. The cases are from kube-apiserver's validation, but this program
//! has its own messages.

use super::mistakes_after;

/// (change of the webhook configuration, expected mistakes)
type ValidationTable = [(&'static str, &'static str)];

fn assert_mistakes(table: &ValidationTable) {
    for (change, expected) in table {
        assert_eq!(mistakes_after(change), *expected, "{change}");
    }
}

#[test]
fn names_are_checked_by_the_rules_of_kubernetes() {
    assert_mistakes(&[
        ("name: webhook.k8s.io", ""),
        (
            "name: k8s.io",
            "5:11: .name: \"k8s.io\" has fewer than three parts: write a name such as `pods.hooks.example.com`",
        ),
        ("name: ''", "5:11: .name: empty; write a value or remove the field"),
        (
            "name:",
            "5:5: .name: missing; name the webhook, `pods.hooks.example.com`",
        ),
        (
            "name: Webhook.k8s.io",
            "5:11: .name: \"Webhook.k8s.io\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "name: webhook..k8s.io",
            "5:11: .name: \"webhook..k8s.io\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "- name: a.hooks.example\n  clientConfig: { url: 'https://h.example' }\n  sideEffects: None\n  admissionReviewVersions: [v1]",
            "10:11: webhooks[1].name: \"a.hooks.example\" is also the name of the stage on line 5; give each stage its own name",
        ),
    ]);
}

#[test]
fn webhook_addresses_are_checked_by_the_rules_of_kubernetes() {
    assert_mistakes(&[
        (
            "clientConfig:",
            "5:5: .clientConfig: missing; write where the webhook is, or `plugin` in its place",
        ),
        (
            "clientConfig: {}",
            "6:19: .clientConfig: the webhook has no address; write one of `url` and `service`",
        ),
        (
            "clientConfig: { url: 'https://h.example', service: { namespace: ns, name: m } }",
            "6:19: .clientConfig: the webhook has a URL and a service; write one of `url` and `service`",
        ),
        (
            "clientConfig: { url: example.com/k8s/webhook, service: { namespace: ns, name: m } }",
            "6:19: .clientConfig: the webhook has a URL and a service; write one of `url` and `service`\n6:26: .clientConfig.url: this is not a valid URL: relative URL without a base; write https://host/path",
        ),
        (
            "clientConfig: { url: '' }",
            "6:26: .clientConfig.url: empty; write a value or remove the field",
        ),
        ("clientConfig: { url: 'https://127.0.0.1:8708' }", ""),
        ("clientConfig: { url: 'HTTPS://h.example/a' }", ""),
        ("clientConfig: { url: 'https://h.example/#' }", ""),
        ("clientConfig: { url: 'https://h.example/?' }", ""),
        (
            "clientConfig: { url: 'http://example.com' }",
            "6:26: .clientConfig.url: an AdmissionReview webhook must be called over https; write https://",
        ),
        (
            "clientConfig: { url: 'https:///fancy/webhook' }",
            "6:26: .clientConfig.url: the URL has no host; write https://host/path",
        ),
        (
            "clientConfig: { url: 'https:example.com' }",
            "6:26: .clientConfig.url: the URL has no host; write https://host/path",
        ),
        (
            "clientConfig: { url: 'https://example.com/#bookmark' }",
            "6:26: .clientConfig.url: a fragment (`#...`) is not allowed in the URL; remove it",
        ),
        (
            "clientConfig: { url: 'https://example.com?arg=value' }",
            "6:26: .clientConfig.url: a query (`?...`) is not allowed in the URL; remove it",
        ),
        (
            "clientConfig: { url: 'https://harry.potter@example.com/' }",
            "6:26: .clientConfig.url: user and password are not allowed in the URL; remove them",
        ),
        (
            "clientConfig: { url: 'https://@example.com/' }",
            "6:26: .clientConfig.url: user and password are not allowed in the URL; remove them",
        ),
        (
            "clientConfig: { url: 'arg#backwards=thisis?html.index/port:host//:https' }",
            "6:26: .clientConfig.url: this is not a valid URL: relative URL without a base; write https://host/path",
        ),
        (
            "clientConfig: { url: 'wrong url pattern' }",
            "6:26: .clientConfig.url: this is not a valid URL: relative URL without a base; write https://host/path",
        ),
        ("clientConfig: { service: { namespace: ns, name: m } }", ""),
        ("clientConfig: { service: { namespace: ns, name: m, path: '' } }", ""),
        ("clientConfig: { service: { namespace: ns, name: m, path: / } }", ""),
        ("clientConfig: { service: { namespace: ns, name: m, path: /foo } }", ""),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: /foo/, port: 8443 } }",
            "",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: foo/ } }",
            "6:62: .clientConfig.service.path: the path \"foo/\" does not begin with `/`",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: // } }",
            "6:62: .clientConfig.service.path: the path \"//\" has an empty part: remove one of the `/`",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: /foo//bar/ } }",
            "6:62: .clientConfig.service.path: the path \"/foo//bar/\" has an empty part: remove one of the `/`",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: /foo/bar// } }",
            "6:62: .clientConfig.service.path: the path \"/foo/bar//\" has an empty part: remove one of the `/`",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: /apis/foo.bar/v1alpha1/--bad } }",
            "6:62: .clientConfig.service.path: the path \"/apis/foo.bar/v1alpha1/--bad\": \"--bad\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: /Foo } }",
            "6:62: .clientConfig.service.path: the path \"/Foo\": \"Foo\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: '/foo?a=b' } }",
            "6:62: .clientConfig.service.path: the path \"/foo?a=b\": \"foo?a=b\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, path: 'https://apis/foo.bar', port: 0 } }",
            "6:62: .clientConfig.service.path: the path \"https://apis/foo.bar\" does not begin with `/`\n6:92: .clientConfig.service.port: 0 is out of range; write 1 to 65535",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, port: 65536 } }",
            "6:62: .clientConfig.service.port: 65536 is out of range; write 1 to 65535",
        ),
        (
            "clientConfig: { service: { name: m } }",
            "6:30: .clientConfig.service.namespace: missing; name the service's namespace",
        ),
        (
            "clientConfig: { service: { namespace: ns } }",
            "6:30: .clientConfig.service.name: missing; name the service",
        ),
        (
            "clientConfig: { service: { namespace: ns, name: m, ports: 1 } }",
            "6:56: .clientConfig.service.ports: unknown field; did you mean `port`?",
        ),
        ("clientConfig: { url: 'https://h.example', caBundle: '' }", ""),
        (
            "clientConfig: { service: { namespace: ns, name: m }, caBundle: BUNDLE }",
            "",
        ),
        (
            "clientConfig: { url: 'https://h.example', caBundle: '#' }",
            "6:57: .clientConfig.caBundle: this is not base64: Invalid symbol 35, offset 0.; write the base64 of a PEM file, `base64 -w0 ca.pem`",
        ),
        (
            "clientConfig: { url: 'https://h.example', caBundle: Cg== }",
            "6:57: .clientConfig.caBundle: there is no certificate in it; write the base64 of a PEM file, `base64 -w0 ca.pem`",
        ),
    ]);
}

#[test]
fn failure_and_match_policies_are_checked_by_the_rules_of_kubernetes() {
    assert_mistakes(&[
        (
            "failurePolicy: other",
            "10:20: .failurePolicy: \"other\" is not a valid failure policy; write Fail or Ignore",
        ),
        (
            "failurePolicy: ignore",
            "10:20: .failurePolicy: \"ignore\" is not a valid failure policy; case matters: write Ignore",
        ),
        ("matchPolicy: Exact", ""),
        (
            "matchPolicy: other",
            "10:18: .matchPolicy: \"other\" is not a valid match policy; write Exact or Equivalent",
        ),
        ("sideEffects:", "5:5: .sideEffects: missing; write None or NoneOnDryRun"),
        ("sideEffects: NoneOnDryRun", ""),
        ("sideEffects: Some", ""),
        ("sideEffects: Unknown", ""),
        (
            "sideEffects: other",
            "7:18: .sideEffects: \"other\" is not a valid kind of side effects; write None, NoneOnDryRun, Some or Unknown",
        ),
        ("timeoutSeconds: 1", ""),
        ("timeoutSeconds: 15", ""),
        ("timeoutSeconds: 30", ""),
        (
            "timeoutSeconds: 31",
            "10:21: .timeoutSeconds: 31 is out of range; write 1 to 30",
        ),
        (
            "timeoutSeconds: 0",
            "10:21: .timeoutSeconds: 0 is out of range; write 1 to 30",
        ),
        (
            "timeoutSeconds: -1",
            "10:21: .timeoutSeconds: -1 is out of range; write 1 to 30",
        ),
        (
            "timeoutSeconds: 1.5",
            "10:21: .timeoutSeconds: 1.5 is not a whole number; write 1 to 30",
        ),
        (
            "timeoutSeconds: 10s",
            "10:21: .timeoutSeconds: a string where a whole number is expected; write 1 to 30",
        ),
        (
            "reinvocationPolicy: Never",
            "10:5: .reinvocationPolicy: unknown field; known here: admissionReviewVersions, candidate, clientConfig, failurePolicy, matchConditions, matchPolicy, mode, name, namespaceSelector, objectSelector, plugin, rules, sideEffects, timeout, timeoutSeconds",
        ),
    ]);
}

#[test]
fn review_versions_are_checked_by_the_rules_of_kubernetes() {
    assert_mistakes(&[
        (
            "admissionReviewVersions:",
            "5:5: .admissionReviewVersions: missing; list v1, v1beta1 or both",
        ),
        (
            "admissionReviewVersions: []",
            "8:30: .admissionReviewVersions: the list is empty; list v1, v1beta1 or both",
        ),
        ("admissionReviewVersions: [v1beta1]", ""),
        ("admissionReviewVersions: [v1beta1, invalid-version]", ""),
        ("admissionReviewVersions: [v2, v1, v1beta1]", ""),
        (
            "admissionReviewVersions: [0v]",
            "8:30: .admissionReviewVersions: none of these versions is supported; list v1, v1beta1 or both\n8:31: .admissionReviewVersions[0]: \"0v\" is not a valid version name: use lower-case letters, digits and `-`, beginning with a letter, ending with a letter or digit, 63 characters at most",
        ),
        (
            "admissionReviewVersions: [v1, V2]",
            "8:35: .admissionReviewVersions[1]: \"V2\" is not a valid version name: use lower-case letters, digits and `-`, beginning with a letter, ending with a letter or digit, 63 characters at most",
        ),
        (
            "admissionReviewVersions: [invalid-version]",
            "8:30: .admissionReviewVersions: none of these versions is supported; list v1, v1beta1 or both",
        ),
        (
            "admissionReviewVersions: [invalidVersion]",
            "8:30: .admissionReviewVersions: none of these versions is supported; list v1, v1beta1 or both\n8:31: .admissionReviewVersions[0]: \"invalidVersion\" is not a valid version name: use lower-case letters, digits and `-`, beginning with a letter, ending with a letter or digit, 63 characters at most",
        ),
        (
            "admissionReviewVersions: [v1beta1, v1beta1]",
            "8:40: .admissionReviewVersions[1]: the version is listed twice; remove one of them",
        ),
    ]);
}

#[test]
fn selectors_are_checked_by_the_rules_of_kubernetes() {
    assert_mistakes(&[
        ("namespaceSelector: {}", ""),
        (
            "namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: prod, A_b.c-1: '' } }",
            "",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: NotIn, values: [b, ''] }, { key: c, operator: DoesNotExist } ] }",
            "",
        ),
        (
            "namespaceSelector: { operator: In, values: [a] }",
            "10:26: .namespaceSelector.operator: unknown field; known here: matchExpressions, matchLabels\n10:40: .namespaceSelector.values: unknown field; known here: matchExpressions, matchLabels",
        ),
        (
            "namespaceSelector: { matchLabels: { -a: b } }",
            "10:45: .namespaceSelector.matchLabels.-a: \"-a\" is not a valid label key: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most",
        ),
        (
            "namespaceSelector: { matchLabels: { a: b c } }",
            "10:44: .namespaceSelector.matchLabels.a: \"b c\" is not a valid label value: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most",
        ),
        (
            "objectSelector: { matchLabels: { Example.com/a: b } }",
            "10:53: .objectSelector.matchLabels[\"Example.com/a\"]: \"Example.com/a\" is not a valid label key: before the `/`, use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "objectSelector: { matchLabels: { a/b/c: d } }",
            "10:45: .objectSelector.matchLabels[\"a/b/c\"]: \"a/b/c\" is not a valid label key: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most",
        ),
        (
            "objectSelector: { matchLabels: { '': d } }",
            "10:42: .objectSelector.matchLabels[\"\"]: the key is empty: name the label",
        ),
        (
            "objectSelector: { matchLabels: { kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk: b } }",
            "10:104: .objectSelector.matchLabels.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk: \"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\"... is not a valid label key: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: In } ] }",
            "10:43: .objectSelector.matchExpressions[0]: `In` needs values: list at least one",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: Exists, values: [b] } ] }",
            "10:43: .objectSelector.matchExpressions[0]: `Exists` takes no values: remove them",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: in, values: [b] } ] }",
            "10:63: .objectSelector.matchExpressions[0].operator: \"in\" is not a valid operator; case matters: write In",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a b, operator: NotIn, values: [-c, d_] } ] }",
            "10:50: .objectSelector.matchExpressions[0].key: \"a b\" is not a valid label key: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most\n10:81: .objectSelector.matchExpressions[0].values[0]: \"-c\" is not a valid label value: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most\n10:85: .objectSelector.matchExpressions[0].values[1]: \"d_\" is not a valid label value: use letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, 63 characters at most",
        ),
        (
            "objectSelector: { matchExpressions: [ { operator: Exists } ] }",
            "10:43: .objectSelector.matchExpressions[0].key: missing; name the label",
        ),
    ]);
}

#[test]
fn rules_of_webhooks_are_checked_as_in_kubernetes() {
    assert_mistakes(&[
        ("rules:", ""),
        ("rules: []", ""),
        (
            "rules: [ { operations: [], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
            "9:28: .rules[0].operations: the list is empty; list at least one, or `*` for all",
        ),
        (
            "rules: [ { apiGroups: [a], apiVersions: [a], resources: [a] } ]",
            "9:14: .rules[0].operations: missing; list CREATE, UPDATE or others",
        ),
        (
            "rules: [ {  } ]",
            "9:14: .rules[0].apiGroups: missing; list the groups, `\"\"` for the core group, or `*` alone\n9:14: .rules[0].apiVersions: missing; list v1 or others, or `*` alone\n9:14: .rules[0].operations: missing; list CREATE, UPDATE or others\n9:14: .rules[0].resources: missing; list the resources, `pods`",
        ),
        (
            "rules: [ { operations: [CREATE, ''], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
            "9:37: .rules[0].operations[1]: \"\" is not a valid operation; write CREATE, UPDATE, DELETE, CONNECT or *",
        ),
        (
            "rules: [ { operations: [PATCH], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
            "9:29: .rules[0].operations[0]: \"PATCH\" is not a valid operation; write CREATE, UPDATE, DELETE, CONNECT or *",
        ),
        (
            "rules: [ { operations: [create], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
            "9:29: .rules[0].operations[0]: \"create\" is not a valid operation; case matters: write CREATE",
        ),
        (
            "rules: [ { operations: [CREATE, '*'], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]",
            "9:37: .rules[0].operations[1]: `*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "rules: [ { operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [], apiVersions: [v1], resources: [pods] } ]",
            "9:49: .rules[0].apiGroups: the list is empty; list at least one, or `*` for all",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [a, '*'], apiVersions: [v1], resources: [pods] } ]",
            "9:53: .rules[0].apiGroups[1]: `*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [], resources: [pods] } ]",
            "9:68: .rules[0].apiVersions: the list is empty; list at least one, or `*` for all",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [''], resources: [pods] } ]",
            "9:69: .rules[0].apiVersions[0]: empty; write a value or remove the field",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: ['*', v1], resources: [pods] } ]",
            "9:69: .rules[0].apiVersions[0]: `*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [] } ]",
            "9:85: .rules[0].resources: the list is empty; list at least one, or `*` for all",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods, ''] } ]",
            "9:92: .rules[0].resources[1]: empty; write a value or remove the field",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*', a/b, a/*, '*/b'] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*', a] } ]",
            "9:91: .rules[0].resources[1]: `*` in the same list already covers `a`; keep one of the two",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a, '*'] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a/*, a/x] } ]",
            "9:91: .rules[0].resources[1]: `a/*` in the same list already covers `a/x`; keep one of the two",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a/x, a/*] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a/*, a] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*/a', x/a] } ]",
            "9:93: .rules[0].resources[1]: `*/a` in the same list already covers `x/a`; keep one of the two",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [x/a, '*/a'] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*/*', a] } ]",
            "9:86: .rules[0].resources[0]: `*/*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a, a] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a/*, a/*] } ]",
            "9:91: .rules[0].resources[1]: `a/*` in the same list already covers `a/*`; keep one of the two",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [a/, /b] } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Cluster } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: '*' } ]",
            "",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: namespaced } ]",
            "9:100: .rules[0].scope: \"namespaced\" is not a valid scope; case matters: write Namespaced",
        ),
        (
            "rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods], kinds: [pod] } ]",
            "9:93: .rules[0].kinds: unknown field; known here: apiGroups, apiVersions, operations, resources, scope",
        ),
    ]);
}
