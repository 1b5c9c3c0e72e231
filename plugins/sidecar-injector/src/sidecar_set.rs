//! The injection of a SidecarSet of OpenKruise into Pods that are created.
//!
//! An injected container replaces a container of the Pod with the same name and has the variable `IS_INJECTED`, as in
//! OpenKruise. Only volumes that injected containers use are added. Containers and volumes get OpenKruise's defaults.

mod defaults;
mod pod;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::prelude::*;
use admittance_sdk::serde_json::{self, Map, Value};

use pod::{NamedElement, PodContainer, TargetPod, TargetPodMetadata, text_value};
use settings::{ContainerName, ContainerOrder, ContainerReader, Sidecar, named_elements};
pub use settings::{PatchPolicy, PodMetadata, SidecarSet};

/// The annotation that lists the SidecarSets that were injected into a Pod.
const INJECTED_LIST_ANNOTATION: &str = "kruise.io/sidecarset-injected-list";

/// A SidecarSet that is ready to be injected into Pods.
#[derive(Debug)]
pub struct Injection {
    name: String,
    containers: Vec<Sidecar>,
    init_containers: Vec<Sidecar>,
    /// The volumes that the SidecarSet's containers use, by name, in the order in which they are added.
    volumes: Vec<(String, Value)>,
    image_pull_secrets: Vec<(String, Value)>,
    metadata: Vec<PodMetadata>,
}

impl Injection {
    pub(crate) fn new(set: SidecarSet) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if set.containers.is_empty() && set.init_containers.is_empty() {
            let message = "the SidecarSet has no containers; give `containers` or `initContainers`";
            errors.push(pointer!["sidecarSet"], message);
        }
        let image_pull_secrets = named_elements("imagePullSecrets", set.image_pull_secrets, &mut errors);
        let mut volumes = set.volumes;
        volumes.iter_mut().for_each(defaults::set_volume_defaults);
        let mut reader = ContainerReader::new(named_elements("volumes", volumes, &mut errors), &mut errors);
        let mut init_containers = reader.read_sidecars("initContainers", set.init_containers, ContainerOrder::After);
        let containers = reader.read_sidecars("containers", set.containers, ContainerOrder::Before);
        let volumes = reader.used_volumes();
        errors.check()?;
        init_containers.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self {
            name: set.name,
            containers,
            init_containers,
            volumes,
            image_pull_secrets,
            metadata: set.patch_pod_metadata,
        })
    }

    pub(crate) fn admit(&self, request: &Request) -> Result<Response, Error> {
        let is_pod = request.resource().group.is_empty() && request.resource().resource == "pods";
        if !is_pod || request.operation() != Operation::Create || request.subresource().is_some() {
            return Ok(Response::allow());
        }
        let Some(TargetPod {
            metadata,
            spec: Some(spec),
        }) = request.object()?
        else {
            return Ok(Response::allow());
        };
        let has_metadata = metadata.is_some();
        let metadata = metadata.unwrap_or_default();
        let mut patch = Patch::new();
        let containers = spec.containers.as_deref();
        let injected = |sidecars: &[Sidecar]| -> Result<Vec<Value>, Error> {
            let pod_containers = containers.unwrap_or_default();
            sidecars
                .iter()
                .map(|sidecar| sidecar.container_for_pod(pod_containers, &metadata))
                .collect()
        };
        merge_containers(
            "initContainers",
            (&self.init_containers, injected(&self.init_containers)?),
            spec.init_containers.as_deref(),
            true,
            &mut patch,
        )?;
        merge_containers(
            "containers",
            (&self.containers, injected(&self.containers)?),
            containers,
            false,
            &mut patch,
        )?;
        append_missing_elements("volumes", &self.volumes, spec.volumes.as_deref(), &mut patch)?;
        let secrets = spec.image_pull_secrets.as_deref();
        append_missing_elements("imagePullSecrets", &self.image_pull_secrets, secrets, &mut patch)?;
        patch.ensure_object(pointer!["metadata"], has_metadata);
        patch.ensure_object(pointer!["metadata", "annotations"], metadata.annotations.is_some());
        for (key, value) in self.new_annotations(&metadata)? {
            patch.add(pointer!["metadata", "annotations", key], &value)?;
        }
        Ok(Response::patch(patch))
    }

    fn new_annotations(&self, metadata: &TargetPodMetadata<'_>) -> Result<BTreeMap<String, String>, Error> {
        let mut added_annotations = BTreeMap::new();
        for PodMetadata {
            annotations,
            patch_policy,
        } in &self.metadata
        {
            for (key, value) in annotations {
                let added_here = added_annotations.get(key).map(String::as_str);
                let present = added_here.or_else(|| text_value(metadata.annotations.as_ref(), key));
                let value = match (patch_policy, present) {
                    (PatchPolicy::Retain, Some(_)) => continue,
                    (PatchPolicy::MergePatchJson, Some(present)) if !present.is_empty() => {
                        merge_json(present, value)
                            .map_err(|error| Error::other(format!("the annotation {key} cannot be changed: {error}")))?
                    }
                    _ => value.clone(),
                };
                added_annotations.insert(key.clone(), value);
            }
        }
        let list = text_value(metadata.annotations.as_ref(), INJECTED_LIST_ANNOTATION).unwrap_or_default();
        let listed_names: BTreeSet<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
        let names: BTreeSet<&str> = listed_names.into_iter().chain([self.name.as_str()]).collect();
        added_annotations.insert(
            INJECTED_LIST_ANNOTATION.to_owned(),
            names.into_iter().collect::<Vec<_>>().join(","),
        );
        Ok(added_annotations)
    }
}

impl Sidecar {
    fn container_for_pod(
        &self,
        pod_containers: &[PodContainer<'_>],
        metadata: &TargetPodMetadata<'_>,
    ) -> Result<Value, Error> {
        let mut container = self.container.clone();
        let mut env = self.transferred_variables(pod_containers, metadata)?;
        if self.shares_volumes {
            let mut mounts = Vec::new();
            for pod_container in pod_containers {
                pod_container.share_mounts(&mut mounts, &mut env)?;
            }
            extend_list(&mut container, "volumeMounts", "mountPath", mounts);
        }
        if self.shares_devices {
            let mut devices = Vec::new();
            for own_container in pod_containers {
                own_container.share_devices(&mut devices)?;
            }
            extend_list(&mut container, "volumeDevices", "devicePath", devices);
        }
        extend_list(&mut container, "env", "name", env);
        Ok(Value::Object(container))
    }

    fn transferred_variables(
        &self,
        pod_containers: &[PodContainer<'_>],
        metadata: &TargetPodMetadata<'_>,
    ) -> Result<Vec<Value>, Error> {
        let mut env = Vec::new();
        for transfer in &self.transfers {
            let source = match &transfer.source {
                ContainerName::Is(name) => Some(name.as_str()),
                ContainerName::OfLabel(key) => text_value(metadata.labels.as_ref(), key),
                ContainerName::OfAnnotation(key) => text_value(metadata.annotations.as_ref(), key),
            };
            let Some(source) = pod_containers
                .iter()
                .find(|pod_container| Some(pod_container.name.as_str()) == source)
            else {
                continue;
            };
            for name in &transfer.names {
                env.extend(source.find_variable(name)?);
            }
        }
        Ok(env)
    }
}

/// Appends elements to a list of the container, unless the list has an element with the same key.
fn extend_list(container: &mut Map<String, Value>, list: &str, key: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    let mut elements = match container.remove(list) {
        Some(Value::Array(elements)) => elements,
        _ => Vec::new(),
    };
    for element in more {
        if !elements.iter().any(|existing| existing.get(key) == element.get(key)) {
            elements.push(element);
        }
    }
    container.insert(list.to_owned(), Value::Array(elements));
}

fn merge_json(present: &str, change: &str) -> Result<String, serde_json::Error> {
    let mut value = serde_json::from_str(present)?;
    merge_patch(&mut value, serde_json::from_str(change)?);
    serde_json::to_string(&value)
}

/// Applies a JSON Merge Patch (RFC 7396).
fn merge_patch(value: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *value = change;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else { return };
    for (key, change) in change {
        match change {
            Value::Null => drop(fields.remove(&key)),
            change => merge_patch(fields.entry(key).or_insert(Value::Null), change),
        }
    }
}

/// Puts containers into a list of the Pod. A container replaces the one with the same name, if there is one. Otherwise,
/// it is put in front of the other containers or behind them.
fn merge_containers(
    list_field: &str,
    (sidecars, injected): (&[Sidecar], Vec<Value>),
    present: Option<&[PodContainer<'_>]>,
    is_sorted_by_name: bool,
    patch: &mut Patch,
) -> Result<(), Error> {
    if sidecars.is_empty() {
        return Ok(());
    }
    let path = pointer!["spec", list_field];
    patch.ensure_array(&path, present.is_some());
    let present = present.unwrap_or_default();
    let mut names: Vec<&str> = present.iter().map(|container| container.name.as_str()).collect();
    // The index of the first container that was appended by another SidecarSet. Such containers are at the end of the
    // list. If there are none, this is the length of the list.
    let mut appended = present.len();
    while let Some(last) = appended.checked_sub(1).and_then(|last| present.get(last))
        && last.is_injected()?
    {
        appended -= 1;
    }
    let mut before = 0;
    for (sidecar, container) in sidecars.iter().zip(&injected) {
        if let Some(index) = names.iter().position(|name| *name == sidecar.name) {
            patch.replace(pointer![path; index], container)?;
            continue;
        }
        let index = match sidecar.order {
            ContainerOrder::Before => {
                (before, appended) = (before + 1, appended + 1);
                before - 1
            }
            ContainerOrder::After => {
                let mut other_names = names.iter().skip(appended);
                let later = other_names.position(|name| is_sorted_by_name && *name > sidecar.name.as_str());
                later.map_or(names.len(), |later| appended + later)
            }
        };
        names.insert(index, &sidecar.name);
        patch.add(pointer![path; index], container)?;
    }
    Ok(())
}

fn append_missing_elements(
    list_field: &str,
    elements: &[(String, Value)],
    present: Option<&[NamedElement<'_>]>,
    patch: &mut Patch,
) -> Result<(), Error> {
    let is_present = |name: &str| {
        present
            .unwrap_or_default()
            .iter()
            .any(|existing| &*existing.name == name)
    };
    let path = pointer!["spec", list_field];
    for (_, element) in elements.iter().filter(|(name, _)| !is_present(name)) {
        patch.ensure_array(&path, present.is_some());
        patch.add(pointer![path; "-"], element)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
