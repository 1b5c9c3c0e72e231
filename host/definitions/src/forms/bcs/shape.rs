//! What the object of a BCS definition consists of (bcs-common's `AdmissionWebhookConfiguration`, and the fields
//! that are known here alone).

use serde_json::{Map, Value as Json};

/// The type of a field. Constant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Any value; it is left unchanged.
    Any,
    /// An object of these fields.
    Object(&'static [Field]),
    /// A list of values of this type.
    List(&'static Shape),
}

/// A field of an object. Constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// In the spelling of the BCS documents.
    name: &'static str,
    /// What the driver prints for a field that is not set.
    unsaid: Unsaid,
    shape: Shape,
}

/// What the driver prints for a field that is not set. Constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsaid {
    /// Nothing; neither for one that is empty.
    Nothing,
    Null,
    Empty,
    Zero,
    /// Go's time before all others.
    Never,
    /// An object with the default of each of its fields.
    Fields,
}

const fn field(name: &'static str, unsaid: Unsaid, shape: Shape) -> Field {
    Field { name, unsaid, shape }
}

/// A definition.
pub(super) const DEFINITION: Shape = Shape::Object(&[
    field("apiVersion", Unsaid::Empty, Shape::Any),
    field("kind", Unsaid::Empty, Shape::Any),
    field("metadata", Unsaid::Fields, METADATA),
    field("resourcesRef", Unsaid::Null, RESOURCES),
    field("admissionWebhooks", Unsaid::Null, Shape::List(&HOOK)),
]);

const METADATA: Shape = Shape::Object(&[
    field("name", Unsaid::Empty, Shape::Any),
    field("namespace", Unsaid::Empty, Shape::Any),
    field("creationTimestamp", Unsaid::Never, Shape::Any),
    field("labels", Unsaid::Nothing, Shape::Any),
    field("annotations", Unsaid::Nothing, Shape::Any),
    field("clusterName", Unsaid::Nothing, Shape::Any),
]);

const RESOURCES: Shape = Shape::Object(&[
    field("operation", Unsaid::Empty, Shape::Any),
    field("kind", Unsaid::Empty, Shape::Any),
]);

const HOOK: Shape = Shape::Object(&[
    field("name", Unsaid::Empty, Shape::Any),
    field("failurePolicy", Unsaid::Empty, Shape::Any),
    field("clientConfig", Unsaid::Null, CLIENT),
    field("namespaceSelector", Unsaid::Null, SELECTOR),
    // Not known to the driver.
    field("plugin", Unsaid::Nothing, Shape::Any),
    field("candidate", Unsaid::Nothing, Shape::Any),
    field("timeout", Unsaid::Nothing, Shape::Any),
    field("mode", Unsaid::Nothing, Shape::Any),
]);

const CLIENT: Shape = Shape::Object(&[
    field("url", Unsaid::Empty, Shape::Any),
    field("caBundle", Unsaid::Empty, Shape::Any),
    field("namespace", Unsaid::Empty, Shape::Any),
    field("name", Unsaid::Empty, Shape::Any),
    field("path", Unsaid::Empty, Shape::Any),
    field("port", Unsaid::Zero, Shape::Any),
]);

const SELECTOR: Shape = Shape::Object(&[
    field("operator", Unsaid::Empty, Shape::Any),
    field("values", Unsaid::Nothing, Shape::Any),
]);

impl Shape {
    /// The value with its keys spelled as here, in this order; then those that are not known, and of
    /// two spellings of one key the other, as they are. Fields that are known and null are left out.
    pub(super) fn spelled(&self, value: Json) -> Json {
        match (self, value) {
            (Self::Object(fields), Json::Object(members)) => {
                let mut ordered = Map::new();
                let mut rest = members;
                for field in *fields {
                    let Some(key) = field.key(&rest) else {
                        continue;
                    };
                    match rest.shift_remove(&key) {
                        None | Some(Json::Null) => {}
                        Some(value) => {
                            ordered.insert(field.name.to_owned(), field.shape.spelled(value));
                        }
                    }
                }
                ordered.extend(rest);
                Json::Object(ordered)
            }
            (Self::List(element), Json::Array(values)) => {
                values.into_iter().map(|value| element.spelled(value)).collect()
            }
            (_, value) => value,
        }
    }

    /// A spelled value as the driver prints it: every field that is known.
    pub(super) fn printed(&self, value: Json) -> Json {
        match (self, value) {
            (Self::Object(fields), Json::Object(mut members)) => {
                let mut printed = Map::new();
                for field in *fields {
                    let value = match members.remove(field.name) {
                        Some(value) if field.unsaid != Unsaid::Nothing || !is_empty(&value) => {
                            Some(field.shape.printed(value))
                        }
                        _ => field.unsaid(),
                    };
                    printed.extend(value.map(|value| (field.name.to_owned(), value)));
                }
                Json::Object(printed)
            }
            (Self::List(element), Json::Array(values)) => {
                values.into_iter().map(|value| element.printed(value)).collect()
            }
            (_, value) => value,
        }
    }
}

impl Field {
    /// How the field is spelled among these: as in the documents if it is so spelled at all.
    fn key(&self, members: &Map<String, Json>) -> Option<String> {
        if members.contains_key(self.name) {
            return Some(self.name.to_owned());
        }
        let mut keys = members.keys();
        keys.find(|key| key.eq_ignore_ascii_case(self.name)).cloned()
    }

    fn unsaid(&self) -> Option<Json> {
        match self.unsaid {
            Unsaid::Nothing => None,
            Unsaid::Null => Some(Json::Null),
            Unsaid::Empty => Some("".into()),
            Unsaid::Zero => Some(0.into()),
            Unsaid::Never => Some("0001-01-01T00:00:00Z".into()),
            Unsaid::Fields => Some(self.shape.printed(Json::Object(Map::new()))),
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
