//! The host functions that a policy may call within the grants of its stage.

use std::{collections::BTreeMap, time::Instant};

use admittance_admission::{Deadline, HttpOrigin, Moment, move_if_long, move_to_long_work_thread, offload};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{net::lookup_host, time::timeout_at};
use tracing::Level;
use url::Url;
use wasmtime::Caller;

use super::{
    certificates,
    exchange::{copy_bytes, copy_text},
    fields::{FieldSelector, keep_fields},
    images,
};
use crate::{
    capabilities::{PREPARING_MESSAGE, SearchPace, denied_error},
    contract::bindings::admittance::plugin::{cluster, types},
    store::{CallState, Violation},
};

const BINDING: &str = "kubewarden";

/// The maximum size of a policy's query about the cluster, images or addresses, and of its log events, in bytes.
const MAX_REQUEST: usize = 256 << 10;

/// The arguments of a host call: four pairs of address and length, for the binding, namespace, operation and payload.
pub(super) type Arguments = (u32, u32, u32, u32, u32, u32, u32, u32);

/// Answers a host call of a policy; returns false if the answer is an error message for the policy. If the stage does
/// not grant the operation, this function fails, which ends the call of the policy.
pub(super) async fn answer_call(guest: &mut Caller<'_, CallState>, arguments: Arguments) -> wasmtime::Result<bool> {
    let (binding, binding_length, namespace, namespace_length, operation, operation_length, payload, length) =
        arguments;
    let binding = copy_text(guest, binding, binding_length)?;
    let namespace = copy_text(guest, namespace, namespace_length)?;
    let operation = copy_text(guest, operation, operation_length)?;
    let payload = copy_bytes(guest, payload, length)?;
    move_if_long(payload.len()).await;
    let answer = dispatch_call(guest.data_mut(), &binding, &namespace, &operation, payload).await?;
    // After this function, the policy copies the answer into its memory, which takes long for a large answer.
    move_if_long(answer.as_ref().map_or(0, Vec::len)).await;
    let exchange = &mut guest.data_mut().exchange;
    exchange.host_failed = answer.is_err();
    exchange.host_answer = answer.unwrap_or_else(String::into_bytes);
    Ok(!exchange.host_failed)
}

pub(super) type Answer = Result<Vec<u8>, String>;

async fn dispatch_call(
    state: &mut CallState,
    binding: &str,
    namespace: &str,
    operation: &str,
    payload: Vec<u8>,
) -> wasmtime::Result<Answer> {
    match (binding, namespace, operation) {
        (BINDING, "tracing", "log") => {
            log_event(state, &payload);
            Ok(Ok(Vec::new()))
        }
        (BINDING, "kubernetes" | "oci" | "net", _) if payload.len() > MAX_REQUEST => Ok(Err(format!(
            "the request has {} bytes; the limit is {MAX_REQUEST}",
            payload.len()
        ))),
        (BINDING, "kubernetes", "get_resource") => match parse(&payload) {
            Ok(get) => get_resource(state, get).await,
            Err(error) => Ok(Err(error)),
        },
        (BINDING, "kubernetes", "list_resources_all" | "list_resources_by_namespace") => match parse(&payload) {
            Ok(list) => list_resources(state, list).await,
            Err(error) => Ok(Err(error)),
        },
        (BINDING, "kubernetes", "can_i") => match parse(&payload) {
            Ok(question) => can_i(state, question).await,
            Err(error) => Ok(Err(error)),
        },
        (BINDING, "oci", operation) if let Some(operation) = images::ImageOperation::from_name(operation) => {
            images::answer_query(state, operation, &payload).await
        }
        (BINDING, "net", "v1/dns_lookup_host") => match parse::<String>(&payload) {
            Ok(host) => look_up(state, &host).await,
            Err(error) => Ok(Err(error)),
        },
        (BINDING, "cache" | "crypto", _) if state.preparing => Ok(Err(PREPARING_MESSAGE.to_owned())),
        (BINDING, "cache", "set") => Ok(state.cache.set(&payload, Instant::now())),
        (BINDING, "cache", "get") => Ok(state.cache.get(&payload, Instant::now())),
        (BINDING, "crypto", "v1/is_certificate_trusted") => answer_is_trusted(state.deadline, payload).await,
        _ => Err(denied_error(format!(
            "the policy called `{binding}/{namespace}/{operation}`, which this host does not have, and no stage can \
             grant it"
        ))),
    }
}

async fn answer_is_trusted(deadline: Deadline, payload: Vec<u8>) -> wasmtime::Result<Answer> {
    move_to_long_work_thread().await;
    let verify = move || certificates::answer_trust_question(&payload, Moment::now().0, deadline);
    let verification = offload(usize::MAX, deadline, verify).await;
    verification.map_err(|failure| Violation::error(failure.kind, failure.message))
}

pub(super) fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("the request cannot be read: {error}"))
}

fn log_event(state: &CallState, payload: &[u8]) {
    // An event of more than `MAX_REQUEST` bytes does not fit into the log. It is not parsed, and counts as a dropped
    // line.
    let short_payload = Some(payload).filter(|payload| payload.len() <= MAX_REQUEST);
    let event = short_payload.and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(bytes).ok());
    let Some(mut event) = event else {
        state
            .log
            .log_line(Level::WARN, "policy", &String::from_utf8_lossy(payload));
        return;
    };
    let mut remove_text = |key: &str| match event.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let level = match remove_text("level").to_ascii_lowercase().as_str() {
        "trace" => Level::TRACE,
        "debug" => Level::DEBUG,
        "warn" | "warning" => Level::WARN,
        "error" | "critical" => Level::ERROR,
        _ => Level::INFO,
    };
    let mut message = remove_text("message");
    for location_key in ["file", "line", "column"] {
        event.remove(location_key);
    }
    if !event.is_empty() {
        message += &format!(" {}", Value::Object(event));
    }
    state.log.log_line(level, "policy", &message);
}

#[derive(Deserialize)]
struct GetRequest {
    api_version: String,
    kind: String,
    name: String,
    namespace: Option<String>,
    field_masks: Option<Vec<String>>,
}

async fn get_resource(state: &mut CallState, get: GetRequest) -> wasmtime::Result<Answer> {
    let object_name = format!("{}/{} `{}`", get.api_version, get.kind, get.name);
    let namespace = get.namespace.filter(|namespace| !namespace.is_empty());
    let response = cluster::Host::get(state, get.api_version, get.kind, namespace, get.name).await?;
    Ok(match response {
        Ok(Some(object)) => keep_fields(object, get.field_masks.as_deref()).map(String::into_bytes),
        Ok(None) => Err(format!("{object_name} does not exist")),
        Err(error) => Err(error_text(error)),
    })
}

#[derive(Deserialize)]
struct ListRequest {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    field_masks: Option<Vec<String>>,
}

async fn list_resources(state: &mut CallState, list: ListRequest) -> wasmtime::Result<Answer> {
    let field_selector = match FieldSelector::parse(list.field_selector.as_deref().unwrap_or_default()) {
        Ok(fields) => fields,
        Err(error) => return Ok(Err(error)),
    };
    let (api_version, kind) = (list.api_version.clone(), format!("{}List", list.kind));
    let label_selector = list.label_selector.unwrap_or_default();
    let response = cluster::Host::list(state, list.api_version, list.kind, list.namespace, label_selector).await?;
    let objects = match response {
        Ok(objects) => objects,
        Err(error) => return Ok(Err(error_text(error))),
    };
    let mut items = Vec::new();
    let mut pace = SearchPace::new(state.deadline);
    for item in objects {
        if let Err(error) = pace.pause_before(&item).await {
            return Ok(Err(error_text(error)));
        }
        if field_selector.selects(&item) {
            match keep_fields(item, list.field_masks.as_deref()) {
                Ok(item) => items.push(RawValue::from_string(item)?),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    Ok(Ok(serde_json::to_vec(&ObjectList {
        api_version,
        kind,
        metadata: Map::new(),
        items,
    })?))
}

#[derive(Deserialize)]
struct CanIRequest {
    subject_access_review: AccessReview,
}

#[derive(Deserialize)]
struct AccessReview {
    user: String,
    groups: Option<Vec<String>>,
    resource_attributes: ResourceAttributes,
}

#[derive(Deserialize)]
struct ResourceAttributes {
    verb: String,
    group: Option<String>,
    resource: String,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

async fn can_i(state: &mut CallState, question: CanIRequest) -> wasmtime::Result<Answer> {
    let AccessReview {
        user,
        groups,
        resource_attributes: action,
    } = question.subject_access_review;
    let user = types::UserInfoResult {
        username: user,
        uid: String::new(),
        groups: groups.unwrap_or_default(),
        extra: Vec::new(),
    };
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let action = cluster::Action::Resource(cluster::ResourceAction {
        verb: action.verb,
        group: action.group.unwrap_or_default(),
        resource: action.resource,
        subresource: non_empty(action.subresource),
        namespace: non_empty(action.namespace),
        name: non_empty(action.name),
    });
    Ok(match cluster::Host::can_i(state, action, Some(user)).await? {
        Ok(access) => Ok(serde_json::to_vec(&json!({
            "allowed": access.allowed,
            "reason": access.reason,
        }))?),
        Err(error) => Err(error_text(error)),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectList {
    api_version: String,
    kind: String,
    metadata: Map<String, Value>,
    items: Vec<Box<RawValue>>,
}

async fn look_up(state: &mut CallState, host: &str) -> wasmtime::Result<Answer> {
    if state.preparing {
        return Ok(Err(PREPARING_MESSAGE.to_owned()));
    }
    let has_host = |origin: &HttpOrigin| {
        Url::parse(origin.as_str()).is_ok_and(|url| {
            url.host_str()
                .is_some_and(|url_host| url_host.eq_ignore_ascii_case(host))
        })
    };
    if !state.grants.http.iter().any(|grant| has_host(&grant.origin)) {
        return Err(denied_error(format!(
            "the policy looks up the addresses of `{host}` without permission; add `https://{host}` to `allow.http` of \
             the stage"
        )));
    }
    let lookup = timeout_at(state.deadline.instant(), lookup_host((host, 443))).await;
    Ok(match lookup {
        Ok(Ok(addresses)) => {
            let addresses: Vec<String> = addresses.map(|address| address.ip().to_string()).collect();
            Ok(serde_json::to_vec(&BTreeMap::from([("ips", addresses)]))?)
        }
        Ok(Err(error)) => Err(format!("`{host}` cannot be looked up: {error}")),
        Err(_) => Err(format!("`{host}` was not looked up in time")),
    })
}

fn error_text(error: cluster::Error) -> String {
    match error {
        cluster::Error::Unavailable(reason) => format!("the control plane is not available: {reason}"),
        cluster::Error::Timeout => "the control plane did not answer in time".to_owned(),
        cluster::Error::Refused(reason) => format!("the control plane refused: {reason}"),
    }
}
