use admittance_admission::{NamespaceSelector, Phase, ServiceNaming, WebhookTarget};
use serde_json::{Map, Value};

use super::*;
use crate::{PluginDefinition, certificates, load_text};

/// The body of the request that creates a definition, from the API documentation of BCS. Its CA bundles are not base64.
const DOCUMENTED_BODY: &str = r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"name":"webhook-test","namespace":"defaultGroup"},
 "resourcesRef":{"operation":"Create","kind":"Application"},
 "admissionWebhooks":[
  {"name":"container-sidecar","failurePolicy":"Ignore","clientConfig":{"caBundle":"xxxxxxxxx","namespace":"sidecar-webhook-namespace","name":"sidecar-webhook-service"}},
  {"name":"container-images","failurePolicy":"Fail","clientConfig":{"caBundle":"xxxxxxxxx","namespace":"image-webhook-namespace","name":"image-webhook-service"}}]}"#;

/// The response of an older BCS driver, from BCS's API documentation. It has Go's names of fields, such as
/// `ResourcesRef`.
const PRINTED_BODY: &str = r#"{"ResourcesRef":{"Kind":"Application","Operation":"Create"},"admissionWebhooks":[
 {"ClientConfig":{"CaBundle":"xxxxxxxxx","Name":"sidecar-webhook-service","Namespace":"sidecar-webhook-namespace"},"FailurePolicy":"Ignore","Name":"container-sidecar"},
 {"ClientConfig":{"CaBundle":"xxxxxxxxx","Name":"image-webhook-service","Namespace":"image-webhook-namespace"},"FailurePolicy":"Fail","Name":"container-images"}],
 "apiVersion":"v4","kind":"admissionwebhook","metadata":{"creationTimestamp":"0001-01-01T00:00:00Z","name":"webhook-test","namespace":"defaultGroup"}}"#;

/// The definition in the response of a newer BCS driver, which includes unset fields.
const COMPLETE_PRINTED_BODY: &str = r#"{"apiVersion":"v4","kind":"admissionwebhook",
 "metadata":{"name":"webhook-test","namespace":"defaultGroup","creationTimestamp":"2020-01-01T00:00:00Z","labels":{"a":"b"},"annotations":null,"clusterName":""},
 "resourcesRef":{"operation":"Create","kind":"Application"},
 "admissionWebhooks":[
  {"name":"container-sidecar","failurePolicy":"Ignore","clientConfig":{"url":"","caBundle":"xxxxxxxxx","namespace":"sidecar-webhook-namespace","name":"sidecar-webhook-service","path":"","port":0},"namespaceSelector":null},
  {"name":"container-images","failurePolicy":"Fail","clientConfig":{"url":"","caBundle":"xxxxxxxxx","namespace":"image-webhook-namespace","name":"image-webhook-service","path":"/","port":443}}]}"#;

fn custom_resource() -> String {
    format!(
        r#"{{"apiVersion":"bkbcs.tencent.com/v2","kind":"AdmissionWebhookConfiguration","metadata":{{"name":"webhook-test","namespace":"bkbcs","uid":"u"}},"status":{{}},"spec":
{DOCUMENTED_BODY}}}"#
    )
}

fn stage(name: &str, service: &str, failure_policy: FailurePolicy, line: u32, column: u32) -> StageDefinition {
    let mut spec = StageSpec::new(format!("container-{name}"));
    spec.failure_policy = failure_policy;
    spec.timeout = Duration::from_secs(10);
    StageDefinition {
        spec,
        hook: WebhookDefinition {
            protocol: Protocol::BcsResource,
            target: WebhookTarget::Service {
                namespace: format!("{service}-webhook-namespace"),
                name: format!("{service}-webhook-service"),
                port: 443,
                path: "/".into(),
                naming: ServiceNaming::Bcs,
            },
            ca_bundle: client::parse_ca_bundle(&certificates::ca_bundle()).ok(),
        }
        .into(),
        candidate: None,
        location: Location {
            file: "f.json".into(),
            line,
            column,
        },
    }
}

#[test]
fn bcs_documents_are_read_with_their_positions() {
    // (text, line and column of the chain, line and column of each stage)
    let custom_resource = custom_resource();
    let table = [
        (DOCUMENTED_BODY, [(4, 3), (5, 3)]),
        (PRINTED_BODY, [(2, 2), (3, 2)]),
        (COMPLETE_PRINTED_BODY, [(5, 3), (6, 3)]),
        (&custom_resource, [(5, 3), (6, 3)]),
    ];
    for (text, [first, second]) in table {
        let chains = load_text("f.json", &text.replace("xxxxxxxxx", &certificates::ca_bundle())).unwrap();
        let expected = ChainDefinition {
            name: "defaultGroup/webhook-test".into(),
            namespace: None,
            phase: Phase::Mutating,
            location: Location {
                file: "f.json".into(),
                line: 1,
                column: 1,
            },
            rules: vec![Rule {
                kinds: Matcher::Only(vec!["application".into()]),
                ..Rule::for_operations([Operation::Create])
            }],
            warnings: Vec::new(),
            idle_stages: Vec::new(),
            stages: vec![
                stage("sidecar", "sidecar", FailurePolicy::Ignore, first.0, first.1),
                stage("images", "image", FailurePolicy::Fail, second.0, second.1),
            ],
        };
        assert_eq!(chains, [expected], "{text}");
    }
}

#[test]
fn invalid_ca_bundles_in_the_documented_bcs_body_are_reported() {
    let rest = "this is not base64: Invalid input length: 9; write the base64 of a PEM file, `base64 -w0 ca.pem`";
    assert_eq!(
        load_text("f.json", DOCUMENTED_BODY).unwrap_err().to_string(),
        format!(
            "f.json:4:83: admissionWebhooks[0].clientConfig.caBundle: {rest}\n\
             f.json:5:80: admissionWebhooks[1].clientConfig.caBundle: {rest}"
        )
    );
    assert_eq!(
        load_text("f.json", &custom_resource()).unwrap_err().to_string(),
        format!(
            "f.json:5:83: spec.admissionWebhooks[0].clientConfig.caBundle: {rest}\n\
             f.json:6:80: spec.admissionWebhooks[1].clientConfig.caBundle: {rest}"
        )
    );
}

#[test]
fn mistakes_in_bcs_examples_are_reported_as_the_docs_quote_them() {
    const PAGE: &str = include_str!("../../../../../docs/bcs-migration.md");
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `\""));
    let quoted: Vec<Value> = rows
        .map(|row| {
            let (members, _) = row.split_once("` |").unwrap();
            serde_json::from_str(&format!("{{\"{}}}", members.replace("\\|", "|"))).unwrap()
        })
        .collect();
    let valid: Value = serde_json::from_str(&DOCUMENTED_BODY.replace("xxxxxxxxx", &certificates::ca_bundle())).unwrap();
    let mistakes = |quoted: &[Value]| {
        let mut example = valid.clone();
        for members in quoted {
            replace_members(&mut example, members.as_object().unwrap());
        }
        let mistakes = load_text("f.json", &example.to_string()).err().unwrap_or_default();
        let lines = mistakes
            .into_iter()
            .map(|mistake| format!("{}: {}", mistake.path, mistake.message));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(mistakes(&[]), [""; 0]);
    let mut all_mistakes: Vec<String> = Vec::new();
    for members in &quoted {
        let row_mistakes = mistakes(std::slice::from_ref(members));
        assert!(!row_mistakes.is_empty(), "{members} is right");
        all_mistakes.extend(row_mistakes);
    }
    all_mistakes.sort();
    assert_eq!(
        all_mistakes,
        [
            "admissionWebhooks[0].clientConfig.caBundle: this is not base64: Invalid input length: 9",
            "admissionWebhooks[0].failurePolicy: \"Ignore | Fail\" is not a valid failure policy",
            "admissionWebhooks[1].clientConfig.caBundle: this is not base64: Invalid input length: 9",
            "admissionWebhooks[1].failurePolicy: \"Ignore | Fail\" is not a valid failure policy",
            "metadata.namespace: missing",
            "resourcesRef.kind: \"Application | Deployment\" is not a valid kind of BCS",
            "resourcesRef.operation: \"Create | Update\" is not a valid operation",
        ]
    );
    let mut example_mistakes = mistakes(&quoted);
    example_mistakes.sort();
    assert_eq!(example_mistakes, all_mistakes, "the example as a whole");
}

/// Searches `value` for objects, at any depth, that have all keys of `members`. Gives these keys the values that they
/// have in `members`.
fn replace_members(value: &mut Value, members: &Map<String, Value>) {
    match value {
        Value::Object(object) if members.keys().all(|key| object.contains_key(key)) => {
            object.extend(members.clone());
        }
        Value::Object(object) => object.values_mut().for_each(|value| replace_members(value, members)),
        Value::Array(list) => list.iter_mut().for_each(|value| replace_members(value, members)),
        _ => {}
    }
}

/// Reads a BCS definition with one hook. `hook` is the text of this hook, which is put on line 6.
fn read(hook: &str) -> Result<Vec<ChainDefinition>, String> {
    let text = format!(
        "apiVersion: v4\nkind: admissionwebhook\nmetadata: {{ namespace: d, name: w }}\n\
         resourcesRef: {{ operation: update, kind: deployment }}\nadmissionWebhooks:\n  - {}\n",
        hook.replace("BUNDLE", &certificates::ca_bundle())
    );
    load_text("chains/f.yaml", &text).map_err(|mistakes| mistakes.to_string().replace("chains/f.yaml:", ""))
}

const URL: &str = "clientConfig: { url: 'https://h.example' }";

#[test]
fn a_bcs_hook_is_read_with_its_defaults() {
    // (fields of a hook, expected stage)
    // The stage is written as failure policy, timeout, mode, namespace selector and address.
    let table = [
        (
            "clientConfig: { url: 'http://h.example/a' }",
            "Ignore 10s Enforce None http://h.example/a",
        ),
        (
            "failurePolicy: '', clientConfig: { url: 'https://h.example', namespace: m, name: s, path: /, port: 443 }",
            "Ignore 10s Enforce None https://h.example/",
        ),
        (
            "failurePolicy: Fail, timeout: 2s, mode: Audit, clientConfig: { url: 'https://h.example' }",
            "Fail 2s Audit None https://h.example/",
        ),
        (
            "namespaceSelector: { operator: In, values: [] }, clientConfig: { url: 'https://h' }",
            "Ignore 10s Enforce Some(In([])) https://h/",
        ),
        (
            "NamespaceSelector: { Operator: NotIn }, clientConfig: { url: 'https://h' }",
            "Ignore 10s Enforce Some(NotIn([])) https://h/",
        ),
        (
            "plugin: { source: file:a.wasm }",
            "Ignore 10s Enforce None file:chains/a.wasm",
        ),
        (
            "clientConfig: { namespace: m, name: s, path: /a, port: 8443, caBundle: BUNDLE }",
            "Ignore 10s Enforce None s.m:8443/a",
        ),
    ];
    for (text, expected) in table {
        let chains = read(&format!("{{ name: a, {text} }}")).unwrap();
        assert_eq!(chains[0].rules[0].operations, Matcher::Only(vec![Operation::Update]));
        assert_eq!(chains[0].rules[0].kinds, Matcher::Only(vec!["deployment".into()]));
        let stage = &chains[0].stages[0];
        let target = match stage.hook.server() {
            None => stage.hook.get::<PluginDefinition>().unwrap().source.to_string(),
            Some(WebhookTarget::Url(url)) => url.to_string(),
            Some(WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
                ..
            }) => format!("{name}.{namespace}:{port}{path}"),
        };
        let selector = stage.spec.namespace_selector.as_ref();
        assert!(!matches!(selector, Some(NamespaceSelector::Labels(_))));
        let summary = format!(
            "{} {:?} {} {selector:?} {target}",
            stage.spec.failure_policy, stage.spec.timeout, stage.spec.mode
        );
        assert_eq!(summary, expected, "{text}");
    }
}

#[test]
fn mistakes_in_hooks_are_reported_with_their_locations() {
    let table = [
        (
            "{}",
            "6:5: admissionWebhooks[0].clientConfig: missing; write where the hook is, or `plugin` in its place\n6:5: admissionWebhooks[0].name: missing; name the hook",
        ),
        (
            "{ name: a b, clientConfig: { url: 'https://h' } }",
            "6:13: admissionWebhooks[0].name: \"a b\" is not a valid name: remove the spaces and control characters",
        ),
        (
            "{ name: a, clientConfig: { url: 'https://h' }, plugin: { source: file:a } }",
            "6:5: admissionWebhooks[0]: the hook has a clientConfig and a plugin; keep one of them, or make two hooks",
        ),
        (
            "{ name: a, clientConfig: {} }",
            "6:30: admissionWebhooks[0].clientConfig.caBundle: missing; a service is trusted by its CA: write the base64 of a PEM file, `base64 -w0 ca.pem`\n\
             6:30: admissionWebhooks[0].clientConfig.name: missing; name the service\n\
             6:30: admissionWebhooks[0].clientConfig.namespace: missing; name the service's namespace",
        ),
        (
            "{ name: a, clientConfig: { caBundle: aGVsbG8=, namespace: m, name: s } }",
            "6:42: admissionWebhooks[0].clientConfig.caBundle: there is no certificate in it; write the base64 of a PEM file, `base64 -w0 ca.pem`",
        ),
        (
            "{ name: a, clientConfig: { caBundle: '', namespace: m, name: s, path: a, port: -1 } }",
            "6:42: admissionWebhooks[0].clientConfig.caBundle: empty; a service is trusted by its CA: write the base64 of a PEM file, `base64 -w0 ca.pem`\n\
             6:75: admissionWebhooks[0].clientConfig.path: the path \"a\" does not begin with `/`\n\
             6:84: admissionWebhooks[0].clientConfig.port: -1 is out of range; write 0 to 65535",
        ),
        (
            "{ name: a, clientConfig: { url: 'https://h', caBundel: x } }",
            "6:50: admissionWebhooks[0].clientConfig.caBundel: unknown field; did you mean `caBundle`?",
        ),
        (
            "{ name: a, failurePolicy: fail, URL }",
            "6:31: admissionWebhooks[0].failurePolicy: \"fail\" is not a valid failure policy; case matters: write Fail",
        ),
        (
            "{ name: a, failurePolicy: Open, URL }",
            "6:31: admissionWebhooks[0].failurePolicy: \"Open\" is not a valid failure policy; write Fail or Ignore",
        ),
        (
            "{ name: a, timeout: 1h, URL }",
            "6:25: admissionWebhooks[0].timeout: 1h is out of range; write 1ms to 30s",
        ),
        (
            "{ name: a, namespaceSelector: { operator: in, values: [x] }, URL }",
            "6:47: admissionWebhooks[0].namespaceSelector.operator: \"in\" is not a valid operator; case matters: write In",
        ),
        (
            "{ name: a, namespaceSelector: { matchLabels: { a: b } }, URL }",
            "6:35: admissionWebhooks[0].namespaceSelector.operator: missing; write In or NotIn\n\
             6:37: admissionWebhooks[0].namespaceSelector.matchLabels: unknown field; known here: operator, values",
        ),
        (
            "{ name: a, objectSelector: {}, URL }",
            "6:16: admissionWebhooks[0].objectSelector: unknown field; known here: candidate, clientConfig, failurePolicy, mode, name, namespaceSelector, plugin, timeout",
        ),
        (
            "{ name: a, URL }\n  - { name: a, URL }",
            "7:13: admissionWebhooks[1].name: \"a\" is also the name of the stage on line 6; give each stage its own name",
        ),
        (
            "{ name: a, Name: b, URL }",
            "6:16: admissionWebhooks[0].Name: the field `name` is written a second time; the first is on line 6; keep one of the two",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(read(&text.replace("URL", URL)).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn mistakes_outside_the_hooks_are_reported_with_their_locations() {
    let table = [
        (
            "{}",
            "f:1:1: admissionWebhooks: missing; list the hooks that are called\n\
             f:1:1: metadata: missing; write namespace and name\n\
             f:1:1: resourcesRef: missing; write operation and kind: `{ operation: Create, kind: Application }`",
        ),
        (
            "{metadata: {name: a}, resourcesRef: {}, admissionWebhooks: []}",
            "f:3:11: metadata.namespace: missing; write the definition's namespace\n\
             f:4:15: resourcesRef.kind: missing; write Application or Deployment\n\
             f:4:15: resourcesRef.operation: missing; write Create or Update",
        ),
        (
            "{metadata: {name: a, namespace: b}, resourcesRef: {operation: Delete, kind: Aplication}, admissionWebhooks: {}}",
            "f:4:27: resourcesRef.operation: \"Delete\" is not a valid operation; write Create or Update\n\
             f:4:41: resourcesRef.kind: \"Aplication\" is not a valid kind of BCS; did you mean Application?\n\
             f:5:20: admissionWebhooks: an object where a list is expected",
        ),
        (
            "{metadata: {name: a, namespace: b}, resourceRef: {operation: Create, kind: Application}, admissionWebhooks: []}",
            "f:1:1: resourcesRef: missing; write operation and kind: `{ operation: Create, kind: Application }`\n\
             f:4:1: resourceRef: unknown field; did you mean `resourcesRef`?",
        ),
    ];
    for (text, expected) in table {
        // Each field gets its own line, so that the line of a mistake tells the field.
        let fields = text
            .trim_start_matches('{')
            .strip_suffix('}')
            .unwrap_or_default()
            .replace(", resource", "\nresource")
            .replace(", admissionWebhooks", "\nadmissionWebhooks");
        let text = format!("apiVersion: v4\nkind: admissionwebhook\n{fields}\n");
        assert_eq!(load_text("f", &text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn a_definition_without_hooks_is_a_chain_without_stages() {
    let text = "kind: AdmissionWebhook\nmetadata: {name: a, namespace: b}\nresourcesRef: {operation: Create, kind: DAEMONSET}\nadmissionWebhooks: []\n";
    // Go writes an empty list as `null`, so the test reads the text with `[]` and with `null`.
    for text in [text, &text.replace("[]", "null")] {
        let chains = load_text("f", text).unwrap();
        assert_eq!(chains[0].stages, []);
        assert_eq!(chains[0].rules[0].kinds, Matcher::Only(vec!["daemonset".into()]));
    }
}

#[test]
fn a_definition_without_metadata_has_the_name_of_its_custom_resource() {
    let text = "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: {name: a, namespace: b}\n\
                spec:\n  resourcesRef: {operation: Create, kind: Application}\n  admissionWebhooks: []\n";
    assert_eq!(load_text("f", text).unwrap()[0].name, "b/a");
    let text = text.replace("spec:\n", "data:\n");
    assert_eq!(
        load_text("f", &text).unwrap_err().to_string(),
        "f:1:1: spec: missing; write the admissionwebhook there\n\
         f:4:1: data: unknown field; known here: apiVersion, kind, metadata, spec, status"
    );
}
