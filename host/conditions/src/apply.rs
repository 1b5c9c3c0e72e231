//! Writes the result of a mutation's expression as JSON (an object to apply, or a JSON Patch), and applies it.

use admittance_admission::{Deadline, Failure, FailureKind, Patch, PatchError};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value as Json;

pub(crate) use self::json_patch::apply_json_patch;
use crate::{
    functions::time::{duration_text, timestamp_text},
    structure::Structure,
    value::{CelList, Map, ObjectPart, Value},
};

mod json_patch;

/// The maximum nesting of values in the result of a mutation. The JSON parser has the same limit.
const MAX_DEPTH: usize = 128;
/// The largest integer that every JSON parser reads exactly.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;
/// The number of bytes of JSON that are written between two checks of the deadline.
const DEADLINE_INTERVAL: usize = 64 << 10;

/// Writes the result of a mutation as JSON. A value may contain the same part many times, so even a small value can be
/// very long as JSON. The writer therefore checks the length and the deadline.
pub(crate) struct JsonWriter {
    text: String,
    limit: usize,
    deadline: Deadline,
    next_deadline_check: usize,
    depth: usize,
    converts: bool,
}

type WriteResult = Result<(), Failure>;

impl JsonWriter {
    pub(crate) fn new(limit: usize, deadline: Deadline) -> Self {
        Self {
            text: String::new(),
            limit,
            deadline,
            next_deadline_check: DEADLINE_INTERVAL,
            depth: 0,
            converts: false,
        }
    }

    pub(crate) fn write_patch(mut self, operations: &CelList<'_>) -> Result<String, Failure> {
        if operations.len() > Patch::MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations(operations.len()).into());
        }
        self.converts = true;
        self.push("[")?;
        for (place, operation) in operations.iter().enumerate() {
            self.separate(place)?;
            match operation {
                Value::Part(part) if part.is_json_patch() => self.write_members(&part.fields, None)?,
                other => {
                    return Err(apply_failure(format!(
                        "type mismatch: JSONPatchType.val contains {} as one of its values",
                        other.kind()
                    )));
                }
            }
        }
        self.push("]")?;
        Ok(self.text)
    }

    pub(crate) fn write_change(mut self, change: &Value<'_>) -> Result<String, Failure> {
        let Value::Part(part) = change else {
            return Err(apply_failure(format!(
                "unsupported return type from ApplyConfiguration expression: {}",
                change.kind()
            )));
        };
        self.write_part(part, "Object")?;
        Ok(self.text)
    }

    pub(crate) fn write_json(mut self, value: &Value<'_>) -> Result<String, Failure> {
        self.converts = true;
        self.write_value(value, None)?;
        Ok(self.text)
    }

    fn push(&mut self, text: &str) -> WriteResult {
        if text.len() > self.limit.saturating_sub(self.text.len()) {
            return Err(PatchError::ResultTooLarge(self.limit).into());
        }
        self.text.push_str(text);
        if self.text.len() >= self.next_deadline_check {
            self.next_deadline_check = self.text.len() + DEADLINE_INTERVAL;
            if self.deadline.has_passed() {
                let message = "what the expression gives was not written in time";
                return Err(Failure::new(FailureKind::Timeout, message));
            }
        }
        Ok(())
    }

    fn separate(&mut self, place: usize) -> WriteResult {
        if place == 0 { Ok(()) } else { self.push(",") }
    }

    fn write_string(&mut self, text: &str) -> WriteResult {
        // The text is escaped piece by piece, so that writing can stop when the limit is reached.
        self.push("\"")?;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(DEADLINE_INTERVAL));
            let quoted = serde_json::to_string(piece).map_err(|error| apply_failure(error.to_string()))?;
            let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            self.push(inner.unwrap_or_default())?;
            rest = after;
        }
        self.push("\"")
    }

    fn write_key(&mut self, key: &Value<'_>) -> WriteResult {
        match key {
            Value::String(key) => self.write_string(key)?,
            other => {
                return Err(apply_failure(format!(
                    "unexpected key of type {} in a map: only strings can be written",
                    other.kind()
                )));
            }
        }
        self.push(":")
    }

    /// Writes the members of an object. `path` is the type name of an object to apply, such as `Object.spec`.
    fn write_members(&mut self, members: &Map<'_>, path: Option<&str>) -> WriteResult {
        self.push("{")?;
        for (place, (key, value)) in members.entries().enumerate() {
            self.separate(place)?;
            self.write_key(&key)?;
            let path = match (&key, path) {
                (Value::String(key), Some(path)) => Some(format!("{path}.{}", &**key)),
                _ => None,
            };
            self.write_value(&value, path.as_deref())?;
        }
        self.push("}")
    }

    fn write_part(&mut self, part: &ObjectPart<'_>, path: &str) -> WriteResult {
        if &*part.path != path {
            return Err(apply_failure(format!(
                "type mismatch: unexpected type name \"{}\", expected \"{path}\", which matches field name path from root Object type",
                part.path
            )));
        }
        self.write_members(&part.fields, Some(path))
    }

    fn write_value(&mut self, value: &Value<'_>, path: Option<&str>) -> WriteResult {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            // Some JSON parsers would round an integer of this size, so it is written as a string.
            Value::Int(value) if self.converts && value.unsigned_abs() > MAX_EXACT_INTEGER => {
                self.write_string(&value.to_string())
            }
            Value::Uint(value) if self.converts && *value > MAX_EXACT_INTEGER => self.write_string(&value.to_string()),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Uint(value) => self.push(&value.to_string()),
            // A double without a fraction is written as an integer, as Go does.
            Value::Double(value) if value.fract() == 0.0 && value.abs() <= MAX_EXACT_INTEGER as f64 => {
                self.push(&(*value as i64).to_string())
            }
            Value::Double(value) => {
                let number = serde_json::Number::from_f64(*value)
                    .ok_or_else(|| apply_failure(format!("{value} cannot be written")))?;
                self.push(&number.to_string())
            }
            Value::String(text) => self.write_string(text),
            Value::List(_) | Value::Map(_) | Value::Part(_) => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(apply_failure(format!(
                        "the value is nested more than {MAX_DEPTH} levels deep"
                    )));
                }
                self.write_nested(value, path)?;
                self.depth -= 1;
                Ok(())
            }
            Value::Optional(Some(inner)) => self.write_value(inner, path),
            Value::Optional(None) => self.push("null"),
            Value::Bytes(bytes) if self.converts => self.write_string(&BASE64_STANDARD.encode(bytes)),
            Value::Duration(duration) if self.converts => self.write_string(&duration_text(*duration)),
            Value::Timestamp(time) if self.converts => match timestamp_text(*time) {
                Ok(text) => self.write_string(&text),
                Err(_) => Err(apply_failure("the timestamp cannot be written")),
            },
            other if self.converts => Err(apply_failure(format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: type conversion error from \
                 '{}' to '*structpb.Value'",
                other.kind().rsplit('.').next().unwrap_or_default()
            ))),
            other => Err(apply_failure(format!(
                "a {} cannot be written into an object",
                other.kind()
            ))),
        }
    }

    fn write_nested(&mut self, value: &Value<'_>, path: Option<&str>) -> WriteResult {
        match value {
            Value::List(list) => {
                self.push("[")?;
                for (place, item) in list.iter().enumerate() {
                    self.separate(place)?;
                    self.write_value(&item, path)?;
                }
                self.push("]")
            }
            Value::Map(map) => self.write_members(map, None),
            Value::Part(part) => self.write_part(part, path.unwrap_or(&part.path)),
            _ => Ok(()),
        }
    }
}

fn apply_failure(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Error, message)
}

/// Applies a change to the object, as server-side apply of the API server would do.
pub(crate) fn merge_change(object: &Json, change: &str, structure: &Structure) -> Result<Json, Failure> {
    let mut change: Json = serde_json::from_str(change).map_err(|error| apply_failure(error.to_string()))?;
    if let Json::Object(members) = &mut change {
        // The change may have `apiVersion` and `kind`, which the API server ignores.
        members.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    let wrong = |why: String| apply_failure(format!("error applying patch: {why}"));
    let untyped = |why: String| wrong(format!("failed to convert patch object to typed object: {why}"));
    structure.check_applied(&change).map_err(untyped)?;
    let atomic = structure.atomic_parts(&change);
    if !atomic.is_empty() {
        return Err(wrong(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        )));
    }
    let mut object = object.clone();
    let unmerged = |why: String| wrong(format!("failed to merge patch: {why}"));
    structure.merge(&mut object, change).map_err(unmerged)?;
    Ok(object)
}
