//! Reads the schemas of custom resources from `CustomResourceDefinition`s, in order to check policies.

use admittance_admission::GroupVersionKind;
use admittance_conditions::{Components, ObjectSchema, Structure};
use serde_json::Map;

use super::read_head;
use crate::document::{Node, readers};

/// The schemas in a CustomResourceDefinition or in an OpenAPI document. An OpenAPI document is named after its file.
#[derive(Debug)]
pub(crate) struct ResourceDocument {
    pub(super) name: String,
    pub(super) resources: Vec<SchemaResource>,
}

#[derive(Debug)]
pub(super) struct SchemaResource {
    pub(super) kind: GroupVersionKind,
    pub(super) plural: String,
    /// The types of the resource's fields. They are `None` if the schema of the resource does not list its fields.
    pub(super) schema: Option<ObjectSchema>,
    pub(super) structure: Structure,
}

/// Reads the schemas in a CustomResourceDefinition, and ignores its other fields.
pub(super) fn read_resource(root: &Node<'_>) -> Option<ResourceDocument> {
    let (name, spec) = read_head(root, "write the resource")?;
    let mut spec = spec.ignoring_others();
    let group = spec.get_required("group", "write the group, `example.com`", readers::text);
    let names = spec.get_required("names", "write `names: { kind: ..., plural: ... }`", Node::object);
    let versions = spec.get_required("versions", "list the versions", Node::list);
    let mut names = names?.ignoring_others();
    let kind = names.get_required("kind", "name the kind", readers::text)?;
    let plural = names.get_required("plural", "name the resource in the plural", readers::text)?;
    let group = group?;
    let read_version = |node: &Node<'_>| {
        let mut fields = node.object()?.ignoring_others();
        let version = fields.get_required("name", "name the version, `v1`", readers::text)?;
        let field = fields.optional("schema").map(|schema| schema.json());
        let schema = field.as_ref().and_then(|field| field.get("openAPIV3Schema"))?;
        let other_schemas = Map::new();
        let mut components = Components::new(&other_schemas);
        Some(SchemaResource {
            structure: components.structure(&kind, schema),
            schema: components.object(&kind, schema),
            kind: GroupVersionKind {
                group: group.clone(),
                version,
                kind: kind.clone(),
            },
            plural: plural.clone(),
        })
    };
    Some(ResourceDocument {
        name: name?,
        resources: versions?.iter().filter_map(read_version).collect(),
    })
}
