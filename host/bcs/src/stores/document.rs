//! Reads and writes the documents of definitions in the form that BCS uses.

use std::path::Path;

use admittance_definitions::{FileChange, Location, Mistake, Mistakes, StoreError};
use serde_json::{Map, Value};

use crate::definition_name::{DefinitionName, KIND};

/// The `apiVersion` that BCS writes. When BCS reads a document, it ignores this field.
const API_VERSION: &str = "v4";

/// An operation and a kind, in lower case. BCS allows only one definition per pair, such as `create` and `application`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationAndKind {
    operation: String,
    kind: String,
}

impl OperationAndKind {
    /// Returns the operation and kind in the text of a definition; `None` if they are missing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let document: Map<String, Value> = serde_json::from_str(text).ok()?;
        let reference = find_field(&document, "resourcesRef")?.as_object()?;
        let lower = |key| Some(find_field(reference, key)?.as_str()?.to_ascii_lowercase());
        Some(Self {
            operation: lower("operation")?,
            kind: lower("kind")?,
        })
    }

    /// Returns `None` if the operation and kind are as before, or the definition is deleted.
    pub(crate) fn added_by_change(change: &FileChange) -> Option<Self> {
        let after = Self::parse(change.after.as_deref()?)?;
        let before = change.before.as_deref().and_then(Self::parse);
        (before.as_ref() != Some(&after)).then_some(after)
    }
}

/// The case of the key is ignored, as in Go.
fn find_field<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    let member = object.iter().find(|(key, _)| key.eq_ignore_ascii_case(field));
    member.map(|(_, value)| value).filter(|value| !is_unset(value))
}

/// Sets `kind` and `apiVersion` in a document. A missing name or namespace is taken from the node or resource.
pub(crate) fn complete_document(
    mut document: Map<String, Value>,
    definition_name: &DefinitionName,
) -> Map<String, Value> {
    let mut definition = Map::new();
    for (field, text) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        remove_field(&mut document, field);
        definition.insert(field.to_owned(), text.into());
    }
    let mut metadata = match remove_field(&mut document, "metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            // An invalid value is kept, so that parsing the document reports the mistake.
            definition.insert("metadata".to_owned(), other);
            definition.extend(document);
            return definition;
        }
    };
    for (field, text) in [
        ("name", &definition_name.name),
        ("namespace", &definition_name.namespace),
    ] {
        let is_there = metadata
            .iter()
            .any(|(key, value)| key.eq_ignore_ascii_case(field) && !is_unset(value));
        if !is_there {
            remove_field(&mut metadata, field);
            metadata.insert(field.to_owned(), text.as_str().into());
        }
    }
    definition.insert("metadata".to_owned(), metadata.into());
    definition.extend(document);
    definition
}

/// Adds the fields that a definition needs but that BCS lets users omit in a node of ZooKeeper, such as its name. If no
/// field is missing, the text is returned unchanged.
pub(crate) fn with_defaults(text: String, definition_name: &DefinitionName) -> String {
    let Ok(document) = serde_json::from_str::<Map<String, Value>>(&text) else {
        return text;
    };
    let is_version = find_field(&document, "apiVersion").is_none_or(|version| version == API_VERSION);
    let is_named = match find_field(&document, "metadata") {
        Some(Value::Object(metadata)) => ["name", "namespace"]
            .iter()
            .all(|name| find_field(metadata, name).is_some()),
        _ => false,
    };
    match find_field(&document, "kind") {
        Some(Value::String(kind)) if kind.eq_ignore_ascii_case(KIND) && is_version && is_named => text,
        Some(Value::String(kind)) if !kind.eq_ignore_ascii_case(KIND) => text,
        None | Some(_) => Value::Object(complete_document(document, definition_name)).to_string(),
    }
}

fn remove_field(object: &mut Map<String, Value>, field: &str) -> Option<Value> {
    let key = object.keys().find(|key| key.eq_ignore_ascii_case(field))?.clone();
    object.shift_remove(&key)
}

/// Returns whether a program in Go could have written this value for a field that is not set.
fn is_unset(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// Ignores the order of keys, and spacing.
pub(crate) fn are_equal_documents(one: Option<&str>, other: Option<&str>) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text);
    match (one, other) {
        (Some(one), Some(other)) => {
            one == other || matches!((parse(one), parse(other)), (Ok(one), Ok(other)) if one == other)
        }
        (None, None) => true,
        _ => false,
    }
}

/// Refuses a text without hooks, because BCS reads every document in the store as a definition of hooks.
pub(crate) fn parse_for_write(path: &Path, text: &str) -> Result<Map<String, Value>, StoreError> {
    let wrong = |message: String| {
        let mut mistakes = Mistakes::new();
        mistakes.push(Mistake {
            location: Location::of_file(path.display().to_string()),
            path: String::new(),
            message,
            fix: "write one admissionwebhook, as JSON".to_owned(),
        });
        StoreError::Mistakes(mistakes)
    };
    let document = match serde_json::from_str(text) {
        Ok(Value::Object(document)) => document,
        Ok(_) => return Err(wrong("this is not a definition document".to_owned())),
        Err(error) => return Err(wrong(format!("this is not JSON: {error}"))),
    };
    let kind = find_field(&document, "kind").and_then(Value::as_str);
    match kind {
        Some(kind) if kind.eq_ignore_ascii_case(KIND) => Ok(document),
        Some(kind) => Err(wrong(format!("a definition of kind {kind:?} cannot be stored here"))),
        None => Err(wrong("kind is missing".to_owned())),
    }
}

#[cfg(test)]
mod tests;
