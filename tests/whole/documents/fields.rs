//! Checks that the pages and the schemas list every field that the program reads in test cases, chains and
//! configurations.

use std::collections::{BTreeMap, BTreeSet};

use admittance::definitions::{Mistakes, load_text};
use admittance_tests::{Admittance, Artifacts};
use serde_json::Value;

use super::{page::Page, read_configuration, test_plugin};

/// A name that resembles no field, so that the program lists all known fields instead of suggesting one.
const UNKNOWN_FIELD: &str = "qqqqqqqqqqqqqqqqqqqq";

/// Finds the path of each field that a JSON schema describes, such as `spec.stages`, and adds it to `paths`. `node` is
/// the part of the schema in which to look, and `prefix` is the path of this part.
fn collect_field_paths(schema: &Value, node: &Value, prefix: &str, paths: &mut BTreeSet<String>) {
    let node = match node["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
        None => node,
    };
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        paths.insert(format!("{prefix}{name}"));
        collect_field_paths(schema, property, &format!("{prefix}{name}."), paths);
    }
    if node["items"].is_object() {
        collect_field_paths(schema, &node["items"], prefix, paths);
    }
    // `additionalProperties` describes the values of a map whose keys are arbitrary. In the path of a field, `*` stands
    // for such a key.
    if node["additionalProperties"].is_object() {
        collect_field_paths(schema, &node["additionalProperties"], &format!("{prefix}*."), paths);
    }
    for choice in node["anyOf"]
        .as_array()
        .into_iter()
        .chain(node["oneOf"].as_array())
        .flatten()
    {
        collect_field_paths(schema, choice, prefix, paths);
    }
}

async fn schema_fields(document: &str) -> BTreeSet<String> {
    let schema_output = Admittance::run(["schema", document]).await.unwrap();
    let schema: Value = serde_json::from_str(&schema_output.stdout).unwrap();
    let mut paths = BTreeSet::new();
    collect_field_paths(&schema, &schema, "", &mut paths);
    paths
}

/// Returns the names of all fields that the program accepts at these places. Each place has a prefix for the names, and
/// a document with a `?` in which an unknown field replaces the `?`. `suggest_fields` checks that document, and returns
/// the names that the error message suggests.
fn accepted_fields(sections: &[(&str, &str)], suggest_fields: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let fields = sections.iter().flat_map(|(prefix, text)| {
        let names = suggest_fields(&with_unknown_field(text)).into_iter();
        names.map(move |name| format!("{prefix}{name}"))
    });
    fields.collect()
}

#[tokio::test]
async fn fields_of_test_cases_are_documented_and_in_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    let mut suggestions = BTreeMap::new();
    let sections = [
        ("", "{ ? }"),
        ("allow.", "{ allow: { ? }, cases: [] }"),
        ("allow.http.", "{ allow: { http: [ { ? } ] }, cases: [] }"),
        ("http.", "{ http: [ { ? } ], cases: [] }"),
        ("cases.", "{ cases: [ { ? } ] }"),
        (
            "cases.request.",
            "{ cases: [ { request: { object: { kind: a }, ? } } ] }",
        ),
        ("cases.request.", "{ cases: [ { request: { recording: none, ? } } ] }"),
        (
            "cases.request.user.",
            "{ cases: [ { request: { object: { kind: a }, user: { ? } } } ] }",
        ),
        ("cases.expect.", "{ cases: [ { expect: { ? } } ] }"),
    ];
    for (_, text) in sections {
        let file = folder.path().join("cases.yaml");
        std::fs::write(&file, with_unknown_field(text)).unwrap();
        let run = test_plugin(&plugin, &file).await;
        assert_eq!(run.code, Some(2), "{text}: {}", run.stdout);
        let line = run.stderr.lines().find(|line| line.contains(UNKNOWN_FIELD)).unwrap();
        let (_, fields) = line.split_once("known here: ").unwrap();
        let fields = fields.split(", ").map(str::to_owned);
        suggestions.insert(with_unknown_field(text), fields.collect::<Vec<_>>());
    }
    let program_fields = accepted_fields(&sections, |text| suggestions[text].clone());
    let mut schema = schema_fields("test").await;
    schema.retain(|field| !field.starts_with("cases.allow.") && !field.starts_with("cases.http."));
    assert_eq!(schema, program_fields);

    let page = Page::read("docs/testing.md");
    let documented_names = |heading: &str, prefix: &str| -> BTreeSet<String> {
        let names = page.first_column(heading).into_iter();
        names.map(|name| format!("{prefix}{name}")).collect()
    };
    let is_in_case = |field: &&String| field.starts_with("cases.");
    let file_fields: BTreeSet<String> = program_fields
        .iter()
        .filter(|field| !is_in_case(field) && !field.starts_with("allow.") && !field.starts_with("http."))
        .cloned()
        .collect();
    assert_eq!(documented_names("A file of cases", ""), file_fields);
    for (heading, prefix) in [
        ("request", "cases.request."),
        ("http", "http."),
        ("expect", "cases.expect."),
    ] {
        let fields: BTreeSet<String> = program_fields
            .iter()
            .filter(|field| field.strip_prefix(prefix).is_some_and(|name| !name.contains('.')))
            .cloned()
            .collect();
        assert_eq!(documented_names(heading, prefix), fields);
    }
    let mut case_fields = documented_names("A case", "cases.");
    case_fields.extend(
        file_fields
            .iter()
            .filter(|name| *name != "cases")
            .map(|name| format!("cases.{name}")),
    );
    let fields = program_fields.iter().filter(|field| {
        let name = field.strip_prefix("cases.");
        name.is_some_and(|name| !name.contains('.'))
    });
    assert_eq!(case_fields, fields.cloned().collect());
}

#[tokio::test]
async fn the_schema_of_chains_has_the_fields_that_the_program_reads() {
    const STAGE: &str = "spec: { stages: [ { name: a, ";
    let stage = |stage_fields: &str| format!("{STAGE}{stage_fields}");
    let texts = [
        ("", "?".to_owned()),
        ("metadata.", "metadata: { ? }".to_owned()),
        ("spec.", "spec: { ? }".to_owned()),
        ("spec.rules.", "spec: { rules: [ { ? } ] }".to_owned()),
        ("spec.stages.", stage("? } ] }")),
        ("spec.stages.rules.", stage("rules: [ { ? } ] } ] }")),
        ("spec.stages.plugin.", stage("plugin: { ? } } ] }")),
        ("spec.stages.plugin.allow.", stage("plugin: { allow: { ? } } } ] }")),
        (
            "spec.stages.plugin.allow.http.",
            stage("plugin: { allow: { http: [ { ? } ] } } } ] }"),
        ),
        ("spec.stages.candidate.", stage("plugin: {}, candidate: { ? } } ] }")),
        (
            "spec.stages.candidate.rollout.",
            stage("plugin: {}, candidate: { rollout: { ? } } } ] }"),
        ),
        (
            "spec.stages.candidate.rollout.abortOn.",
            stage("plugin: {}, candidate: { rollout: { abortOn: { ? } } } } ] }"),
        ),
        (
            "spec.stages.candidate.allow.",
            stage("plugin: {}, candidate: { allow: { ? } } } ] }"),
        ),
        (
            "spec.stages.candidate.allow.http.",
            stage("plugin: {}, candidate: { allow: { http: [ { ? } ] } } } ] }"),
        ),
        ("spec.stages.webhook.", stage("webhook: { ? } } ] }")),
        (
            "spec.stages.webhook.service.",
            stage("webhook: { service: { ? } } } ] }"),
        ),
        ("spec.stages.rego.", stage("rego: { ? } } ] }")),
        ("spec.stages.rego.allow.", stage("rego: { allow: { ? } } } ] }")),
        (
            "spec.stages.rego.allow.http.",
            stage("rego: { allow: { http: [ { ? } ] } } } ] }"),
        ),
        ("spec.stages.group.", stage("group: { ? } } ] }")),
        (
            "spec.stages.group.plugins.*.",
            stage("group: { plugins: { a: { ? } } } } ] }"),
        ),
        (
            "spec.stages.group.plugins.*.allow.",
            stage("group: { plugins: { a: { allow: { ? } } } } } ] }"),
        ),
        (
            "spec.stages.group.plugins.*.allow.http.",
            stage("group: { plugins: { a: { allow: { http: [ { ? } ] } } } } } ] }"),
        ),
        ("spec.stages.cel.", stage("cel: { ? } } ] }")),
        (
            "spec.stages.cel.variables.",
            stage("cel: { variables: [ { ? } ] } } ] }"),
        ),
        (
            "spec.stages.cel.validations.",
            stage("cel: { validations: [ { ? } ] } } ] }"),
        ),
        (
            "spec.stages.cel.auditAnnotations.",
            stage("cel: { auditAnnotations: [ { ? } ] } } ] }"),
        ),
        (
            "spec.stages.cel.mutations.",
            stage("cel: { mutations: [ { ? } ] } } ] }"),
        ),
        (
            "spec.stages.cel.mutations.applyConfiguration.",
            stage("cel: { mutations: [ { patchType: ApplyConfiguration, applyConfiguration: { ? } } ] } } ] }"),
        ),
        (
            "spec.stages.cel.mutations.jsonPatch.",
            stage("cel: { mutations: [ { patchType: JSONPatch, jsonPatch: { ? } } ] } } ] }"),
        ),
        ("spec.stages.objectSelector.", stage("objectSelector: { ? } } ] }")),
        (
            "spec.stages.objectSelector.matchExpressions.",
            stage("objectSelector: { matchExpressions: [ { ? } ] } } ] }"),
        ),
        (
            "spec.stages.matchConditions.",
            stage("matchConditions: [ { ? } ] } ] }"),
        ),
    ];
    let sections: Vec<_> = texts.iter().map(|(prefix, text)| (*prefix, text.as_str())).collect();
    let program_fields = accepted_fields(&sections, |text| {
        // A NamespacedAdmissionChain has all fields of an AdmissionChain and one more. So for a
        // NamespacedAdmissionChain, the program suggests the fields of an AdmissionChain and its own field.
        let text = format!("{{ apiVersion: admittance.dev/v1alpha1, kind: NamespacedAdmissionChain, {text} }}");
        known_fields(&load_text("a.yaml", &text).unwrap_err())
    });
    let mut schema = schema_fields("chain").await;
    // No document in `texts` has a `?` inside a `namespaceSelector`, so `program_fields` does not contain the fields of
    // a `namespaceSelector`. These fields are removed from the schema as well.
    schema.retain(|field| !field.starts_with("spec.stages.namespaceSelector."));
    assert_eq!(schema, program_fields);
}

#[tokio::test]
async fn the_schema_of_exceptions_has_the_fields_that_the_program_reads() {
    let sections = [
        ("", "?"),
        ("metadata.", "metadata: { ? }"),
        ("spec.", "spec: { ? }"),
        ("spec.rules.", "spec: { rules: [ { ? } ] }"),
        ("spec.matchConditions.", "spec: { matchConditions: [ { ? } ] }"),
    ];
    let program_fields = accepted_fields(&sections, |text| {
        let text = format!("{{ apiVersion: admittance.dev/v1alpha1, kind: AdmissionException, {text} }}");
        known_fields(&load_text("a.yaml", &text).unwrap_err())
    });
    assert_eq!(schema_fields("exception").await, program_fields);
}

fn known_fields(mistakes: &Mistakes) -> Vec<String> {
    let unknown_field = mistakes
        .iter()
        .find(|mistake| mistake.path.ends_with(UNKNOWN_FIELD))
        .unwrap();
    let fields = unknown_field.fix.strip_prefix("known here: ").unwrap();
    fields.split(", ").map(str::to_owned).collect()
}

fn with_unknown_field(text: &str) -> String {
    text.replace('?', &format!("{UNKNOWN_FIELD}: 1"))
}

#[tokio::test]
async fn keys_of_the_configuration_are_documented() {
    let folder = tempfile::tempdir().unwrap();
    let suggest_fields =
        |text: &str| known_fields(&read_configuration(&with_unknown_field(text), folder.path()).unwrap_err());
    let mut keys = BTreeSet::new();
    let sections = [
        ("", "{ ? }"),
        ("listen.", "listen: { ? }"),
        ("listen.tls.", "listen: { tls: { ? } }"),
        ("admin.", "admin: { ? }"),
        ("admin.tls.", "admin: { tls: { ? } }"),
        ("admin.tokens[].", "admin: { tokens: [ { ? } ] }"),
        ("admin.clients[].", "admin: { clients: [ { ? } ] }"),
        ("upstream.", "upstream: { ? }"),
        ("upstream.tls.", "upstream: { tls: { ? } }"),
        ("upstream.health.", "upstream: { health: { ? } }"),
        ("upstream.discover.", "upstream: { discover: { ? } }"),
        ("upstream.lists[].", "upstream: { lists: [ { ? } ] }"),
        ("upstream.lists[].pages.", "upstream: { lists: [ { pages: { ? } } ] }"),
        ("upstream.lists[].object.", "upstream: { lists: [ { object: { ? } } ] }"),
        (
            "upstream.lists[].request.",
            "upstream: { lists: [ { request: { ? } } ] }",
        ),
        ("zookeeper.", "zookeeper: { ? }"),
        ("zookeeper.cluster.", "zookeeper: { cluster: { ? } }"),
        ("zookeeper.cluster.digest.", "zookeeper: { cluster: { digest: { ? } } }"),
        ("registration.", "registration: { ? }"),
        ("registration.external.", "registration: { external: { ? } }"),
        ("limits.", "limits: { ? }"),
        ("store.", "store: { ? }"),
        ("history.", "history: { ? }"),
        ("modules.", "modules: { ? }"),
        ("signatures[].", "signatures: [ { ? } ]"),
        ("signatures[].keyless.", "signatures: [ { keyless: { ? } } ]"),
        (
            "signatures[].keyless.trustRoot.",
            "signatures: [ { keyless: { trustRoot: { ? } } } ]",
        ),
        ("sandbox.", "sandbox: { ? }"),
        ("pluginHttp.", "pluginHttp: { ? }"),
        (
            "pluginHttp.credentials.<name>.",
            "pluginHttp: { credentials: { a: { ? } } }",
        ),
        ("cluster.", "cluster: { ? }"),
        ("tracing.", "tracing: { ? }"),
        ("tracing.tls.", "tracing: { tls: { ? } }"),
        ("webhooks.", "webhooks: { ? }"),
        ("decisions.", "decisions: { ? }"),
        ("decisions.memory.", "decisions: { memory: { ? } }"),
        ("decisions.sqlite.", "decisions: { sqlite: { ? } }"),
        ("decisions.ndjson.", "decisions: { ndjson: { ? } }"),
        ("decisions.http.", "decisions: { http: { ? } }"),
        ("log.", "log: { ? }"),
    ];
    for (prefix, text) in sections {
        keys.extend(suggest_fields(text).iter().map(|key| format!("{prefix}{key}")));
    }
    for (section, _) in sections {
        keys.remove(section.trim_end_matches('.').trim_end_matches("[]"));
    }
    // In a configuration, `trustRoot` is either a path or an object with fields. So the page lists both: the key
    // `trustRoot` itself, and its fields.
    keys.insert("signatures[].keyless.trustRoot".to_owned());
    // The keys of `pluginHttp.credentials` are arbitrary, so the page does not list them.
    keys.remove("pluginHttp.credentials");
    keys.remove("namespaces");
    keys.insert("namespaces.<name>".to_owned());
    let page = Page::read("docs/configuration.md");
    let documented_keys: BTreeSet<String> = page
        .first_column_with_subsections("Every key")
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(documented_keys, keys);
    let schema = schema_fields("config").await;
    for key in documented_keys {
        let key_without_brackets = key.replace("[]", "");
        let key = key_without_brackets.split(".<").next().unwrap();
        assert!(schema.contains(key), "{key} is in the schema");
    }

    assert_eq!(
        suggest_fields("dialect: { ? }"),
        ["bcs", "gateway", "kubernetes", "rest"]
    );
    let mut keys: BTreeSet<String> = suggest_fields("dialect: { bcs: { ? } }").into_iter().collect();
    keys.remove("console");
    let console = suggest_fields("dialect: { bcs: { console: { ? } } }");
    keys.extend(console.iter().map(|key| format!("console.{key}")));
    let documented_keys = page.first_column("The dialect bcs").into_iter().map(str::to_owned);
    assert_eq!(documented_keys.collect::<BTreeSet<_>>(), keys);
    let webhooks = "dialect: { kubernetes: { webhookConfigurations: { ? } } }";
    let mut keys: BTreeSet<String> = suggest_fields(webhooks).into_iter().collect();
    keys.remove("certificate");
    let certificate = "dialect: { kubernetes: { webhookConfigurations: { certificate: { ? } } } }";
    keys.extend(
        suggest_fields(certificate)
            .iter()
            .map(|key| format!("certificate.{key}")),
    );
    let audit = suggest_fields("dialect: { kubernetes: { audit: { ? } } }");
    keys.extend(audit.iter().map(|key| format!("audit.{key}")));
    let documented_keys = page.first_column("The dialect kubernetes").into_iter();
    assert_eq!(documented_keys.map(str::to_owned).collect::<BTreeSet<_>>(), keys);
    let gateway = Page::read("docs/gateway.md");
    let documented_keys = gateway.first_column("A complete configuration");
    for key in suggest_fields("dialect: { gateway: { ? } }") {
        let is_listed =
            |documented_key: &&str| **documented_key == key || documented_key.starts_with(&format!("{key}."));
        assert!(
            documented_keys.iter().any(is_listed),
            "the key {key} of a gateway is listed"
        );
    }
    let kubernetes = Page::read("docs/kubernetes-resources.md");
    let keys = suggest_fields("{ cluster: {}, definitions: [ { kubernetes: { ? } } ] }");
    assert_eq!(keys, ["lease", "namespaced", "policies"]);
    let documented_keys = kubernetes.first_column("Chains of a namespace");
    for (prefix, text) in [
        (
            "",
            "cluster: {}, definitions: [ { kubernetes: { namespaced: { ? } } } ]",
        ),
        (
            "allow.",
            "cluster: {}, definitions: [ { kubernetes: { namespaced: { allow: { ? } } } } ]",
        ),
    ] {
        // The page lists only what the plugins of a namespace need a permission for. They may get environment variables
        // without a permission, so `environment` is not on the page.
        let suggested_keys = suggest_fields(&format!("{{ {text} }}")).into_iter();
        for key in suggested_keys.filter(|key| !["allow", "environment"].contains(&key.as_str())) {
            let key = format!("{prefix}{key}");
            assert!(documented_keys.contains(&key.as_str()), "{key} is listed");
        }
    }
    let documented_keys: BTreeSet<&str> = gateway.first_column("Token server").into_iter().collect();
    for key in suggest_fields("dialect: { gateway: { tokens: { endpoint: { ? } } } }") {
        let is_listed =
            |documented_key: &&str| **documented_key == key || documented_key.starts_with(&format!("{key}."));
        assert!(
            documented_keys.iter().any(is_listed),
            "the key {key} of an endpoint is listed"
        );
    }
    assert_eq!(
        suggest_fields("dialect: { rest: { ? } }"),
        ["routes", "spellings", "unmatched"]
    );
    let rest = Page::read("docs/dialect-rest.md");
    let documented_keys: BTreeSet<&str> = rest.first_column("The dialect rest").into_iter().collect();
    for field in suggest_fields("dialect: { rest: { routes: [ { ? } ] } }") {
        assert!(
            documented_keys.contains(field.as_str()),
            "the field {field} of a route is listed"
        );
    }
    for source in suggest_fields("dialect: { rest: { routes: [ { name: { ? } } ] } }") {
        let row = format!("{{ {source}: ");
        assert!(
            documented_keys.iter().any(|code| code.starts_with(&row)),
            "the source {source} is listed"
        );
    }
}

#[test]
fn fields_of_definitions_are_documented() {
    const CHAIN_HEAD: &str = "{ apiVersion: admittance.dev/v1alpha1, kind: AdmissionChain, ";
    const EXCEPTION_HEAD: &str = "{ apiVersion: admittance.dev/v1alpha1, kind: AdmissionException, ";
    const BCS_HEAD: &str = "{ apiVersion: v4, kind: admissionwebhook, ";
    let pages = ["", "-requests", "-plugins", "-expressions", "-webhooks"]
        .map(|part| Page::read(&format!("docs/definitions{part}.md")));
    // Each row is (heading on the page, parts of the document that the section is about).
    // Each part is (prefix of the fields, start of the document, rest of the document, fields that the page may omit).
    // The rest of the document has a `?` where the fields belong.
    for (heading, parts) in [
        (
            "AdmissionChain",
            &[
                ("metadata.", CHAIN_HEAD, "metadata: { ? } }", &[][..]),
                ("spec.", CHAIN_HEAD, "spec: { ? } }", &[]),
                ("stages[].", CHAIN_HEAD, "spec: { stages: [ { ? } ] } }", &[]),
            ][..],
        ),
        ("Rules", &[("", CHAIN_HEAD, "spec: { rules: [ { ? } ] } }", &[])]),
        (
            "Plugin",
            &[
                ("", CHAIN_HEAD, "spec: { stages: [ { plugin: { ? } } ] } }", &["allow"]),
                (
                    "allow.",
                    CHAIN_HEAD,
                    "spec: { stages: [ { plugin: { allow: { ? } } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "Candidate",
            &[(
                "",
                CHAIN_HEAD,
                "spec: { stages: [ { plugin: {}, candidate: { ? } } ] } }",
                &[],
            )],
        ),
        (
            "Rollout",
            &[
                (
                    "",
                    CHAIN_HEAD,
                    "spec: { stages: [ { plugin: {}, candidate: { rollout: { ? } } } ] } }",
                    &["abortOn"],
                ),
                (
                    "abortOn.",
                    CHAIN_HEAD,
                    "spec: { stages: [ { plugin: {}, candidate: { rollout: { abortOn: { ? } } } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "Webhook",
            &[
                (
                    "",
                    CHAIN_HEAD,
                    "spec: { stages: [ { webhook: { ? } } ] } }",
                    &["service"],
                ),
                (
                    "service.",
                    CHAIN_HEAD,
                    "spec: { stages: [ { webhook: { service: { ? } } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "Expressions",
            &[
                (
                    "",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { ? } } ] } }",
                    &["variables", "validations", "auditAnnotations", "mutations"],
                ),
                (
                    "variables[].",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { variables: [ { ? } ] } } ] } }",
                    &[],
                ),
                (
                    "validations[].",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { validations: [ { ? } ] } } ] } }",
                    &[],
                ),
                (
                    "auditAnnotations[].",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { auditAnnotations: [ { ? } ] } } ] } }",
                    &[],
                ),
                (
                    "mutations[].",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { mutations: [ { ? } ] } } ] } }",
                    &["applyConfiguration", "jsonPatch"],
                ),
                (
                    "mutations[].applyConfiguration.",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { mutations: [ { patchType: ApplyConfiguration, applyConfiguration: { ? } } ] } } ] } }",
                    &[],
                ),
                (
                    "mutations[].jsonPatch.",
                    CHAIN_HEAD,
                    "spec: { stages: [ { cel: { mutations: [ { patchType: JSONPatch, jsonPatch: { ? } } ] } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "AdmissionException",
            &[
                ("metadata.", EXCEPTION_HEAD, "metadata: { ? } }", &[]),
                ("spec.", EXCEPTION_HEAD, "spec: { ? } }", &[]),
            ],
        ),
        (
            "BCS admissionwebhook",
            &[
                ("", BCS_HEAD, "? }", &["metadata", "resourcesRef"]),
                ("resourcesRef.", BCS_HEAD, "resourcesRef: { ? } }", &[]),
                (
                    "admissionWebhooks[].",
                    BCS_HEAD,
                    "admissionWebhooks: [ { ? } ] }",
                    &["clientConfig"],
                ),
                (
                    "admissionWebhooks[].clientConfig.",
                    BCS_HEAD,
                    "admissionWebhooks: [ { clientConfig: { ? } } ] }",
                    &[],
                ),
            ],
        ),
    ] {
        let mut fields = BTreeSet::new();
        for (prefix, start, rest, not_listed) in parts {
            let mistakes = load_text("a.yaml", &with_unknown_field(&format!("{start}{rest}"))).unwrap_err();
            let suggested_fields = known_fields(&mistakes)
                .into_iter()
                .filter(|field| !not_listed.contains(&field.as_str()));
            fields.extend(suggested_fields.map(|field| format!("{prefix}{field}")));
        }
        let has_heading = |page: &&Page| page.text.contains(&format!("# {heading}\n"));
        let page = pages.iter().find(has_heading).unwrap();
        let mut documented_fields: BTreeSet<String> =
            page.first_column(heading).into_iter().map(str::to_owned).collect();
        // The program accepts any metadata in BCS definitions, because BCS and Kubernetes add fields to it.
        if heading.starts_with("BCS") {
            documented_fields.remove("metadata.name");
            documented_fields.remove("metadata.namespace");
        }
        // `apiVersion` and `kind` only select the format of the other fields, so the page or the error message may omit
        // them. If one of the two lists lacks such a field, it is removed from the other list.
        documented_fields.retain(|field| fields.contains(field) || !["apiVersion", "kind"].contains(&field.as_str()));
        fields.retain(|field| documented_fields.contains(field) || !["apiVersion", "kind"].contains(&field.as_str()));
        assert_eq!(documented_fields, fields, "{heading}");
    }
}
