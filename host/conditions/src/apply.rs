//! What a mutation gives, as JSON: an object to apply, or the operations of a JSON Patch.
//!
//! An object is merged as server-side apply does. Which lists are merged by keys is known for the kinds that Kubernetes
//! has itself; every other list is atomic, and kube-apiserver refuses to apply a part of those.

use std::collections::HashMap;

use serde_json::{Map as Members, Value as Json};

use crate::value::{Part, Value};

/// The lists that are merged, by the name of their field, and the keys of their items.
const KEYED: [(&str, &[&[&str]]); 19] = [
    ("containers", &[&["name"]]),
    ("initContainers", &[&["name"]]),
    ("ephemeralContainers", &[&["name"]]),
    ("env", &[&["name"]]),
    ("volumes", &[&["name"]]),
    ("volumeMounts", &[&["mountPath"]]),
    ("volumeDevices", &[&["devicePath"]]),
    // Of a container, and of a Service.
    ("ports", &[&["containerPort", "protocol"], &["port", "protocol"]]),
    ("imagePullSecrets", &[&["name"]]),
    ("secrets", &[&["name"]]),
    ("hostAliases", &[&["ip"]]),
    ("schedulingGates", &[&["name"]]),
    ("resourceClaims", &[&["name"]]),
    ("claims", &[&["name"]]),
    (
        "topologySpreadConstraints",
        &[&["topologyKey", "whenUnsatisfiable"]],
    ),
    ("conditions", &[&["type"]]),
    ("ownerReferences", &[&["uid"]]),
    ("podIPs", &[&["ip"]]),
    ("hostIPs", &[&["ip"]]),
];

/// Lists that are sets.
const SETS: [&str; 1] = ["finalizers"];

/// Objects that are replaced as a whole.
const ATOMIC: [&str; 7] = [
    "nodeSelector",
    "selector",
    "labelSelector",
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
];

/// The object with what a mutation applies.
pub(crate) fn merged(object: &Json, change: &Value<'_>) -> Result<Json, String> {
    let Value::Part(part) = change else {
        return Err(format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            change.kind()
        ));
    };
    let change = fields(part, "Object")?;
    for field in ["apiVersion", "kind"] {
        if change
            .get(field)
            .is_some_and(|value| Some(value) != object.get(field))
        {
            return Err(format!("the ApplyConfiguration may not change {field}"));
        }
    }
    let mut object = object.clone();
    merge(&mut object, Json::Object(change), "")?;
    Ok(object)
}

/// One operation of a JSON Patch.
pub(crate) fn operation(operation: &Value<'_>) -> Result<Json, String> {
    match operation {
        Value::Part(part) if &*part.path == "JSONPatch" => {
            let mut operation = Members::new();
            for (key, value) in part.fields.entries() {
                let value = json(&value, None)?;
                operation.insert(key_of(&key)?, value);
            }
            Ok(Json::Object(operation))
        }
        other => Err(format!(
            "type mismatch: JSONPatchType.val contains {} as one of its values",
            other.kind()
        )),
    }
}

/// The fields of a part, which must be for this path.
fn fields(part: &Part<'_>, path: &str) -> Result<Members<String, Json>, String> {
    if &*part.path != path {
        return Err(format!(
            "unexpected type name \"{}\", expected \"{path}\", which matches field name path from root Object type",
            part.path
        ));
    }
    let mut members = Members::new();
    for (key, value) in part.fields.entries() {
        let key = key_of(&key)?;
        let value = json(&value, Some(&format!("{path}.{key}")))?;
        members.insert(key, value);
    }
    Ok(members)
}

fn key_of(key: &Value<'_>) -> Result<String, String> {
    match key {
        Value::String(key) => Ok(key.to_string()),
        other => Err(format!(
            "unexpected key of type {} in a map: only strings can be written",
            other.kind()
        )),
    }
}

/// A value as JSON. `path` is what the name of the type of an object there must be.
fn json(value: &Value<'_>, path: Option<&str>) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => serde_json::Number::from_f64(*value)
            .map(Json::Number)
            .ok_or_else(|| format!("{value} cannot be written"))?,
        Value::String(text) => Json::String(text.to_string()),
        Value::List(list) => Json::Array(
            list.iter()
                .map(|item| json(&item, path))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(map) => {
            let mut members = Members::new();
            for (key, value) in map.entries() {
                members.insert(key_of(&key)?, json(&value, None)?);
            }
            Json::Object(members)
        }
        Value::Part(part) => Json::Object(fields(part, path.unwrap_or(&part.path))?),
        other => return Err(format!("a {} cannot be written into an object", other.kind())),
    })
}

fn merge(into: &mut Json, change: Json, path: &str) -> Result<(), String> {
    match (into, change) {
        (Json::Object(into), Json::Object(change)) => {
            for (key, change) in change {
                let path = format!("{path}.{key}");
                match change {
                    Json::Array(items) => merge_list(into, &key, items, &path)?,
                    Json::Object(_) if ATOMIC.contains(&key.as_str()) => return Err(atomic(&path)),
                    change @ Json::Object(_) => {
                        let target = into.entry(key).or_insert(Json::Null);
                        if !target.is_object() {
                            *target = Json::Object(Members::new());
                        }
                        merge(target, change, &path)?;
                    }
                    change => {
                        into.insert(key, change);
                    }
                }
            }
        }
        (into, change) => *into = change,
    }
    Ok(())
}

fn atomic(path: &str) -> String {
    format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {path}")
}

fn merge_list(
    into: &mut Members<String, Json>,
    field: &str,
    change: Vec<Json>,
    path: &str,
) -> Result<(), String> {
    let target = into.entry(field.to_owned()).or_insert(Json::Null);
    if !target.is_array() {
        *target = Json::Array(Vec::new());
    }
    let Json::Array(items) = target else {
        return Ok(());
    };
    if SETS.contains(&field) {
        for item in change {
            if !items.contains(&item) {
                items.push(item);
            }
        }
        return Ok(());
    }
    let choices = KEYED
        .iter()
        .find(|(known, _)| *known == field)
        .map(|(_, choices)| *choices);
    let keys = choices.and_then(|choices| {
        let fits = |keys: &&&[&str]| {
            change
                .iter()
                .all(|item| keys.first().is_some_and(|key| item.get(key).is_some()))
        };
        choices.iter().find(fits).copied()
    });
    let Some(keys) = keys else {
        return Err(match choices {
            Some(_) if !change.is_empty() => format!("an item of {path} has no key to merge it by"),
            _ => atomic(path),
        });
    };
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        places.insert(key_text(item, keys), place);
    }
    for item in change {
        let key = key_text(&item, keys);
        match places.get(&key).and_then(|place| items.get_mut(*place)) {
            Some(known) => merge(known, item, path)?,
            None => {
                let mut new = Json::Object(Members::new());
                merge(&mut new, item, path)?;
                places.insert(key, items.len());
                items.push(new);
            }
        }
    }
    Ok(())
}

/// The values of an item's keys as one text. The default of a protocol is TCP.
fn key_text(item: &Json, keys: &[&str]) -> String {
    let values = keys.iter().map(|key| match item.get(key) {
        None if *key == "protocol" => "\"TCP\"".to_owned(),
        value => value.map(Json::to_string).unwrap_or_default(),
    });
    values.collect::<Vec<_>>().join("\u{0}")
}
