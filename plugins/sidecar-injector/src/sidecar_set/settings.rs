//! The setting `sidecarSet` of the plugin, and its parsed form.

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::Pointer;
use admittance_sdk::prelude::*;
use admittance_sdk::serde::Deserialize;
use admittance_sdk::serde_json::{Map, Value, from_value, json};

use super::defaults;
use crate::settings::null_is_empty;

/// A SidecarSet: its name, and the fields of its `spec` that say what is injected.
#[settings]
#[derive(Debug, PartialEq)]
pub struct SidecarSet {
    /// The name of the SidecarSet, which is noted in an annotation of the Pod.
    pub name: String,
    /// Containers, written as in a pod spec, with the fields `podInjectPolicy`, `shareVolumePolicy`,
    /// `shareVolumeDevicePolicy`, `transferEnv` and `upgradeStrategy` of a SidecarSet. `upgradeStrategy` has no effect.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub containers: Vec<Map<String, Value>>,
    /// Init containers, written like the containers. They are injected in the order of their names.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub init_containers: Vec<Map<String, Value>>,
    /// Volumes, written as in a pod spec. A volume is added to the Pod only if an injected container uses it, in
    /// `volumeMounts` or in `volumeDevices`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub volumes: Vec<Map<String, Value>>,
    /// Image pull secrets, written as in a pod spec.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub image_pull_secrets: Vec<Map<String, Value>>,
    /// Annotations of the Pod.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub patch_pod_metadata: Vec<PodMetadata>,
}

/// Annotations, and what happens to existing ones.
#[settings]
#[derive(Debug, PartialEq)]
pub struct PodMetadata {
    /// The annotations to add.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The treatment of an existing annotation with the same key.
    #[serde(default)]
    pub patch_policy: PatchPolicy,
}

/// The treatment of an existing annotation with the same key.
#[settings]
#[serde(rename_all = "PascalCase")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PatchPolicy {
    /// If the Pod has the annotation already, the annotation keeps its value.
    #[default]
    Retain,
    /// The existing annotation is replaced.
    Overwrite,
    /// The value is a JSON Merge Patch, which is applied to the existing value.
    MergePatchJson,
}

#[derive(Debug)]
pub(super) struct Sidecar {
    pub(super) name: String,
    pub(super) order: ContainerOrder,
    pub(super) shares_volumes: bool,
    pub(super) shares_devices: bool,
    pub(super) transfers: Vec<TransferEnv>,
    /// The container as the SidecarSet defines it. When it is injected into a Pod, it is copied, and variables and
    /// mounts of the Pod's own containers are added to the copy.
    pub(super) container: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(crate = "admittance_sdk::serde")]
pub(super) enum ContainerOrder {
    #[serde(rename = "BeforeAppContainer")]
    Before,
    #[serde(rename = "AfterAppContainer")]
    After,
}

#[derive(Debug)]
pub(super) struct TransferEnv {
    pub(super) source: ContainerName,
    pub(super) names: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContainerName {
    Is(String),
    OfLabel(String),
    OfAnnotation(String),
}

#[derive(Default, Deserialize)]
#[serde(
    crate = "admittance_sdk::serde",
    rename_all = "camelCase",
    deny_unknown_fields,
    default
)]
struct WrittenTransfer {
    source_container_name: String,
    source_container_name_from: Option<NameFrom>,
    env_name: String,
    env_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(crate = "admittance_sdk::serde", rename_all = "camelCase", deny_unknown_fields)]
struct NameFrom {
    field_ref: FieldRef,
}

#[derive(Deserialize)]
#[serde(crate = "admittance_sdk::serde", rename_all = "camelCase", deny_unknown_fields)]
struct FieldRef {
    #[serde(default)]
    api_version: String,
    field_path: String,
}

#[derive(Deserialize)]
#[serde(crate = "admittance_sdk::serde", deny_unknown_fields)]
struct VolumeSharing {
    #[serde(rename = "type", default)]
    kind: ShareVolume,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(crate = "admittance_sdk::serde", rename_all = "lowercase")]
enum ShareVolume {
    Enabled,
    #[default]
    Disabled,
}

pub(super) fn named_elements(
    list: &str,
    elements: Vec<Map<String, Value>>,
    errors: &mut SettingsErrors,
) -> Vec<(String, Value)> {
    let mut elements_by_name: Vec<(String, Value)> = Vec::with_capacity(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        let name = element.get("name").and_then(Value::as_str).unwrap_or_default();
        let message = if name.is_empty() {
            "this element has no name; give it a `name`".to_owned()
        } else if elements_by_name.iter().any(|(other, _)| other == name) {
            format!("\"{name}\" is a duplicate; rename or remove one")
        } else {
            elements_by_name.push((name.to_owned(), Value::Object(element)));
            continue;
        };
        errors.push(pointer!["sidecarSet", list, index], message);
    }
    elements_by_name
}

pub(super) struct ContainerReader<'a> {
    container_names: BTreeSet<String>,
    volumes: Vec<(String, Value)>,
    used_volume_names: Vec<String>,
    errors: &'a mut SettingsErrors,
}

impl<'a> ContainerReader<'a> {
    pub(super) fn new(volumes: Vec<(String, Value)>, errors: &'a mut SettingsErrors) -> Self {
        Self {
            container_names: BTreeSet::new(),
            volumes,
            used_volume_names: Vec::new(),
            errors,
        }
    }

    pub(super) fn used_volumes(self) -> Vec<(String, Value)> {
        let Self {
            volumes,
            used_volume_names: used_names,
            ..
        } = self;
        let find = |name: &String| volumes.iter().find(|(volume, _)| volume == name).cloned();
        used_names.iter().filter_map(find).collect()
    }

    /// Parses the containers of one list. `default_order` applies to the containers without a `podInjectPolicy`.
    pub(super) fn read_sidecars(
        &mut self,
        list: &str,
        containers: Vec<Map<String, Value>>,
        default_order: ContainerOrder,
    ) -> Vec<Sidecar> {
        let mut sidecars = Vec::with_capacity(containers.len());
        for (index, container) in containers.into_iter().enumerate() {
            let at = pointer!["sidecarSet", list, index];
            sidecars.extend(self.read_sidecar(container, default_order, &at));
        }
        sidecars
    }

    fn read_sidecar(
        &mut self,
        mut container: Map<String, Value>,
        default_order: ContainerOrder,
        path: &Pointer,
    ) -> Option<Sidecar> {
        container.remove("upgradeStrategy");
        let order = take_field(&mut container, "podInjectPolicy", path, self.errors).unwrap_or(default_order);
        let mut shares = |key: &str| {
            let sharing: Option<VolumeSharing> = take_field(&mut container, key, path, self.errors);
            sharing.is_some_and(|sharing| sharing.kind == ShareVolume::Enabled)
        };
        let shares_volumes = shares("shareVolumePolicy");
        let shares_devices = shares("shareVolumeDevicePolicy");
        if container
            .remove("resourcesPolicy")
            .is_some_and(|policy| !policy.is_null())
        {
            let message = "resources that are computed from those of the Pod need OpenKruise; write `resources`";
            self.errors.push(pointer![path; "resourcesPolicy"], message);
        }
        let written_transfers: Option<Vec<WrittenTransfer>> =
            take_field(&mut container, "transferEnv", path, self.errors);
        let mut transfers = Vec::new();
        for (number, written_transfer) in written_transfers.into_iter().flatten().enumerate() {
            match parse_transfer(written_transfer) {
                Ok(transfer) => transfers.push(transfer),
                Err(message) => self.errors.push(pointer![path; "transferEnv", number], message),
            }
        }
        self.check_lists(&container, path);
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            self.errors.push(path, "the container has no name; give it a `name`");
            return None;
        }
        if !self.container_names.insert(name.to_owned()) {
            let message = format!("another container has the name \"{name}\"; rename one");
            self.errors.push(path, message);
            return None;
        }
        let name = name.to_owned();
        defaults::set_container_defaults(&mut container);
        mark_as_injected(&mut container);
        Some(Sidecar {
            name,
            order,
            shares_volumes,
            shares_devices,
            transfers,
            container,
        })
    }

    fn check_lists(&mut self, container: &Map<String, Value>, at: &Pointer) {
        for key in ["env", "volumeMounts", "volumeDevices"] {
            if !matches!(container.get(key), None | Some(Value::Null | Value::Array(_))) {
                self.errors.push(pointer![at; key], format!("`{key}` must be a list"));
            }
        }
        for key in ["volumeMounts", "volumeDevices"] {
            let uses = container.get(key).and_then(Value::as_array);
            for (index, volume) in uses.into_iter().flatten().enumerate() {
                let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
                if !self.volumes.iter().any(|(volume, _)| volume == name) {
                    let message = format!("the SidecarSet has no volume \"{name}\"; add it to `volumes`");
                    self.errors.push(pointer![at; key, index, "name"], message);
                } else if !self.used_volume_names.iter().any(|used_name| used_name == name) {
                    self.used_volume_names.push(name.to_owned());
                }
            }
        }
    }
}

/// Removes a field that containers have only in a SidecarSet, and parses its value.
fn take_field<T: for<'de> Deserialize<'de>>(
    container: &mut Map<String, Value>,
    key: &str,
    path: &Pointer,
    errors: &mut SettingsErrors,
) -> Option<T> {
    let value = container.remove(key).filter(|value| !value.is_null())?;
    match from_value(value) {
        Ok(value) => Some(value),
        Err(error) => {
            errors.push(pointer![path; key], error.to_string());
            None
        }
    }
}

/// The name and the value of an environment variable. OpenKruise sets it in each container that it injects, in order to
/// recognise these containers later.
pub(super) const INJECTION_VARIABLE: (&str, &str) = ("IS_INJECTED", "true");

fn mark_as_injected(container: &mut Map<String, Value>) {
    let (name, value) = INJECTION_VARIABLE;
    let mark = json!({"name": name, "value": value});
    match container.get_mut("env") {
        Some(Value::Array(env)) => env.push(mark),
        _ => drop(container.insert("env".to_owned(), json!([mark]))),
    }
}

fn parse_transfer(written_transfer: WrittenTransfer) -> Result<TransferEnv, String> {
    let WrittenTransfer {
        source_container_name,
        source_container_name_from,
        env_name,
        env_names,
    } = written_transfer;
    let source = match source_container_name_from {
        Some(NameFrom { field_ref }) => parse_field_path(&field_ref)?,
        None => ContainerName::Is(source_container_name),
    };
    let names = std::iter::once(env_name).filter(|name| !name.is_empty());
    Ok(TransferEnv {
        source,
        names: names.chain(env_names).collect(),
    })
}

/// Parses a field path of the form `metadata.labels['key']` or `metadata.annotations['key']`.
fn parse_field_path(reference: &FieldRef) -> Result<ContainerName, String> {
    let FieldRef {
        api_version,
        field_path,
    } = reference;
    // An empty version means v1, as in OpenKruise.
    if !matches!(api_version.as_str(), "" | "v1") {
        return Err("`fieldRef.apiVersion` must be v1".to_owned());
    }
    let key = |prefix: &str| {
        let key = field_path.strip_prefix(prefix)?.strip_prefix("['")?;
        key.strip_suffix("']").filter(|key| !key.is_empty())
    };
    let label = key("metadata.labels").map(|key| ContainerName::OfLabel(key.to_owned()));
    let annotation = || key("metadata.annotations").map(|key| ContainerName::OfAnnotation(key.to_owned()));
    label.or_else(annotation).ok_or_else(|| {
        format!(
            "the field \"{field_path}\" cannot name a container; write `metadata.labels['KEY']` or \
             `metadata.annotations['KEY']`"
        )
    })
}
