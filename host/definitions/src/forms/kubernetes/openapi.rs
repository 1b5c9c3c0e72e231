//! Reads the schemas of kinds from an API server's OpenAPI documents, so that policies can be checked against them.

use std::collections::HashMap;

use admittance_admission::GroupVersionKind;
use admittance_conditions::Components;
use serde_json::{Map, Value as Json};

use super::resource::{ResourceDocument, SchemaResource};
use crate::document::Node;

/// The field `openapi` identifies a document of OpenAPI 3. OpenAPI 2 has `swagger` instead, and is not supported.
pub(super) const VERSION: &str = "openapi";
pub(super) const VERSION_2: &str = "swagger";

/// The field that tells the kind to which a schema or operation belongs.
const KIND: &str = "x-kubernetes-group-version-kind";

/// Reads the schemas of those kinds in the document whose objects can be created.
pub(super) fn read(root: &Node<'_>) -> Option<ResourceDocument> {
    let mut fields = root.object()?.ignoring_others();
    let fix = "save one of version 3, `kubectl get --raw /openapi/v3/apis/apps/v1`";
    if let Some(version) = fields.optional(VERSION_2) {
        return version.reject("OpenAPI documents of version 2 are not read", fix);
    }
    let version = fields.required(VERSION, fix)?;
    if !version.text()?.starts_with("3.") {
        return version.reject("only OpenAPI documents of version 3 are read", fix);
    }
    let document = root.json();
    let none = Map::new();
    let document_schemas = document.pointer("/components/schemas").and_then(Json::as_object);
    let schemas = document_schemas.unwrap_or(&none);
    let mut kind_schemas = HashMap::new();
    for schema in schemas.values() {
        let kinds = schema.get(KIND).and_then(Json::as_array).into_iter().flatten();
        kind_schemas.extend(kinds.filter_map(parse_kind).map(|kind| (kind, schema)));
    }
    let mut components = Components::new(schemas);
    let paths = document.get("paths").and_then(Json::as_object);
    let created = paths
        .into_iter()
        .flatten()
        .filter_map(|(path, item)| created_kind(path, item));
    let resources: Vec<SchemaResource> = created
        .filter_map(|(kind, plural)| {
            let schema = kind_schemas.get(&kind)?;
            Some(SchemaResource {
                structure: components.structure(&kind.kind, schema),
                schema: Some(components.object(&kind.kind, schema)?),
                kind,
                plural,
            })
        })
        .collect();
    if resources.is_empty() {
        root.add_mistake("the OpenAPI document has no schema of a kind that can be created", fix);
    }
    Some(ResourceDocument {
        name: root.location().file,
        resources,
    })
}

/// Returns the kind and resource of the objects that a POST to this path creates. Returns `None` for the path of a
/// single object, which ends in `{name}`, and for the path of a subresource.
fn created_kind(path: &str, item: &Json) -> Option<(GroupVersionKind, String)> {
    let (before, plural) = path.rsplit_once('/')?;
    if plural.contains('{') || before.contains("{name}") {
        return None;
    }
    let kind = parse_kind(item.get("post")?.get(KIND)?)?;
    Some((kind, plural.to_owned()))
}

fn parse_kind(value: &Json) -> Option<GroupVersionKind> {
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some(GroupVersionKind {
        group: text("group")?,
        version: text("version")?,
        kind: text("kind")?,
    })
}
