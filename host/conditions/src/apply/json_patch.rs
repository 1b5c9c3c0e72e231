//! Applies the JSON Patches of policies in the same way as the library that kube-apiserver uses. The library is more
//! lenient than RFC 6902: `replace` adds a missing key, and negative indexes count from the end.

use std::mem;

use admittance_admission::{Deadline, Failure, FailureKind, PatchError, unescaped_token};
use serde_json::{Map, Value as Json};

use super::apply_failure;

enum ApplyProblem {
    Test,
    Other(String),
}

impl From<String> for ApplyProblem {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

const MISSING: &str = "missing value";

/// Applies a JSON Patch; returns `None` if a `test` fails. At most `limit` bytes may be copied.
pub(crate) fn apply_json_patch(
    object: &Json,
    operations: &str,
    limit: usize,
    deadline: Deadline,
) -> Result<Option<Json>, Failure> {
    let operations: Vec<Map<String, Json>> =
        serde_json::from_str(operations).map_err(|error| apply_failure(error.to_string()))?;
    let mut document = object.clone();
    let mut copied = 0;
    for (index, operation) in operations.into_iter().enumerate() {
        if deadline.has_passed() {
            let message = format!("the deadline passed after {index} operations");
            return Err(Failure::new(FailureKind::Timeout, message));
        }
        match JsonPatchOperation::from(operation).apply(&mut document, &mut copied) {
            Ok(()) if copied > limit => return Err(PatchError::ResultTooLarge(limit).into()),
            Ok(()) => {}
            Err(ApplyProblem::Test) => return Ok(None),
            Err(ApplyProblem::Other(why)) => return Err(apply_failure(format!("JSON Patch: {why}"))),
        }
    }
    Ok(Some(document))
}

struct JsonPatchOperation {
    kind: String,
    path: String,
    from: String,
    value: Json,
}

impl From<Map<String, Json>> for JsonPatchOperation {
    fn from(mut members: Map<String, Json>) -> Self {
        let mut text = |name: &str| match members.remove(name) {
            Some(Json::String(text)) => text,
            _ => String::new(),
        };
        Self {
            kind: text("op"),
            path: text("path"),
            from: text("from"),
            value: members.remove("value").unwrap_or_default(),
        }
    }
}

impl JsonPatchOperation {
    fn apply(self, document: &mut Json, copied: &mut usize) -> Result<(), ApplyProblem> {
        let Self {
            kind,
            path,
            from,
            value,
        } = self;
        match kind.as_str() {
            "add" => {
                let missing = || missing_text("add", "path", &format!("\"{path}\""));
                let (container, key) = find_container(document, &path).ok_or_else(missing)?;
                add(container, &key, value).map_err(|why| format!("error in add for path: '{path}': {why}"))?;
            }
            "remove" => {
                let missing = || missing_text("remove", "path", &format!("\"{path}\""));
                let (container, key) = find_container(document, &path).ok_or_else(missing)?;
                remove(container, &key).map_err(|why| format!("error in remove for path: '{path}': {why}"))?;
            }
            "replace" if path.is_empty() => *document = value,
            "replace" => {
                let missing = |part: &str| missing_text("replace", part, &path);
                let (container, key) = find_container(document, &path).ok_or_else(|| missing("path"))?;
                match container {
                    Json::Object(members) => {
                        members.insert(key, value);
                    }
                    container => {
                        let item = get(container, &key).map_err(|_| missing("key"))?;
                        *item.ok_or_else(|| missing("key"))? = value;
                    }
                }
            }
            "move" => {
                let missing = |part: &str, path: &str| missing_text("move", part, path);
                let (container, key) = find_container(document, &from).ok_or_else(|| missing("from path", &from))?;
                let moved = remove(container, &key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
                let (container, key) =
                    find_container(document, &path).ok_or_else(|| missing("destination path", &path))?;
                add(container, &key, moved).map_err(|why| format!("error in move for path: '{path}': {why}"))?;
            }
            "copy" => {
                let missing = |part: &str, path: &str| missing_text("copy", part, path);
                let (container, key) = find_container(document, &from).ok_or_else(|| missing("from path", &from))?;
                let source = get(container, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
                let copy = source.map(|value| value.clone()).unwrap_or_default();
                *copied = copied.saturating_add(copy.to_string().len());
                let (container, key) =
                    find_container(document, &path).ok_or_else(|| missing("destination path", &path))?;
                add(container, &key, copy).map_err(|why| format!("error while adding value during copy: {why}"))?;
            }
            "test" => {
                let is_equal = if path.is_empty() {
                    *document == value
                } else {
                    let missing = || format!("test operation does not apply: is missing path: {path}: {MISSING}");
                    let (container, key) = find_container(document, &path).ok_or_else(missing)?;
                    let tested_item =
                        get(container, &key).map_err(|why| format!("error in test for path: '{path}': {why}"))?;
                    tested_item.is_some_and(|current| *current == value)
                };
                if !is_equal {
                    return Err(ApplyProblem::Test);
                }
            }
            other => return Err(format!("Unexpected kind: {other}").into()),
        }
        Ok(())
    }
}

fn missing_text(operation: &str, part: &str, path: &str) -> String {
    format!("{operation} operation does not apply: doc is missing {part}: {path}: {MISSING}")
}

/// Returns the object or array that contains the value at the path, and the last segment of the path.
fn find_container<'d>(document: &'d mut Json, path: &str) -> Option<(&'d mut Json, String)> {
    let (_, path) = path.split_once('/')?;
    let (parts, key) = match path.rsplit_once('/') {
        Some((parts, key)) => (Some(parts), key),
        None => (None, path),
    };
    let mut container = document;
    for part in parts.into_iter().flat_map(|parts| parts.split('/')) {
        container = get(container, &unescaped_token(part)).ok()??;
        if !container.is_object() && !container.is_array() {
            return None;
        }
    }
    Some((container, unescaped_token(key)))
}

fn get<'d>(container: &'d mut Json, key: &str) -> Result<Option<&'d mut Json>, String> {
    match container {
        Json::Object(members) => Ok(members.get_mut(key)),
        Json::Array(items) => {
            let index = parse_index(key, items.len())?;
            Ok(items.get_mut(index))
        }
        _ => Ok(None),
    }
}

fn add(container: &mut Json, key: &str, value: Json) -> Result<(), String> {
    match container {
        Json::Object(members) => {
            members.insert(key.to_owned(), value);
        }
        Json::Array(items) if key == "-" => items.push(value),
        Json::Array(items) => {
            let proper = |why: String| match key.parse::<i64>() {
                Ok(_) => why,
                Err(_) => format!("value was not a proper array index: '{key}': {why}"),
            };
            items.insert(parse_index(key, items.len() + 1).map_err(proper)?, value);
        }
        _ => {}
    }
    Ok(())
}

fn remove(container: &mut Json, key: &str) -> Result<Json, String> {
    match container {
        Json::Object(members) => members
            .swap_remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        Json::Array(items) => {
            let index = parse_index(key, items.len())?;
            Ok(items.remove(index))
        }
        other => Ok(mem::take(other)),
    }
}

fn parse_index(key: &str, count: usize) -> Result<usize, String> {
    let number: i64 = key
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))?;
    let from_start = if number < 0 {
        number.saturating_add_unsigned(count as u64)
    } else {
        number
    };
    let index = usize::try_from(from_start).ok().filter(|index| *index < count);
    index.ok_or_else(|| format!("Unable to access invalid index: {number}: invalid index referenced"))
}
