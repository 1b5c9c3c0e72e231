//! Checks the parameters of a constraint against the schema of its template.

use serde_json::{Map, Value as Json};

use crate::{
    Mistake,
    document::{Mistakes, Node, ValueLocation, quoted},
};

pub(super) const TYPES: [(&str, ()); 6] = [
    ("array", ()),
    ("boolean", ()),
    ("integer", ()),
    ("number", ()),
    ("object", ()),
    ("string", ()),
];

/// A value, and the location of each value inside it. It can be used after its document was dropped.
#[derive(Clone, Debug)]
pub(super) struct LocatedValue {
    location: ValueLocation,
    value: Parts,
}

#[derive(Clone, Debug)]
enum Parts {
    Object(Vec<(String, LocatedValue)>),
    List(Vec<LocatedValue>),
    Other(Json),
}

impl LocatedValue {
    pub(super) fn new(node: &Node<'_>) -> Self {
        let children = node.children();
        let value = match node.json() {
            Json::Object(_) => {
                let field = |(name, child): &(Option<&str>, Node<'_>)| Some(((*name)?.to_owned(), Self::new(child)));
                Parts::Object(children.iter().filter_map(field).collect())
            }
            Json::Array(_) => Parts::List(children.iter().map(|(_, child)| Self::new(child)).collect()),
            other => Parts::Other(other),
        };
        Self {
            location: node.value_location(),
            value,
        }
    }

    pub(super) fn json(&self) -> Json {
        match &self.value {
            Parts::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), value.json()))
                .collect::<Map<_, _>>()
                .into(),
            Parts::List(items) => items.iter().map(Self::json).collect(),
            Parts::Other(value) => value.clone(),
        }
    }

    fn type_name(&self) -> &'static str {
        match &self.value {
            Parts::Object(_) => "object",
            Parts::List(_) => "array",
            Parts::Other(Json::String(_)) => "string",
            Parts::Other(Json::Bool(_)) => "boolean",
            Parts::Other(Json::Null) => "null",
            Parts::Other(Json::Number(number)) if number.is_f64() => "number",
            Parts::Other(_) => "integer",
        }
    }
}

pub(super) struct SchemaCheck<'m> {
    pub(super) mistakes: &'m mut Mistakes,
    /// Warnings about fields that are missing in the schema, because an API server would drop them.
    pub(super) warnings: Vec<Mistake>,
}

impl SchemaCheck<'_> {
    /// Reports every mistake in a value. Returns the value, with the defaults of the schema for missing fields.
    pub(super) fn check(&mut self, value: &LocatedValue, schema: &Json) -> Json {
        if matches!(value.value, Parts::Other(Json::Null)) && has_flag(schema, "nullable") {
            return Json::Null;
        }
        if !self.has_type(value, schema) {
            return value.json();
        }
        self.check_value(value, schema);
        match &value.value {
            Parts::Object(fields) => self.check_object(value, fields, schema),
            Parts::List(items) => match schema.get("items") {
                Some(schema) => items.iter().map(|item| self.check(item, schema)).collect(),
                None => value.json(),
            },
            Parts::Other(value) => value.clone(),
        }
    }

    fn has_type(&mut self, value: &LocatedValue, schema: &Json) -> bool {
        let value_type = value.type_name();
        let is_int_or_string = has_flag(schema, "x-kubernetes-int-or-string");
        let expected_type = match schema.get("type").and_then(Json::as_str) {
            _ if is_int_or_string => "integer or string",
            Some(expected) => expected,
            None => return true,
        };
        let fits = match expected_type {
            "integer or string" => matches!(value_type, "integer" | "string"),
            "number" => matches!(value_type, "integer" | "number"),
            // A type that is not in `TYPES` was already reported in the template. Any value of such a type is accepted,
            // so that the mistake is not reported again.
            expected => value_type == expected || !TYPES.iter().any(|(name, ())| *name == expected),
        };
        if !fits {
            let message = format!(
                "the template's schema asks for a value of type {expected_type}, and this is of type {value_type}"
            );
            let fix = format!("write a value of type {expected_type}");
            self.mistakes.push(value.location.mistake(message, fix));
        }
        fits
    }

    fn check_value(&mut self, value: &LocatedValue, schema: &Json) {
        let json = value.json();
        if let Some(Json::Array(allowed)) = schema.get("enum")
            && !allowed.contains(&json)
        {
            let allowed: Vec<String> = allowed.iter().map(Json::to_string).collect();
            let message = format!("{json} is not among the values of the template's schema");
            let fix = format!("write one of {}", allowed.join(", "));
            self.mistakes.push(value.location.mistake(message, fix));
        }
        let size = match &json {
            Json::Number(number) => number.as_f64(),
            _ => None,
        };
        let length = match &json {
            Json::String(text) => Some(text.chars().count()),
            Json::Array(items) => Some(items.len()),
            Json::Object(fields) => Some(fields.len()),
            _ => None,
        };
        let limits: [(&str, bool, Option<f64>); 8] = [
            ("minimum", true, size),
            ("maximum", false, size),
            ("minLength", true, as_number(length, json.is_string())),
            ("maxLength", false, as_number(length, json.is_string())),
            ("minItems", true, as_number(length, json.is_array())),
            ("maxItems", false, as_number(length, json.is_array())),
            ("minProperties", true, as_number(length, json.is_object())),
            ("maxProperties", false, as_number(length, json.is_object())),
        ];
        for (name, is_least, optional_measure) in limits {
            let (Some(limit), Some(measure)) = (schema.get(name).and_then(Json::as_f64), optional_measure) else {
                continue;
            };
            if (is_least && measure < limit) || (!is_least && measure > limit) {
                let message = format!("the template's schema has {name} {limit}, and this is {measure}");
                let fix = format!("keep to {name}");
                self.mistakes.push(value.location.mistake(message, fix));
            }
        }
    }

    fn check_object(&mut self, value: &LocatedValue, fields: &[(String, LocatedValue)], schema: &Json) -> Json {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
        let additional_schema = schema.get("additionalProperties");
        let keeps_others = has_flag(schema, "x-kubernetes-preserve-unknown-fields") || additional_schema.is_some();
        let mut result = Map::new();
        for (name, field) in fields {
            let field_schema = properties
                .get(name)
                .or(additional_schema.filter(|schema| schema.is_object()));
            match field_schema {
                Some(schema) => drop(result.insert(name.clone(), self.check(field, schema))),
                None => {
                    if !keeps_others && schema.get("type").is_some() {
                        let message = format!("the template's schema has no field {}", quoted(name));
                        let fix = "correct its name; an API server drops it, and the policy here gets it";
                        self.warnings.push(field.location.mistake(message, fix));
                    }
                    result.insert(name.clone(), field.json());
                }
            }
        }
        for (name, property) in properties {
            if let Some(default) = property.get("default")
                && !result.contains_key(name)
            {
                result.insert(name.clone(), default.clone());
            }
        }
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        for name in required.filter_map(Json::as_str) {
            if !result.contains_key(name) {
                let message = format!("the template's schema requires the field {}", quoted(name));
                self.mistakes.push(value.location.mistake(message, "add it"));
            }
        }
        Json::Object(result)
    }
}

#[expect(clippy::cast_precision_loss, reason = "lengths of documents are small")]
fn as_number(length: Option<usize>, applies: bool) -> Option<f64> {
    length.filter(|_| applies).map(|length| length as f64)
}

fn has_flag(schema: &Json, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or(false)
}
