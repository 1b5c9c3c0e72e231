//! Reads the structures of kinds from OpenAPI schemas.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json};

use super::{Field, ListMerge, Node, Scalar, Structure, builtin};
use crate::schema::reference;

/// The maximum nesting of schemas. Deeper schemas allow any value.
const MAX_DEPTH: usize = 64;

impl Structure {
    /// Reads the structure of a kind's objects from their schema. The schema may refer to `others`.
    pub(crate) fn of_schema(kind: &str, schema: &Json, others: &Map<String, Json>) -> Self {
        let mut reader = Reader {
            others,
            named: HashMap::new(),
            nodes: Vec::new(),
        };
        let root = reader.read(kind, schema, 0);
        let string = reader.add(Node::Scalar(Scalar::String));
        let metadata = builtin::metadata().map(|index| reader.add(Node::Builtin(index)));
        if let Some(Node::Map { fields, .. }) = reader.nodes.get_mut(root) {
            for (name, kind) in [
                ("apiVersion", Some(string)),
                ("kind", Some(string)),
                ("metadata", metadata),
            ] {
                fields.extend(kind.map(|kind| (name.into(), Field { kind, default: None })));
            }
        }
        Self {
            nodes: reader.nodes.into(),
            root,
        }
    }
}

struct Reader<'s> {
    others: &'s Map<String, Json>,
    /// The indices of the nodes for referenced schemas, by the name of the schema.
    named: HashMap<&'s str, usize>,
    nodes: Vec<Node>,
}

impl<'s> Reader<'s> {
    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn read(&mut self, name: &str, schema: &'s Json, depth: usize) -> usize {
        if depth > MAX_DEPTH {
            return self.add(Node::Any);
        }
        if let Some(reference) = reference(schema) {
            return self.referred(reference, depth);
        }
        // The node is reserved before the nodes below it are added, so that the root's node comes first.
        let place = self.add(Node::Any);
        let node = self.node(name, schema, depth);
        if let Some(slot) = self.nodes.get_mut(place) {
            *slot = node;
        }
        place
    }

    fn referred(&mut self, reference: &'s str, depth: usize) -> usize {
        let name = reference
            .strip_prefix("#/components/schemas/")
            .unwrap_or_default();
        if let Some(known) = self.named.get(name) {
            return *known;
        }
        let Some(schema) = self.others.get(name) else {
            return self.add(Node::Any);
        };
        let place = self.add(Node::Any);
        self.named.insert(name, place);
        let short = name.rsplit('.').next().unwrap_or(name);
        let node = self.node(short, schema, depth + 1);
        if let Some(slot) = self.nodes.get_mut(place) {
            *slot = node;
        }
        place
    }

    fn node(&mut self, name: &str, schema: &'s Json, depth: usize) -> Node {
        let text = |field: &str| schema.get(field).and_then(Json::as_str);
        let is_true = |field: &str| schema.get(field) == Some(&Json::Bool(true));
        let format = text("format");
        if is_true("x-kubernetes-int-or-string") || matches!(format, Some("int-or-string" | "quantity")) {
            return Node::Scalar(Scalar::Any);
        }
        match text("type") {
            // A schema without a type allows several types of values. For example, a quantity is a string or a number.
            None => Node::Any,
            Some("string") => Node::Scalar(match format {
                Some("byte") => Scalar::Bytes,
                _ => Scalar::String,
            }),
            Some("boolean") => Node::Scalar(Scalar::Bool),
            Some("integer") => Node::Scalar(match format {
                Some("int32") => Scalar::Int32,
                _ => Scalar::Int64,
            }),
            Some("number") => Node::Scalar(Scalar::Double),
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
                    None => self.add(Node::Any),
                };
                Node::List { items, merge }
            }
            Some("object") => self.object(name, schema, depth),
            Some(_) => Node::Any,
        }
    }

    fn object(&mut self, name: &str, schema: &'s Json, depth: usize) -> Node {
        let is_true = |field: &str| schema.get(field) == Some(&Json::Bool(true));
        let properties = schema.get("properties").and_then(Json::as_object);
        let mut fields = BTreeMap::new();
        for (name, schema) in properties.into_iter().flatten() {
            let field = Field {
                kind: self.read("", schema, depth + 1),
                default: schema.get("default").cloned(),
            };
            fields.insert(name.as_str().into(), field);
        }
        let is_open = is_true("x-kubernetes-preserve-unknown-fields")
            || is_true("x-kubernetes-embedded-resource")
            || properties.is_none();
        let values = match schema.get("additionalProperties") {
            Some(values @ Json::Object(_)) => Some(self.read("", values, depth + 1)),
            Some(Json::Bool(true)) => Some(self.add(Node::Any)),
            _ if is_open => Some(self.add(Node::Any)),
            _ => None,
        };
        Node::Map {
            name: name.into(),
            fields,
            values,
            atomic: schema.get("x-kubernetes-map-type").and_then(Json::as_str) == Some("atomic"),
        }
    }
}
