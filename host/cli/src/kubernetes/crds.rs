//! Makes the CustomResourceDefinitions of chains and exceptions, from the JSON Schemas of their files and rules in CEL.

mod rules;

use admittance_definitions::CHAIN_SCHEMA;
use serde_json::{Map, Value as Json, json};

use super::manifest::CommentedManifest;
use crate::schema::EXCEPTION;

/// The JSON Schema of the field `status` of chains and exceptions. The leader of the replicas writes this field.
const STATUS: &str = include_str!("../schema/status.json");

pub(super) fn manifests() -> crate::Result<Vec<CommentedManifest>> {
    let chains = [
        column("Phase", ".spec.phase"),
        json!({"name": "Stages", "type": "string", "jsonPath": ".spec.stages[*].name", "priority": 1}),
    ];
    let exceptions = [
        column("Stages", ".spec.stages"),
        column("Expires", ".spec.expires"),
        column("Owner", ".spec.owner"),
    ];
    [
        CrdKind {
            name: "AdmissionChain",
            short_name: "achain",
            scope: "Cluster",
            schema: CHAIN_SCHEMA,
            add_rules: rules::add_chain_rules,
            columns: &chains,
        },
        CrdKind {
            name: "NamespacedAdmissionChain",
            short_name: "nachain",
            scope: "Namespaced",
            schema: CHAIN_SCHEMA,
            add_rules: rules::add_chain_rules,
            columns: &chains,
        },
        CrdKind {
            name: "AdmissionException",
            short_name: "aexception",
            scope: "Cluster",
            schema: EXCEPTION,
            add_rules: rules::add_exception_rules,
            columns: &exceptions,
        },
    ]
    .iter()
    .map(|kind| crd_manifest(kind).map(CommentedManifest::from))
    .collect()
}

struct CrdKind<'a> {
    name: &'a str,
    short_name: &'a str,
    scope: &'a str,
    schema: &'a str,
    add_rules: fn(&mut Json),
    /// The columns that `kubectl get` shows for fields of `spec`.
    columns: &'a [Json],
}

fn crd_manifest(kind: &CrdKind<'_>) -> crate::Result<Json> {
    let CrdKind {
        name: kind,
        short_name: short,
        scope,
        schema,
        add_rules,
        columns,
    } = *kind;
    let schema: Json = serde_json::from_str(schema)?;
    let status: Json = serde_json::from_str(STATUS)?;
    let mut spec = structural_schema(schema.pointer("/properties/spec").unwrap_or(&Json::Null), &schema);
    add_rules(&mut spec);
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let columns: Vec<_> = columns
        .iter()
        .cloned()
        .chain([
            condition_column("Accepted"),
            condition_column("Live"),
            json!({"name": "Revision", "type": "integer", "jsonPath": ".status.revision"}),
            json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
        ])
        .collect();
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.admittance.dev"),
            "labels": {"app.kubernetes.io/name": "admittance"},
        },
        "spec": {
            "group": "admittance.dev",
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": singular,
                "shortNames": [short],
                "categories": ["admittance"],
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "description": schema.get("description"),
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": status,
                    },
                }},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    }))
}

fn column(name: &str, path: &str) -> Json {
    json!({"name": name, "type": "string", "jsonPath": path})
}

fn condition_column(name: &str) -> Json {
    column(name, &format!(".status.conditions[?(@.type==\"{name}\")].status"))
}

/// The keywords of JSON Schema that have the same meaning in a structural schema, so they are copied.
const KEPT_KEYWORDS: [&str; 13] = [
    "type",
    "description",
    "required",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "minProperties",
    "maxProperties",
];

/// Converts a JSON Schema to a structural schema, the form that a CustomResourceDefinition needs. Defaults are left
/// out, because an API server would write them into every stored resource.
fn structural_schema(schema: &Json, root: &Json) -> Json {
    let schema = resolve_reference(schema, root);
    let mut result: Map<String, Json> = KEPT_KEYWORDS
        .iter()
        .filter_map(|keyword| Some(((*keyword).to_owned(), schema.get(*keyword)?.clone())))
        .collect();
    if let Some(constant) = schema.get("const") {
        result.insert("enum".to_owned(), json!([constant]));
    }
    if result.contains_key("enum") {
        result.insert("type".to_owned(), "string".into());
    }
    if result.get("type").is_some_and(Json::is_array) {
        // Structural schemas have no list of types. A field that may be a string or a number has no type, but the
        // keyword `x-kubernetes-int-or-string`.
        result.remove("type");
        result.insert("x-kubernetes-int-or-string".to_owned(), true.into());
        return result.into();
    }
    if let Some(properties) = schema.get("properties").and_then(Json::as_object) {
        let copied = |(name, property): (&String, _)| (name.clone(), structural_schema(property, root));
        let properties: Map<_, _> = properties.iter().map(copied).collect();
        result.insert("properties".to_owned(), properties.into());
    } else if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        result.insert("additionalProperties".to_owned(), structural_schema(values, root));
    }
    if let Some(items) = schema.get("items") {
        result.insert("items".to_owned(), structural_schema(items, root));
    }
    for keyword in ["oneOf", "anyOf"] {
        let Some(alternatives) = schema.get(keyword).and_then(Json::as_array) else {
            continue;
        };
        match alternatives.iter().map(sole_required_field).collect::<Option<Vec<_>>>() {
            // Each alternative only requires a field. A rule in CEL then replaces the keyword `oneOf` or `anyOf`,
            // because the message of this rule is clearer than the API server's message about the keyword.
            Some(fields) => {
                let rule = rules::one_field_rule(&fields, keyword == "oneOf");
                result.insert(rules::VALIDATIONS.to_owned(), json!([rule]));
            }
            None => return join_forms(alternatives, root).unwrap_or_else(|| open_schema(&result)),
        }
    }
    let is_described = ["properties", "additionalProperties", "items"]
        .iter()
        .any(|keyword| result.contains_key(*keyword));
    match result.get("type").and_then(Json::as_str) {
        None => open_schema(&result),
        Some("object" | "array") if !is_described => open_schema(&result),
        Some(_) => result.into(),
    }
}

/// If the schema consists of the keyword `required` and nothing else, returns the field that it requires.
fn sole_required_field(schema: &Json) -> Option<&str> {
    let required = schema
        .get("required")
        .filter(|_| schema.as_object().is_some_and(|keywords| keywords.len() == 1));
    required?.as_array()?.first()?.as_str()
}

fn join_forms(forms: &[Json], root: &Json) -> Option<Json> {
    let mut fields = Map::new();
    for form in forms {
        fields.extend(structural_schema(form, root).get("properties")?.as_object()?.clone());
    }
    Some(json!({"type": "object", "properties": fields}))
}

fn open_schema(schema: &Map<String, Json>) -> Json {
    let mut result: Map<String, Json> = ["type", "description"]
        .iter()
        .filter_map(|keyword| Some(((*keyword).to_owned(), schema.get(*keyword)?.clone())))
        // The schema keeps its type only if the type is `object`. A structural schema with another type needs more
        // keywords: an array, for example, needs `items`.
        .filter(|(keyword, value)| keyword != "type" || value == "object")
        .collect();
    result.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    result.into()
}

/// If the schema is a reference (`$ref`), returns the schema to which it refers. Keywords that stand next to `$ref`
/// replace the same keywords of the other schema.
fn resolve_reference(schema: &Json, root: &Json) -> Map<String, Json> {
    let keywords = schema.as_object().cloned().unwrap_or_default();
    let target = keywords
        .get("$ref")
        .and_then(Json::as_str)
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    let mut result = match target {
        Some(target) => resolve_reference(target, root),
        None => return keywords,
    };
    result.extend(keywords.into_iter().filter(|(keyword, _)| keyword != "$ref"));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the rules of structural schemas:
    ///
    /// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
    fn assert_structural(schema: &Json, path: &str) {
        let fields = schema.as_object().unwrap();
        let has_keyword = |keyword: &str| fields.contains_key(keyword);
        let is_open = has_keyword("x-kubernetes-preserve-unknown-fields") || has_keyword("x-kubernetes-int-or-string");
        assert!(has_keyword("type") || is_open, "{path} has no type: {schema}");
        for forbidden in [
            "$ref", "$defs", "const", "default", "examples", "title", "oneOf", "anyOf",
        ] {
            assert!(!has_keyword(forbidden), "{path} has {forbidden}");
        }
        assert!(
            !(has_keyword("properties") && has_keyword("additionalProperties")),
            "{path} has both properties and additionalProperties"
        );
        assert!(
            fields.get("type") != Some(&json!("array")) || has_keyword("items"),
            "{path} has no items"
        );
        for (name, property) in fields.get("properties").and_then(Json::as_object).into_iter().flatten() {
            assert_structural(property, &format!("{path}.{name}"));
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(inner) = fields.get(keyword) {
                assert_structural(inner, &format!("{path}[]"));
            }
        }
    }

    #[test]
    fn custom_resource_schemas_are_structural() {
        let manifests = manifests().unwrap();
        for manifest in &manifests {
            let version = manifest.object.pointer("/spec/versions/0").unwrap();
            let name = manifest.object["metadata"]["name"].as_str().unwrap();
            assert_structural(&version["schema"]["openAPIV3Schema"], name);
            assert_eq!(version["subresources"], json!({"status": {}}));
        }
        let schema = manifests[0]
            .object
            .pointer("/spec/versions/0/schema/openAPIV3Schema")
            .unwrap();
        let stage = schema.pointer("/properties/spec/properties/stages/items").unwrap();
        for (pointer, expected) in [
            ("/properties/mode/enum", json!(["Enforce", "Audit"])),
            ("/properties/plugin/required", json!(["source"])),
            (
                "/properties/plugin/properties/memory/x-kubernetes-int-or-string",
                json!(true),
            ),
            (
                "/properties/plugin/properties/settings/x-kubernetes-preserve-unknown-fields",
                json!(true),
            ),
            ("/properties/plugin/properties/memory/minimum", json!(1 << 20)),
            (
                "/properties/namespaceSelector/properties/operator/enum",
                json!(["In", "NotIn"]),
            ),
            (
                "/properties/namespaceSelector/properties/matchExpressions/type",
                json!("array"),
            ),
            (
                "/properties/plugin/properties/allow/properties/http/items/x-kubernetes-preserve-unknown-fields",
                json!(true),
            ),
            ("/properties/name/maxLength", json!(253)),
        ] {
            assert_eq!(stage.pointer(pointer), Some(&expected), "{pointer}: {stage:#}");
        }
    }
}
