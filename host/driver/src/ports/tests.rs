//! Tests the OpenAPI document of the admin port, which includes the routes of all front ends.

use std::path::Path;

use serde_json::Value;

use super::*;

fn openapi_document() -> Value {
    admittance_admin::openapi::<DriverStatus, HealthInfo>(fronts::admin_routes())
}

/// `RENEW=1 cargo test -p admittance-driver openapi` writes the OpenAPI document to the file.
#[test]
fn the_committed_openapi_document_is_served() {
    let served = openapi_document();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
    if std::env::var_os("RENEW").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/admin-api.json is not what is served; renew it: \
         RENEW=1 cargo test -p admittance-driver openapi"
    );
}

#[test]
fn every_reference_in_the_openapi_document_has_a_target() {
    let document = openapi_document();
    let mut references = Vec::new();
    let mut names = Vec::new();
    collect_references(&document, &mut references, &mut names);
    assert!(references.len() > 20, "{references:?}");
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

fn collect_references(value: &serde_json::Value, references: &mut Vec<String>, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str()) {
                    ("$ref", Some(reference)) => references.push(reference.to_owned()),
                    ("operationId", Some(name)) => names.push(name.to_owned()),
                    _ => collect_references(value, references, names),
                }
            }
        }
        serde_json::Value::Array(items) => items
            .iter()
            .for_each(|item| collect_references(item, references, names)),
        _ => {}
    }
}

#[test]
fn the_api_page_lists_exactly_the_routes_of_the_openapi_document() {
    let document = openapi_document();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut page_routes: Vec<_> = rows
        .filter_map(|row| row.split_once('`'))
        .map(|(route, _)| route.to_owned())
        .filter(|route| route.contains(" /"))
        .collect();
    routes.sort();
    page_routes.sort();
    assert_eq!(page_routes, routes);
}
