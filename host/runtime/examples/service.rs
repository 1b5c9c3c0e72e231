//! An axum service that gains a chain.
//!
//! ```console
//! $ cargo run -p admittance --example service
//! $ curl -d '{"name": "Disc", "size": 3}' -H 'content-type: application/json' http://127.0.0.1:3000/widgets
//! ```

use std::error::Error;

use admittance::admission::*;
use admittance::{Host, dialect::*};
use axum::{Json, Router, routing::post};
use http::Method;

/// Refuses widgets of size 0, and gives the others a label.
struct House;

#[async_trait]
impl Hook for House {
    async fn admit(&self, request: &Request, _deadline: Deadline) -> Result<Response, Failure> {
        let Some(widget) = &request.object else {
            return Ok(Response::allow());
        };
        if widget.value()["size"] == 0 {
            return Ok(Response::deny(Denial::new(
                422,
                "Empty",
                "size: 0 is no size; give 1 or more",
            )));
        }
        let name = widget.value()["name"].as_str().unwrap_or_default().to_lowercase();
        let patch = format!(r#"[{{"op": "add", "path": "/label", "value": "widget {name}"}}]"#);
        let patch =
            Patch::parse(patch).map_err(|error| Failure::new(FailureKind::Error, error.to_string()))?;
        Ok(Response::new(Verdict::Patch(patch)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let chain = Chain::new(
        "widgets",
        vec![Rule::for_operations([Operation::Create])],
        vec![Stage::new("house", House)],
    );
    // `.definitions("chains/")` adds chains of plugins and webhooks.
    let host = Host::builder().chain(chain).build().await?;

    let kind = GroupVersionKind::from_api_version("v1", "Widget");
    let (resource, kind) = (kind.guess_resource(), KindSource::Fixed(kind.kind));
    let mut create = Route::new([Method::POST], "/widgets", Operation::Create, resource, kind);
    create.name = vec![ValueSource::Pointer("/name".parse()?)];
    let config = RestConfig {
        routes: vec![create],
        ..RestConfig::default()
    };
    let dialect = Rest::new(config).map_err(|errors| format!("{errors:?}"))?;

    let echo = post(async |Json(widget): Json<serde_json::Value>| Json(widget));
    let service = Router::new().route("/widgets", echo).layer(host.layer(dialect));
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, service).await?)
}
