//! The settings of the plugin, and their parsed form.

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::prelude::*;
use admittance_sdk::serde::{Deserialize, Deserializer};
use admittance_sdk::serde_json::value::{RawValue, to_raw_value};
use admittance_sdk::serde_json::{Map, Value};

use crate::sidecar_set::SidecarSet;

/// The parts to add, and the workloads to which they are added.
///
/// The file `sidecarconfig.yaml` of kube-sidecar-injector, with its `containers` and `volumes`, can be used
/// unchanged.
#[settings]
#[derive(Debug, Default, PartialEq)]
pub struct Settings {
    /// Containers to add, written as in a pod spec. Each needs a `name`, or at least an `image`
    /// if containers have no names in the control plane.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub containers: Vec<Map<String, Value>>,
    /// Init containers to add, written as in a pod spec.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub init_containers: Vec<Map<String, Value>>,
    /// Volumes to add, written as in a pod spec. Each needs a `name`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub volumes: Vec<Map<String, Value>>,
    /// Image pull secrets to add, written as in a pod spec. Each needs a `name`. Kubernetes gives a Pod the secrets of
    /// its service account only if the Pod has none of its own: if injected workloads rely on those secrets, list them
    /// too.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub image_pull_secrets: Vec<Map<String, Value>>,
    /// Annotations to add. If an annotation exists already, it keeps its value.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add. If a label exists already, it keeps its value.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations with which workloads opt in or out, and in which the injection is recorded.
    #[serde(default)]
    pub convention: Convention,
    /// The workloads that are injected. The default is `optOut`; kube-sidecar-injector had `optIn` until 2022.
    pub mode: Option<InjectionMode>,
    /// The annotation by which a workload opts in (`"true"`) or out (`"false"`).
    /// `sidecar-injector.admittance.dev/inject` by default; with the convention
    /// `kubeSidecarInjector` it is `sidecar-injector-webhook.morven.me/inject`, with `"yes"` and `"no"`.
    pub annotation: Option<String>,
    /// The annotation that records which containers were added.
    /// `sidecar-injector.admittance.dev/status` by default; with the convention `kubeSidecarInjector` it
    /// is `sidecar-injector-webhook.morven.me/status` with the value `injected`.
    pub status_annotation: Option<String>,
    /// A SidecarSet of OpenKruise, which is injected into new Pods in the same way as by OpenKruise. It cannot be
    /// combined with other settings. A SidecarSet that is stored as a definition becomes a stage with this setting.
    pub sidecar_set: Option<SidecarSet>,
}

/// The convention by which workloads opt in or out, and by which the injection is recorded.
#[settings]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Convention {
    /// The annotations named by `annotation` and `statusAnnotation`. If a workload does not have the first annotation,
    /// `sidecar-injector-webhook.morven.me/inject` is read the way kube-sidecar-injector reads it: `"yes"` opts in,
    /// except in `kube-system` and `kube-public`, and `"no"` opts out. Such a workload also gets
    /// `sidecar-injector-webhook.morven.me/status: injected`, and one that has it is not injected again, unless the
    /// mode is `always`.
    #[default]
    Both,
    /// The plugin uses only the annotations named by `annotation` and `statusAnnotation`.
    Admittance,
    /// The plugin does what kube-sidecar-injector does since 2022: it injects every workload, with some exceptions. It
    /// injects no workload in `kube-system` and `kube-public`. It injects a workload with the status `injected` only if
    /// the mode is `always`. By default, it also leaves out workloads that opt out with the annotation
    /// `sidecar-injector-webhook.morven.me/inject`; `mode` can change this.
    KubeSidecarInjector,
}

/// The workloads into which the plugin injects.
#[settings]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InjectionMode {
    /// All workloads except those that opt out.
    #[default]
    OptOut,
    /// Only workloads that opt in.
    OptIn,
    /// All workloads, without a way to opt out.
    Always,
}

/// Reads a list or map. If its YAML key has no value, it is empty.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug)]
pub(crate) struct AddedElement {
    /// The name of the element. It is empty only for a container in a control plane where containers need no names,
    /// such as BCS.
    pub(crate) name: String,
    /// The image of the element; empty if the element has no image.
    pub(crate) image: String,
    pub(crate) json: Box<RawValue>,
}

impl AddedElement {
    pub(crate) fn identity(&self) -> &str {
        if self.name.is_empty() { &self.image } else { &self.name }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    NameOrImage,
    Name,
}

/// Parses the elements of one list. `used_names` contains the names that are already used.
pub(crate) fn elements(
    list: &str,
    values: Vec<Map<String, Value>>,
    naming: NameRule,
    used_names: &mut BTreeSet<String>,
    errors: &mut SettingsErrors,
) -> Vec<AddedElement> {
    let mut elements = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        for key in ["name", "image"] {
            if naming == NameRule::Name && key == "image" {
                continue;
            }
            if value.get(key).is_some_and(|value| !value.is_string()) {
                errors.push(pointer![list, index, key], format!("`{key}` must be a string"));
            }
        }
        let name = text("name");
        let image = if naming == NameRule::NameOrImage {
            text("image")
        } else {
            String::new()
        };
        let json = match to_raw_value(&value) {
            Ok(json) => json,
            Err(error) => {
                errors.push(pointer![list, index], error.to_string());
                continue;
            }
        };
        let element = AddedElement { name, image, json };
        if element.identity().is_empty() {
            let remedy = match naming {
                NameRule::NameOrImage => "give it a `name`, or at least an `image`",
                NameRule::Name => "give it a `name`",
            };
            errors.push(
                pointer![list, index],
                format!("this element cannot be identified; {remedy}"),
            );
        } else if !used_names.insert(element.identity().to_owned()) {
            errors.push(
                pointer![list, index],
                format!("\"{}\" is a duplicate; rename or remove one", element.identity()),
            );
        } else {
            elements.push(element);
        }
    }
    elements
}
