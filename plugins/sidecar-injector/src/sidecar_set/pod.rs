//! The parts of a Pod that the injection of a SidecarSet reads.

use std::collections::BTreeMap;

use admittance_sdk::Text;
use admittance_sdk::prelude::*;
use admittance_sdk::serde::Deserialize;
use admittance_sdk::serde_json::value::RawValue;
use admittance_sdk::serde_json::{self, Value};

use super::settings::INJECTION_VARIABLE;

#[view]
pub(super) struct TargetPod<'a> {
    #[serde(borrow, default)]
    pub(super) metadata: Option<TargetPodMetadata<'a>>,
    #[serde(borrow, default)]
    pub(super) spec: Option<TargetPodSpec<'a>>,
}

#[view]
#[derive(Default)]
pub(super) struct TargetPodMetadata<'a> {
    #[serde(borrow, default)]
    pub(super) annotations: Option<Texts<'a>>,
    #[serde(borrow, default)]
    pub(super) labels: Option<Texts<'a>>,
}

pub(super) type Texts<'a> = BTreeMap<Text<'a>, Option<Text<'a>>>;

#[view]
pub(super) struct TargetPodSpec<'a> {
    #[serde(borrow, default)]
    pub(super) containers: Option<Vec<PodContainer<'a>>>,
    #[serde(borrow, default)]
    pub(super) init_containers: Option<Vec<PodContainer<'a>>>,
    #[serde(borrow, default)]
    pub(super) volumes: Option<Vec<NamedElement<'a>>>,
    #[serde(borrow, default)]
    pub(super) image_pull_secrets: Option<Vec<NamedElement<'a>>>,
}

#[view]
pub(super) struct PodContainer<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) env: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    pub(super) volume_mounts: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    pub(super) volume_devices: Option<Vec<&'a RawValue>>,
}

#[view]
pub(super) struct NamedElement<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

#[view]
struct EnvVariable<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    value: Option<Text<'a>>,
}

#[view]
struct Mount<'a> {
    #[serde(borrow, default)]
    sub_path_expr: Option<Text<'a>>,
}

impl PodContainer<'_> {
    /// Adds the volume mounts of this container to `mounts`, and the variables that these mounts use to `env`. If
    /// OpenKruise has injected the container, nothing is added.
    pub(super) fn share_mounts(&self, mounts: &mut Vec<Value>, env: &mut Vec<Value>) -> Result<(), Error> {
        if self.is_injected()? {
            return Ok(());
        }
        for raw in self.volume_mounts.iter().flatten() {
            let mount: Mount<'_> = parse(raw)?;
            for name in referenced_variables(mount.sub_path_expr.as_deref().unwrap_or_default()) {
                env.extend(self.find_variable(name)?);
            }
            mounts.push(parse(raw)?);
        }
        Ok(())
    }

    /// Adds the volume devices of this container to `devices`. If OpenKruise injected the container, nothing is added.
    pub(super) fn share_devices(&self, devices: &mut Vec<Value>) -> Result<(), Error> {
        if !self.is_injected()? {
            for raw in self.volume_devices.iter().flatten() {
                devices.push(parse(raw)?);
            }
        }
        Ok(())
    }

    pub(super) fn is_injected(&self) -> Result<bool, Error> {
        for raw in self.env.iter().flatten() {
            let variable: EnvVariable<'_> = parse(raw)?;
            if (variable.name.as_str(), variable.value.as_deref()) == (INJECTION_VARIABLE.0, Some(INJECTION_VARIABLE.1))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn find_variable(&self, name: &str) -> Result<Option<Value>, Error> {
        for raw in self.env.iter().flatten() {
            if parse::<EnvVariable<'_>>(raw)?.name.as_str() == name {
                return parse(raw).map(Some);
            }
        }
        Ok(None)
    }
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, Error> {
    serde_json::from_str(raw.get()).map_err(Error::other)
}

pub(super) fn text_value<'a>(texts: Option<&'a Texts<'_>>, key: &str) -> Option<&'a str> {
    let mut entries = texts?.iter().filter(|(other, _)| other.as_str() == key);
    entries.next()?.1.as_deref()
}

/// Returns the names of the environment variables to which a text refers in the form `$(NAME)`.
fn referenced_variables(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("$(").skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once(')')?;
        let is_first = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '.' | '_');
        let is_name = name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit());
        is_name.then_some(name)
    })
}
