//! Reads the structures of kinds from OpenAPI schemas.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json};

use super::{ListMerge, ScalarSchema, Structure, StructureField, StructureNode, builtin};
use crate::schema::reference;

/// The maximum nesting of schemas. Deeper schemas allow any value.
const MAX_DEPTH: usize = 64;

impl Structure {
    /// Reads the structure of a kind's objects from their schema. The schema may refer to `schemas`.
    pub(crate) fn of_schema(kind: &str, schema: &Json, schemas: &Map<String, Json>) -> Self {
        let mut reader = OpenApiReader {
            schemas,
            indices: HashMap::new(),
            nodes: Vec::new(),
        };
        let root = reader.read(kind, schema, 0);
        let string = reader.add(StructureNode::Scalar(ScalarSchema::String));
        let metadata = builtin::metadata_index().map(|index| reader.add(StructureNode::Builtin(index)));
        if let Some(StructureNode::Map { fields, .. }) = reader.nodes.get_mut(root) {
            for (name, kind) in [
                ("apiVersion", Some(string)),
                ("kind", Some(string)),
                ("metadata", metadata),
            ] {
                fields.extend(kind.map(|kind| {
                    (
                        name.into(),
                        StructureField {
                            node_index: kind,
                            default: None,
                        },
                    )
                }));
            }
        }
        Self {
            nodes: reader.nodes.into(),
            root,
        }
    }
}

struct OpenApiReader<'s> {
    schemas: &'s Map<String, Json>,
    /// The indices of the nodes for referenced schemas, by the name of the schema.
    indices: HashMap<&'s str, usize>,
    nodes: Vec<StructureNode>,
}

impl<'s> OpenApiReader<'s> {
    fn add(&mut self, node: StructureNode) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn read(&mut self, name: &str, schema: &'s Json, depth: usize) -> usize {
        if depth > MAX_DEPTH {
            return self.add(StructureNode::Any);
        }
        if let Some(reference) = reference(schema) {
            return self.referenced_index(reference, depth);
        }
        // The node is reserved before the nodes below it are added, so that the root's node comes first.
        let index = self.add(StructureNode::Any);
        let node = self.node(name, schema, depth);
        if let Some(slot) = self.nodes.get_mut(index) {
            *slot = node;
        }
        index
    }

    fn referenced_index(&mut self, reference: &'s str, depth: usize) -> usize {
        let name = reference.strip_prefix("#/components/schemas/").unwrap_or_default();
        if let Some(known_index) = self.indices.get(name) {
            return *known_index;
        }
        let Some(schema) = self.schemas.get(name) else {
            return self.add(StructureNode::Any);
        };
        let index = self.add(StructureNode::Any);
        self.indices.insert(name, index);
        let short = name.rsplit('.').next().unwrap_or(name);
        let node = self.node(short, schema, depth + 1);
        if let Some(slot) = self.nodes.get_mut(index) {
            *slot = node;
        }
        index
    }

    fn node(&mut self, name: &str, schema: &'s Json, depth: usize) -> StructureNode {
        let text = |field: &str| schema.get(field).and_then(Json::as_str);
        let is_true = |field: &str| schema.get(field) == Some(&Json::Bool(true));
        let format = text("format");
        if is_true("x-kubernetes-int-or-string") || matches!(format, Some("int-or-string" | "quantity")) {
            return StructureNode::Scalar(ScalarSchema::Any);
        }
        match text("type") {
            // A schema without a type allows several types of values. For example, a quantity is a string or a number.
            None => StructureNode::Any,
            Some("string") => StructureNode::Scalar(match format {
                Some("byte") => ScalarSchema::Bytes,
                _ => ScalarSchema::String,
            }),
            Some("boolean") => StructureNode::Scalar(ScalarSchema::Bool),
            Some("integer") => StructureNode::Scalar(match format {
                Some("int32") => ScalarSchema::Int32,
                _ => ScalarSchema::Int64,
            }),
            Some("number") => StructureNode::Scalar(ScalarSchema::Double),
            Some("array") => {
                let list = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
                let keys = list.into_iter().flatten().filter_map(Json::as_str).map(Box::from);
                let merge = match text("x-kubernetes-list-type") {
                    Some("set") => ListMerge::Set,
                    Some("map") => ListMerge::Keys(keys.collect()),
                    _ => ListMerge::Atomic,
                };
                let items = match schema.get("items") {
                    Some(items) => self.read("", items, depth + 1),
                    None => self.add(StructureNode::Any),
                };
                StructureNode::List { items, merge }
            }
            Some("object") => self.object(name, schema, depth),
            Some(_) => StructureNode::Any,
        }
    }

    fn object(&mut self, name: &str, schema: &'s Json, depth: usize) -> StructureNode {
        let is_true = |field: &str| schema.get(field) == Some(&Json::Bool(true));
        let properties = schema.get("properties").and_then(Json::as_object);
        let mut fields = BTreeMap::new();
        for (name, schema) in properties.into_iter().flatten() {
            let field = StructureField {
                node_index: self.read("", schema, depth + 1),
                default: schema.get("default").cloned(),
            };
            fields.insert(name.as_str().into(), field);
        }
        let is_open = is_true("x-kubernetes-preserve-unknown-fields")
            || is_true("x-kubernetes-embedded-resource")
            || properties.is_none();
        let values = match schema.get("additionalProperties") {
            Some(values @ Json::Object(_)) => Some(self.read("", values, depth + 1)),
            Some(Json::Bool(true)) => Some(self.add(StructureNode::Any)),
            _ if is_open => Some(self.add(StructureNode::Any)),
            _ => None,
        };
        StructureNode::Map {
            name: name.into(),
            fields,
            values,
            is_atomic: schema.get("x-kubernetes-map-type").and_then(Json::as_str) == Some("atomic"),
        }
    }
}
