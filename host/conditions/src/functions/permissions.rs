//! What `authorizer` leads to: Kubernetes' authorization library.

use std::sync::Arc;

use super::Library;
use admittance_admission::UserInfo;

use crate::{
    machine::{Fault, Halt, Machine, Outcome},
    permission::{About, Permission, Resource},
    types::{AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK, Type},
    value::Value,
};

/// What a question to the authorizer costs, as in Kubernetes: so one expression can ask two.
const QUESTION: u64 = 350_000;

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, String};
    library.member("path", path, &[(&[AUTHORIZER, String], PATH_CHECK)]);
    library.member("group", group, &[(&[AUTHORIZER, String], GROUP_CHECK)]);
    library.member(
        "serviceAccount",
        service_account,
        &[(&[AUTHORIZER, String, String], AUTHORIZER)],
    );
    library.member("resource", resource, &[(&[GROUP_CHECK, String], RESOURCE_CHECK)]);
    let narrower: [(&[Type], Type); 1] = [(&[RESOURCE_CHECK, String], RESOURCE_CHECK)];
    library.member("subresource", subresource, &narrower);
    library.member("namespace", namespace, &narrower);
    library.member("name", name, &narrower);
    library.member(
        "check",
        check,
        &[
            (&[PATH_CHECK, String], DECISION),
            (&[RESOURCE_CHECK, String], DECISION),
        ],
    );
    library.member("allowed", allowed, &[(&[DECISION], Bool)]);
    library.member("reason", reason, &[(&[DECISION], String)]);
    library.member("errored", errored, &[(&[DECISION], Bool)]);
    library.member("error", error, &[(&[DECISION], String)]);
}

fn permission<'a>(permission: Permission) -> Outcome<'a> {
    Ok(Value::Permission(Arc::new(permission)))
}

/// Pay for a copy of the question so far, with this text in it.
fn pay_copy<'a>(machine: &mut Machine<'a>, of: &Permission, text: &str) -> Result<(), Fault> {
    machine.pay_bytes(of.size() + text.len())
}

fn path<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Permission(open), Value::String(path)] if open.about == About::Nothing => {
            pay_copy(machine, open, path)?;
            if path.is_empty() {
                return Err(Fault::error("path must not be empty"));
            }
            permission(open.about(About::Path(path.to_string())))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn group<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Permission(open), Value::String(group)] if open.about == About::Nothing => {
            pay_copy(machine, open, group)?;
            permission(open.about(About::Group(group.to_string())))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn service_account<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [
            Value::Permission(open),
            Value::String(namespace),
            Value::String(name),
        ] if open.about == About::Nothing => {
            machine.pay_bytes(namespace.len() + name.len())?;
            if !is_dns_name(namespace, false) {
                return Err(Fault::error(format!(
                    "invalid service account namespace {:?}",
                    &**namespace
                )));
            }
            if !is_dns_name(name, true) {
                return Err(Fault::error(format!(
                    "invalid service account name {:?}",
                    &**name
                )));
            }
            let (namespace, name) = (&**namespace, &**name);
            permission(Permission {
                user: Some(UserInfo {
                    username: format!("system:serviceaccount:{namespace}:{name}"),
                    uid: String::new(),
                    groups: vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{namespace}"),
                        "system:authenticated".to_owned(),
                    ],
                    extra: Vec::new(),
                }),
                about: About::Nothing,
            })
        }
        _ => Err(Fault::no_overload()),
    }
}

/// A DNS label, or a name of several.
fn is_dns_name(text: &str, several: bool) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if several {
        text.len() <= 253 && text.split('.').all(label)
    } else {
        text.len() <= 63 && label(text)
    }
}

fn resource<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    if let [Value::Permission(of), Value::String(resource)] = arguments
        && let About::Group(group) = &of.about
    {
        pay_copy(machine, of, resource)?;
        return permission(of.about(About::Resource(Resource {
            group: group.clone(),
            resource: resource.to_string(),
            ..Resource::default()
        })));
    }
    Err(Fault::no_overload())
}

fn narrow<'a>(
    machine: &mut Machine<'a>,
    arguments: &[Value<'a>],
    set: fn(&mut Resource, String),
) -> Outcome<'a> {
    if let [Value::Permission(of), Value::String(text)] = arguments
        && let About::Resource(resource) = &of.about
    {
        pay_copy(machine, of, text)?;
        let mut resource = resource.clone();
        set(&mut resource, text.to_string());
        return permission(of.about(About::Resource(resource)));
    }
    Err(Fault::no_overload())
}

fn subresource<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    narrow(machine, arguments, |resource, text| resource.subresource = text)
}

fn namespace<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    narrow(machine, arguments, |resource, text| resource.namespace = text)
}

fn name<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    narrow(machine, arguments, |resource, text| resource.name = text)
}

fn check<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Permission(permission), Value::String(verb)] = arguments else {
        return Err(Fault::no_overload());
    };
    machine.pay(QUESTION)?;
    let question = permission.question(verb).ok_or_else(Fault::no_overload)?;
    match machine.answers().get(&question) {
        Some(answer) => Ok(Value::Decision(answer)),
        None => Err(Fault::Halt(Halt::Question(Box::new(question)))),
    }
}

fn allowed<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Decision(answer)] => Ok(Value::Bool(
            (**answer).as_ref().is_ok_and(|access| access.allowed),
        )),
        _ => Err(Fault::no_overload()),
    }
}

fn reason<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Decision(answer)] => Ok(Value::string(
            (**answer)
                .as_ref()
                .map(|access| access.reason.as_str())
                .unwrap_or_default(),
        )),
        _ => Err(Fault::no_overload()),
    }
}

fn errored<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Decision(answer)] => Ok(Value::Bool(answer.is_err())),
        _ => Err(Fault::no_overload()),
    }
}

fn error<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Decision(answer)] => Ok(Value::string(
            (**answer)
                .as_ref()
                .err()
                .map(|error| error.0.as_str())
                .unwrap_or_default(),
        )),
        _ => Err(Fault::no_overload()),
    }
}
