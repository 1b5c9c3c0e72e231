//! Builds Gatekeeper's `input.review`, which is an AdmissionRequest.

use admittance_sdk::prelude::*;
use admittance_sdk::serde_json::{self, Map, Value as Json, json};
use regorus::Value;

/// If a DELETE has no object, the review contains the stored object in its place, as in Gatekeeper.
pub(crate) fn from_request(request: &Request) -> Result<Value, Error> {
    let old_object = request.old_object_json();
    let object = match (request.operation(), request.object_json()) {
        (Operation::Delete, None) => old_object,
        (_, object) => object,
    };
    let mut head = review_head(request).to_string();
    // The closing brace of the JSON text is removed, so that the fields `object` and `oldObject` can be appended. Their
    // values are JSON text already, and are appended without parsing them.
    head.pop();
    for (name, document) in [("object", object), ("oldObject", old_object)] {
        head.push_str(",\"");
        head.push_str(name);
        head.push_str("\":");
        head.push_str(document.unwrap_or("null"));
    }
    head.push('}');
    Value::from_json_str(&head).map_err(Error::other)
}

fn review_head(request: &Request) -> Json {
    let (kind, resource) = (request.kind(), request.resource());
    let kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let resource = json!({"group": resource.group, "version": resource.version, "resource": resource.resource});
    let mut review = json!({
        "uid": request.uid(),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": operation_name(request.operation()),
        "userInfo": user_info(request),
        "dryRun": request.dry_run(),
        "options": request.options::<Json>().ok().flatten(),
    });
    if let Json::Object(fields) = &mut review {
        let texts = [
            ("subResource", request.subresource()),
            ("requestSubResource", request.subresource()),
            ("name", request.name()),
            ("namespace", request.namespace()),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                fields.insert(name.to_owned(), text.into());
            }
        }
    }
    review
}

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

fn user_info(request: &Request) -> Json {
    let user = request.user();
    let mut fields = Map::new();
    for (name, text) in [("username", &user.username), ("uid", &user.uid)] {
        if !text.is_empty() {
            fields.insert(name.to_owned(), text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        fields.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Json> = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
        fields.insert("extra".to_owned(), serde_json::Value::Object(extra));
    }
    Json::Object(fields)
}
