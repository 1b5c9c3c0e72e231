//! Checks objects against a structure: objects that server-side apply is about to merge, and results of JSON Patches.

use std::collections::HashSet;

use admittance_admission::{shortened, unescaped_token};
use serde_json::Value as Json;

use super::{ListMerge, ScalarSchema, Structure, StructureCursor, StructureNode};

const MAX_MISTAKES: usize = 10;

impl Structure {
    /// Checks whether an object to apply fits the structure. The error is in kube-apiserver's wording.
    pub(crate) fn check_applied(&self, change: &Json) -> Result<(), String> {
        let mut walk = CheckWalk::default();
        walk.check_applied_value(self.root(), change);
        match walk.mistakes.as_slice() {
            [] => Ok(()),
            [only] => Err(only.clone()),
            several => Err(format!("errors:\n  {}", several.join("\n  "))),
        }
    }

    /// Returns the paths of the atomic values in an object to apply. Server-side apply cannot merge an atomic value,
    /// but only replace it as a whole.
    pub(crate) fn atomic_parts(&self, change: &Json) -> Vec<String> {
        let mut walk = CheckWalk::default();
        walk.collect_atomic_parts(self.root(), change);
        walk.mistakes
    }

    /// Describes why an object to apply cannot have the given value in the field `field` of the part at `path`. Returns
    /// `None` if it can have the value.
    pub(crate) fn field_refusal(&self, path: &str, field: &str, value: &Json) -> Option<String> {
        let cursor = self.cursor_at(path)?.member(field)?;
        let field_path = format!("{path}.{field}");
        let mut walk = CheckWalk {
            path: field_path.clone(),
            ..CheckWalk::default()
        };
        walk.check_applied_value(cursor, value);
        walk.mistakes.pop().or_else(|| {
            walk.collect_atomic_parts(cursor, value);
            let is_atomic = !walk.mistakes.is_empty();
            is_atomic.then(|| format!("{field_path} is replaced as a whole, which only a JSONPatch can do"))
        })
    }

    /// Describes why a JSON Patch cannot set this value at this path; returns `None` if it can. Null is always allowed.
    pub(crate) fn patched_misfit(&self, path: &str, value: &Json) -> Option<String> {
        let mut cursor = self.root();
        let mut owner = String::new();
        for part in path.split('/').skip(1) {
            let part = unescaped_token(part);
            cursor = match cursor.node {
                StructureNode::List { .. } => cursor.items(),
                StructureNode::Map { name, .. } => {
                    let Some(member) = cursor.member(&part) else {
                        return Some(format!("there is no field {part:?} on the path {path:?}"));
                    };
                    if !name.is_empty() {
                        owner = go_field(name, &owner, &part);
                    }
                    member
                }
                _ => return None,
            };
        }
        let mut walk = CheckWalk::default();
        walk.check_decoded_value(cursor, value, &owner);
        let unknown_field_mistake = || {
            Some(format!(
                "the value for {path:?} has no field {:?}",
                walk.unknown_fields.first()?
            ))
        };
        walk.mistakes
            .first()
            .map(|why| format!("the value for {path:?} does not fit: {why}"))
            .or_else(unknown_field_mistake)
    }

    /// Checks the result of a JSON Patch. Mistakes that were in the object before the patch are ignored, because the
    /// control plane may have fields that the structure lacks.
    pub(crate) fn check_patched(&self, before: &Json, after: &Json) -> Result<(), String> {
        let decode = |object| {
            let mut walk = CheckWalk::default();
            walk.check_decoded_value(self.root(), object, "");
            walk
        };
        let mut walk = decode(after);
        if walk.mistakes.is_empty() && walk.unknown_fields.is_empty() {
            return Ok(());
        }
        let earlier_walk = decode(before);
        walk.mistakes.retain(|mistake| !earlier_walk.mistakes.contains(mistake));
        walk.unknown_fields
            .retain(|field| !earlier_walk.unknown_fields.contains(field));
        if let Some(first) = walk.mistakes.into_iter().next() {
            return Err(first);
        }
        let fields = walk
            .unknown_fields
            .iter()
            .map(|field| format!("unknown field {field:?}"));
        match fields.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => Ok(()),
            fields => Err(format!("strict decoding error: {fields}")),
        }
    }
}

/// Returns the name by which an item of a list is merged, such as `[name="c"]`. Fails if the item has no name.
pub(super) fn item_name(list: StructureCursor<'_>, index: usize, item: &Json) -> Result<String, String> {
    let StructureNode::List { merge, .. } = list.node else {
        return Ok(format!("[{index}]"));
    };
    match merge {
        ListMerge::Atomic => Ok(format!("[{index}]")),
        ListMerge::Set => match item {
            Json::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Json::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Json::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(format!("[={scalar}]")),
        },
        ListMerge::Keys(keys) => {
            let Json::Object(members) = item else {
                let problem = if item.is_null() {
                    "a null element"
                } else {
                    "non-map elements"
                };
                return Err(format!("associative list with keys may not have {problem}"));
            };
            let items = list.items();
            let mut key_values: Vec<(&str, &Json)> = keys
                .iter()
                .filter_map(|key| Some((&**key, members.get(&**key).or_else(|| items.default(key))?)))
                .collect();
            if key_values.is_empty() {
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                     values for any key fields)",
                    keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ")
                ));
            }
            key_values.sort_by_key(|(key, _)| *key);
            let pairs = key_values.iter().map(|(key, value)| format!("{key}={value}"));
            Ok(format!("[{}]", pairs.collect::<Vec<_>>().join(",")))
        }
    }
}

#[derive(Default)]
struct CheckWalk {
    mistakes: Vec<String>,
    unknown_fields: Vec<String>,
    path: String,
}

impl CheckWalk {
    fn push(&mut self, mistake: impl Into<String>) {
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(mistake.into());
        }
    }

    fn push_here(&mut self, mistake: &str) {
        self.push(format!("{}: {mistake}", self.path));
    }

    fn within(&mut self, name: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(name);
        walk(self);
        self.path.truncate(length);
    }

    fn check_applied_value(&mut self, cursor: StructureCursor<'_>, value: &Json) {
        match (cursor.node, value) {
            (StructureNode::Scalar(scalar), value) => {
                if let Some(message) = scalar.refusal(value) {
                    self.push_here(&message);
                }
            }
            (StructureNode::List { merge, .. }, Json::Array(items)) => {
                let mut names = HashSet::new();
                for (index, item) in items.iter().enumerate() {
                    let name = match item_name(cursor, index, item) {
                        Ok(name) => name,
                        Err(why) => return self.push_here(&format!("element {index}: {why}")),
                    };
                    self.within(&name, |walk| walk.check_applied_value(cursor.items(), item));
                    if *merge != ListMerge::Atomic && !names.insert(name.clone()) {
                        self.push_here(&format!("duplicate entries for key {name}"));
                    }
                }
            }
            (StructureNode::Map { .. }, Json::Object(members)) => {
                for (key, value) in members {
                    self.within(&format!(".{key}"), |walk| match cursor.member(key) {
                        Some(at) => walk.check_applied_value(at, value),
                        None => walk.push_here("field not declared in schema"),
                    });
                }
            }
            (StructureNode::List { .. }, other) => self.push_here(&format!("expected list, got {}", go_value(other))),
            (StructureNode::Map { .. }, other) => self.push_here(&format!("expected map, got {}", go_value(other))),
            (StructureNode::Any | StructureNode::Unknown | StructureNode::Builtin(_), _) => {}
        }
    }

    fn collect_atomic_parts(&mut self, cursor: StructureCursor<'_>, value: &Json) {
        let is_atomic = match (cursor.node, value) {
            (StructureNode::Map { is_atomic: atomic, .. }, Json::Object(_)) => *atomic,
            (StructureNode::List { merge, .. }, Json::Array(_)) => *merge == ListMerge::Atomic,
            (StructureNode::Unknown, Json::Array(_)) => true,
            _ => false,
        };
        if is_atomic {
            self.push(self.path.clone());
        }
        match (cursor.node, value) {
            (StructureNode::Map { fields, .. }, Json::Object(members)) => {
                for (key, value) in members {
                    // As in the API server, a key is skipped, together with its value, if the structure does not list
                    // the key. For example, it does not list the keys in `labels`. A key is not skipped if the
                    // structure says nothing about the fields of its value.
                    let is_open = cursor
                        .member(key)
                        .is_some_and(|at| matches!(at.node, StructureNode::Unknown));
                    if let Some(member) = cursor.member(key).filter(|_| is_open || fields.contains_key(&**key)) {
                        self.within(&format!(".{key}"), |walk| walk.collect_atomic_parts(member, value));
                    }
                }
            }
            (StructureNode::Unknown, Json::Object(members)) => {
                for (key, value) in members {
                    let at = cursor.member(key).unwrap_or(cursor);
                    self.within(&format!(".{key}"), |walk| walk.collect_atomic_parts(at, value));
                }
            }
            (StructureNode::List { .. }, Json::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.within(&format!("[{index}]"), |walk| {
                        walk.collect_atomic_parts(cursor.items(), item)
                    });
                }
            }
            _ => {}
        }
    }

    /// Adds a mistake for each value that the API server's decoder could not read. `owner` names the field.
    fn check_decoded_value(&mut self, cursor: StructureCursor<'_>, value: &Json, owner: &str) {
        let kind = match value {
            Json::Null => return,
            Json::Bool(_) => "bool",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        };
        let type_mistake = |kind: &str, expected: &str| {
            format!("json: cannot unmarshal {kind} into Go struct field {owner} of type {expected}")
        };
        match (cursor.node, value) {
            (StructureNode::Scalar(scalar), value) => match (scalar.go_type(), value) {
                (Some("string" | "[]uint8"), Json::String(_)) | (Some("bool"), Json::Bool(_)) => {}
                (Some("float64"), Json::Number(_)) => {}
                (Some(int @ ("int32" | "int64")), Json::Number(number)) => {
                    let value = number.as_i64();
                    if value.is_none_or(|value| int == "int32" && i32::try_from(value).is_err()) {
                        self.push(type_mistake(&format!("number {number}"), int));
                    }
                }
                (None, value) if !value.is_array() && !value.is_object() => {}
                (go_type, _) => self.push(type_mistake(kind, go_type.unwrap_or("scalar"))),
            },
            (StructureNode::List { .. }, Json::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.within(&format!("[{index}]"), |walk| {
                        walk.check_decoded_value(cursor.items(), item, owner)
                    });
                }
            }
            (StructureNode::Map { name, .. }, Json::Object(members)) => {
                for (key, value) in members {
                    let dot = if self.path.is_empty() { "" } else { "." };
                    self.within(&format!("{dot}{key}"), |walk| match cursor.member(key) {
                        // A type without a name is a map with arbitrary keys, such as `labels`. If a value in such a
                        // map is wrong, Go's message names the field `labels`, and not the key of the value. So `owner`
                        // still names the field here.
                        Some(at) if name.is_empty() => walk.check_decoded_value(at, value, owner),
                        Some(at) => walk.check_decoded_value(at, value, &go_field(name, owner, key)),
                        None if walk.unknown_fields.len() < MAX_MISTAKES => walk.unknown_fields.push(walk.path.clone()),
                        None => {}
                    });
                }
            }
            (StructureNode::List { .. }, _) => self.push(type_mistake(kind, "list")),
            (StructureNode::Map { name, .. }, _) if name.is_empty() => self.push(type_mistake(kind, "map")),
            (StructureNode::Map { name, .. }, _) => self.push(type_mistake(kind, name)),
            (StructureNode::Any | StructureNode::Unknown | StructureNode::Builtin(_), _) => {}
        }
    }
}

/// Returns the name of a field as the messages of Go's decoder write it, such as `PodSpec.spec.hostname`: the Go type
/// that has the field, and then the path from the object to the field. `outer` is the same kind of name for the value
/// that contains the field.
fn go_field(type_name: &str, outer: &str, field: &str) -> String {
    match outer.split_once('.') {
        Some((_, path)) => format!("{type_name}.{path}.{field}"),
        None => format!("{type_name}.{field}"),
    }
}

impl ScalarSchema {
    /// Describes why a scalar does not have this type; returns `None` if it has.
    fn refusal(self, value: &Json) -> Option<String> {
        let (fits, expected) = match self {
            Self::String | Self::Bytes => {
                let text = format!("string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value));
                (value.is_string(), text)
            }
            Self::Bool => (value.is_boolean(), format!("boolean, got {}", go_value(value))),
            Self::Int32 | Self::Int64 | Self::Double => {
                let numeric = format!("numeric (int or float), got {}", go_type_of(value));
                (value.is_number(), numeric)
            }
            Self::Any => {
                let fits = !value.is_null() && !value.is_array() && !value.is_object();
                (fits, format!("any scalar, got {}", go_value(value)))
            }
        };
        if let (Self::Int32 | Self::Int64, Json::Number(number)) = (self, value)
            && number.as_i64().is_none()
        {
            return Some(format!("expected an integer, got {number}"));
        }
        (!fits).then(|| format!("expected {expected}"))
    }

    /// Returns the name of the scalar's type in Go; `None` if several types are possible.
    fn go_type(self) -> Option<&'static str> {
        Some(match self {
            Self::String => "string",
            Self::Bytes => "[]uint8",
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Double => "float64",
            Self::Any => return None,
        })
    }
}

/// Formats a value as Go's `%v` does for a pointer to a struct that contains the value: `&{value}`.
fn go_value(value: &Json) -> String {
    match value {
        Json::Null => "&{NULL_VALUE}".to_owned(),
        Json::String(text) => format!("&{{{}}}", shortened(text, MAX_SHOWN_LENGTH)),
        other => format!("&{{{}}}", shortened(&other.to_string(), MAX_SHOWN_LENGTH)),
    }
}

/// Formats a value as Go's `%#v` does. CEL's null is the enumeration value `structpb.NullValue` in Go, so it
/// becomes the number `0`.
fn go_syntax(value: &Json) -> String {
    match value {
        Json::Null => "0".to_owned(),
        Json::Array(_) => "[]interface {}{...}".to_owned(),
        Json::Object(_) => "map[string]interface {}{...}".to_owned(),
        other => shortened(&other.to_string(), MAX_SHOWN_LENGTH).into_owned(),
    }
}

fn go_type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "structpb.NullValue",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

const MAX_SHOWN_LENGTH: usize = 256;
