//! Replies in the format of BCS's own programs: the envelope `result, code, message, data`, with bcs-common's codes.

use admittance_dialect::json_reply;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Serializer, Value, json, ser::PrettyFormatter};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// bcs-api could not read the body of a request.
    ApiReadBody = 1_405_006,
    /// The header `BCS-ClusterID` is missing, or names several clusters.
    NoCluster = 1_405_007,
    /// The kind of the object in the body is missing, or does not match the route.
    RequestData = 1_405_008,
    /// A request to the upstream failed.
    HttpDo = 1_405_009,
    /// The body is not JSON, or not JSON of the expected types.
    JsonDecode = 1_405_010,
    /// A value of the body cannot be written as JSON.
    JsonEncode = 1_405_011,
    ReadBody = 1_405_012,
    /// bcs-api cannot serve the request now.
    Internal = 1_405_050,
    /// bcs-api does not know the cluster.
    ClusterNotFound = 1_405_051,
    /// bcs-api could not reach the cluster's driver.
    DriverUnreachable = 1_405_053,
    /// bcs-api could not check whether the request is allowed.
    AuthError = 1_405_057,
    /// The holder of the token lacks the permission for the request.
    Forbidden = 1_405_058,
    Unauthorized = 1_405_059,
    /// The management API of bcs-api does not know the cluster.
    UnknownCluster = 1_405_060,
    /// bcs-api has no such route, or the management API of bcs-api refuses the request.
    BadRequest = 1_405_061,
    /// bcs-api cannot use its database.
    Database = 1_405_062,
    /// bcs-api could not convert a body from YAML to JSON.
    Yaml = 1_405_065,
    /// A request for definitions failed for a reason without a code of its own. BCS's scheduler replies with this code.
    Scheduler = 1_405_200,
    ResourceExists = 1_405_201,
    NotFound = 1_405_202,
    /// The driver itself cannot handle the request now.
    Driver = 1_405_230,
    Parameter = 1_405_231,
    /// The type of a message to an application is unknown.
    MessageType = 1_405_233,
    /// The driver has a filter that checks every request, and this filter refused the request.
    Filter = 1_405_234,
}

impl Code {
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// The name that bcs-mesos-driver puts before the messages of its handlers.
pub const DRIVER_NAME: &str = "bcs-mesos-driver";
pub const API_NAME: &str = "bcs-api";

/// Returns the reply of a handler that succeeded, with this data.
pub fn success_reply(data: Value) -> Response<Bytes> {
    let value = json!({"result": true, "code": 0, "message": "success", "data": data});
    json_reply(StatusCode::OK, value.to_string())
}

/// Returns the reply of a driver's handler that failed. Its HTTP status is always 200.
pub fn failure_reply(code: Code, message: &str) -> Response<Bytes> {
    handler_error(Some(DRIVER_NAME), StatusCode::OK, code, message)
}

/// Returns the reply of a handler that failed: compact JSON with an empty object as data. If `program` is given, its
/// name is put before the message.
pub fn handler_error(program: Option<&str>, status: StatusCode, code: Code, message: &str) -> Response<Bytes> {
    let message = match program {
        Some(program) => format!("({program}):{message}"),
        None => message.to_owned(),
    };
    let value = json!({"result": false, "code": code.number(), "message": message, "data": {}});
    json_reply(status, value.to_string())
}

/// Returns the reply of a filter of the driver or of bcs-api that refused the request: JSON indented by one space.
pub fn filter_error(status: StatusCode, code: Code, message: &str) -> Response<Bytes> {
    let value = json!({"result": false, "code": code.number(), "message": message, "data": null});
    json_reply(status, to_indented_json(&value, b" "))
}

/// Writes a value as indented JSON, as Go's `MarshalIndent` does.
pub fn to_indented_json(value: &impl Serialize, indent: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(indent));
    // Writing to memory cannot fail.
    let _ = value.serialize(&mut serializer);
    text
}

/// Returns a reply in plain text, as servers in Go write errors.
pub fn plain_text_reply(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = json_reply(status, text);
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
