use std::{path::Path, sync::Arc};

use admittance::Host;
use admittance_net::budget::BodyBudget;
use axum::body::{Body, to_bytes};
use http::Request;
use serde_json::Value;
use tower::ServiceExt;

use crate::{Access, AdminConfig, AdminService, Sources};

/// The document as it is served.
async fn served() -> Value {
    let sources = Sources {
        host: Host::builder().build().await.unwrap(),
        status: Box::new(|| unreachable!("nobody asks for it")),
        health: Box::new(|| None),
        accounts: None,
        decisions: None,
        is_stopping: Arc::default(),
        not_ready: Box::new(|| None),
        metrics: Arc::new(String::new),
    };
    let access = Access::new(&AdminConfig::new(([127, 0, 0, 1], 0).into()));
    let service = AdminService::new(Arc::new(String::new), BodyBudget::new(1 << 20));
    service.start(access, sources);
    let router = service.started.get().unwrap().clone();
    let request = Request::get("/v1/openapi.json").body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// Renew the file with `RENEW=1 cargo test -p admittance-admin openapi`.
#[tokio::test]
async fn the_committed_document_is_served() {
    let served = served().await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
    if std::env::var_os("RENEW").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/admin-api.json is not what is served; renew it: \
         RENEW=1 cargo test -p admittance-admin openapi"
    );
}

/// Every reference leads somewhere, and every operation has a name of its own.
#[tokio::test]
async fn the_document_is_whole() {
    let document = served().await;
    let mut references = Vec::new();
    let mut names = Vec::new();
    walk(&document, &mut references, &mut names);
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

fn walk(value: &serde_json::Value, references: &mut Vec<String>, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str()) {
                    ("$ref", Some(reference)) => references.push(reference.to_owned()),
                    ("operationId", Some(name)) => names.push(name.to_owned()),
                    _ => walk(value, references, names),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, references, names)),
        _ => {}
    }
}

/// The page lists the routes of the document, and no others.
#[tokio::test]
async fn the_page_lists_every_route() {
    let document = served().await;
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed: Vec<_> = rows
        .filter_map(|row| row.split_once('`'))
        .map(|(route, _)| route.to_owned())
        .filter(|route| route.contains(" /"))
        .collect();
    routes.sort();
    listed.sort();
    assert_eq!(listed, routes);
}
