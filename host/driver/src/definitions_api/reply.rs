//! The envelope, as the handlers of the original and of its scheduler write it: HTTP 200, compact.

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use serde_json::{Value as Json, json};

use super::refusal::Code;

/// What the original puts before every message of an error: the name of its program.
const PROGRAM: &str = "bcs-mesos-driver";

pub(super) fn success(data: Json) -> Response<Bytes> {
    envelope(&json!({"result": true, "code": 0, "message": "success", "data": data}))
}

pub(super) fn failure(code: Code, message: &str) -> Response<Bytes> {
    envelope(&json!({
        "result": false,
        "code": code.number(),
        "message": format!("({PROGRAM}):{message}"),
        "data": {},
    }))
}

fn envelope(value: &Json) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
