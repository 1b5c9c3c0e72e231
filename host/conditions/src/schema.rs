//! Types of objects, of the schemas of their kinds.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;

use crate::types::{Declared, Type, list, map};

/// The type of the objects of a kind: that of its OpenAPI schema, as a CustomResourceDefinition has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSchema(pub(crate) Type);

impl ObjectSchema {
    /// The type of the objects of a kind with this schema; `None` if it does not list their fields.
    pub fn new(kind: &str, schema: &Json) -> Option<Self> {
        let Type::Declared(found) = of_schema(kind, schema) else {
            return None;
        };
        let mut fields = found.fields.clone();
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Type::String);
        }
        fields.insert("metadata".to_owned(), metadata(kind));
        Some(Self(declared(kind.to_owned(), fields)))
    }
}

fn declared(name: String, fields: BTreeMap<String, Type>) -> Type {
    Type::Declared(Arc::new(Declared { name, fields }))
}

/// The type of values with this schema, which are at this path. What an API server may hold as another type is dynamic.
fn of_schema(path: &str, schema: &Json) -> Type {
    let is_true = |name: &str| schema.get(name) == Some(&Json::Bool(true));
    let open = [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "nullable",
    ];
    if open.iter().any(|name| is_true(name)) || schema.get("format").is_some_and(is_converted) {
        return Type::Dyn;
    }
    match schema.get("type").and_then(Json::as_str) {
        Some("string") => Type::String,
        Some("boolean") => Type::Bool,
        Some("integer") => Type::Int,
        Some("number") => Type::Double,
        Some("array") => {
            let items = schema.get("items");
            list(items.map_or(Type::Dyn, |items| of_schema(&format!("{path}[]"), items)))
        }
        Some("object") => {
            let properties = schema.get("properties").and_then(Json::as_object);
            match (properties, schema.get("additionalProperties")) {
                (Some(properties), _) => {
                    let field = |(name, schema): (&String, &Json)| {
                        (name.clone(), of_schema(&format!("{path}.{name}"), schema))
                    };
                    declared(path.to_owned(), properties.iter().map(field).collect())
                }
                (None, Some(values @ Json::Object(_))) => {
                    map(Type::String, of_schema(&format!("{path}[]"), values))
                }
                (None, _) => Type::Dyn,
            }
        }
        _ => Type::Dyn,
    }
}

/// Whether values of this format are other types than strings and numbers in an expression.
fn is_converted(format: &Json) -> bool {
    let converted = ["byte", "date", "date-time", "duration"];
    format.as_str().is_some_and(|format| converted.contains(&format))
}

fn metadata(kind: &str) -> Type {
    let strings = || map(Type::String, Type::String);
    let texts = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "selfLink",
    ];
    let mut fields: BTreeMap<String, Type> = texts
        .iter()
        .map(|name| ((*name).to_owned(), Type::String))
        .collect();
    for (name, kind) in [
        ("labels", strings()),
        ("annotations", strings()),
        ("finalizers", list(Type::String)),
        ("generation", Type::Int),
        ("deletionGracePeriodSeconds", Type::Int),
        ("creationTimestamp", Type::Dyn),
        ("deletionTimestamp", Type::Dyn),
        ("ownerReferences", list(Type::Dyn)),
        ("managedFields", list(Type::Dyn)),
    ] {
        fields.insert(name.to_owned(), kind);
    }
    declared(format!("{kind}.metadata"), fields)
}
