//! Applications, processes, deployments and daemonsets in the scheduler's format.
//!
//! # Fields that the original does not know
//!
//! The original decodes a body into its own types and writes these, so every other field is lost. The
//! scheduler decodes in the same way and ignores unknown fields, so such fields can be forwarded, and
//! they are:
//!
//! - the whole object is `raw_json`, byte for byte, for applications, processes and deployments;
//! - what the scheduler has under the type that the driver has (metadata, policies, constraints, processes,
//!   config maps, secrets, health checks, the strategy) goes on whole;
//! - other fields of a container, port, parameter or volume go on in what it becomes;
//! - a daemonset has no `raw_json`: its other fields stand next to `version`, the fields of its `spec` and of its
//!   template's `spec` in the version.
//!
//! The only fields that are left out of these places are those that the scheduler has a field of its own for
//! there, in any case of letters, such as `docker` or `dataClass` in a container: it would refuse them for
//! their type, or act on them although the driver has never let clients set them. They are still in
//! `raw_json`. Of a template's `metadata`, `name` and `namespace` are replaced, as in the original.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    Fault,
    version::{object_metadata, run_as, version},
    view::{View, keep_others, members},
};
use crate::routes::{Address, Kind};

/// The keys of `BcsDaemonset`.
const DAEMONSET: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "restartPolicy",
    "killPolicy",
];
/// The optional keys of `BcsDaemonsetDef`.
const DAEMONSET_DEF: [&str; 4] = ["creationTimestamp", "labels", "annotations", "clusterName"];

/// The body sent to the scheduler for an object of this kind. `text` is the unchanged object.
pub(super) fn workload(kind: Kind, object: View<'_>, text: &RawValue) -> Result<Vec<u8>, Fault> {
    // Names are parts of the ids of taskgroups, which are split at their dots.
    if object.at("metadata").at("name").text().contains('.') {
        return Err(Fault::Name);
    }
    let sent = match kind {
        Kind::Deployment => WithOriginal {
            members: deployment(object)?,
            original: Some(text),
        },
        Kind::Daemonset => WithOriginal {
            members: daemonset(object)?,
            original: None,
        },
        kind => WithOriginal {
            members: version(kind, object)?,
            original: Some(text),
        },
    };
    serde_json::to_vec(&sent).map_err(|error| Fault::Encode(error.to_string()))
}

/// The target values of an object of this kind.
pub(super) fn address(kind: Kind, object: View<'_>) -> Address {
    Address {
        namespace: run_as(kind, object),
        name: object.at("metadata").at("name").text().to_owned(),
        instances: object.at("spec").at("instance").integer(),
    }
}

/// `DeploymentDef`. Without a template the deployment binds an existing application.
fn deployment(object: View<'_>) -> Result<Map<String, Value>, Fault> {
    let spec = object.at("spec");
    let mut into = members(json!({"metadata": object_metadata(Kind::Deployment, object.at("metadata"))}));
    if spec.at("selector").exists() {
        into.insert("selector".to_owned(), spec.at("selector").value());
    }
    let version = match spec.at("template").exists() {
        true => version(Kind::Deployment, object)?.into(),
        false => Value::Null,
    };
    into.insert("version".to_owned(), version);
    let mut strategy = spec.at("strategy").object();
    strategy.entry("type").or_insert_with(|| "".into());
    strategy.entry("rollingupdate").or_insert(Value::Null);
    into.insert("strategy".to_owned(), strategy.into());
    Ok(into)
}

/// `BcsDaemonsetDef`, in which the metadata is not an object of its own.
fn daemonset(object: View<'_>) -> Result<Map<String, Value>, Fault> {
    let mut into = object_metadata(Kind::Daemonset, object.at("metadata"));
    // Were it a field of the metadata, it would count in the version's place.
    into.retain(|key, _| !admittance_admission::same_key(key, "version"));
    into.insert("version".to_owned(), version(Kind::Daemonset, object)?.into());
    keep_others(object, &DAEMONSET, &mut into, &DAEMONSET_DEF);
    Ok(into)
}

/// An object, and `raw_json` at its end.
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
