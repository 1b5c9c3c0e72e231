//! Translates applications, processes, deployments and daemonsets to the scheduler's format.
//!
//! # Fields that bcs-mesos-driver does not have
//!
//! bcs-mesos-driver decodes a body into its own types and encodes these again, so it drops every other field. The
//! scheduler decodes in the same way and ignores unknown fields, so this program can forward them:
//!
//! - for applications, processes and deployments, `raw_json` is the whole object, byte for byte;
//! - objects that have the same type in the driver and in the scheduler (metadata, policies, constraints, processes,
//!   config maps, secrets, health checks, the strategy) are forwarded as a whole;
//! - unknown fields of a container, port, parameter or volume are copied to its translation;
//! - a daemonset has no `raw_json`: its unknown fields are copied next to `version`, and the unknown fields of its
//!   `spec` and of its template's `spec` are copied into the version.
//!
//! A field is left out where the scheduler has a field of that name, such as `dataClass` in a container: the scheduler
//! would refuse its type, or act on it although the driver lets no client set it.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    TranslationFault,
    version::{object_metadata, run_as, scheduler_version},
    view::{CheckedView, copy_other_members, members},
};
use crate::routes::{RequiredKind, TargetValues};

/// The keys of an object of BCS's type `BcsDaemonset`.
const DAEMONSET_KEYS: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "restartPolicy", "killPolicy"];
/// The optional keys of the scheduler's `BcsDaemonsetDef`.
const DAEMONSET_DEF_KEYS: [&str; 4] = ["creationTimestamp", "labels", "annotations", "clusterName"];

/// Translates the client's `object` into the body of the request to the scheduler. `text` is the JSON text of `object`.
pub(super) fn scheduler_body(
    kind: RequiredKind,
    object: CheckedView<'_>,
    text: &RawValue,
) -> Result<Vec<u8>, TranslationFault> {
    // The scheduler puts the object's name into the IDs of taskgroups, and later splits these IDs at dots. The name
    // must therefore not contain a dot.
    if object.at("metadata").at("name").text().contains('.') {
        return Err(TranslationFault::Name);
    }
    let scheduler_object = match kind {
        RequiredKind::Deployment => WithOriginal {
            members: deployment_def(object)?,
            original: Some(text),
        },
        RequiredKind::Daemonset => WithOriginal {
            members: daemonset_def(object)?,
            original: None,
        },
        kind => WithOriginal {
            members: scheduler_version(kind, object)?,
            original: Some(text),
        },
    };
    serde_json::to_vec(&scheduler_object).map_err(|error| TranslationFault::Encode(error.to_string()))
}

pub(super) fn target_values_of(kind: RequiredKind, object: CheckedView<'_>) -> TargetValues {
    TargetValues {
        namespace: run_as(kind, object),
        name: object.at("metadata").at("name").text().to_owned(),
        instances: object.at("spec").at("instance").integer(),
    }
}

/// Translates a deployment. It may have no template, and then controls an application that already exists.
fn deployment_def(object: CheckedView<'_>) -> Result<Map<String, Value>, TranslationFault> {
    let spec = object.at("spec");
    let mut into = members(json!({"metadata": object_metadata(RequiredKind::Deployment, object.at("metadata"))}));
    if spec.at("selector").exists() {
        into.insert("selector".to_owned(), spec.at("selector").value());
    }
    let version = if spec.at("template").exists() {
        scheduler_version(RequiredKind::Deployment, object)?.into()
    } else {
        Value::Null
    };
    into.insert("version".to_owned(), version);
    let mut strategy = spec.at("strategy").object();
    strategy.entry("type").or_insert_with(|| "".into());
    strategy.entry("rollingupdate").or_insert(Value::Null);
    into.insert("strategy".to_owned(), strategy.into());
    Ok(into)
}

/// Translates a daemonset to a `BcsDaemonsetDef`. The fields of the object's metadata become members of the
/// `BcsDaemonsetDef` itself.
fn daemonset_def(object: CheckedView<'_>) -> Result<Map<String, Value>, TranslationFault> {
    let mut into = object_metadata(RequiredKind::Daemonset, object.at("metadata"));
    // The key `version` of a `BcsDaemonsetDef` must contain the translated `Version`. A key of the same name in the
    // client's metadata is therefore removed.
    into.retain(|key, _| !admittance_admission::same_key(key, "version"));
    into.insert(
        "version".to_owned(),
        scheduler_version(RequiredKind::Daemonset, object)?.into(),
    );
    copy_other_members(object, &DAEMONSET_KEYS, &mut into, &DAEMONSET_DEF_KEYS);
    Ok(into)
}

/// A translated object. In JSON, it ends with one more field, `raw_json`, which contains the whole original object.
struct WithOriginal<'a> {
    members: Map<String, Value>,
    original: Option<&'a RawValue>,
}

impl Serialize for WithOriginal<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.members {
            map.serialize_entry(key, value)?;
        }
        if let Some(original) = self.original {
            map.serialize_entry("raw_json", original)?;
        }
        map.end()
    }
}
