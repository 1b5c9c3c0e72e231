//! Derives the CEL types of objects from the schemas of their kinds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Map, Value as Json};

use crate::{
    Structure,
    types::{SchemaObject, Type, list, map},
};

/// The maximum length of a chain of schemas that refer to each other.
const MAX_REFERENCES: usize = 64;

/// The CEL type of a kind's objects. It is derived from an OpenAPI schema of a CustomResourceDefinition or API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSchema(pub(crate) Type);

impl ObjectSchema {
    /// Returns the CEL type of a kind's objects from their schema; `None` if the schema does not list the fields.
    pub fn new(kind: &str, schema: &Json) -> Option<Self> {
        Components::new(&Map::new()).object(kind, schema)
    }
}

/// The schemas of an OpenAPI document, which may refer to each other. Each schema is converted to a CEL type once.
#[derive(Debug)]
pub struct Components<'a> {
    schemas: &'a Map<String, Json>,
    types: HashMap<&'a str, Type>,
    open_names: Vec<&'a str>,
}

impl<'a> Components<'a> {
    /// Reads the schemas in the field `components.schemas` of an OpenAPI document.
    pub fn new(schemas: &'a Map<String, Json>) -> Self {
        Self {
            schemas,
            types: HashMap::new(),
            open_names: Vec::new(),
        }
    }

    /// Returns the CEL type of a kind's objects from their schema; `None` if the schema does not list the fields.
    pub fn object(&mut self, kind: &str, schema: &Json) -> Option<ObjectSchema> {
        let Type::SchemaObject(found) = self.type_of_schema(kind, schema) else {
            return None;
        };
        let mut fields = found.fields.clone();
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Type::String);
        }
        fields.insert("metadata".to_owned(), metadata_type(kind));
        Some(ObjectSchema(object_type(kind.to_owned(), fields)))
    }

    /// Returns the structure of a kind's objects from their schema.
    pub fn structure(&self, kind: &str, schema: &Json) -> Structure {
        Structure::of_schema(kind, schema, self.schemas)
    }

    /// Returns the CEL type of a value with this schema, at this path. If several types are possible, it is dynamic.
    fn type_of_schema(&mut self, path: &str, schema: &Json) -> Type {
        let is_true = |name: &str| schema.get(name) == Some(&Json::Bool(true));
        let open = [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "nullable",
        ];
        if open.iter().any(|name| is_true(name)) || schema.get("format").is_some_and(is_converted) {
            return Type::Dyn;
        }
        if let Some(reference) = reference(schema) {
            return self.referenced_type(reference);
        }
        match schema.get("type").and_then(Json::as_str) {
            Some("string") => Type::String,
            Some("boolean") => Type::Bool,
            Some("integer") => Type::Int,
            Some("number") => Type::Double,
            Some("array") => {
                let items = schema.get("items");
                list(items.map_or(Type::Dyn, |items| self.type_of_schema(&format!("{path}[]"), items)))
            }
            Some("object") => {
                let properties = schema.get("properties").and_then(Json::as_object);
                match (properties, schema.get("additionalProperties")) {
                    (Some(properties), _) => {
                        let fields = properties
                            .iter()
                            .map(|(name, schema)| {
                                (name.clone(), self.type_of_schema(&format!("{path}.{name}"), schema))
                            })
                            .collect();
                        object_type(path.to_owned(), fields)
                    }
                    (None, Some(values @ Json::Object(_))) => {
                        map(Type::String, self.type_of_schema(&format!("{path}[]"), values))
                    }
                    (None, _) => Type::Dyn,
                }
            }
            _ => Type::Dyn,
        }
    }

    /// Returns the CEL type of the schema in a reference. It is dynamic if the schema is missing or refers to itself.
    fn referenced_type(&mut self, reference: &str) -> Type {
        let name = reference.strip_prefix("#/components/schemas/").unwrap_or_default();
        let Some((name, schema)) = self.schemas.get_key_value(name) else {
            return Type::Dyn;
        };
        if let Some(cached_type) = self.types.get(name.as_str()) {
            return cached_type.clone();
        }
        if self.open_names.contains(&name.as_str()) || self.open_names.len() >= MAX_REFERENCES {
            return Type::Dyn;
        }
        self.open_names.push(name);
        let short = name.rsplit('.').next().unwrap_or(name);
        let schema_type = self.type_of_schema(short, schema);
        self.open_names.pop();
        self.types.insert(name, schema_type.clone());
        schema_type
    }
}

fn object_type(name: String, fields: BTreeMap<String, Type>) -> Type {
    Type::SchemaObject(Arc::new(SchemaObject { name, fields }))
}

/// Returns the reference (`$ref`) from this schema to another one; `None` if there is none. If the schema also has a
/// default value, the reference is in a list instead: it is the only item of `allOf`.
pub(crate) fn reference(schema: &Json) -> Option<&str> {
    let only = || match schema.get("allOf")?.as_array()?.as_slice() {
        [only] => only.get("$ref"),
        _ => None,
    };
    schema.get("$ref").or_else(only)?.as_str()
}

/// Returns whether kube-apiserver converts strings or numbers of this format to another type.
fn is_converted(format: &Json) -> bool {
    let converted = ["byte", "date", "date-time", "duration", "int-or-string"];
    format.as_str().is_some_and(|format| converted.contains(&format))
}

fn metadata_type(kind: &str) -> Type {
    let strings = || map(Type::String, Type::String);
    let texts = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "selfLink",
    ];
    let mut fields: BTreeMap<String, Type> = texts.iter().map(|name| ((*name).to_owned(), Type::String)).collect();
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
    object_type(format!("{kind}.metadata"), fields)
}
