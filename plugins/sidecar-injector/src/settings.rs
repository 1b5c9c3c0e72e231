//! What the operator writes, and what is kept of it.

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::prelude::*;
use admittance_sdk::serde_json::value::{RawValue, to_raw_value};
use admittance_sdk::serde_json::{Map, Value};

/// What is added, and to which workloads.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// Containers to add, as they stand in a pod spec. Each has a `name`, or at least an `image`
    /// where the control plane gives containers no names.
    #[serde(default)]
    pub containers: Vec<Map<String, Value>>,
    /// Init containers to add, as they stand in a pod spec.
    #[serde(default)]
    pub init_containers: Vec<Map<String, Value>>,
    /// Volumes to add, as they stand in a pod spec. Each has a `name`.
    #[serde(default)]
    pub volumes: Vec<Map<String, Value>>,
    /// Annotations to add; one that is there already keeps its value.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add; one that is there already keeps its value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Which workloads are injected.
    #[serde(default)]
    pub mode: Mode,
    /// The annotation by which a workload asks for the injection (`"true"`) or declines it
    /// (`"false"`).
    #[serde(default = "default_annotation")]
    pub annotation: String,
    /// The annotation that records which containers were added.
    #[serde(default = "default_status_annotation")]
    pub status_annotation: String,
}

/// Which workloads are injected.
#[settings]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// All but those that decline.
    #[default]
    OptOut,
    /// Those that ask for it.
    OptIn,
    /// All; nobody can decline.
    Always,
}

fn default_annotation() -> String {
    "sidecar-injector.admittance.dev/inject".to_owned()
}

fn default_status_annotation() -> String {
    "sidecar-injector.admittance.dev/status".to_owned()
}

/// One element to add to a list of the pod spec, written as JSON already.
#[derive(Debug)]
pub(crate) struct Element {
    /// Its `name`; empty only for a container without one.
    pub(crate) name: String,
    /// Its `image`; empty if it has none.
    pub(crate) image: String,
    pub(crate) json: Box<RawValue>,
}

impl Element {
    /// What the status calls it.
    pub(crate) fn identity(&self) -> &str {
        if self.name.is_empty() {
            &self.image
        } else {
            &self.name
        }
    }
}

/// Whether an element may do without a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    NameOrImage,
    Name,
}

/// The elements of one list, with every mistake noted. `taken` holds what shares its names with them.
pub(crate) fn elements(
    list: &str,
    values: Vec<Map<String, Value>>,
    naming: Naming,
    taken: &mut BTreeSet<String>,
    errors: &mut SettingsErrors,
) -> Vec<Element> {
    let mut elements = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let text = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        for key in ["name", "image"] {
            if naming == Naming::Name && key == "image" {
                continue;
            }
            if value.get(key).is_some_and(|value| !value.is_string()) {
                errors.push(pointer![list, index, key], format!("`{key}` must be a string"));
            }
        }
        let name = text("name");
        let image = if naming == Naming::NameOrImage {
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
        let element = Element { name, image, json };
        if element.identity().is_empty() {
            let wanted = match naming {
                Naming::NameOrImage => "give it a `name`, or at least an `image`",
                Naming::Name => "give it a `name`",
            };
            errors.push(
                pointer![list, index],
                format!("this cannot be told from others; {wanted}"),
            );
        } else if !taken.insert(element.identity().to_owned()) {
            errors.push(
                pointer![list, index],
                format!("\"{}\" is there twice; rename or remove one", element.identity()),
            );
        } else {
            elements.push(element);
        }
    }
    elements
}
