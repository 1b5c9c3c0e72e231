//! Translates applications, processes, deployments and daemonsets to the scheduler's `Version`.

use serde_json::{Map, Value, json};

use super::{
    TranslationFault,
    container::container,
    view::{CheckedView, copy_other_members, members},
};
use crate::routes::RequiredKind;

/// A label or annotation whose key contains this text holds a list of addresses. Spaces are removed from the list.
const REQUESTED_ADDRESSES: &str = "io.tencent.bcs.netsvc.requestip.";

/// The namespace that an application gets if it has none.
const DEFAULT_NAMESPACE: &str = "defaultGroup";

/// The keys of a daemonset's `spec` that are translated.
const DAEMONSET_SPEC: [&str; 3] = ["instance", "selector", "template"];
/// The keys of a template's `spec` that are translated.
const POD_SPEC: [&str; 4] = ["containers", "processes", "networkMode", "networkType"];

pub(super) fn run_as(kind: RequiredKind, object: CheckedView<'_>) -> String {
    match (kind, object.at("metadata").at("namespace").text()) {
        (RequiredKind::Application | RequiredKind::Process, "") => DEFAULT_NAMESPACE.to_owned(),
        (_, namespace) => namespace.to_owned(),
    }
}

/// Returns the scheduler's `Version` without its field `raw_json`.
pub(super) fn scheduler_version(
    kind: RequiredKind,
    object: CheckedView<'_>,
) -> Result<Map<String, Value>, TranslationFault> {
    let mut restart_policy = object.at("restartPolicy").object();
    match object.at("restartPolicy").at("policy").text() {
        "" => {
            restart_policy.insert("policy".to_owned(), "OnFailure".into());
        }
        "OnFailure" | "Always" | "Never" => {}
        _ => return Err(TranslationFault::RestartPolicy),
    }
    let template = object.at("spec").at("template");
    if !template.exists() {
        return Err(TranslationFault::NoTemplate);
    }
    let pod = template.at("spec");
    let containers: Vec<CheckedView<'_>> = pod.at("containers").elements().collect();
    let processes: Vec<CheckedView<'_>> = pod.at("processes").elements().collect();
    match (containers.is_empty(), processes.is_empty()) {
        (true, true) => return Err(TranslationFault::NothingToRun),
        (false, false) => return Err(TranslationFault::ContainersAndProcesses),
        (true, false) | (false, true) => {}
    }

    let metadata = object.at("metadata");
    let mut kill_policy = object.at("killPolicy").object();
    kill_policy.entry("gracePeriod").or_insert_with(|| 0.into());
    let mut version = members(json!({
        "ID": metadata.at("name").text(),
        "Name": "",
        "ObjectMeta": object_metadata(kind, metadata),
        "PodObjectMeta": pod_metadata(metadata, template.at("metadata")),
        "Instances": object.at("spec").at("instance").integer(),
        "RunAs": run_as(kind, object),
        "Container": containers
            .into_iter()
            .map(|element| container(element, pod).map(Value::from))
            .collect::<Result<Vec<_>, _>>()?,
        "Process": processes.iter().map(|process| process.value()).collect::<Vec<_>>(),
        "Labels": merged_labels(kind, metadata, template.at("metadata")),
        "KillPolicy": kill_policy,
        "RestartPolicy": restart_policy,
        "Constraints": match kind {
            RequiredKind::Daemonset => Value::Null,
            _ => object.at("constraint").value(),
        },
        "Uris": [],
        "Ip": [],
        "Mode": "",
        "Kind": match kind {
            RequiredKind::Deployment if processes.is_empty() => RequiredKind::Application.as_str(),
            RequiredKind::Deployment => RequiredKind::Process.as_str(),
            kind => kind.as_str(),
        },
    }));
    // The other fields of a daemonset are copied one by one. This is not needed for the other kinds, because the
    // scheduler gets their whole object as `raw_json`.
    if kind == RequiredKind::Daemonset {
        copy_other_members(object.at("spec"), &DAEMONSET_SPEC, &mut version, &["raw_json"]);
        copy_other_members(pod, &POD_SPEC, &mut version, &["raw_json"]);
    }
    Ok(version)
}

pub(super) fn object_metadata(kind: RequiredKind, metadata: CheckedView<'_>) -> Map<String, Value> {
    let mut into = metadata.object();
    for key in ["name", "namespace"] {
        into.insert(key.to_owned(), metadata.at(key).text().into());
    }
    if let (RequiredKind::Application | RequiredKind::Process, Some(Value::Object(annotations))) =
        (kind, into.get_mut("annotations"))
    {
        join_addresses(annotations);
    }
    into
}

/// Returns the metadata of the template, with the object's name and namespace. Labels of the object are added, unless
/// the template already has a label with the same key.
fn pod_metadata(metadata: CheckedView<'_>, template: CheckedView<'_>) -> Map<String, Value> {
    let mut into = template.object();
    for key in ["name", "namespace"] {
        into.insert(key.to_owned(), metadata.at(key).text().into());
    }
    if metadata.at("labels").exists() {
        let mut labels = template.at("labels").object();
        for (key, value) in metadata.at("labels").members() {
            labels.entry(key).or_insert_with(|| value.value());
        }
        into.insert("labels".to_owned(), labels.into());
    }
    into
}

/// Returns the labels of the object and of the template. If both have the same key, the template's value is used.
fn merged_labels(kind: RequiredKind, metadata: CheckedView<'_>, template: CheckedView<'_>) -> Map<String, Value> {
    let mut into = metadata.at("labels").object();
    into.extend(template.at("labels").object());
    if matches!(kind, RequiredKind::Application | RequiredKind::Process) {
        join_addresses(&mut into);
    }
    into
}

fn join_addresses(texts: &mut Map<String, Value>) {
    for (key, value) in texts {
        if key.contains(REQUESTED_ADDRESSES)
            && let Value::String(text) = value
        {
            text.retain(|letter| letter != ' ');
        }
    }
}
