//! The behaviour of the Kubewarden test policy, which is the same as a waPC module and as a WASI module.

use std::collections::BTreeMap;

use kubewarden_policy_sdk::settings::Validatable;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// The label that every object must have.
    required: Option<String>,
    add: BTreeMap<String, String>,
    /// The name of a `ConfigMap` in the request's namespace. If it has `frozen: "true"`, every request is refused.
    config_map: Option<String>,
}

/// A misbehaviour of the policy. The annotation `act` of the object selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Act {
    Panic,
    Loop,
    Fill,
    Fail,
    OpenFile,
    VerifyImage,
}

impl Validatable for Settings {
    fn validate(&self) -> Result<(), String> {
        match &self.required {
            Some(label) if label.is_empty() => Err("`required` is empty; name a label".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The function by which the policy calls an operation of the host. Its arguments are the binding, the namespace and
/// the name of the operation, and the payload.
pub(crate) type CallHost<'a> = &'a dyn Fn(&str, &str, &[u8]) -> Result<Vec<u8>, String>;

#[derive(Deserialize)]
struct Payload {
    request: Value,
    settings: Settings,
}

/// Returns the policy's answer to a call of `validate`. If this function returns an error, the call of the policy
/// fails.
pub(crate) fn validate(payload: &[u8], call: CallHost<'_>) -> Result<Value, String> {
    let Payload { request, settings } = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    let act = &request["object"]["metadata"]["annotations"]["act"];
    if !act.is_null() {
        let act = Act::deserialize(act).map_err(|error| error.to_string())?;
        perform(act, call)?;
    }
    let event = json!({"level": "info", "message": "a request is validated", "name": request["name"]});
    call("tracing", "log", event.to_string().as_bytes())?;
    if let Some(name) = &settings.config_map {
        let get = json!({
            "api_version": "v1", "kind": "ConfigMap", "name": name, "namespace": request["namespace"],
            "disable_cache": false, "field_masks": ["data"],
        });
        let reply = call("kubernetes", "get_resource", get.to_string().as_bytes())?;
        let config_map: Value = serde_json::from_slice(&reply).map_err(|error| error.to_string())?;
        if config_map["data"]["frozen"] == "true" {
            return Ok(json!({"accepted": false, "message": "the namespace is frozen", "code": 423}));
        }
    }
    let labels = &request["object"]["metadata"]["labels"];
    if let Some(required) = &settings.required
        && labels.get(required).is_none()
    {
        return Ok(json!({
            "accepted": false,
            "message": format!("the label `{required}` is missing"),
            "warnings": ["labels are checked"],
            "audit_annotations": {"missing": required},
        }));
    }
    let mut answer = json!({"accepted": true});
    if !settings.add.is_empty() {
        let mut object = request["object"].clone();
        for (key, value) in settings.add {
            object["metadata"]["labels"][key] = value.into();
        }
        answer["mutated_object"] = object;
    }
    Ok(answer)
}

fn perform(act: Act, call: CallHost<'_>) -> Result<(), String> {
    match act {
        Act::Panic => panic!("it was told to panic"),
        Act::Loop => loop {
            std::hint::black_box(0);
        },
        Act::Fill => {
            let mut filled = Vec::new();
            loop {
                filled.push(std::hint::black_box(vec![1_u8; 1 << 20]));
            }
        }
        Act::Fail => Err("it was told to fail".to_owned()),
        Act::OpenFile => std::fs::read("/etc/passwd").map(drop).map_err(|error| error.to_string()),
        Act::VerifyImage => {
            let verify = json!({"SigstorePubKeyVerify": {"image": "example.com/a:1", "pub_keys": [], "annotations": null}});
            call("oci", "v1/verify", verify.to_string().as_bytes()).map(drop)
        }
    }
}
