//! Turns the results of a policy into a response.

use admittance_sdk::prelude::*;
use regorus::Value;

use crate::{format, settings::EnforcementAction};

#[derive(Debug)]
pub(crate) struct PreparedConstraint {
    pub(crate) prefix: String,
    pub(crate) parameters: Value,
    pub(crate) actions: Vec<EnforcementAction>,
}

pub(crate) fn constraint_response(constraint: &PreparedConstraint, violations: &Value) -> Result<Response, Error> {
    let mut messages = Vec::new();
    for violation in items(violations).ok_or_else(|| Error::other("`violation` is not a set"))? {
        match field(violation, "msg") {
            Some(Value::String(message)) => messages.push(format!("{} {message}", constraint.prefix)),
            _ => {
                let violation_text = format::value_text(violation);
                return Err(Error::other(format!(
                    "the violation {violation_text} has no message; write `violation[{{\"msg\": msg}}]`"
                )));
            }
        }
    }
    let mut response = if messages.is_empty() || !constraint.actions.contains(&EnforcementAction::Deny) {
        Response::allow()
    } else {
        Response::deny(messages.join("\n"))
    };
    if constraint.actions.contains(&EnforcementAction::Warn) {
        for message in messages {
            response = response.warn(message);
        }
    }
    Ok(response)
}

pub(crate) fn entry_point_response(rule: &str, value: &Value) -> Result<Response, Error> {
    if let Some(items) = items(value) {
        let messages: Vec<String> = items.map(violation_message).collect();
        return Ok(if messages.is_empty() {
            Response::allow()
        } else {
            Response::deny(messages.join("\n"))
        });
    }
    let is_allow = matches!(rule.rsplit('.').next(), Some("allow" | "allowed"));
    match value {
        Value::Bool(true) if is_allow => Ok(Response::allow()),
        Value::Bool(false) | Value::Undefined if is_allow => Ok(Response::deny(format!("{rule} is not true"))),
        Value::Object(_) => review_response(rule, value),
        Value::Undefined => Err(Error::other(format!("{rule} is undefined"))),
        other => {
            let text = format::value_text(other);
            Err(Error::other(format!(
                "{rule} is {text}; an entry point is a set of messages, the response of an AdmissionReview, or a \
                 boolean that is called `allow`"
            )))
        }
    }
}

fn review_response(rule: &str, review: &Value) -> Result<Response, Error> {
    let response = field(review, "response").unwrap_or(review);
    let denial = || {
        let status = field(response, "status")?;
        let message = field(status, "message").or_else(|| field(status, "reason"))?;
        message.as_string().ok().map(|message| message.to_string())
    };
    let mut answer = match field(response, "allowed") {
        Some(Value::Bool(true)) => match field(response, "patch") {
            None => Response::allow(),
            Some(_) => {
                let problem = "has a patch, and a policy in Rego only allows or denies";
                return Err(Error::other(format!("the response of {rule} {problem}")));
            }
        },
        Some(Value::Bool(false)) => Response::deny(denial().unwrap_or_else(|| format!("{rule} does not allow it"))),
        _ => {
            let problem = "has no `allowed`: true or false";
            return Err(Error::other(format!("the object {rule} {problem}")));
        }
    };
    for warning in field(response, "warnings").and_then(items).into_iter().flatten() {
        answer = answer.warn(violation_message(warning));
    }
    Ok(answer)
}

fn violation_message(item: &Value) -> String {
    let message_field = ["msg", "message"].iter().find_map(|name| field(item, name));
    match message_field.unwrap_or(item) {
        Value::String(message) => message.to_string(),
        other => format::value_text(other),
    }
}

pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_object().ok()?.get(&Value::from(name))
}

fn items(value: &Value) -> Option<Box<dyn Iterator<Item = &Value> + '_>> {
    match value {
        Value::Array(items) => Some(Box::new(items.iter())),
        Value::Set(items) => Some(Box::new(items.iter())),
        _ => None,
    }
}
