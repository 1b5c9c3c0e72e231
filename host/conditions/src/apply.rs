//! What a mutation gives, as JSON: an object to apply, or the operations of a JSON Patch.
//!
//! An object is merged as server-side apply does. Which lists are merged by keys is known for the kinds that Kubernetes
//! has itself; every other list is atomic, and kube-apiserver refuses to apply a part of those.

use std::collections::{HashMap, HashSet};

use admittance_admission::{Deadline, Failure, FailureKind, PatchError};
use serde_json::{Map as Members, Value as Json};

use crate::value::{List, Map, Part, Value};

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

/// How deep values may nest: as deep as JSON is read.
const MAX_DEPTH: usize = 128;
/// How much is written between two checks of the deadline, in bytes.
const DEADLINE_INTERVAL: usize = 64 << 10;

/// Writes what a mutation gives as JSON.
///
/// Values share their parts, so that a short expression can give what is very long when it is written: the length is
/// limited, and the deadline is checked.
pub(crate) struct Writer {
    text: String,
    limit: usize,
    deadline: Deadline,
    /// The length at which the deadline is checked again.
    next_check: usize,
    depth: usize,
}

type Written = Result<(), Failure>;

impl Writer {
    /// For at most this many bytes.
    pub(crate) fn new(limit: usize, deadline: Deadline) -> Self {
        Self {
            text: String::new(),
            limit,
            deadline,
            next_check: DEADLINE_INTERVAL,
            depth: 0,
        }
    }

    /// A JSON Patch of these operations.
    pub(crate) fn patch(mut self, operations: &List<'_>) -> Result<String, Failure> {
        self.push("[")?;
        for (place, operation) in operations.iter().enumerate() {
            self.separate(place)?;
            match operation {
                Value::Part(part) if &*part.path == "JSONPatch" => self.members(&part.fields, None)?,
                other => {
                    return Err(failed(format!(
                        "type mismatch: JSONPatchType.val contains {} as one of its values",
                        other.kind()
                    )));
                }
            }
        }
        self.push("]")?;
        Ok(self.text)
    }

    /// The object that is applied.
    pub(crate) fn change(mut self, change: &Value<'_>) -> Result<String, Failure> {
        let Value::Part(part) = change else {
            return Err(failed(format!(
                "unsupported return type from ApplyConfiguration expression: {}",
                change.kind()
            )));
        };
        self.part(part, "Object")?;
        Ok(self.text)
    }

    fn push(&mut self, text: &str) -> Written {
        if text.len() > self.limit.saturating_sub(self.text.len()) {
            return Err(PatchError::ResultTooLarge(self.limit).into());
        }
        self.text.push_str(text);
        if self.text.len() >= self.next_check {
            self.next_check = self.text.len() + DEADLINE_INTERVAL;
            if self.deadline.has_passed() {
                let message = "what the expression gives was not written in time";
                return Err(Failure::new(FailureKind::Timeout, message));
            }
        }
        Ok(())
    }

    fn separate(&mut self, place: usize) -> Written {
        if place == 0 { Ok(()) } else { self.push(",") }
    }

    fn string(&mut self, text: &str) -> Written {
        // Pieces, so that no text that is too long is escaped as a whole.
        self.push("\"")?;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(DEADLINE_INTERVAL));
            let quoted = serde_json::to_string(piece).map_err(|error| failed(error.to_string()))?;
            let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            self.push(inner.unwrap_or_default())?;
            rest = after;
        }
        self.push("\"")
    }

    fn key(&mut self, key: &Value<'_>) -> Written {
        match key {
            Value::String(key) => self.string(key)?,
            other => {
                return Err(failed(format!(
                    "unexpected key of type {} in a map: only strings can be written",
                    other.kind()
                )));
            }
        }
        self.push(":")
    }

    /// The members of an object. With the `path` of a part, objects in it must be of the types that its fields have.
    fn members(&mut self, members: &Map<'_>, path: Option<&str>) -> Written {
        self.push("{")?;
        for (place, (key, value)) in members.entries().enumerate() {
            self.separate(place)?;
            self.key(&key)?;
            let path = match (&key, path) {
                (Value::String(key), Some(path)) => Some(format!("{path}.{}", &**key)),
                _ => None,
            };
            self.value(&value, path.as_deref())?;
        }
        self.push("}")
    }

    /// A part, which must be for this path.
    fn part(&mut self, part: &Part<'_>, path: &str) -> Written {
        if &*part.path != path {
            return Err(failed(format!(
                "unexpected type name \"{}\", expected \"{path}\", which matches field name path from root Object type",
                part.path
            )));
        }
        self.members(&part.fields, Some(path))
    }

    /// A value. `path` is what the name of the type of an object there must be.
    fn value(&mut self, value: &Value<'_>, path: Option<&str>) -> Written {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Uint(value) => self.push(&value.to_string()),
            Value::Double(value) => {
                let number = serde_json::Number::from_f64(*value);
                let number = number.ok_or_else(|| failed(format!("{value} cannot be written")))?;
                self.push(&number.to_string())
            }
            Value::String(text) => self.string(text),
            Value::List(_) | Value::Map(_) | Value::Part(_) => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(failed(format!(
                        "the value is nested more than {MAX_DEPTH} levels deep"
                    )));
                }
                self.nested(value, path)?;
                self.depth -= 1;
                Ok(())
            }
            other => Err(failed(format!(
                "a {} cannot be written into an object",
                other.kind()
            ))),
        }
    }

    fn nested(&mut self, value: &Value<'_>, path: Option<&str>) -> Written {
        match value {
            Value::List(list) => {
                self.push("[")?;
                for (place, item) in list.iter().enumerate() {
                    self.separate(place)?;
                    self.value(&item, path)?;
                }
                self.push("]")
            }
            Value::Map(map) => self.members(map, None),
            Value::Part(part) => self.part(part, path.unwrap_or(&part.path)),
            _ => Ok(()),
        }
    }
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Error, message)
}

/// The object with what a mutation applies: a JSON text.
pub(crate) fn merged(object: &Json, change: &str) -> Result<Json, Failure> {
    let change: Members<String, Json> =
        serde_json::from_str(change).map_err(|error| failed(error.to_string()))?;
    for field in ["apiVersion", "kind"] {
        if change
            .get(field)
            .is_some_and(|value| Some(value) != object.get(field))
        {
            return Err(failed(format!("the ApplyConfiguration may not change {field}")));
        }
    }
    let mut object = object.clone();
    merge(&mut object, Json::Object(change), "").map_err(failed)?;
    Ok(object)
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
        let mut known: HashSet<Json> = items.iter().cloned().collect();
        items.extend(change.into_iter().filter(|item| known.insert(item.clone())));
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
    let mut applied = HashSet::new();
    for item in change {
        let key = key_text(&item, keys);
        // As in kube-apiserver. It also means that the time is linear: no item is merged again and again.
        if !applied.insert(key.clone()) {
            let key = key.replace('\u{0}', ", ");
            return Err(format!("{path}: duplicate entries for key {key}"));
        }
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
