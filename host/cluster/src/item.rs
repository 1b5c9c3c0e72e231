//! Kubernetes objects of any kind, as JSON.

use std::{borrow::Cow, sync::Arc};

use admittance_admission::Labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::cache::Key;

/// An object from the API server without `metadata.managedFields`, which is often half of the object.
#[derive(Clone, Debug)]
pub(crate) struct CachedObject {
    meta: ObjectMeta,
    object: Map<String, Value>,
}

impl<'de> Deserialize<'de> for CachedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Map::deserialize(deserializer)?;
        let metadata = object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .ok_or_else(|| de::Error::custom("an object without metadata"))?;
        metadata.shift_remove("managedFields");
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
        let labels = metadata.get("labels").and_then(Value::as_object).map(|labels| {
            labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect()
        });
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            labels,
            ..ObjectMeta::default()
        };
        Ok(Self { meta, object })
    }
}

impl Serialize for CachedObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl Resource for CachedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// An object in the cache. It is stored as JSON text, which takes much less memory than parsed JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredText {
    pub(crate) labels: Arc<Labels>,
    pub(crate) json: Arc<str>,
}

impl CachedObject {
    pub(crate) fn from_metadata(mut meta: ObjectMeta) -> Self {
        meta.managed_fields = None;
        let mut object = Map::new();
        // Serializing metadata that was parsed from JSON does not fail.
        object.insert("metadata".to_owned(), serde_json::to_value(&meta).unwrap_or_default());
        Self { meta, object }
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(
            self.meta.namespace.as_deref(),
            self.meta.name.as_deref().unwrap_or_default(),
        )
    }

    pub(crate) fn into_object(self) -> Map<String, Value> {
        self.object
    }

    /// Returns the object as JSON with `apiVersion` and `kind`, which the items of a list lack.
    pub(crate) fn into_json(self, resource: &ApiResource) -> String {
        let has_type = ["apiVersion", "kind"]
            .iter()
            .all(|field| self.object.contains_key(*field));
        if has_type {
            return Value::Object(self.object).to_string();
        }
        let mut typed_object = Map::new();
        typed_object.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        typed_object.insert("kind".to_owned(), resource.kind.clone().into());
        typed_object.extend(self.object);
        Value::Object(typed_object).to_string()
    }

    pub(crate) fn into_stored(mut self, resource: &ApiResource) -> StoredText {
        let labels = self.meta.labels.take().unwrap_or_default();
        StoredText {
            labels: Arc::new(labels),
            json: self.into_json(resource).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_resource() -> ApiResource {
        ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: "Node".into(),
            plural: "nodes".into(),
        }
    }

    #[test]
    fn plugins_get_objects_with_their_type_and_without_managed_fields() {
        // (object as the API server sends it, object as a plugin receives it)
        for (server_text, expected) in [
            (
                r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"x"}],"uid":"u"},"status":{"b":1,"a":1.50}}"#,
                r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","uid":"u"},"status":{"b":1,"a":1.5}}"#,
            ),
            (
                r#"{"metadata":{"name":"a"},"unknown":{"field":[null]}}"#,
                r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},"unknown":{"field":[null]}}"#,
            ),
        ] {
            let item: CachedObject = serde_json::from_str(server_text).unwrap();
            assert_eq!(item.key(), Key::new(None, "a"));
            assert_eq!(item.into_json(&node_resource()), expected);
        }
        let error = serde_json::from_str::<CachedObject>(r#"{"kind":"Node"}"#).unwrap_err();
        assert!(error.to_string().contains("without metadata"), "{error}");
    }

    #[test]
    fn the_labels_of_a_stored_object_can_be_selected() {
        let item: CachedObject = serde_json::from_str(
            r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"x":"y"}}}"#,
        )
        .unwrap();
        assert_eq!(item.meta().resource_version.as_deref(), Some("7"));
        assert_eq!(item.key(), Key::new(Some("n"), "a"));
        let stored = item.into_stored(&node_resource());
        assert_eq!(*stored.labels, Labels::from([("x".into(), "y".into())]));
    }
}
