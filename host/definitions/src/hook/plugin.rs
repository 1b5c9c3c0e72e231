//! The hook that calls a plugin, and candidates that are compared with it.

mod allow;
mod location;
mod read;

use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Digest, FailureKind, Grants, ModuleReference};
use serde_json::{Map, Value as Json, json};

use super::{HookContext, HookDefinition, HookError, HookKind, PreparedHook, group::MemberDefinition};
use crate::{
    Location, RolloutDefinition, Share, StageDefinition,
    forms::native::write::{duration, put},
};

pub(crate) use self::read::{read, read_candidate, read_in_place_of_client, read_member, read_source};
pub use self::{
    allow::{read_allow, read_http_grant},
    location::{module_location, setting_location},
};

/// The role of a plugin in its stage.
#[derive(Clone, Copy, Debug)]
pub enum PluginRole<'a> {
    /// The plugin that the stage calls.
    Plugin,
    /// The plugin that is compared with the stage's plugin.
    Candidate,
    /// A member of a group.
    Member(&'a MemberDefinition),
}

/// A plugin in its stage: its name, location, timeout and role.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginPart<'a> {
    /// The name in logs and the history: the stage's name; for a group's member, stage and member: `images/signed`.
    pub name: Arc<str>,
    /// The path of the plugin's field relative to the stage, such as `.plugin` or `.group.plugins.signed`.
    pub path: String,
    /// The location of the stage, or of the member of a group.
    pub location: &'a Location,
    /// The timeout of a call.
    pub timeout: Duration,
    /// Whether the plugin is the candidate of its stage.
    pub is_candidate: bool,
    /// Whether the plugin is a member of a group.
    pub is_member: bool,
}

impl<'a> PluginRole<'a> {
    /// Describes a plugin with this role in its stage.
    pub(crate) fn part(self, stage: &'a StageDefinition, plugin: &PluginDefinition) -> PluginPart<'a> {
        let of_stage = |path: &str| PluginPart {
            name: stage.spec.name.clone(),
            path: path.to_owned(),
            location: &stage.location,
            timeout: stage.spec.timeout,
            is_candidate: false,
            is_member: false,
        };
        match self {
            // A stage with a Rego policy has no field `plugin`.
            Self::Plugin if plugin.source.stock_name().is_some_and(|name| name == "rego") => {
                of_stage(".rego")
            }
            Self::Plugin => of_stage(".plugin"),
            Self::Candidate => PluginPart {
                is_candidate: true,
                ..of_stage(".candidate")
            },
            Self::Member(member) => PluginPart {
                name: format!("{}/{}", stage.spec.name, member.name).into(),
                location: &member.location,
                timeout: member
                    .timeout
                    .map_or(stage.spec.timeout, |own| own.min(stage.spec.timeout)),
                is_member: true,
                ..of_stage(&format!(".group.plugins.{}", member.name))
            },
        }
    }
}

/// A plugin, its settings and its grants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PluginDefinition {
    /// The reference to the module. Relative paths in a document start in the directory of its file.
    pub source: ModuleReference,
    /// The required sha256 digest of the module; `None` if any module is accepted.
    pub digest: Option<Digest>,
    /// The settings, a JSON object. Default: empty.
    pub settings: Json,
    /// The grants. Default: none.
    pub allow: Grants,
    /// The memory limit in bytes, 1 MiB to 4 GiB; `None` for the sandbox's default.
    pub memory: Option<usize>,
    /// The interval at which `source` is resolved again, 10 s to 7 days; `None` for never. Only an `https:` or `oci:`
    /// source without a digest can resolve to another module.
    pub refresh: Option<Duration>,
    /// The files that contain parts of the settings. If such a file changes, so do the settings.
    pub read_from: Vec<PathBuf>,
}

impl PluginDefinition {
    /// The failures that only plugins can have.
    pub const FAILURES: &'static [FailureKind] = &[
        FailureKind::Trap,
        FailureKind::Memory,
        FailureKind::CapabilityDenied,
    ];

    /// Creates a plugin without settings and grants.
    pub fn new(source: ModuleReference) -> Self {
        Self {
            source,
            digest: None,
            settings: Json::Object(Map::new()),
            allow: Grants::default(),
            memory: None,
            refresh: None,
            read_from: Vec::new(),
        }
    }
}

/// A plugin to compare with a stage's plugin. Both are called, but the candidate decides only requests in its rollout.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateDefinition {
    /// The candidate's plugin. If the document omits its settings, grants or memory limit, they are the same as for the
    /// stage's plugin. Other fields are not inherited.
    pub plugin: PluginDefinition,
    /// The share of the stage's calls in which the candidate is also called. Default: all.
    pub share: Share,
    /// The rollout, in which the candidate decides requests. Default: none.
    pub rollout: Option<RolloutDefinition>,
}

impl CandidateDefinition {
    /// Creates a candidate that is called in every call of the stage.
    pub fn new(plugin: PluginDefinition) -> Self {
        Self {
            plugin,
            share: Share::default(),
            rollout: None,
        }
    }
}

impl HookKind for PluginDefinition {
    fn plugins(&self) -> Vec<(PluginRole<'_>, &PluginDefinition)> {
        vec![(PluginRole::Plugin, self)]
    }

    fn plugins_mut(&mut self) -> Vec<&mut PluginDefinition> {
        vec![self]
    }

    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        now.get::<Self>()
            .is_none_or(|now| is_cut(&self.settings, &now.settings))
    }

    fn to_native(&self) -> Option<(&'static str, Json)> {
        Some(("plugin", Json::Object(self.fields())))
    }

    fn prepare(&self, given: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let mut plugins = given.plugins.into_iter();
        plugins.next().ok_or_else(|| "its plugin was not loaded".into())
    }
}

impl PluginDefinition {
    fn fields(&self) -> Map<String, Json> {
        let mut object = Map::new();
        put(&mut object, "source", self.source.portable());
        if let Some(digest) = self.digest {
            put(&mut object, "digest", digest.to_string());
        }
        if self.settings != json!({}) {
            put(&mut object, "settings", self.settings.clone());
        }
        if self.allow != Grants::default() {
            put(&mut object, "allow", allow::write_allow(&self.allow));
        }
        if let Some(memory) = self.memory {
            put(&mut object, "memory", memory);
        }
        if let Some(refresh) = self.refresh {
            put(&mut object, "refresh", duration(refresh));
        }
        object
    }
}

impl CandidateDefinition {
    pub(crate) fn to_native(&self) -> Json {
        let mut object = self.plugin.fields();
        if self.share != Share::default() {
            put(&mut object, "share", self.share.to_string());
        }
        if let Some(rollout) = &self.rollout {
            put(&mut object, "rollout", rollout.to_json());
        }
        Json::Object(object)
    }
}

/// Returns whether `now` may be the result of truncating the settings `before`.
pub(super) fn is_cut(before: &Json, now: &Json) -> bool {
    match (before, now) {
        (before, Json::Null) => !before.is_null(),
        (Json::Object(before), Json::Object(now)) => before
            .iter()
            .any(|(key, value)| now.get(key).is_none_or(|now| is_cut(value, now))),
        (Json::Array(before), Json::Array(now)) => {
            before.len() > now.len() || before.iter().zip(now).any(|(before, now)| is_cut(before, now))
        }
        (Json::String(before), Json::String(now)) => before != now && before.starts_with(now.as_str()),
        (before, _) => before.is_object() || before.is_array(),
    }
}

#[cfg(test)]
mod tests;
