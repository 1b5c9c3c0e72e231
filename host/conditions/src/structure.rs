//! The structure of objects: the fields of a kind, their types, and how server-side apply merges them.
//!
//! The structures of Kubernetes' own kinds are built into the program (`builtin.txt`). Other structures are read from
//! OpenAPI schemas, such as that of a CustomResourceDefinition. For a kind without a schema, only the structure of
//! `metadata` is known.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::GroupVersionKind;
use serde_json::Value as Json;

mod builtin;
mod check;
mod merge;
mod openapi;

/// The structure of a kind's objects. Clones share its nodes.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// The debug output omits the nodes, because there are thousands.
#[debug("Structure({root:?})")]
pub struct Structure {
    nodes: Arc<[StructureNode]>,
    root: usize,
}

impl Structure {
    /// Returns the built-in structure of this kind; `None` if it is not one of Kubernetes' own kinds.
    pub fn builtin(kind: &GroupVersionKind) -> Option<Self> {
        builtin::find(kind)
    }

    /// Returns Kubernetes' own kinds, in no particular order.
    pub fn builtin_kinds() -> impl Iterator<Item = &'static GroupVersionKind> {
        builtin::kinds()
    }

    pub(crate) fn unknown() -> Self {
        builtin::unknown_structure()
    }

    /// Returns whether objects have this field in the part at `path`, such as `Object.spec`. In a path, the name of a
    /// list stands for the items of the list.
    pub(crate) fn has_field(&self, path: &str, field: &str) -> bool {
        self.cursor_at(path).is_none_or(|at| at.member(field).is_some())
    }

    fn cursor_at(&self, path: &str) -> Option<StructureCursor<'_>> {
        let mut at = self.root().items_or_self();
        for part in path.split('.').skip(1) {
            at = at.member(part)?.items_or_self();
        }
        Some(at)
    }

    fn root(&self) -> StructureCursor<'_> {
        StructureCursor::new(&self.nodes, self.root)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StructureNode {
    Scalar(ScalarSchema),
    List {
        items: usize,
        merge: ListMerge,
    },
    Map {
        /// The name of the map's type, such as `PodSpec`; empty if the type has no name.
        name: Box<str>,
        fields: BTreeMap<Box<str>, StructureField>,
        /// The node for the values of all keys that are not in `fields`; `None` if no other keys are allowed.
        values: Option<usize>,
        /// Whether server-side apply can only replace the map as a whole.
        is_atomic: bool,
    },
    /// A value of any type. If it contains maps, they are merged; if it contains lists, they are replaced.
    Any,
    /// A part of an object whose structure is unknown. Its lists are merged like lists of the same name in a Pod.
    Unknown,
    /// A reference to the node with this index in the structures of Kubernetes' own kinds.
    Builtin(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StructureField {
    node_index: usize,
    /// The default value of the field, if list items are merged by this field. For example, the field `protocol` of a
    /// container's port has the default `TCP`. An item without the field is merged as if it had the default value.
    default: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScalarSchema {
    String,
    /// A string that contains bytes in base64.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListMerge {
    /// The list can only be replaced as a whole by server-side apply.
    Atomic,
    /// The items of the list are scalars, each of which occurs once.
    Set,
    /// The items of the list are objects. Two items are merged if these fields are equal.
    Keys(Box<[Box<str>]>),
}

/// A node of a structure, with the list of all nodes. The node refers to other nodes by their indices in this list.
#[derive(Clone, Copy)]
struct StructureCursor<'s> {
    nodes: &'s [StructureNode],
    node: &'s StructureNode,
}

impl<'s> StructureCursor<'s> {
    fn new(nodes: &'s [StructureNode], index: usize) -> Self {
        match nodes.get(index) {
            Some(StructureNode::Builtin(index)) => builtin::cursor_at(*index),
            Some(node) => StructureCursor { nodes, node },
            None => StructureCursor {
                nodes,
                node: &StructureNode::Unknown,
            },
        }
    }

    fn member(self, key: &str) -> Option<Self> {
        match self.node {
            StructureNode::Map { fields, values, .. } => {
                let field = fields.get(key).map(|field| field.node_index);
                field.or(*values).map(|kind| Self::new(self.nodes, kind))
            }
            StructureNode::Unknown => Some(builtin::known_list(key).unwrap_or(self)),
            _ => Some(Self {
                node: &StructureNode::Any,
                ..self
            }),
        }
    }

    fn items(self) -> Self {
        match self.node {
            StructureNode::List { items, .. } => Self::new(self.nodes, *items),
            StructureNode::Unknown => self,
            _ => Self {
                node: &StructureNode::Any,
                ..self
            },
        }
    }

    /// Returns the node of the items of a list, or of the innermost items if lists are nested. A node that is not a
    /// list is returned unchanged.
    fn items_or_self(self) -> Self {
        match self.node {
            StructureNode::List { .. } => self.items().items_or_self(),
            _ => self,
        }
    }

    fn default(self, key: &str) -> Option<&'s Json> {
        match self.node {
            StructureNode::Map { fields, .. } => fields.get(key)?.default.as_ref(),
            _ => None,
        }
    }
}
