//! Applies a change to a whole object if the plugin has parsed and changed only some of its fields.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde_json::{Map, Value};

use crate::Error;

/// The maximum number of comparisons for matching the elements of two lists. Above it, they are matched by index.
const MAX_COMPARISONS: usize = 1 << 18;

/// Repeats a change on another object. The change is the difference between `before` and `after`, and is applied to
/// `original`. Returns the result.
///
/// `before` is `original` after it was parsed as some type and serialized again. Fields that the type does not have are
/// missing in it, and others may have got defaults. A value that is equal in `before` and `after` keeps the form that
/// it has in `original`.
pub(crate) fn rebase(original: &Value, before: &Value, after: Value) -> Result<Value, Error> {
    merge_value(original, before, after, &mut PointerBuf::new())
}

fn merge_value(original: &Value, before: &Value, after: Value, at: &mut PointerBuf) -> Result<Value, Error> {
    if *before == after {
        return Ok(original.clone());
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            merge_object(original, before, after, at).map(Value::Object)
        }
        (Value::Array(original), Value::Array(before), Value::Array(after)) => {
            merge_array(original, before, after, at).map(Value::Array)
        }
        (_, _, after) => Ok(after),
    }
}

fn merge_object(
    original: &Map<String, Value>,
    before: &Map<String, Value>,
    after: Map<String, Value>,
    path: &mut PointerBuf,
) -> Result<Map<String, Value>, Error> {
    let mut merged = original.clone();
    for key in before.keys() {
        if !after.contains_key(key) {
            merged.remove(key);
        }
    }
    for (key, new) in after {
        let Some(old) = before.get(&key) else {
            merged.insert(key, new);
            continue;
        };
        if *old == new {
            continue;
        }
        let changed = match original.get(&key) {
            Some(original) => {
                path.push_back(&key);
                let changed = merge_value(original, old, new, path)?;
                path.pop_back();
                changed
            }
            None => new,
        };
        merged.insert(key, changed);
    }
    Ok(merged)
}

fn merge_array(
    original: &[Value],
    before: &[Value],
    after: Vec<Value>,
    at: &mut PointerBuf,
) -> Result<Vec<Value>, Error> {
    if original.len() != before.len() {
        return Err(Error::ListNotKept {
            pointer: at.clone(),
            original: original.len(),
            read: before.len(),
        });
    }
    let sources = match_elements(before, &after);
    let mut merged = Vec::with_capacity(after.len());
    for (new, source) in after.into_iter().zip(sources) {
        let element = match source.and_then(|index| Some((index, original.get(index)?, before.get(index)?))) {
            Some((index, original, before)) => {
                at.push_back(index);
                let element = merge_value(original, before, new, at)?;
                at.pop_back();
                element
            }
            None => new,
        };
        merged.push(element);
    }
    Ok(merged)
}

/// Returns for each element of `after` the index of its original in `before`; `None` for a new element.
fn match_elements(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    if let (Some(before), Some(after)) = (unique_names(before), unique_names(after)) {
        return after
            .iter()
            .map(|name| before.iter().position(|other| other == name))
            .collect();
    }
    let mut sources = vec![None; after.len()];
    // `common_elements` returns the elements that did not change. Between two of them, there may be as many elements
    // before the change as after it. Then these elements were changed in place.
    let mut from = 0;
    let mut to = 0;
    for (old, new) in common_elements(before, after)
        .into_iter()
        .chain([(before.len(), after.len())])
    {
        if old - from == new - to {
            for (offset, source) in sources.iter_mut().skip(to).take(new - to).enumerate() {
                *source = Some(from + offset);
            }
        }
        if let Some(source) = sources.get_mut(new) {
            *source = Some(old);
        }
        (from, to) = (old + 1, new + 1);
    }
    sources
}

/// Returns the names of the elements of a list, if all are objects with a unique name.
fn unique_names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Vec<&str> = list
        .iter()
        .map(|element| element.get("name")?.as_str())
        .collect::<Option<_>>()?;
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    (distinct.len() == names.len()).then_some(names)
}

/// Returns a longest common subsequence of two lists, as pairs of indexes in ascending order.
fn common_elements(before: &[Value], after: &[Value]) -> Vec<(usize, usize)> {
    let width = after.len() + 1;
    if before.len().saturating_mul(width) > MAX_COMPARISONS {
        return (0..before.len().min(after.len()))
            .filter(|&i| before.get(i) == after.get(i))
            .map(|i| (i, i))
            .collect();
    }
    // lengths[i * width + j] is the length of the longest common subsequence of before[i..] and after[j..].
    let mut lengths = vec![0_u32; (before.len() + 1) * width];
    let length = |lengths: &[u32], i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or(0);
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            let longest = if old == new {
                length(&lengths, i + 1, j + 1) + 1
            } else {
                length(&lengths, i + 1, j).max(length(&lengths, i, j + 1))
            };
            if let Some(slot) = lengths.get_mut(i * width + j) {
                *slot = longest;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while let (Some(old), Some(new)) = (before.get(i), after.get(j)) {
        if old == new {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length(&lengths, i + 1, j) >= length(&lengths, i, j + 1) {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_the_plugins_type_lacks_are_kept() {
        let table = [
            (
                "a changed field",
                json!({"a": 1, "unknown": 2}),
                json!({"a": 1}),
                json!({"a": 5}),
                json!({"a": 5, "unknown": 2}),
            ),
            (
                "a removed field",
                json!({"a": 1, "unknown": 2}),
                json!({"a": 1}),
                json!({}),
                json!({"unknown": 2}),
            ),
            (
                "a default that was not in the object",
                json!({"metadata": {"name": "x"}}),
                json!({"metadata": {"labels": {}, "annotations": {}}}),
                json!({"metadata": {"labels": {"a": "b"}, "annotations": {}}}),
                json!({"metadata": {"name": "x", "labels": {"a": "b"}}}),
            ),
            (
                "a null that was read as a default",
                json!({"labels": null}),
                json!({"labels": {}}),
                json!({"labels": {"a": "b"}}),
                json!({"labels": {"a": "b"}}),
            ),
            (
                "named elements, one removed, one changed, one new in front",
                json!([{"name": "a", "u": 1}, {"name": "b", "u": 2}, {"name": "c", "u": 3}]),
                json!([{"name": "a", "v": 0}, {"name": "b", "v": 0}, {"name": "c", "v": 0}]),
                json!([{"name": "n", "v": 0}, {"name": "a", "v": 0}, {"name": "c", "v": 9}]),
                json!([{"name": "n", "v": 0}, {"name": "a", "u": 1}, {"name": "c", "u": 3, "v": 9}]),
            ),
            (
                "named elements in another order",
                json!([{"name": "a", "u": 1}, {"name": "b", "u": 2}]),
                json!([{"name": "a"}, {"name": "b"}]),
                json!([{"name": "b"}, {"name": "a"}]),
                json!([{"name": "b", "u": 2}, {"name": "a", "u": 1}]),
            ),
            (
                "unnamed elements, one changed, one appended",
                json!([{"v": 1, "u": 1}, {"v": 2, "u": 2}]),
                json!([{"v": 1}, {"v": 2}]),
                json!([{"v": 7}, {"v": 2}, {"v": 3}]),
                json!([{"v": 7, "u": 1}, {"v": 2, "u": 2}, {"v": 3}]),
            ),
            (
                "unnamed elements, the first removed",
                json!([{"v": 1, "u": 1}, {"v": 2, "u": 2}]),
                json!([{"v": 1}, {"v": 2}]),
                json!([{"v": 2}]),
                json!([{"v": 2, "u": 2}]),
            ),
            (
                "another type",
                json!({"a": [1], "u": 0}),
                json!({"a": [1]}),
                json!({"a": "text"}),
                json!({"a": "text", "u": 0}),
            ),
            (
                "a number that the type reads as another form",
                json!({"a": 1.0, "b": 1}),
                json!({"a": 1, "b": 1}),
                json!({"a": 1, "b": 2}),
                json!({"a": 1.0, "b": 2}),
            ),
        ];
        for (name, original, before, after, expected) in table {
            let merged = rebase(&original, &before, after).expect(name);
            assert_eq!(merged, expected, "{name}");
        }
    }

    #[test]
    fn a_list_is_an_error_if_the_type_of_the_plugin_drops_items() {
        let error =
            rebase(&json!({"a": [1, 2]}), &json!({"a": [1]}), json!({"a": [1, 3]})).expect_err("it lost an element");
        assert!(error.to_string().contains("\"/a\""), "{error}");
    }

    #[test]
    fn items_of_very_long_lists_are_matched_by_index() {
        let original: Vec<Value> = (0..2000).map(|i| json!({"v": i, "u": i})).collect();
        let before: Vec<Value> = (0..2000).map(|i| json!({"v": i})).collect();
        let mut after = before.clone();
        after[1999] = json!({"v": "x"});
        let merged = rebase(&original.into(), &before.into(), after.into()).expect("same length");
        assert_eq!(merged[1999], json!({"v": "x", "u": 1999}));
        assert_eq!(merged[5], json!({"v": 5, "u": 5}));
    }
}
