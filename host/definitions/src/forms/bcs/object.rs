//! The JSON object of a BCS definition, which clients of the BCS driver send and receive.

use serde_json::{Map, Value as Json};

use super::{KINDS, is_resource, shape::DEFINITION};
use crate::{
    StoredDefinition,
    document::{self, Document, Mistake, Mistakes},
    forms::{DocumentForms, TypedDocument},
};

const API_VERSION: &str = "v4";
const KIND: &str = "admissionwebhook";

/// The fields that keep their values when an object is updated, as in `updateAdmissionwebhook` of the BCS scheduler.
const PRESERVED_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// An `admissionwebhook` whose keys have BCS's documented spelling. Unknown keys are kept, so that they are reported
/// when the definition is validated.
#[derive(Clone, Debug, PartialEq)]
pub struct BcsObject(Map<String, Json>);

/// The reasons why the body of a request is not an `admissionwebhook`. The messages begin like those of the BCS driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBcsObject {
    /// The body is not valid JSON, or has a key twice.
    #[error("json decode failed!{0}")]
    Json(String),
    /// The body is not an object, or its kind is not a string.
    #[error("Unmarshal TypeMeta failed: {0}")]
    TypeMeta(String),
    /// The `kind` in the body is not `admissionwebhook`, in exactly this spelling.
    #[error("Kind {0} is invalid")]
    Kind(String),
}

impl BcsObject {
    /// Parses the body of a request, without validating the definition in it.
    ///
    /// # Errors
    ///
    /// Fails if the body is not a JSON object of the kind `admissionwebhook`.
    pub fn parse(body: &[u8]) -> Result<Self, NoBcsObject> {
        let text = std::str::from_utf8(body).map_err(|error| NoBcsObject::Json(error.to_string()))?;
        let mut mistakes = Mistakes::new();
        // The name ends with `.json`, so that the text is parsed only as JSON. Otherwise, YAML would be accepted too.
        let documents = document::read_text("body.json", text, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(NoBcsObject::Json(describe(&mistakes)));
        }
        let Some(document) = documents.first() else {
            return Err(NoBcsObject::Json("unexpected end of JSON input".to_owned()));
        };
        let value = match DEFINITION.normalize_keys(document.root_ignoring_mistakes().json()) {
            Json::Object(value) => value,
            // Go's decoder reads `null` as an object without fields, so it is accepted here.
            Json::Null => Map::new(),
            _ => return Err(NoBcsObject::TypeMeta("the body is not an object".to_owned())),
        };
        for key in ["apiVersion", "kind"] {
            if value.get(key).is_some_and(|value| !value.is_string()) {
                return Err(NoBcsObject::TypeMeta(format!("{key} is not a string")));
            }
        }
        match value.get("kind").and_then(Json::as_str).unwrap_or_default() {
            KIND => Ok(Self(value)),
            kind => Err(NoBcsObject::Kind(kind.to_owned())),
        }
    }

    /// Returns `metadata.namespace`; empty if it is missing.
    pub fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    /// Returns `metadata.name`; empty if it is missing.
    pub fn name(&self) -> &str {
        self.metadata("name")
    }

    /// Sets the namespace of the object to `namespace` if the object has none.
    #[must_use]
    pub fn with_default_namespace(self, namespace: &str) -> Self {
        if self.namespace().is_empty() && !namespace.is_empty() {
            self.with_metadata("namespace", namespace)
        } else {
            self
        }
    }

    /// Sets the creation time of the object. `moment` is in RFC 3339.
    #[must_use]
    pub fn with_creation_time(self, moment: &str) -> Self {
        self.with_metadata("creationTimestamp", moment)
    }

    /// Returns the object `other` with the version, kind and metadata of this object, as the result of an update.
    #[must_use]
    pub fn with_fields_of(&self, other: Self) -> Self {
        let mut fields = Map::new();
        for key in PRESERVED_FIELDS {
            if let Some(value) = self.0.get(key) {
                fields.insert(key.to_owned(), value.clone());
            }
        }
        let new_fields = other.0.into_iter();
        fields.extend(new_fields.filter(|(key, _)| !PRESERVED_FIELDS.contains(&key.as_str())));
        Self(fields)
    }

    /// Returns the object as JSON text, in the format of an entry in a store.
    pub fn to_text(&self) -> String {
        format!("{:#}\n", Json::Object(self.ordered_fields()))
    }

    /// Returns the object as the BCS driver returns it: fields that are not set have Go's empty values.
    pub fn with_unset_fields(&self) -> Json {
        DEFINITION.with_unset_fields(Json::Object(self.ordered_fields()))
    }

    fn ordered_fields(&self) -> Map<String, Json> {
        let mut fields = self.0.clone();
        fields.insert("kind".to_owned(), KIND.into());
        let version = fields.entry("apiVersion").or_insert_with(|| API_VERSION.into());
        if version == "" {
            *version = API_VERSION.into();
        }
        match DEFINITION.normalize_keys(Json::Object(fields)) {
            Json::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    fn metadata(&self, key: &str) -> &str {
        let metadata = self.0.get("metadata");
        metadata
            .and_then(|metadata| metadata.get(key))
            .and_then(Json::as_str)
            .unwrap_or_default()
    }

    /// Sets a field of `metadata`. If `metadata` is not an object, it stays unchanged, and a later check reports it.
    fn with_metadata(mut self, key: &str, value: &str) -> Self {
        let metadata = self.0.entry("metadata").or_insert_with(|| Json::Object(Map::new()));
        if let Json::Object(metadata) = metadata {
            metadata.insert(key.to_owned(), value.into());
        }
        self
    }
}

impl StoredDefinition {
    /// Returns the BCS object in this definition: the document itself or, if it is a custom resource, its `spec`.
    /// Returns `None` if this is not a BCS definition.
    pub fn bcs_object(&self) -> Option<BcsObject> {
        self.read_bcs(read_object)
    }

    /// Returns a definition text that, when it is applied, replaces the object in this BCS definition with `object`.
    /// Returns `None` if this is not a BCS definition.
    pub fn with_bcs_object(&self, object: &BcsObject) -> Option<String> {
        self.read_bcs(|document| {
            if !is_resource(document) {
                return Some(object.to_text());
            }
            let Json::Object(mut resource) = document.root.json() else {
                return None;
            };
            let Some(Json::Object(before)) = resource.get("spec") else {
                return None;
            };
            let had_metadata = before.keys().any(|key| key.eq_ignore_ascii_case("metadata"));
            let mut spec = object.ordered_fields();
            if !had_metadata {
                spec.shift_remove("metadata");
            }
            resource.insert("spec".to_owned(), Json::Object(spec));
            Some(format!("{:#}\n", Json::Object(resource)))
        })
    }

    fn read_bcs<T>(&self, read: impl FnOnce(&TypedDocument<'_>) -> Option<T>) -> Option<T> {
        let documents: Vec<Document> = document::read_text_of(&self.file, &self.text, &mut Mistakes::new());
        let definitions = DocumentForms::default().definitions(&documents.first()?.root_ignoring_mistakes());
        let document = definitions.first()?;
        let is_of_bcs = KINDS.iter().any(|kind| kind.name == document.kind.name);
        is_of_bcs.then(|| read(document))?
    }
}

fn read_object(document: &TypedDocument<'_>) -> Option<BcsObject> {
    let mut value = document.root.json();
    if is_resource(document) {
        let resource = value.as_object_mut()?;
        let mut spec = resource.remove("spec")?;
        let object = spec.as_object_mut()?;
        if !object.keys().any(|key| key.eq_ignore_ascii_case("metadata"))
            && let Some(metadata) = resource.remove("metadata")
        {
            object.insert("metadata".to_owned(), metadata);
        }
        value = spec;
    }
    match DEFINITION.normalize_keys(value) {
        Json::Object(value) => Some(BcsObject(value)),
        _ => None,
    }
}

fn describe(mistakes: &Mistakes) -> String {
    let described = |Mistake { location, message, .. }: &Mistake| match location.line {
        0 => message.clone(),
        line => format!("line {line}, column {}: {message}", location.column),
    };
    let descriptions: Vec<String> = mistakes.iter().map(described).collect();
    descriptions.join("; ")
}

#[cfg(test)]
mod tests;
