//! Merges an object to apply into another object, as server-side apply does.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value as Json};

use super::{ListMerge, Structure, StructureCursor, StructureNode, check::item_name};

impl Structure {
    /// Merges a change into the object. The change must not have atomic values or duplicate list items. Fails if an
    /// item of a list lacks the key by which it is merged.
    pub(crate) fn merge(&self, object: &mut Json, change: Json) -> Result<(), String> {
        merge(self.root(), object, change)
    }
}

fn merge(at: StructureCursor<'_>, into: &mut Json, change: Json) -> Result<(), String> {
    match (into, change) {
        (Json::Object(into), Json::Object(change)) => merge_members(at, into, change),
        (Json::Array(into), Json::Array(change)) => match at.node {
            StructureNode::List { merge, .. } if *merge != ListMerge::Atomic => merge_items(at, into, change),
            _ => {
                *into = change;
                Ok(())
            }
        },
        (into, change) => {
            *into = change;
            Ok(())
        }
    }
}

fn merge_members(
    cursor: StructureCursor<'_>,
    into: &mut Map<String, Json>,
    change: Map<String, Json>,
) -> Result<(), String> {
    for (key, change) in change {
        match into.get_mut(&key) {
            Some(member) => merge(cursor.member(&key).unwrap_or(cursor), member, change)?,
            None => {
                into.insert(key, change);
            }
        }
    }
    Ok(())
}

fn item_names(at: StructureCursor<'_>, items: &[Json]) -> Result<Vec<String>, String> {
    let names = items
        .iter()
        .enumerate()
        .map(|(index, item)| item_name(at, index, item).map_err(|why| format!("element {index}: {why}")));
    names.collect()
}

/// Merges a change into a list. An item that occurs in both is merged. These items get the order that they have in the
/// change.
fn merge_items(at: StructureCursor<'_>, into: &mut Vec<Json>, change: Vec<Json>) -> Result<(), String> {
    let (old_names, new_names) = (item_names(at, into)?, item_names(at, &change)?);
    let mut old: HashMap<&str, Option<Json>> = HashMap::new();
    let mut only_old: Vec<Option<Json>> = Vec::with_capacity(into.len());
    let changed_names: HashSet<&str> = new_names.iter().map(String::as_str).collect();
    for (name, item) in old_names.iter().zip(into.drain(..)) {
        if !changed_names.contains(name.as_str()) {
            only_old.push(Some(item));
            continue;
        }
        only_old.push(None);
        // If two items of the old list have the same name, neither is merged: the item of the change replaces both.
        old.entry(name)
            .and_modify(|old_item| *old_item = None)
            .or_insert(Some(item));
    }
    let mut shared: VecDeque<&str> = new_names
        .iter()
        .map(String::as_str)
        .filter(|name| old.contains_key(name))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut merged: HashSet<&str> = HashSet::new();
    let mut old_items = old_names.iter().map(String::as_str).zip(only_old).peekable();
    let mut new_items = new_names.iter().map(String::as_str).zip(change).peekable();
    loop {
        let names = (
            old_items.peek().map(|(name, _)| *name),
            new_items.peek().map(|(name, _)| *name),
        );
        let (take_old, take_new) = match names {
            (None, None) => return Ok(()),
            (Some(old_name), Some(new_name)) if old_name == new_name => (true, true),
            (Some(old_name), Some(_))
                if changed_names.contains(old_name) && next_shared.is_some_and(|next| next != old_name) =>
            {
                old_items.next();
                continue;
            }
            (Some(old_name), _) if !changed_names.contains(old_name) => (true, false),
            (Some(old_name), _) if merged.contains(old_name) => {
                old_items.next();
                (false, names.1.is_some())
            }
            (_, Some(_)) => (false, true),
            (Some(_), None) => (true, false),
        };
        if take_old && let Some((_, Some(item))) = old_items.next() {
            into.push(item);
        }
        if take_new && let Some((name, change)) = new_items.next() {
            merged.insert(name);
            let mut item = change;
            if let Some(Some(mut merged_item)) = old.remove(name) {
                merge(at.items(), &mut merged_item, item)?;
                item = merged_item;
            }
            into.push(item);
            if next_shared == Some(name) || take_old {
                next_shared = shared.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use admittance_admission::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn merge_lists(list: &str, object: Json, change: Json) -> Json {
        let pod = Structure::builtin(&GroupVersionKind::from_api_version("v1", "Pod")).unwrap();
        let of = |items: Json| json!({"spec": {list: items}});
        let mut object = of(object);
        pod.merge(&mut object, of(change)).unwrap();
        object["spec"][list].clone()
    }

    /// The cases are from `typed/merge_test.go` of structured-merge-diff.
    #[test]
    fn lists_are_merged_in_the_order_of_server_side_apply() {
        let names = |text: &str| -> Json {
            let items = text.chars().map(|name| json!({"name": name.to_string()}));
            items.collect()
        };
        for (object, change, expected) in [
            ("", "ab", "ab"),
            ("ab", "c", "abc"),
            ("ab", "b", "ab"),
            ("ab", "ba", "ba"),
            ("abc", "xb", "axbc"),
            ("abc", "ca", "bca"),
            ("abcd", "dxa", "bcdxa"),
            // In this row, the list has two items `a`, and the change replaces both with one. In the next row, the
            // change does not mention `a`, so both stay.
            ("aab", "a", "ab"),
            ("aab", "b", "aab"),
        ] {
            let result = merge_lists("containers", names(object), names(change));
            assert_eq!(result, names(expected), "{object} and {change}");
        }
    }

    #[test]
    fn list_items_are_merged_by_keys_and_default_keys() {
        let object = json!([{"name": "a", "image": "one", "ports": [{"containerPort": 80, "name": "http"}]}]);
        let change = json!([{"name": "a", "ports": [
            {"containerPort": 80, "protocol": "TCP", "hostPort": 1}, {"containerPort": 80, "protocol": "UDP"},
        ]}]);
        let expected = json!([{"name": "a", "image": "one", "ports": [
            {"containerPort": 80, "name": "http", "protocol": "TCP", "hostPort": 1},
            {"containerPort": 80, "protocol": "UDP"},
        ]}]);
        assert_eq!(merge_lists("containers", object, change), expected);
    }
}
