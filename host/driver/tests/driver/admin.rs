//! Tests the admin port: which clients may use it, and what its routes do.

mod access;
mod bounds;
mod candidate;
mod console;
#[path = "../../../sandbox/tests/sandbox/guest.rs"]
#[allow(dead_code, reason = "guests here are simple ones")]
pub(crate) mod guest;
mod recording;
mod steering;

use axum::body::Body;
use http::Request;
use serde_json::Value;

use crate::harness::{RunningDriver, status_and_text};

impl RunningDriver {
    pub(crate) async fn call_admin(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        let (status, body) = status_and_text(self.send_to_admin(request).await).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }
}
