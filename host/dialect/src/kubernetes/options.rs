//! Reads the options of an operation from the query of a request, as kube-apiserver does.

use admittance_admission::{GroupVersionKind, Object};
use form_urlencoded::parse;
use serde_json::{Map, Value, json};

use super::target::ResourceTarget;

#[derive(Clone, Copy, Debug)]
enum ParameterForm {
    Text,
    Texts,
    Flag,
    Numbers,
}

/// The requests that open a connection: resource, subresource, kind of the options, and fields of the options.
const CONNECT_OPTIONS: [(&str, &str, &str, &[(&str, ParameterForm)]); 6] = [
    ("pods", "exec", "PodExecOptions", &STREAMS_AND_COMMAND),
    ("pods", "attach", "PodAttachOptions", &STREAMS),
    (
        "pods",
        "portforward",
        "PodPortForwardOptions",
        &[("ports", ParameterForm::Numbers)],
    ),
    ("pods", "proxy", "PodProxyOptions", &[]),
    ("services", "proxy", "ServiceProxyOptions", &[]),
    ("nodes", "proxy", "NodeProxyOptions", &[]),
];

const STREAMS: [(&str, ParameterForm); 5] = [
    ("stdin", ParameterForm::Flag),
    ("stdout", ParameterForm::Flag),
    ("stderr", ParameterForm::Flag),
    ("tty", ParameterForm::Flag),
    ("container", ParameterForm::Text),
];

const STREAMS_AND_COMMAND: [(&str, ParameterForm); 6] = [
    STREAMS[0],
    STREAMS[1],
    STREAMS[2],
    STREAMS[3],
    STREAMS[4],
    ("command", ParameterForm::Texts),
];

pub(super) fn connect_options(target: &ResourceTarget, path: &str, query: &str) -> (GroupVersionKind, Option<Object>) {
    let subresource = target.subresource.as_deref().unwrap_or_default();
    let connect_entry = CONNECT_OPTIONS
        .iter()
        .find(|(resource, name, ..)| *resource == target.resource.resource && *name == subresource);
    let Some((_, _, kind, fields)) = connect_entry.filter(|_| target.resource.group.is_empty()) else {
        let group = target.resource.group.clone();
        let version = target.resource.version.clone();
        let kind = subresource.to_owned();
        return (GroupVersionKind { group, version, kind }, None);
    };
    let mut object = Map::new();
    object.insert("kind".to_owned(), json!(kind));
    object.insert("apiVersion".to_owned(), json!("v1"));
    for (name, form) in *fields {
        let pairs = parse(query.as_bytes()).filter(|(key, _)| key == name);
        let values: Vec<String> = pairs.map(|(_, value)| value.into_owned()).collect();
        object.extend(parameter_value(&values, *form).map(|value| ((*name).to_owned(), value)));
    }
    // As in kube-apiserver, the path of a proxy connection is taken from the URL, not from the query parameter `path`.
    if subresource == "proxy" && !target.subpath.is_empty() {
        let slash = if path.ends_with('/') { "/" } else { "" };
        object.insert("path".to_owned(), json!(format!("{}{slash}", target.subpath)));
    }
    let kind = GroupVersionKind::from_api_version("v1", *kind);
    (kind, Object::from_value(Value::Object(object)))
}

fn parameter_value(values: &[String], form: ParameterForm) -> Option<Value> {
    let first = values.first()?;
    Some(match form {
        ParameterForm::Text => json!(first),
        ParameterForm::Texts => json!(values),
        // Like Kubernetes, this reads any value of a Boolean parameter except `false` and `0` as true.
        ParameterForm::Flag => json!(!matches!(first.to_ascii_lowercase().as_str(), "false" | "0")),
        ParameterForm::Numbers => {
            let numbers = values.iter().flat_map(|value| value.split(','));
            json!(
                numbers
                    .filter_map(|number| number.parse::<u16>().ok())
                    .collect::<Vec<_>>()
            )
        }
    })
}

/// `kind` is `CreateOptions` or `UpdateOptions`.
pub(super) fn query_options(kind: &str, query: &str) -> Option<Object> {
    let mut object = Map::new();
    object.insert("kind".to_owned(), json!(kind));
    object.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
    for (key, value) in parse(query.as_bytes()) {
        match &*key {
            "dryRun" => drop(object.insert("dryRun".to_owned(), json!([value]))),
            "fieldManager" | "fieldValidation" => drop(object.insert(key.into_owned(), json!(value))),
            _ => {}
        }
    }
    Object::from_value(Value::Object(object))
}

pub(super) fn is_dry_run(query: &str) -> bool {
    parse(query.as_bytes()).any(|(key, value)| key == "dryRun" && value == "All")
}
