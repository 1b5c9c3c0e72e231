//! Checks values against schemas and rules, as editors and API servers do, so that tests need neither.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use admittance::admission::{
    Deadline, GroupVersionKind, GroupVersionResource, NoAuthorizer, Object, Operation, Request,
};
use admittance_conditions::{CelConditions, ObjectSchema, PolicyCompiler};
use admittance_definitions::CHAIN_SCHEMA;
use regex::Regex;
use serde_json::{Value as Json, json};

use super::{LIST_TYPE, VALIDATIONS, spec_schema};
use crate::schema;

pub(super) struct Schemas {
    file_schema: Json,
    resource_schema: Json,
    pub(super) rules: SchemaRules,
}

impl Schemas {
    pub(super) fn for_kind(kind: &str) -> Self {
        let text = match kind {
            "AdmissionException" => schema::EXCEPTION,
            _ => CHAIN_SCHEMA,
        };
        let of_files: Json = serde_json::from_str(text).unwrap();
        let mut spec = spec_schema(kind);
        let rules = SchemaRules::from_schema(&spec);
        forbid_unknown_fields(&mut spec);
        let mut of_resources = of_files.clone();
        of_resources["properties"]["spec"] = spec;
        Self {
            file_schema: of_files,
            resource_schema: of_resources,
            rules,
        }
    }

    pub(super) fn files_refuse(&self, document: &Json) -> bool {
        !satisfies_schema(&self.file_schema, &self.file_schema, document)
    }

    pub(super) async fn resources_refuse(&self, document: &Json) -> bool {
        // As in API servers, the rules are evaluated only if the schema accepts the document.
        !satisfies_schema(&self.resource_schema, &self.resource_schema, document)
            || !self.rules.violated_messages(&document["spec"]).await.is_empty()
    }

    pub(super) fn schema_at(&self, pointer: &str) -> &Json {
        let steps = pointer.split('/').skip(1);
        steps.fold(&self.resource_schema, |schema, step| {
            let field = schema["properties"].get(step);
            let each = || schema.get("items").or_else(|| schema.get("additionalProperties"));
            field.or_else(each).unwrap_or(&Json::Null)
        })
    }
}

/// The path segment that stands for any item of a list, or any value of an object with free keys.
const ELEMENT_KEY: &str = "[]";

pub(super) struct SchemaRules {
    conditions: Vec<(CelConditions, String)>,
    inner_rules: BTreeMap<String, SchemaRules>,
}

impl SchemaRules {
    pub(super) fn from_schema(schema: &Json) -> Self {
        let object = json!({"type": "object", "properties": {"self": schema}});
        let compile = |rule: &Json| {
            let text = rule["rule"].as_str().unwrap().replace("self", "object.self");
            let schema = ObjectSchema::new("Place", &object).unwrap();
            let condition = PolicyCompiler::new(false)
                .with_schemas(schema, None)
                .compile_condition("rule", &text)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            let message = rule["message"].as_str().unwrap();
            (CelConditions::from_iter([condition]), message.to_owned())
        };
        let rules = schema[VALIDATIONS].as_array().into_iter().flatten();
        let each = ["items", "additionalProperties"]
            .iter()
            .filter_map(|keyword| schema.get(keyword))
            .map(|schema| (ELEMENT_KEY.to_owned(), Self::from_schema(schema)));
        let properties = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), Self::from_schema(schema)));
        Self {
            conditions: rules.map(compile).collect(),
            inner_rules: properties.chain(each).collect(),
        }
    }

    pub(super) async fn violated_messages(&self, value: &Json) -> Vec<String> {
        let mut violated = Vec::new();
        for (rule, message) in &self.conditions {
            let kind = GroupVersionKind::default();
            let mut request = Request::new(Operation::Create, kind, GroupVersionResource::default());
            request.object = Object::from_value(json!({"self": value}));
            let deadline = Deadline::after(Duration::from_secs(60));
            let result = rule.evaluate(&request, &NoAuthorizer, deadline).await;
            // As in an API server, an error in a rule counts as a violation.
            if !matches!(result, Ok(None)) {
                violated.push(message.clone());
            }
        }
        let fields = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value));
        let items = value.as_array().into_iter().flatten();
        for (name, value) in fields.chain(items.map(|item| (ELEMENT_KEY, item))) {
            if let Some(rules) = self.inner_rules.get(name).or_else(|| self.inner_rules.get(ELEMENT_KEY)) {
                violated.extend(Box::pin(rules.violated_messages(value)).await);
            }
        }
        violated
    }
}

/// Makes a schema refuse unknown fields, because API servers drop or refuse them.
fn forbid_unknown_fields(schema: &mut Json) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    for (keyword, inner) in keywords.iter_mut() {
        match keyword.as_str() {
            "properties" => inner
                .as_object_mut()
                .unwrap()
                .values_mut()
                .for_each(forbid_unknown_fields),
            "items" | "additionalProperties" => forbid_unknown_fields(inner),
            _ => {}
        }
    }
    if keywords.contains_key("properties") {
        keywords.insert("additionalProperties".to_owned(), false.into());
    }
}

/// Returns whether a value is valid according to the schema. References are resolved in `root`.
pub(super) fn satisfies_schema(schema: &Json, root: &Json, value: &Json) -> bool {
    let Json::Object(keywords) = schema else {
        return *schema == Json::Bool(true);
    };
    let mut keywords = keywords.iter();
    keywords.all(|(keyword, argument)| satisfies_keyword(keyword, argument, schema, root, value))
}

/// Returns whether a value satisfies one keyword of a schema. Most keywords restrict values of one type, as `maxLength`
/// restricts strings. A value of any other type satisfies such a keyword.
fn satisfies_keyword(keyword: &str, argument: &Json, schema: &Json, root: &Json, value: &Json) -> bool {
    let is_of = |schema: &Json, value: &Json| satisfies_schema(schema, root, value);
    let text = || value.as_str();
    let length = || text().map(|text| text.chars().count() as u64);
    let items = || value.as_array();
    let count = || items().map(|items| items.len() as u64);
    let fields = || value.as_object();
    let size = || fields().map(|fields| fields.len() as u64);
    let is_at_least = |number: Option<u64>| number.is_none_or(|number| number >= argument.as_u64().unwrap());
    let is_at_most = |number: Option<u64>| number.is_none_or(|number| number <= argument.as_u64().unwrap());
    let number = || value.as_f64();
    let bound = || argument.as_f64().unwrap();
    let schemas = || argument.as_array().unwrap().iter();
    let names = |names: &Json| -> Vec<String> { serde_json::from_value(names.clone()).unwrap() };
    let has_field = |name: &String| fields().is_none_or(|fields| fields.contains_key(name));
    match keyword {
        "$ref" => {
            let pointer = argument.as_str().unwrap().strip_prefix('#').unwrap();
            is_of(root.pointer(pointer).unwrap(), value)
        }
        "type" => match argument {
            Json::Array(types) => types.iter().any(|name| is_type(name, value)),
            name => is_type(name, value),
        },
        "const" => value == argument,
        "enum" => schemas().any(|element| element == value),
        "pattern" => text().is_none_or(|text| matches_pattern(argument.as_str().unwrap(), text)),
        "minLength" => is_at_least(length()),
        "maxLength" => is_at_most(length()),
        "minimum" => number().is_none_or(|number| number >= bound()),
        "maximum" => number().is_none_or(|number| number <= bound()),
        "minItems" => is_at_least(count()),
        "maxItems" => is_at_most(count()),
        "minProperties" => is_at_least(size()),
        "maxProperties" => is_at_most(size()),
        "items" => items().is_none_or(|items| items.iter().all(|item| is_of(argument, item))),
        "required" => names(argument).iter().all(has_field),
        "properties" => {
            let mut properties = argument.as_object().unwrap().iter();
            properties.all(|(name, schema)| value.get(name).is_none_or(|value| is_of(schema, value)))
        }
        "additionalProperties" => {
            let is_other = |name: &String| schema["properties"].get(name).is_none();
            let mut fields = fields().into_iter().flatten();
            fields.all(|(name, value)| !is_other(name) || is_of(argument, value))
        }
        "propertyNames" => {
            let mut fields = fields().into_iter().flatten();
            fields.all(|(name, _)| is_of(argument, &json!(name)))
        }
        "anyOf" => schemas().any(|schema| is_of(schema, value)),
        "oneOf" => schemas().filter(|schema| is_of(schema, value)).count() == 1,
        "if" => {
            let branch = if is_of(argument, value) { "then" } else { "else" };
            schema.get(branch).is_none_or(|schema| is_of(schema, value))
        }
        "x-kubernetes-int-or-string" => value.is_string() || value.is_i64() || value.is_u64(),
        LIST_TYPE => {
            let keys = schema.get("x-kubernetes-list-map-keys").map(names);
            let key = |item: &Json| match &keys {
                Some(keys) => keys.iter().map(|key| item[key].clone()).collect(),
                None => item.clone(),
            };
            let keys: Vec<Json> = items().into_iter().flatten().map(key).collect();
            (1..keys.len()).all(|index| !keys[..index].contains(&keys[index]))
        }
        // These keywords make no value invalid, so there is nothing to check.
        "$schema"
        | "$defs"
        | "title"
        | "description"
        | "default"
        | "examples"
        | "then"
        | "else"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-list-map-keys"
        | VALIDATIONS => true,
        other => panic!("this test does not know the keyword {other}"),
    }
}

fn is_type(name: &Json, value: &Json) -> bool {
    match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("this test does not know the type {other}"),
    }
}

pub(super) fn matches_pattern(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap();
    let regex = compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).unwrap());
    regex.is_match(text)
}
