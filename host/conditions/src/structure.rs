//! The structure of objects: the fields of a kind, their types, and how server-side apply merges them.
//!
//! The program contains the structures of Kubernetes' own kinds (`builtin.txt`). It reads the structures of other kinds from
//! the OpenAPI schemas among the definitions. Of a kind without a schema, it knows only the metadata.

use std::{collections::BTreeMap, fmt, sync::Arc};

use admittance_admission::GroupVersionKind;
use serde_json::Value as Json;

mod builtin;
mod check;
mod merge;
mod openapi;

/// The structure of the objects of a kind. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Structure {
    nodes: Arc<[Node]>,
    root: usize,
}

impl fmt::Debug for Structure {
    /// Leaves out the nodes: there are thousands of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Structure")
            .field(&self.root)
            .finish_non_exhaustive()
    }
}

impl Structure {
    /// The structure of a kind that Kubernetes has itself.
    pub fn builtin(kind: &GroupVersionKind) -> Option<Self> {
        builtin::find(kind)
    }

    /// The kinds that Kubernetes has itself.
    pub fn builtin_kinds() -> impl Iterator<Item = &'static GroupVersionKind> {
        builtin::kinds()
    }

    /// The structure of objects of a kind without a schema.
    pub(crate) fn unknown() -> Self {
        builtin::unknown()
    }

    /// Whether there is this field at a path that begins with `Object`; lists on the way are their items. A path that there
    /// is not has any field: what is wrong is the field before.
    pub(crate) fn has_field(&self, path: &str, field: &str) -> bool {
        self.at(path).is_none_or(|at| at.member(field).is_some())
    }

    fn at(&self, path: &str) -> Option<At<'_>> {
        let mut at = self.root().items_or_self();
        for part in path.split('.').skip(1) {
            at = at.member(part)?.items_or_self();
        }
        Some(at)
    }

    fn root(&self) -> At<'_> {
        At::new(&self.nodes, self.root)
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Scalar(Scalar),
    List {
        items: usize,
        merge: ListMerge,
    },
    Map {
        /// The name of the type, if it has one: `PodSpec`.
        name: Box<str>,
        fields: BTreeMap<Box<str>, Field>,
        /// The type of the values of other keys. Without it, there may be no others.
        values: Option<usize>,
        /// Whether it is only replaced as a whole.
        atomic: bool,
    },
    /// Any value. Maps in it are merged, and lists replaced.
    Any,
    /// A part of an object whose structure is not known. Its fields with the names of a Pod's lists are merged by the
    /// same keys, and other lists are taken for atomic.
    Unknown,
    /// A node of the built-in structures.
    Builtin(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    kind: usize,
    /// The value of a key of a list's items that do not have it.
    default: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    String,
    /// Bytes, which JSON has in base64.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListMerge {
    /// The list is only replaced as a whole.
    Atomic,
    /// The items are scalars, and each is there once.
    Set,
    /// The items are merged by these keys.
    Keys(Box<[Box<str>]>),
}

/// A node of a structure.
#[derive(Clone, Copy)]
struct At<'s> {
    nodes: &'s [Node],
    node: &'s Node,
}

impl<'s> At<'s> {
    fn new(nodes: &'s [Node], index: usize) -> Self {
        match nodes.get(index) {
            Some(Node::Builtin(index)) => builtin::at(*index),
            Some(node) => At { nodes, node },
            None => At {
                nodes,
                node: &Node::Unknown,
            },
        }
    }

    /// The node of the value of this key in a map; none if it may not have such a key.
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

    /// The node of the items of a list.
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

    /// The node of the items if this is a list.
    fn items_or_self(self) -> Self {
        match self.node {
            Node::List { .. } => self.items().items_or_self(),
            _ => self,
        }
    }

    /// The default of a key, for an item of a list that does not have the key.
    fn default(self, key: &str) -> Option<&'s Json> {
        match self.node {
            Node::Map { fields, .. } => fields.get(key)?.default.as_ref(),
            _ => None,
        }
    }
}
