//! Parses the structures of Kubernetes' own kinds from the file `builtin.txt`, which `cargo task kinds` writes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use admittance_admission::GroupVersionKind;
use serde_json::Value as Json;

use super::{ListMerge, ScalarSchema, Structure, StructureCursor, StructureField, StructureNode};

/// The types of Kubernetes' own kinds, one type on each line. A line has these parts, in this order:
///
/// - the name of the type;
/// - `=GROUP/VERSION/KIND` if the type is a kind;
/// - `!` if the type is atomic, so that server-side apply can only replace it as a whole;
/// - the fields, each in the form `NAME:TYPE`. If list items are merged by this field, and the field has a default
///   value, `=DEFAULT` follows.
///
/// The `TYPE` of a field is a scalar, the name of another type, `{}TYPE` for a map, or `[KEYS]TYPE` for a list.
/// `[!]TYPE` is an atomic list, and `[=]TYPE` a set.
const TEXT: &str = include_str!("builtin.txt");

/// Lists in objects of unknown structure are merged like the lists of the same names in these types.
const POD_TYPES: [&str; 2] = ["core.v1.PodSpec", "core.v1.Container"];

struct Builtin {
    nodes: Arc<[StructureNode]>,
    kinds: HashMap<GroupVersionKind, usize>,
    unknown_root: usize,
    /// The lists in the types [`POD_TYPES`]. The key is the name of the field that contains the list, such as
    /// `containers`. The value is the index of the list's node.
    pod_lists: HashMap<Box<str>, usize>,
}

static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| BuiltinReader::default().read(TEXT));

pub(super) fn find(kind: &GroupVersionKind) -> Option<Structure> {
    Some(structure(*BUILTIN.kinds.get(kind)?))
}

pub(super) fn kinds() -> impl Iterator<Item = &'static GroupVersionKind> {
    BUILTIN.kinds.keys()
}

pub(super) fn unknown_structure() -> Structure {
    structure(BUILTIN.unknown_root)
}

fn structure(root: usize) -> Structure {
    Structure {
        nodes: Arc::clone(&BUILTIN.nodes),
        root,
    }
}

pub(super) fn cursor_at(index: usize) -> StructureCursor<'static> {
    StructureCursor::new(&BUILTIN.nodes, index)
}

pub(super) fn known_list(field: &str) -> Option<StructureCursor<'static>> {
    BUILTIN.pod_lists.get(field).map(|index| cursor_at(*index))
}

/// Returns the index of the node for `metadata`, which all kinds share.
pub(super) fn metadata_index() -> Option<usize> {
    match BUILTIN.nodes.get(BUILTIN.unknown_root) {
        Some(StructureNode::Map { fields, .. }) => fields.get("metadata").map(|field| field.node_index),
        _ => None,
    }
}

#[derive(Default)]
struct BuiltinReader<'t> {
    nodes: Vec<StructureNode>,
    types: HashMap<&'t str, usize>,
}

impl<'t> BuiltinReader<'t> {
    fn read(mut self, text: &'t str) -> Builtin {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        for line in lines() {
            let name = line.split(' ').next().unwrap_or_default();
            self.types.insert(name, self.nodes.len());
            self.nodes.push(StructureNode::Any);
        }
        let mut kinds = HashMap::new();
        for (index, line) in lines().enumerate() {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let node = self.type_node(name, rest);
            if let Some(kind) = rest.strip_prefix('=').and_then(parse_kind) {
                kinds.insert(kind, index);
            }
            if let Some(slot) = self.nodes.get_mut(index) {
                *slot = node;
            }
        }
        let unknown_part = self.add(StructureNode::Unknown);
        let lists = self.lists_of_pods(unknown_part);
        let string = self.add(StructureNode::Scalar(ScalarSchema::String));
        let metadata = self.types.get("meta.v1.ObjectMeta").copied().unwrap_or(unknown_part);
        let field = |(name, kind): (&str, usize)| {
            (
                name.into(),
                StructureField {
                    node_index: kind,
                    default: None,
                },
            )
        };
        let fields = [("apiVersion", string), ("kind", string), ("metadata", metadata)].map(field);
        let unknown = self.add(StructureNode::Map {
            name: "".into(),
            fields: fields.into(),
            values: Some(unknown_part),
            is_atomic: false,
        });
        Builtin {
            nodes: self.nodes.into(),
            kinds,
            unknown_root: unknown,
            pod_lists: lists,
        }
    }

    fn add(&mut self, node: StructureNode) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn lists_of_pods(&mut self, items: usize) -> HashMap<Box<str>, usize> {
        let mut lists = HashMap::new();
        for name in POD_TYPES {
            let Some(index) = self.types.get(name).copied() else {
                continue;
            };
            let Some(StructureNode::Map { fields, .. }) = self.nodes.get(index).cloned() else {
                continue;
            };
            for (name, field) in fields {
                if let Some(StructureNode::List { merge, .. }) = self.nodes.get(field.node_index).cloned() {
                    let list = self.add(StructureNode::List { items, merge });
                    lists.insert(name, list);
                }
            }
        }
        lists
    }

    fn type_node(&mut self, name: &str, line: &'t str) -> StructureNode {
        let mut fields = BTreeMap::new();
        let mut atomic = false;
        for word in line.split(' ') {
            if word == "!" {
                atomic = true;
            } else if let Some((field, kind)) = word.split_once(':') {
                let (kind, default) = split_default(kind);
                let default = default.map(|text| Json::String(text.to_owned()));
                let kind = self.type_index(kind);
                fields.insert(
                    field.into(),
                    StructureField {
                        node_index: kind,
                        default,
                    },
                );
            } else if !word.is_empty() && !word.starts_with('=') {
                return self.node(word);
            }
        }
        StructureNode::Map {
            name: name.rsplit('.').next().unwrap_or(name).into(),
            fields,
            values: None,
            is_atomic: atomic,
        }
    }

    fn type_index(&mut self, text: &'t str) -> usize {
        match self.types.get(text) {
            Some(index) => *index,
            None => {
                let node = self.node(text);
                self.add(node)
            }
        }
    }

    fn node(&mut self, text: &'t str) -> StructureNode {
        if let Some((merge, items)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let merge = match merge {
                "!" => ListMerge::Atomic,
                "=" => ListMerge::Set,
                keys => ListMerge::Keys(keys.split(',').map(Box::from).collect()),
            };
            let items = self.type_index(items);
            return StructureNode::List { items, merge };
        }
        if let Some((atomic, values)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            return StructureNode::Map {
                name: "".into(),
                fields: BTreeMap::new(),
                values: Some(self.type_index(values)),
                is_atomic: atomic == "!",
            };
        }
        StructureNode::Scalar(match text {
            "string" => ScalarSchema::String,
            "bytes" => ScalarSchema::Bytes,
            "boolean" => ScalarSchema::Bool,
            "int32" => ScalarSchema::Int32,
            "int64" => ScalarSchema::Int64,
            "float64" | "number" => ScalarSchema::Double,
            "scalar" => ScalarSchema::Any,
            _ => return StructureNode::Any,
        })
    }
}

fn split_default(text: &str) -> (&str, Option<&str>) {
    for default in ["TCP", ""] {
        let stripped = text.strip_suffix(default).and_then(|text| text.strip_suffix('='));
        if let Some(kind) = stripped {
            return (kind, Some(default));
        }
    }
    (text, None)
}

fn parse_kind(text: &str) -> Option<GroupVersionKind> {
    let mut parts = text.split(' ').next()?.split('/').map(str::to_owned);
    Some(GroupVersionKind {
        group: parts.next()?,
        version: parts.next()?,
        kind: parts.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_referenced_type_is_defined_and_common_kinds_are_found() {
        let is_reference = |word: &str| word.contains('.') && !BUILTIN.nodes.is_empty();
        let names: Vec<_> = TEXT.lines().filter_map(|line| line.split(' ').next()).collect();
        for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
            for word in line.split(' ').skip(1) {
                let kind = word.split_once(':').map_or("", |(_, kind)| split_default(kind).0);
                let type_name = kind.rsplit([']', '}']).next().unwrap_or_default();
                assert!(
                    !is_reference(type_name) || names.contains(&type_name),
                    "{line}: {type_name}"
                );
            }
        }
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("apps/v1", "Deployment"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("networking.k8s.io/v1", "Ingress"),
        ] {
            let kind = GroupVersionKind::from_api_version(api_version, kind);
            assert!(find(&kind).is_some(), "{kind}");
        }
    }
}
