//! Reads the `parameters` of a mutator, which depend on its kind.

use std::sync::LazyLock;

use admittance_mutation::{FieldLocation, ImageParts, Mutation, Step};
use regex::Regex;
use serde_json::Value as Json;

use super::{MutatorKind, read_location};
use crate::document::{Fields, Node, quoted, readers};

/// The `pathTests` of a mutator: the node of each test, its path, and whether the path must exist (`true`) or must not.
type Tests<'a> = Vec<(Node<'a>, FieldLocation, bool)>;

/// Reads the change that a mutator makes, and its `pathTests`. Reports a mistake if this kind of mutator cannot change
/// the field at `location`.
pub(super) fn read<'a>(
    kind: MutatorKind,
    location_node: &Node<'_>,
    location: &FieldLocation,
    mut fields: Fields<'a>,
) -> Option<(Mutation, Tests<'a>)> {
    let mistakes_before = location_node.mistake_count();
    check_location(kind, location_node, location);
    let mut tests = Vec::new();
    let mutation = match kind {
        MutatorKind::Assign => read_assigned(&mut fields, location),
        MutatorKind::AssignMetadata => {
            let node = fields.node().clone();
            tests.push((node, location.clone(), false));
            read_assigned(&mut fields, location).and_then(|mutation| {
                let is_text = !matches!(&mutation, Mutation::Assign(value) if !value.is_string());
                if !is_text {
                    let fix = "put it in quotes";
                    fields
                        .node()
                        .add_mistake("labels and annotations are strings, and the value is none", fix);
                }
                is_text.then_some(mutation)
            })
        }
        MutatorKind::AssignImage => read_image(&mut fields).map(Mutation::Image),
        MutatorKind::ModifySet => read_set(&mut fields),
    };
    if kind != MutatorKind::AssignMetadata {
        tests = fields.get_or_default("pathTests", readers::list_of(read_test));
    }
    drop(fields);
    (location_node.mistake_count() == mistakes_before).then_some((mutation?, tests))
}

fn check_location(kind: MutatorKind, node: &Node<'_>, location: &FieldLocation) {
    let steps = location.steps();
    let field = |name: &str| Step::Field(name.to_owned());
    let is_metadata = steps.first() == Some(&field("metadata"));
    let ends_with_items = matches!(steps.last(), Some(Step::Items { .. }));
    let sets_key = match steps {
        [.., Step::Items { key, .. }, Step::Field(last)] => key == last,
        _ => false,
    };
    let mistake = match kind {
        MutatorKind::AssignMetadata => {
            let metadata_fields = [field("labels"), field("annotations")];
            let fits = match steps {
                [_, part, Step::Field(_)] => is_metadata && metadata_fields.contains(part),
                _ => false,
            };
            (!fits).then_some((
                "AssignMetadata sets a label or an annotation",
                "write `metadata.labels.NAME` or `metadata.annotations.\"NAME\"`",
            ))
        }
        _ if is_metadata => Some((
            "only AssignMetadata changes the metadata",
            "use an AssignMetadata for labels and annotations; nothing else of the metadata can be changed",
        )),
        _ if sets_key => Some((
            "the field by which the items of a list are found cannot be changed",
            "choose another field",
        )),
        MutatorKind::AssignImage | MutatorKind::ModifySet if ends_with_items => Some((
            "it ends with the items of a list",
            "name a field of the items, `spec.containers[name: *].image`",
        )),
        MutatorKind::Assign if matches!(steps.last(), Some(Step::Items { value: None, .. })) => Some((
            "it ends with all items of a list, and only one can be assigned",
            "name the item, `spec.containers[name: proxy]`",
        )),
        _ => None,
    };
    if let Some((message, fix)) = mistake {
        node.add_mistake(message, fix);
    }
}

fn read_assigned(fields: &mut Fields<'_>, location: &FieldLocation) -> Option<Mutation> {
    const SOURCES: [&str; 3] = ["value", "fromMetadata", "externalData"];
    let fix = "write `assign: { value: ... }` or `assign: { fromMetadata: { field: name } }`";
    let node = fields.required("assign", fix)?;
    let mut assign = node.object()?;
    let sources = assign.present_fields(&SOURCES);
    let [(source, source_node)] = sources.as_slice() else {
        return node.reject("it needs exactly one of `value` and `fromMetadata`", fix);
    };
    let item = match location.steps().last() {
        Some(Step::Items {
            key,
            value: Some(value),
        }) => Some((key, value)),
        _ => None,
    };
    match (*source, item) {
        ("value", None) => Some(Mutation::Assign(source_node.json())),
        ("value", Some((key, value))) => {
            let object = source_node.json();
            if object.get(key) == Some(value) {
                return Some(Mutation::Assign(object));
            }
            let fix = format!("write an object with `{key}: {value}`, as in the location");
            source_node.reject("it is not the item that the location names", fix)
        }
        ("fromMetadata", None) => read_from_metadata(source_node),
        ("fromMetadata", Some(_)) => {
            let fix = "end the location with a field";
            source_node.reject("an item of a list cannot come from the metadata", fix)
        }
        _ => {
            let message = "external data comes from a provider of Gatekeeper, and there is none here";
            let fix = "assign a `value`, or use a plugin, which may ask a server that is granted to it";
            source_node.reject(message, fix)
        }
    }
}

fn read_from_metadata(node: &Node<'_>) -> Option<Mutation> {
    const FIELDS: [(&str, bool); 2] = [("namespace", true), ("name", false)];
    let mut fields = node.object()?;
    let read_field = readers::one_of("field of the metadata", &FIELDS);
    let is_namespace = fields.get_required("field", "write namespace or name", read_field);
    Some(if is_namespace? {
        Mutation::AssignNamespace
    } else {
        Mutation::AssignName
    })
}

fn read_image(fields: &mut Fields<'_>) -> Option<ImageParts> {
    static DOMAIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?:[0-9A-Za-z_][0-9A-Za-z_-]*\.[0-9A-Za-z_.-]*[0-9A-Za-z_]|localhost)(?::[0-9]+)?$").ok()
    });
    static PATH: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[a-z0-9]+(?:(?:[._/]|__|-*)[a-z0-9]+)*$").ok());
    static TAG: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let tag = r":[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}";
        let digest = r"@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}";
        Regex::new(&format!("^(?:{tag}|{digest})$")).ok()
    });
    let mistakes_before = fields.node().mistake_count();
    let mut part = |name: &'static str, pattern: &'static LazyLock<Option<Regex>>, noun: &str, fix: &str| {
        let node = fields.optional(name)?;
        let text = node.text()?;
        if pattern.as_ref().is_some_and(|pattern| pattern.is_match(text)) {
            return Some(text.to_owned());
        }
        node.reject(format!("{} is not {noun}", quoted(text)), fix)
    };
    let parts = ImageParts {
        domain: part("assignDomain", &DOMAIN, "a domain", "write `registry.example.com:5000`"),
        path: part("assignPath", &PATH, "a path of an image", "write `library/nginx`"),
        tag: part("assignTag", &TAG, "a tag or a digest", "write `:1.27` or `@sha256:...`"),
    };
    if fields.node().mistake_count() > mistakes_before {
        return None;
    }
    let problem = if parts == ImageParts::default() {
        Some((
            "nothing is assigned",
            "write `assignDomain`, `assignPath` or `assignTag`",
        ))
    } else if parts.domain.is_none() && parts.path_has_domain() {
        Some((
            "the path begins with what would be read as a domain",
            "write that part as `assignDomain`",
        ))
    } else {
        None
    };
    match problem {
        Some((message, fix)) => fields.node().reject(message, fix),
        None => Some(parts),
    }
}

fn read_set(fields: &mut Fields<'_>) -> Option<Mutation> {
    const OPERATIONS: [(&str, bool); 2] = [("merge", true), ("prune", false)];
    let is_merged = fields.get("operation", true, readers::one_of("operation", &OPERATIONS));
    let fix = "list the values: `values: { fromList: [...] }`";
    let mut values = fields.get_required("values", fix, Node::object)?;
    let from_list = values.get_required("fromList", fix, Node::list);
    let list: Vec<Json> = from_list?.iter().map(Node::json).collect();
    Some(if is_merged {
        Mutation::Merge(list)
    } else {
        Mutation::Prune(list)
    })
}

fn read_test<'a>(node: &Node<'a>) -> Option<(Node<'a>, FieldLocation, bool)> {
    const CONDITIONS: [(&str, bool); 2] = [("MustExist", true), ("MustNotExist", false)];
    let mut fields = node.object()?;
    let path = fields.get_required("subPath", "write a beginning of the location", read_location);
    let read_condition = readers::one_of("condition", &CONDITIONS);
    let must_exist = fields.get_required("condition", "write MustExist or MustNotExist", read_condition);
    Some((node.clone(), path?, must_exist?))
}
