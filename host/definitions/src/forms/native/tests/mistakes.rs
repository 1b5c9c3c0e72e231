use super::{RULE, read_rule, read_stage};
use crate::{certificates, load_text};

#[test]
fn mistakes_in_rules_are_reported_with_their_locations() {
    let table = [
        (
            "{ resources: [pods] }",
            "6:7: spec.rules[0].operations: missing; list CREATE, UPDATE or others",
        ),
        (
            "{ operations: [], resources: [pods] }",
            "6:21: spec.rules[0].operations: the list is empty; list at least one, or `*` for all",
        ),
        (
            "{ operations: CREATE, resources: [pods] }",
            "6:21: spec.rules[0].operations: a string where a list is expected; write [CREATE]",
        ),
        (
            "{ operations: [UPSERT], resources: [pods] }",
            "6:22: spec.rules[0].operations[0]: \"UPSERT\" is not a valid operation; write CREATE, UPDATE, DELETE, CONNECT or *",
        ),
        (
            "{ operations: [CREATEE], resources: [pods] }",
            "6:22: spec.rules[0].operations[0]: \"CREATEE\" is not a valid operation; did you mean CREATE?",
        ),
        (
            "{ operations: ['*', CREATE], resources: [pods] }",
            "6:22: spec.rules[0].operations[0]: `*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "{ operations: [CREATE] }",
            "6:7: spec.rules[0]: the rule names neither resources nor kinds; list resources (`resources: [pods]`) or kinds (`kinds: [application]`)",
        ),
        (
            "{ operations: [CREATE], apiGroups: [apps, '*'], resources: [pods] }",
            "6:49: spec.rules[0].apiGroups[1]: `*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "{ operations: [CREATE], apiVersions: [''], resources: [pods] }",
            "6:45: spec.rules[0].apiVersions[0]: empty; write a value or remove the field",
        ),
        (
            "{ operations: [CREATE], resources: [''] }",
            "6:43: spec.rules[0].resources[0]: `` is not a valid resource: write `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*`",
        ),
        (
            "{ operations: [CREATE], resources: ['*/*', pods] }",
            "6:43: spec.rules[0].resources[0]: `*/*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "{ operations: [CREATE], resources: [pods, '*'] }",
            "6:43: spec.rules[0].resources[0]: `*` in the same list already covers `pods`; keep one of the two",
        ),
        (
            "{ operations: [CREATE], resources: [pods/status, pods/*] }",
            "6:43: spec.rules[0].resources[0]: `pods/*` in the same list already covers `pods/status`; keep one of the two",
        ),
        (
            "{ operations: [CREATE], resources: ['*/status', pods/status] }",
            "6:55: spec.rules[0].resources[1]: `*/status` in the same list already covers `pods/status`; keep one of the two",
        ),
        (
            "{ operations: [CREATE], kinds: [], scope: namespaced }",
            "6:38: spec.rules[0].kinds: the list is empty; list at least one, or `*` for all\n\
             6:49: spec.rules[0].scope: \"namespaced\" is not a valid scope; case matters: write Namespaced",
        ),
        (
            "{ operations: [CREATE], resource: [pods], kinds: [pod] }",
            "6:31: spec.rules[0].resource: unknown field; did you mean `resources`?",
        ),
        (
            "pods",
            "6:7: spec.rules[0]: a string where an object is expected; write `field: value`",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(read_rule(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn mistakes_in_plugins_are_reported_with_their_locations() {
    // (`plugin` of a stage, expected mistakes)
    // The paths in the mistakes begin at the plugin: `.source` means `spec.stages[0].plugin.source`.
    let table = [
        ("{}", "8:26: .source: missing; write `file:` and the path of the module"),
        (
            "{ source: a.wasm }",
            "8:36: .source: \"a.wasm\" does not say where the module is; write `file:a.wasm`",
        ),
        (
            "{ source: 'file:' }",
            "8:36: .source: \"file:\" has no path; write `file:` and the path of the module",
        ),
        (
            "{ source: 'file://host/a.wasm' }",
            "8:36: .source: \"file://host/a.wasm\" names a file on another machine; write `file:` and the path, without `//`",
        ),
        (
            "{ source: 'http://x.example/a.wasm' }",
            "8:36: .source: \"http://x.example/a.wasm\" uses http, which does not protect the module from \
             changes in transit; write `https://x.example/a.wasm`",
        ),
        (
            "{ source: 'oci://x.example' }",
            "8:36: .source: \"oci://x.example\" does not name a registry and a repository; write `oci://`, the registry's host, `/` and the repository, `oci://registry.example.com/plugins/images:1.0`",
        ),
        (
            "{ source: 'ftp://x' }",
            "8:36: .source: \"ftp://x\" does not say where the module is; write `file:` and a path, an `https://` URL, or `oci://registry/repository:tag`",
        ),
        (
            "{ source: file:a, digest: sha256:12 }",
            "8:52: .digest: `sha256:12` is not a valid digest: write `sha256:` and 64 hexadecimal digits",
        ),
        (
            "{ source: file:a, digest: md5:12 }",
            "8:52: .digest: `md5:12` is not a valid digest: write `sha256:` and 64 hexadecimal digits",
        ),
        (
            "{ source: file:a, settings: [] }",
            "8:54: .settings: a list where an object is expected; write `field: value`",
        ),
        (
            "{ source: file:a, memory: 1KiB }",
            "8:52: .memory: 1KiB is out of range; write 1MiB to 4GiB",
        ),
        (
            "{ source: file:a, allow: { cluster: [Node] } }",
            "8:63: .allow.cluster[0]: \"Node\" is not a valid kind: write version and kind, `v1/Node` or `apps/v1/Deployment`",
        ),
        (
            "{ source: file:a, allow: { cluster: [a/b/c/D] } }",
            "8:63: .allow.cluster[0]: \"a/b/c/D\" is not a valid kind: write version and kind, `v1/Node` or `apps/v1/Deployment`",
        ),
        (
            "{ source: file:a, allow: { http: ['http://x.example'] } }",
            "8:60: .allow.http[0]: this is not a valid origin: write https, the host, and the port if it is not 443, `https://policy.example.com`; http is for loopback addresses, `http://127.0.0.1:8181`",
        ),
        (
            "{ source: file:a, allow: { http: ['https://x.example/path'] } }",
            "8:60: .allow.http[0]: this is not a valid origin: write https, the host, and the port if it is not 443, `https://policy.example.com`; http is for loopback addresses, `http://127.0.0.1:8181`",
        ),
        (
            "{ source: file:a, allow: { http: [{ methods: [GET] }] } }",
            "8:60: .allow.http[0].origin: missing; write scheme and host, `https://policy.example.com`",
        ),
        (
            "{ source: file:a, allow: { http: [{ origin: 'https://x.example', methods: [get] }] } }",
            "8:101: .allow.http[0].methods[0]: \"get\" is not a method that a plugin can send; write it in upper case: `GET`",
        ),
        (
            "{ source: file:a, allow: { http: [{ origin: 'https://x.example', paths: [v1] }] } }",
            "8:99: .allow.http[0].paths[0]: \"v1\" is not a valid path: write it as it is in URLs, beginning with `/`, without query, `//` and `..`",
        ),
        (
            "{ source: file:a, allow: { http: [{ origin: 'https://x.example', networks: [10.0.0.0] }, { origin: 'https://x.example', networks: [ten] }] } }",
            "8:157: .allow.http[1].networks[0]: \"ten\" is not a network; write `10.0.0.0/8`, or one address",
        ),
        (
            "{ source: file:a, allow: { environment: { A: 1 } } }",
            "8:71: .allow.environment.A: a number where a string is expected; put it in quotes: \"1\"",
        ),
        (
            "{ source: file:a, allow: { files: [] } }",
            "8:53: .allow.files: unknown field; known here: cluster, environment, http, images",
        ),
    ];
    for (text, expected) in table {
        let message = read_stage(&format!("{{ name: a, plugin: {text} }}")).unwrap_err();
        assert_eq!(message.replace("spec.stages[0].plugin", ""), expected, "{text}");
    }
}

#[test]
fn mistakes_in_webhooks_are_reported_with_their_locations() {
    let bundle = certificates::ca_bundle();
    let review = "protocol: AdmissionReview, ";
    // (fields of a webhook after its protocol, expected mistakes)
    // The paths in the mistakes begin at the webhook: `.url` means `spec.stages[0].webhook.url`.
    let table = [
        ("", "8:27: the webhook has no address; write `url` or `service`"),
        (
            "url: 'https://h', service: { namespace: m, name: s }",
            "8:27: the webhook has a URL and a service; keep one of them",
        ),
        (
            "url: h.example/a",
            "8:61: .url: this is not a valid URL: relative URL without a base; write https://host/path",
        ),
        (
            "url: 'http://h.example'",
            "8:61: .url: an AdmissionReview webhook must be called over https; write https://",
        ),
        (
            "url: 'ftp://h.example'",
            "8:61: .url: the scheme `ftp` is not supported; write https://",
        ),
        (
            "url: 'https:///a'",
            "8:61: .url: the URL has no host; write https://host/path",
        ),
        (
            "url: 'file:///a'",
            "8:61: .url: the URL has no host; write https://host/path\n8:61: .url: the scheme `file` is not supported; write https://",
        ),
        (
            "url: 'https://u:p@h.example/?a#b'",
            "8:61: .url: a fragment (`#...`) is not allowed in the URL; remove it\n\
             8:61: .url: a query (`?...`) is not allowed in the URL; remove it\n\
             8:61: .url: user and password are not allowed in the URL; remove them",
        ),
        (
            "url: 'https://h.example', versions: []",
            "8:92: .versions: the list is empty; list v1, v1beta1 or both",
        ),
        (
            "url: 'https://h.example', versions: [v1, v1]",
            "8:97: .versions[1]: the version is listed twice; remove one of them",
        ),
        (
            "url: 'https://h.example', versions: [v2]",
            "8:93: .versions[0]: \"v2\" is not a valid version of AdmissionReview; write v1 or v1beta1",
        ),
        (
            "service: { namespace: m, name: s }",
            "8:27: .caBundle: missing; a service is trusted by its CA: write the base64 of a PEM file, `base64 -w0 ca.pem`",
        ),
        (
            "service: { namespace: m, name: s }, caBundle: ''",
            "8:102: .caBundle: empty; a service is trusted by its CA: write the base64 of a PEM file, `base64 -w0 ca.pem`",
        ),
        (
            "service: { port: 0, path: a }, caBundle: BUNDLE",
            "8:65: .service.name: missing; name the service\n\
             8:65: .service.namespace: missing; name the service's namespace\n\
             8:73: .service.port: 0 is out of range; write 1 to 65535\n\
             8:82: .service.path: the path \"a\" does not begin with `/`",
        ),
        (
            "service: { namespace: m, name: s, path: /a//b }, caBundle: BUNDLE",
            "8:96: .service.path: the path \"/a//b\" has an empty part: remove one of the `/`",
        ),
        (
            "service: { namespace: m, name: s, path: /A }, caBundle: BUNDLE",
            "8:96: .service.path: the path \"/A\": \"A\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "service: { namespace: 'n m', name: s/x }, caBundle: BUNDLE",
            "8:78: .service.namespace: \"n m\" cannot be part of a host name; use letters, digits and `-`\n\
             8:91: .service.name: \"s/x\" cannot be part of a host name; use letters, digits and `-`",
        ),
        (
            "url: 'https://h', reinvocationPolicy: Never",
            "8:74: .reinvocationPolicy: unknown field; known here: caBundle, protocol, service, url, versions",
        ),
    ];
    for (text, expected) in table {
        let stage = format!(
            "{{ name: a, webhook: {{ {review}{} }} }}",
            text.replace("BUNDLE", &bundle)
        );
        let message = read_stage(&stage)
            .unwrap_err()
            .replace("spec.stages[0].webhook: ", "")
            .replace("spec.stages[0].webhook", "");
        assert_eq!(message, expected, "{text}");
    }
    let table = [
        (
            "url: 'https://h'",
            "8:27: spec.stages[0].webhook.protocol: missing; write AdmissionReview or BcsResource",
        ),
        (
            "protocol: bcsresource, url: 'https://h'",
            "8:39: spec.stages[0].webhook.protocol: \"bcsresource\" is not a valid protocol; case matters: write BcsResource",
        ),
        (
            "protocol: BcsResource, url: 'https://h', versions: [v1]",
            "8:80: spec.stages[0].webhook.versions: only AdmissionReview has versions; remove it",
        ),
    ];
    for (text, expected) in table {
        let message = read_stage(&format!("{{ name: a, webhook: {{ {text} }} }}")).unwrap_err();
        assert_eq!(message, expected, "{text}");
    }
}

#[test]
fn mistakes_in_ca_bundles_are_reported_with_their_locations() {
    let write = "write the base64 of a PEM file, `base64 -w0 ca.pem`";
    let second_is_none = format!(
        "{}-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        certificates::ca_pem(),
        certificates::encode_base64("no certificate")
    );
    let table = [
        (
            "x".repeat(9),
            format!("this is not base64: Invalid input length: 9; {write}"),
        ),
        (
            "LS0t!".to_owned(),
            format!("this is not base64: Invalid symbol 33, offset 4.; {write}"),
        ),
        (
            certificates::ca_pem().replace('\n', "\\n"),
            "this is PEM itself; write its base64, `base64 -w0 ca.pem`".to_owned(),
        ),
        (
            certificates::encode_base64("hello"),
            format!("there is no certificate in it; {write}"),
        ),
        (
            certificates::encode_base64(&second_is_none),
            format!("certificate 2 in it is not a valid X.509 certificate; {write}"),
        ),
        (
            certificates::encode_base64("-----BEGIN CERTIFICATE-----\nAAAA"),
            format!("certificate 1 in it has no END line; {write}"),
        ),
    ];
    for (bundle, expected) in table {
        let stage = format!(
            "{{ name: a, webhook: {{ protocol: BcsResource, caBundle: \"{bundle}\", service: {{ namespace: m, name: s }} }} }}"
        );
        let expected = format!("8:62: spec.stages[0].webhook.caBundle: {expected}");
        assert_eq!(read_stage(&stage).unwrap_err(), expected, "{bundle}");
    }
}

#[test]
fn mistakes_in_stages_are_reported_with_their_locations() {
    // (fields of a stage after its name and plugin, expected mistakes)
    let table = [
        (
            "failurePolicy: fial",
            "8:61: spec.stages[0].failurePolicy: \"fial\" is not a valid failure policy; write Fail or Ignore",
        ),
        (
            "failurePolicy: ignore",
            "8:61: spec.stages[0].failurePolicy: \"ignore\" is not a valid failure policy; case matters: write Ignore",
        ),
        (
            "timeout: 31s",
            "8:55: spec.stages[0].timeout: 31s is out of range; write 1ms to 30s",
        ),
        (
            "timeout: 10",
            "8:55: spec.stages[0].timeout: 10 has no unit; write 10ms or 10s",
        ),
        (
            "timeoutSeconds: 10",
            "8:46: spec.stages[0].timeoutSeconds: unknown field; known here: candidate, cel, failurePolicy, group, matchConditions, mode, name, namespaceSelector, objectSelector, plugin, rego, reinvocationPolicy, rules, sideEffects, timeout, webhook",
        ),
        (
            "mode: Off",
            "8:52: spec.stages[0].mode: true or false where a mode is expected; write Enforce or Audit",
        ),
        (
            "sideEffects: none",
            "8:59: spec.stages[0].sideEffects: \"none\" is not a valid kind of side effects; case matters: write None",
        ),
        (
            "reinvocationPolicy: Always",
            "8:66: spec.stages[0].reinvocationPolicy: \"Always\" is not a valid reinvocation policy; write Never or IfNeeded",
        ),
        (
            "rules: []",
            "8:53: spec.stages[0].rules: the list is empty; say which of the chain's requests the stage is for, or remove `rules` for all",
        ),
        (
            "rules: [ { operations: [CREATE], resources: ['*/*', pods] } ]",
            "8:91: spec.stages[0].rules[0].resources[0]: `*/*` stands for everything and must be alone; remove it or the others",
        ),
        (
            "matchConditions: true",
            "8:63: spec.stages[0].matchConditions: true or false where a list is expected; write [true]",
        ),
        (
            "faliurePolicy: Fail",
            "8:46: spec.stages[0].faliurePolicy: unknown field; did you mean `failurePolicy`?",
        ),
        (
            "webhook: { protocol: BcsResource, url: 'https://h' }",
            "8:7: spec.stages[0]: the stage has a plugin and a webhook; keep one of them, or make two stages",
        ),
        (
            "namespaceSelector: { operator: Exists, values: [a] }",
            "8:77: spec.stages[0].namespaceSelector.operator: \"Exists\" is not a valid operator; write In or NotIn",
        ),
        (
            "namespaceSelector: { values: [a] }",
            "8:65: spec.stages[0].namespaceSelector.operator: missing; write In or NotIn",
        ),
        (
            "namespaceSelector: { operator: In }",
            "8:65: spec.stages[0].namespaceSelector: it lists no namespace; name at least one namespace, or remove the selector",
        ),
        (
            "namespaceSelector: { operator: In, values: [a], matchLabels: { a: b } }",
            "8:65: spec.stages[0].namespaceSelector: it selects by name (`operator`, `values`) and by label (`matchLabels`, `matchExpressions`); use one of the two forms",
        ),
        (
            "namespaceSelector: { matchLabel: { a: b } }",
            "8:67: spec.stages[0].namespaceSelector.matchLabel: unknown field; did you mean `matchLabels`?",
        ),
        (
            "objectSelector: { operator: In, values: [a] }",
            "8:64: spec.stages[0].objectSelector.operator: unknown field; known here: matchExpressions, matchLabels\n\
             8:78: spec.stages[0].objectSelector.values: unknown field; known here: matchExpressions, matchLabels",
        ),
        (
            "objectSelector: { matchLabels: { a: true } }",
            "8:82: spec.stages[0].objectSelector.matchLabels.a: true or false where a string is expected; put it in quotes: \"true\"",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: In } ] }",
            "8:84: spec.stages[0].objectSelector.matchExpressions[0]: `In` needs values: list at least one",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: a, operator: Exists, values: [b] } ] }",
            "8:84: spec.stages[0].objectSelector.matchExpressions[0]: `Exists` takes no values: remove them",
        ),
        (
            "objectSelector: { matchExpressions: [ { key: '', operator: exists } ] }",
            "8:105: spec.stages[0].objectSelector.matchExpressions[0].operator: \"exists\" is not a valid operator; case matters: write Exists",
        ),
    ];
    for (text, expected) in table {
        let message = read_stage(&format!("{{ name: a, plugin: {{ source: file:a }}, {text} }}")).unwrap_err();
        assert_eq!(message, expected, "{text}");
    }
    let table = [
        (
            "{}",
            "8:7: spec.stages[0]: the stage calls nothing; write `plugin`, `webhook`, `cel`, `rego` or `group`\n8:7: spec.stages[0].name: missing; name the stage",
        ),
        (
            "{ name: a, cel: {} }",
            "8:23: spec.stages[0].cel: it evaluates nothing; write `validations` or `mutations`",
        ),
        (
            "{ name: a, plugin: { source: file:a }, cel: { validations: [ { expression: 'true' } ] } }",
            "8:7: spec.stages[0]: the stage has a plugin and a cel; keep one of them, or make two stages",
        ),
        (
            "{ name: a, cel: { validations: [ { expression: limit } ] } }",
            "8:54: spec.stages[0].cel.validations[0].expression: compilation failed at line 1, column 1: undeclared \
             reference to 'limit': an expression can use object, oldObject, request, authorizer, namespaceObject and \
             variables here",
        ),
        (
            "{ name: A_b, plugin: { source: file:a } }",
            "8:15: spec.stages[0].name: \"A_b\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
        ),
        (
            "{ name: a, plugin: { source: file:a } }\n    - { name: a, plugin: { source: file:b } }",
            "9:15: spec.stages[1].name: \"a\" is also the name of the stage on line 8; give each stage its own name",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(read_stage(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn mistakes_in_phases_are_reported_with_their_locations() {
    // (fields of the chain's `spec`, fields of its stage, expected mistakes)
    let table = [
        (
            "phase: validating",
            "",
            "4:16: spec.phase: \"validating\" is not a valid phase; case matters: write Validating",
        ),
        (
            "matchPolicy: Similar",
            "",
            "4:22: spec.matchPolicy: \"Similar\" is not a valid match policy; write Exact or Equivalent",
        ),
        ("phase: Validating", "reinvocationPolicy: Never", ""),
        (
            "phase: Validating",
            "reinvocationPolicy: IfNeeded",
            "6:72: spec.stages[0].reinvocationPolicy: a validating chain changes nothing, so no stage of it is called again; remove it",
        ),
        ("phase: Mutating", "reinvocationPolicy: IfNeeded", ""),
    ];
    for (of_chain, of_stage, expected) in table {
        let text = format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: a }}\nspec: {{ {of_chain},\n  \
             rules: [ {RULE} ],\n  stages: [ {{ name: a, plugin: {{ source: file:a }}, {of_stage} }} ] }}"
        );
        let message = load_text("f", &text).map_or_else(|mistakes| mistakes.to_string(), |_| String::new());
        assert_eq!(message.replace("f:", ""), expected, "{of_chain} {of_stage}");
    }
}

#[test]
fn mistakes_outside_the_chain_are_reported_with_their_locations() {
    let head = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\n";
    let table = [
        (
            "",
            "f:1:1: metadata: missing; name the chain: `metadata: { name: ... }`\nf:1:1: spec: missing; write the chain's rules and stages",
        ),
        (
            "metadata: {}\nspec: {}",
            "f:3:11: metadata.name: missing; name the chain\n\
             f:4:7: spec.rules: missing; say which requests the chain is for\n\
             f:4:7: spec.stages: missing; list the hooks that are called",
        ),
        (
            "metadata: { name: a, namespace: b }\nspec: { rules: [], stages: [] }",
            "f:3:22: metadata.namespace: unknown field; known here: annotations, labels, name\n\
             f:4:16: spec.rules: the list is empty; say which requests the chain is for\n\
             f:4:28: spec.stages: the list is empty; list the hooks that are called",
        ),
        (
            "metadata: { name: -a }\nspec: []\nstages: []",
            "f:3:19: metadata.name: \"-a\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit\n\
             f:4:7: spec: a list where an object is expected; write `field: value`\n\
             f:5:1: stages: unknown field; known here: apiVersion, kind, metadata, spec",
        ),
    ];
    for (text, expected) in table {
        let message = load_text("f", &format!("{head}{text}")).unwrap_err().to_string();
        assert_eq!(message, expected, "{text}");
    }
}
