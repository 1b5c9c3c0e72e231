mod evaluator;
mod examples;
mod reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use admittance_definitions::{
    CHAIN_SCHEMA, DefinitionFile, DefinitionSet, Definitions, Mistakes,
    document::{self},
};
use serde_json::{Map, Value as Json, json};

use self::evaluator::Schemas;
use super::{super::structural_schema, *};
use crate::schema;

/// The maximum cost that an API server allows for one rule.
const RULE_COST: u64 = 10_000_000;
const TOTAL_COST: u64 = 100_000_000;

fn spec_schema(kind: &str) -> Json {
    let (text, add_rules): (_, fn(&mut Json)) = match kind {
        "AdmissionException" => (schema::EXCEPTION, add_exception_rules),
        _ => (CHAIN_SCHEMA, add_chain_rules),
    };
    let root: Json = serde_json::from_str(text).unwrap();
    let mut spec = structural_schema(&root["properties"]["spec"], &root);
    add_rules(&mut spec);
    spec
}

fn schemas_of_kinds() -> BTreeMap<&'static str, Schemas> {
    ["AdmissionChain", "NamespacedAdmissionChain", "AdmissionException"]
        .map(|kind| (kind, Schemas::for_kind(kind)))
        .into()
}

fn read_document(document: &Json) -> Result<Definitions, Mistakes> {
    let file = DefinitionFile::entry("kubernetes:test", document.to_string(), None);
    DefinitionSet::of_files(vec![file]).definitions()
}

fn document(kind: &str, spec: Json) -> Json {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "test"},
        "spec": spec,
    })
}

fn chain(phase: &str, stage: Json) -> Json {
    let rules = json!([{"operations": ["CREATE"], "resources": ["pods"]}]);
    document(
        "AdmissionChain",
        json!({"phase": phase, "rules": rules, "stages": [stage]}),
    )
}

fn chain_for(rule: Json) -> Json {
    let mut chain = chain("Validating", json!({"name": "a", "cel": valid_cel()}));
    chain["spec"]["rules"] = json!([rule]);
    chain
}

fn exception(field: &str, value: Json) -> Json {
    let mut exception = document(
        "AdmissionException",
        json!({
            "owner": "a@example.com", "reason": "a test", "expires": "2999-01-31",
            "stages": ["pods/a"], "namespaces": ["test"],
        }),
    );
    let spec = exception["spec"].as_object_mut().unwrap();
    spec.remove(field);
    if !value.is_null() {
        spec.insert(field.to_owned(), value);
    }
    exception
}

fn valid_cel() -> Json {
    json!({"validations": [{"expression": "true"}]})
}

fn invalid_definitions() -> Vec<Json> {
    let cel = |cel: Json| chain("Mutating", json!({"name": "a", "cel": cel}));
    let plugin = |plugin: Json| chain("Mutating", json!({"name": "a", "plugin": plugin}));
    let webhook = |webhook: Json| chain("Mutating", json!({"name": "a", "webhook": webhook}));
    let rego = |rego: Json| chain("Mutating", json!({"name": "a", "rego": rego}));
    let stage = |stage: Json| chain("Mutating", stage);
    let selector = |field: &str, selector: Json| {
        let mut stage = json!({"name": "a", "cel": valid_cel()});
        stage[field] = selector;
        chain("Mutating", stage)
    };
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}});
    let oci = "oci://registry.example.com/a:1";
    let rollout = |rollout: Json, mode: &str| {
        let candidate = json!({"source": oci, "rollout": rollout});
        stage(json!({"name": "a", "plugin": {"source": oci}, "candidate": candidate, "mode": mode}))
    };
    let digest = format!("sha256:{}", "0".repeat(64));
    vec![
        chain(
            "Validating",
            json!({"name": "a", "cel": valid_cel(), "reinvocationPolicy": "IfNeeded"}),
        ),
        chain("Validating", json!({"name": "a", "cel": {"mutations": [mutation]}})),
        stage(json!({"name": "a"})),
        stage(json!({"name": "a", "cel": valid_cel(), "plugin": {"source": oci}})),
        stage(json!({"name": "a", "cel": valid_cel(), "candidate": {"source": oci}})),
        stage(json!({"name": "a", "cel": valid_cel(), "timeout": "31s"})),
        stage(json!({"name": "a", "cel": valid_cel(), "timeout": "0ms"})),
        stage(
            json!({"name": "a", "group": {"expression": "p()", "message": "m", "plugins": {
                "p": {"source": oci, "timeout": "1m"},
            }}}),
        ),
        rollout(json!({"percent": 10}), "Audit"),
        rollout(json!({"by": "user"}), "Enforce"),
        rollout(json!({"steps": [50, 25]}), "Enforce"),
        rollout(json!({"percent": 50, "steps": [25, 100]}), "Enforce"),
        rollout(json!({"percent": 10, "pause": "9s"}), "Enforce"),
        plugin(json!({"source": "file:a.wasm"})),
        plugin(json!({"source": oci, "digest": digest, "refresh": "1m"})),
        plugin(json!({"source": "file:/a.wasm", "refresh": "1m"})),
        plugin(json!({"source": "stock:image-policy", "refresh": "1m"})),
        plugin(json!({"source": format!("oci://registry.example.com/a@{digest}"), "refresh": "1m"})),
        rego(json!({"entrypoint": "data.a.deny"})),
        rego(json!({"entrypoint": "data.a.deny", "text": "package a", "file": "/a.rego"})),
        rego(json!({"entrypoint": "data.a.deny", "file": "a.rego"})),
        selector("namespaceSelector", json!({"operator": "In"})),
        selector(
            "namespaceSelector",
            json!({"operator": "In", "values": ["a"], "matchLabels": {}}),
        ),
        selector(
            "objectSelector",
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
        ),
        webhook(json!({"protocol": "AdmissionReview"})),
        webhook(json!({"protocol": "BcsResource", "url": "https://a.example.com", "versions": ["v1"]})),
        webhook(json!({"protocol": "AdmissionReview", "service": {"name": "a", "namespace": "b"}})),
        webhook(json!({"protocol": "AdmissionReview", "url": "http://a.example.com"})),
        cel(json!({"validations": [{"expression": "true"}], "mutations": [mutation]})),
        cel(json!({"validations": []})),
        cel(json!({"variables": []})),
        cel(json!({"mutations": [{"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}}]})),
        cel(json!({"mutations": [{"patchType": "JSONPatch"}]})),
        chain_for(json!({"operations": ["CREATE"]})),
        chain_for(json!({"operations": ["*", "CREATE"], "resources": ["pods"]})),
        chain_for(json!({"operations": ["CREATE"], "resources": ["pods"], "apiGroups": ["", "*"]})),
        chain_for(json!({"operations": ["CREATE"], "resources": ["pods"], "apiVersions": ["*", "v1"]})),
        chain_for(json!({"operations": ["CREATE"], "kinds": ["Pod", "*"]})),
        chain_for(json!({"operations": ["CREATE"], "resources": ["pods", "*/*"]})),
        chain_for(json!({"operations": ["CREATE"], "resources": ["pods", "*"]})),
        exception("namespaces", Json::Null),
        exception("owner", json!(" ")),
        exception("reason", json!("\t")),
        exception("expires", json!("2027-02-30")),
        exception("expires", json!("2027-01-31T25:00:00Z")),
        exception("rules", json!([{"operations": ["CREATE"], "resources": ["*", "pods"]}])),
    ]
}

#[tokio::test]
async fn cel_rules_and_the_reader_refuse_the_same_definitions() {
    let mut violated_messages = BTreeSet::new();
    let schemas = schemas_of_kinds();
    for document in invalid_definitions() {
        let schemas = &schemas[document["kind"].as_str().unwrap()];
        let messages = schemas.rules.violated_messages(&document["spec"]).await;
        assert_eq!(messages.len(), 1, "{document:#}\n{messages:?}");
        assert!(read_document(&document).is_err(), "the reader accepts {document:#}");
        violated_messages.extend(messages);
    }
    for kind in ["AdmissionChain", "AdmissionException"] {
        visit_schemas(&spec_schema(kind), 1, &mut |schema, _| {
            for rule in schema[VALIDATIONS].as_array().into_iter().flatten() {
                let message = rule["message"].as_str().unwrap();
                assert!(violated_messages.contains(message), "nothing violates: {message}");
            }
        });
    }
}

fn documented_definitions() -> Vec<Json> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut texts = Vec::new();
    for entry in fs::read_dir(&docs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path).unwrap();
            let blocks = page.split("```yaml\n").skip(1);
            texts.extend(blocks.map(|block| block.split("```").next().unwrap().to_owned()));
        }
    }
    let mut documents = Vec::new();
    for text in texts.iter().filter(|text| text.contains("apiVersion: admittance.dev/")) {
        let page_documents = document::read_text("page", text, &mut Mistakes::new());
        documents.extend(
            page_documents
                .iter()
                .map(|document| document.root_ignoring_mistakes().json()),
        );
    }
    documents.retain(|document| {
        let kind = document["kind"].as_str().unwrap_or_default();
        kind.ends_with("AdmissionChain") || kind == "AdmissionException"
    });
    documents
}

#[tokio::test]
async fn documented_definitions_satisfy_the_cel_rules() {
    let documents = documented_definitions();
    assert!(documents.len() > 15, "{}", documents.len());
    let schemas = schemas_of_kinds();
    for mut document in documents {
        let schemas = &schemas[document["kind"].as_str().unwrap()];
        assert!(!schemas.files_refuse(&document), "{document:#}");
        // A file may name modules by relative paths, but a resource must name them by absolute paths.
        for stage in document["spec"]["stages"].as_array_mut().into_iter().flatten() {
            make_paths_absolute(stage);
        }
        let messages = schemas.rules.violated_messages(&document["spec"]).await;
        assert_eq!(messages, [""; 0], "{document:#}");
        assert!(!schemas.resources_refuse(&document).await, "{document:#}");
    }
}

fn make_paths_absolute(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str()) {
                    ("source", Some(source)) => *value = source.replace("file:", "file:/").into(),
                    ("file", Some(file)) => *value = format!("/{file}").into(),
                    _ => make_paths_absolute(value),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(make_paths_absolute),
        _ => {}
    }
}

/// Calls `visit` for this schema and for each schema within it. `visit` also gets the number of values in one document
/// to which the schema applies at most. For the items of a list with `maxItems: 8`, for example, the number is 8.
fn visit_schemas<'s>(schema: &'s Json, count: u64, visit: &mut dyn FnMut(&'s Json, u64)) {
    visit(schema, count);
    let bound = |keyword: &str| schema[keyword].as_u64().unwrap_or(u64::MAX);
    for property in schema["properties"].as_object().into_iter().flat_map(Map::values) {
        visit_schemas(property, count, visit);
    }
    if let Some(items) = schema.get("items") {
        visit_schemas(items, count.saturating_mul(bound("maxItems")), visit);
    }
    if let Some(values) = schema.get("additionalProperties") {
        visit_schemas(values, count.saturating_mul(bound("maxProperties")), visit);
    }
}

/// Returns an upper bound for the cost of evaluating a rule for one value.
fn rule_cost(rule: &str, schema: &Json) -> u64 {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> = rule.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let count = rule.split_whitespace().count().max(words.len()) as u64;
    let goes_through = [".all(", ".exists", " in "].iter().any(|part| rule.contains(part));
    let (mut items, mut text_cost) = (1, 0);
    for word in &words {
        let Some(field) = schema["properties"].get(word) else {
            continue;
        };
        let bound = |schema: &Json, keyword: &str| {
            let number = schema[keyword].as_u64();
            number.unwrap_or_else(|| panic!("{word} has no {keyword}, and a rule goes through it: {rule}"))
        };
        match field["type"].as_str() {
            Some("array") if goes_through => {
                items = items.max(bound(field, "maxItems"));
                let item_schema = &field["items"];
                // Strings add to the estimated cost by their length. The strings of an enumeration are short, so they
                // are not counted.
                if item_schema["type"] == "string" && item_schema.get("enum").is_none() {
                    text_cost += bound(item_schema, "maxLength") / 10 + 1;
                }
            }
            Some("string") if field.get("enum").is_none() && !rule.contains(&format!("has(self.{word})")) => {
                text_cost += bound(field, "maxLength") / 10 + 1;
            }
            _ => {}
        }
    }
    items * (count + text_cost)
}

#[test]
fn cel_rules_cost_less_than_the_limits_of_api_servers() {
    for kind in ["AdmissionChain", "AdmissionException"] {
        let schema = spec_schema(kind);
        let mut total = 0;
        visit_schemas(&schema, 1, &mut |schema, count| {
            for rule in schema[VALIDATIONS].as_array().into_iter().flatten() {
                let rule = rule["rule"].as_str().unwrap();
                let cost = rule_cost(rule, schema).saturating_mul(count);
                assert!(cost <= RULE_COST, "{kind}: {cost} for {count} times {rule}");
                total += cost;
            }
        });
        assert!(total <= TOTAL_COST, "{kind}: {total}");
    }
}

#[test]
fn cel_rules_refer_to_existing_fields_and_cover_every_choice_of_fields() {
    for (kind, additions) in [("AdmissionChain", CHAIN), ("AdmissionException", EXCEPTION)] {
        let mut schema = spec_schema(kind);
        for path in additions.iter().flat_map(|(paths, _)| *paths) {
            assert!(schema_at(&mut schema, path).is_some(), "{kind}: {path}");
        }
    }
    fn compare(file_schema: &Json, root: &Json, resource_schema: &Json, path: &str) {
        let of_files = Json::Object(super::super::resolve_reference(file_schema, root));
        let is_choice = ["oneOf", "anyOf"].iter().any(|keyword| {
            let alternatives = of_files[*keyword].as_array().into_iter().flatten();
            alternatives.clone().count() > 0
                && alternatives.clone().all(|alternative| {
                    alternative
                        .as_object()
                        .is_some_and(|fields| fields.keys().eq(["required"]))
                })
        });
        assert!(
            !is_choice || resource_schema.get(VALIDATIONS).is_some(),
            "{path} has no rule"
        );
        for (name, property) in resource_schema["properties"].as_object().into_iter().flatten() {
            compare(&of_files["properties"][name], root, property, &format!("{path}.{name}"));
        }
        for nesting_keyword in ["items", "additionalProperties"] {
            if let Some(schema) = resource_schema.get(nesting_keyword) {
                compare(&of_files[nesting_keyword], root, schema, &format!("{path}[]"));
            }
        }
    }
    for (kind, text) in [
        ("AdmissionChain", CHAIN_SCHEMA),
        ("AdmissionException", schema::EXCEPTION),
    ] {
        let root: Json = serde_json::from_str(text).unwrap();
        compare(&root["properties"]["spec"], &root, &spec_schema(kind), kind);
    }
}
