//! The structure of objects: the fields of a kind, their types, and how server-side apply merges them.
//!
//! The structures of Kubernetes' own kinds are built in (`builtin.txt`). Other structures are read from OpenAPI schemas
//! in definitions. For a kind without a schema, only the structure of `metadata` is known.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::GroupVersionKind;
use serde_json::Value as Json;

mod builtin;
mod check;
mod merge;
mod openapi;

/// The structure of a kind's objects. Clones share the nodes.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// The debug output omits the nodes, because there are thousands.
#[debug("Structure({root:?})")]
pub struct Structure {
    nodes: Arc<[Node]>,
    root: usize,
}

impl Structure {
    /// Returns the structure of one of Kubernetes' own kinds.
    pub fn builtin(kind: &GroupVersionKind) -> Option<Self> {
        builtin::find(kind)
    }

    /// Iterates over Kubernetes' own kinds, in no particular order.
    pub fn builtin_kinds() -> impl Iterator<Item = &'static GroupVersionKind> {
        builtin::kinds()
    }

    pub(crate) fn unknown() -> Self {
        builtin::unknown()
    }

    /// Returns whether an object has this field at a path such as `Object.spec`. In the path, a list stands for its
    /// items. For an unknown path, returns true, because the unknown field in the path is reported instead.
    pub(crate) fn has_field(&self, path: &str, field: &str) -> bool {
        self.at(path).is_none_or(|at| at.member(field).is_some())
    }

    fn at(&self, path: &str) -> Option<Cursor<'_>> {
        let mut at = self.root().items_or_self();
        for part in path.split('.').skip(1) {
            at = at.member(part)?.items_or_self();
        }
        Some(at)
    }

    fn root(&self) -> Cursor<'_> {
        Cursor::new(&self.nodes, self.root)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Scalar(Scalar),
    List {
        items: usize,
        merge: ListMerge,
    },
    Map {
        /// The name of the type, such as `PodSpec`; empty if it has none.
        name: Box<str>,
        fields: BTreeMap<Box<str>, Field>,
        /// The index of the type of the values under keys that are not declared fields; `None` if such keys are not
        /// allowed.
        values: Option<usize>,
        /// Whether the map can only be replaced as a whole.
        atomic: bool,
    },
    /// Any value. Maps in it are merged, and lists replaced.
    Any,
    /// A part of unknown structure. Its lists are atomic, or merged like a list of the same name in a Pod.
    Unknown,
    /// The index of a node in the built-in structures.
    Builtin(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    kind: usize,
    /// The default value. A list item that lacks this field has the default as its key.
    default: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    String,
    /// Bytes in base64.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListMerge {
    /// The list can only be replaced as a whole.
    Atomic,
    /// The items are unique scalars.
    Set,
    /// The items are objects, which are merged if these keys are equal.
    Keys(Box<[Box<str>]>),
}

/// A position in a structure: a node, and the list into which the node's indices point.
#[derive(Clone, Copy)]
struct Cursor<'s> {
    nodes: &'s [Node],
    node: &'s Node,
}

impl<'s> Cursor<'s> {
    fn new(nodes: &'s [Node], index: usize) -> Self {
        match nodes.get(index) {
            Some(Node::Builtin(index)) => builtin::at(*index),
            Some(node) => Cursor { nodes, node },
            None => Cursor {
                nodes,
                node: &Node::Unknown,
            },
        }
    }

    fn member(self, key: &str) -> Option<Self> {
        match self.node {
            Node::Map { fields, values, .. } => {
                let field = fields.get(key).map(|field| field.kind);
                field.or(*values).map(|kind| Self::new(self.nodes, kind))
            }
            Node::Unknown => Some(builtin::known_list(key).unwrap_or(self)),
            _ => Some(Self {
                node: &Node::Any,
                ..self
            }),
        }
    }

    fn items(self) -> Self {
        match self.node {
            Node::List { items, .. } => Self::new(self.nodes, *items),
            Node::Unknown => self,
            _ => Self {
                node: &Node::Any,
                ..self
            },
        }
    }

    /// Returns the node of the items of a list or of nested lists; for other types, returns the node itself.
    fn items_or_self(self) -> Self {
        match self.node {
            Node::List { .. } => self.items().items_or_self(),
            _ => self,
        }
    }

    fn default(self, key: &str) -> Option<&'s Json> {
        match self.node {
            Node::Map { fields, .. } => fields.get(key)?.default.as_ref(),
            _ => None,
        }
    }
}
