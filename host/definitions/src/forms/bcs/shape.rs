//! The fields of a BCS definition: `AdmissionWebhookConfiguration` in bcs-common, and fields that Admittance adds.

use serde_json::{Map, Value as Json};

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Any,
    Object(&'static [ShapeField]),
    List(&'static Shape),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ShapeField {
    name: &'static str,
    unset_value: UnsetValue,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsetValue {
    /// The driver's responses leave the field out if it is unset or empty.
    Omitted,
    Null,
    Empty,
    Zero,
    ZeroTime,
    Object,
}

const fn field(name: &'static str, unset: UnsetValue, shape: Shape) -> ShapeField {
    ShapeField {
        name,
        unset_value: unset,
        shape,
    }
}

pub(super) const DEFINITION: Shape = Shape::Object(&[
    field("apiVersion", UnsetValue::Empty, Shape::Any),
    field("kind", UnsetValue::Empty, Shape::Any),
    field("metadata", UnsetValue::Object, METADATA),
    field("resourcesRef", UnsetValue::Null, RESOURCES),
    field("admissionWebhooks", UnsetValue::Null, Shape::List(&HOOK)),
]);

const METADATA: Shape = Shape::Object(&[
    field("name", UnsetValue::Empty, Shape::Any),
    field("namespace", UnsetValue::Empty, Shape::Any),
    field("creationTimestamp", UnsetValue::ZeroTime, Shape::Any),
    field("labels", UnsetValue::Omitted, Shape::Any),
    field("annotations", UnsetValue::Omitted, Shape::Any),
    field("clusterName", UnsetValue::Omitted, Shape::Any),
]);

const RESOURCES: Shape = Shape::Object(&[
    field("operation", UnsetValue::Empty, Shape::Any),
    field("kind", UnsetValue::Empty, Shape::Any),
]);

const HOOK: Shape = Shape::Object(&[
    field("name", UnsetValue::Empty, Shape::Any),
    field("failurePolicy", UnsetValue::Empty, Shape::Any),
    field("clientConfig", UnsetValue::Null, CLIENT),
    field("namespaceSelector", UnsetValue::Null, SELECTOR),
    // This field and the fields below it do not exist in the BCS driver. Admittance adds them.
    field("plugin", UnsetValue::Omitted, Shape::Any),
    field("candidate", UnsetValue::Omitted, Shape::Any),
    field("timeout", UnsetValue::Omitted, Shape::Any),
    field("mode", UnsetValue::Omitted, Shape::Any),
]);

const CLIENT: Shape = Shape::Object(&[
    field("url", UnsetValue::Empty, Shape::Any),
    field("caBundle", UnsetValue::Empty, Shape::Any),
    field("namespace", UnsetValue::Empty, Shape::Any),
    field("name", UnsetValue::Empty, Shape::Any),
    field("path", UnsetValue::Empty, Shape::Any),
    field("port", UnsetValue::Zero, Shape::Any),
]);

const SELECTOR: Shape = Shape::Object(&[
    field("operator", UnsetValue::Empty, Shape::Any),
    field("values", UnsetValue::Omitted, Shape::Any),
]);

impl Shape {
    /// Gives keys BCS's documented spelling and order, and drops known fields that are null. Unknown keys come last.
    pub(super) fn normalize_keys(&self, value: Json) -> Json {
        match (self, value) {
            (Self::Object(fields), Json::Object(members)) => {
                let mut ordered = Map::new();
                let mut rest = members;
                for field in *fields {
                    let Some(key) = field.find_key(&rest) else {
                        continue;
                    };
                    match rest.shift_remove(&key) {
                        None | Some(Json::Null) => {}
                        Some(value) => {
                            ordered.insert(field.name.to_owned(), field.shape.normalize_keys(value));
                        }
                    }
                }
                ordered.extend(rest);
                Json::Object(ordered)
            }
            (Self::List(element), Json::Array(values)) => {
                values.into_iter().map(|value| element.normalize_keys(value)).collect()
            }
            (_, value) => value,
        }
    }

    /// Adds unset fields and drops unknown ones, like the BCS driver. Keys must be [normalized](Self::normalize_keys).
    pub(super) fn with_unset_fields(&self, value: Json) -> Json {
        match (self, value) {
            (Self::Object(fields), Json::Object(mut members)) => {
                let mut printed = Map::new();
                for field in *fields {
                    let value = match members.remove(field.name) {
                        Some(value) if field.unset_value != UnsetValue::Omitted || !is_empty(&value) => {
                            Some(field.shape.with_unset_fields(value))
                        }
                        _ => field.unset_json(),
                    };
                    printed.extend(value.map(|value| (field.name.to_owned(), value)));
                }
                Json::Object(printed)
            }
            (Self::List(element), Json::Array(values)) => values
                .into_iter()
                .map(|value| element.with_unset_fields(value))
                .collect(),
            (_, value) => value,
        }
    }
}

impl ShapeField {
    /// Returns the key by which an object contains this field, in any case. The documented spelling is preferred.
    fn find_key(&self, members: &Map<String, Json>) -> Option<String> {
        if members.contains_key(self.name) {
            return Some(self.name.to_owned());
        }
        let mut keys = members.keys();
        keys.find(|key| key.eq_ignore_ascii_case(self.name)).cloned()
    }

    fn unset_json(&self) -> Option<Json> {
        match self.unset_value {
            UnsetValue::Omitted => None,
            UnsetValue::Null => Some(Json::Null),
            UnsetValue::Empty => Some("".into()),
            UnsetValue::Zero => Some(0.into()),
            UnsetValue::ZeroTime => Some("0001-01-01T00:00:00Z".into()),
            UnsetValue::Object => Some(self.shape.with_unset_fields(Json::Object(Map::new()))),
        }
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::String(text) => text.is_empty(),
        Json::Array(values) => values.is_empty(),
        Json::Object(members) => members.is_empty(),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}
