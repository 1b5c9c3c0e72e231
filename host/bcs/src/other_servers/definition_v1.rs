//! Rewrites definitions of custom resources as `apiextensions.k8s.io/v1`, the only version from Kubernetes 1.22 on.

use bytes::Bytes;
use http::uri::PathAndQuery;
use serde_json::{Map, Value, json};

use crate::scheduler::relay::{DEFINITIONS_VERSION, NEWER_DEFINITIONS_VERSION};

pub(super) fn path_in_v1(to: &PathAndQuery) -> Option<PathAndQuery> {
    let path = to.as_str().replacen(DEFINITIONS_VERSION, NEWER_DEFINITIONS_VERSION, 1);
    path.parse().ok()
}

/// Converts a CustomResourceDefinition of `v1beta1` to `v1`. A body that is not a JSON object is returned unchanged,
/// and kube-apiserver then refuses it.
pub(super) fn convert_to_v1(body: &Bytes) -> Bytes {
    let Ok(Value::Object(mut definition)) = serde_json::from_slice(body) else {
        return body.clone();
    };
    if definition.get("apiVersion").and_then(Value::as_str) != Some(DEFINITIONS_VERSION) {
        return body.clone();
    }
    definition.insert("apiVersion".to_owned(), NEWER_DEFINITIONS_VERSION.into());
    if let Some(Value::Object(spec)) = definition.get_mut("spec") {
        convert_spec(spec);
    }
    Value::Object(definition).to_string().into()
}

/// Converts the `spec` of a definition from `v1beta1` to `v1`. Fields such as `subresources` stand once in a `v1beta1`
/// spec; in `v1`, every version of the definition has its own.
fn convert_spec(spec: &mut Map<String, Value>) {
    let version = spec.remove("version");
    let mut shared: Vec<(&str, Value)> = Vec::new();
    // In `v1beta1`, unknown fields are kept unless this field is `false`.
    let keeps_unknown = spec.remove("preserveUnknownFields") != Some(Value::Bool(false));
    shared.push(("schema", spec.remove("validation").unwrap_or_else(|| json!({}))));
    for field in ["subresources", "additionalPrinterColumns"] {
        shared.extend(spec.remove(field).map(|value| (field, value)));
    }
    let versions = spec.entry("versions").or_insert_with(|| {
        let name = version.unwrap_or_default();
        json!([{"name": name, "served": true, "storage": true}])
    });
    for version in versions.as_array_mut().into_iter().flatten() {
        let Value::Object(version) = version else { continue };
        for (field, value) in &shared {
            version.entry(*field).or_insert_with(|| value.clone());
        }
        if let Some(Value::Object(schema)) = version.get_mut("schema") {
            convert_schema(schema, keeps_unknown);
        }
        let columns = version.get_mut("additionalPrinterColumns");
        for column in columns.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(column) = column
                && let Some(path) = column.remove("JSONPath")
            {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
}

fn convert_schema(schema: &mut Map<String, Value>, keeps_unknown: bool) {
    let root = schema.entry("openAPIV3Schema").or_insert_with(|| json!({}));
    if let Value::Object(root) = root {
        root.entry("type").or_insert_with(|| "object".into());
        if keeps_unknown {
            root.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resource_definitions_of_v1beta1_are_rewritten_as_v1() {
        let older = json!({
            "apiVersion": DEFINITIONS_VERSION, "kind": "CustomResourceDefinition",
            "metadata": {"name": "ks.g.io"},
            "spec": {
                "group": "g.io", "version": "v1", "scope": "Namespaced",
                "names": {"plural": "ks", "kind": "K"},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".spec.a"}],
            },
        });
        let newer: Value = serde_json::from_slice(&convert_to_v1(&older.to_string().into())).unwrap();
        assert_eq!(
            newer,
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "ks.g.io"},
                "spec": {
                    "group": "g.io", "scope": "Namespaced",
                    "names": {"plural": "ks", "kind": "K"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                    }],
                },
            })
        );
        let strict = json!({
            "apiVersion": DEFINITIONS_VERSION,
            "spec": {
                "preserveUnknownFields": false,
                "validation": {"openAPIV3Schema": {"type": "object", "properties": {}}},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        let newer: Value = serde_json::from_slice(&convert_to_v1(&strict.to_string().into())).unwrap();
        assert_eq!(
            newer.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap(),
            &json!({"type": "object", "properties": {}})
        );
        for body in ["kind: yaml", "{}", "[]"] {
            assert_eq!(convert_to_v1(&Bytes::from(body)), body);
        }
    }
}
