//! An axum service with a chain.
//!
//! ```console
//! $ cargo run -p admittance --example service
//! $ curl -d '{"name": "Disc", "size": 3}' -H 'content-type: application/json' http://127.0.0.1:3000/widgets
//! ```

use std::{error::Error, sync::Arc};

use admittance::admission::*;
use admittance::{Host, dialect::*};
use axum::{Json, Router, routing::post};
use http::Method;

#[derive(serde::Deserialize)]
struct Widget {
    name: String,
    size: u32,
}

/// Denies widgets of size 0, and labels all others.
struct WidgetRules;

#[async_trait]
impl Hook for WidgetRules {
    async fn admit(&self, request: &Arc<Request>, _deadline: Deadline) -> Result<Response, Failure> {
        let Some(widget) = &request.object else {
            return Ok(Response::allow());
        };
        let widget: Widget = match widget.deserialize() {
            Ok(widget) => widget,
            Err(error) => return Ok(Response::deny(Denial::new(400, "Invalid", error.to_string()))),
        };
        if widget.size == 0 {
            let message = "size: 0 is less than 1";
            return Ok(Response::deny(Denial::new(422, "Invalid", message)));
        }
        let label = format!("widget {}", widget.name.to_lowercase());
        let patch = Patch::builder().add("/label", &label)?.build();
        Ok(Response::new(Verdict::Patch(patch)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let chain = Chain::new(
        "widgets",
        vec![Rule::for_operations([Operation::Create])],
        vec![Stage::new("house", WidgetRules)],
    );
    // To add chains of plugins and webhooks, also call `.definitions("chains/")`.
    let host = Host::builder().chain(chain).build().await?;

    let kind = GroupVersionKind::from_api_version("v1", "Widget");
    let (resource, kind) = (kind.guess_resource(), KindSource::Fixed(kind.kind));
    let mut create = RestRoute::new([Method::POST], "/widgets", Operation::Create, resource, kind);
    create.name = vec![ValueSource::Pointer("/name".parse()?)];
    let dialect = Rest::new(RestConfig::new(vec![create])).map_err(|errors| format!("{errors:?}"))?;

    let echo = post(async |Json(widget): Json<serde_json::Value>| Json(widget));
    let service = Router::new().route("/widgets", echo).layer(host.layer(dialect));
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, service).await?)
}
