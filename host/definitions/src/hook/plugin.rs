//! The hook that calls a plugin, and the candidates that are compared with a stage's plugin.

mod allow;
mod location;
mod read;

use std::{path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{Digest, FailureKind, Grants, ModuleReference};
use serde_json::{Map, Value as Json, json};

use super::{HookContext, HookDefinition, HookError, HookKind, PreparedHook, group::MemberDefinition};
use crate::{
    Location, RolloutDefinition, Share, StageDefinition,
    forms::native::write::{duration_text, put},
};

pub(crate) use self::read::{read, read_candidate, read_client_or_plugin, read_member, read_source};
pub use self::{
    allow::{read_allow, read_http_grant},
    location::{module_location, setting_location},
};

/// The role that a plugin has in its stage.
#[derive(Clone, Copy, Debug)]
pub enum PluginRole<'a> {
    /// The plugin that the stage calls.
    Plugin,
    /// The candidate, which is compared with the plugin that the stage calls.
    Candidate,
    /// A member of the group that the stage calls.
    Member(&'a MemberDefinition),
}

/// A plugin as a part of its stage: its name, location, timeout and role.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginPart<'a> {
    /// The plugin's name in logs and in the history: the stage's name or, in a group, `{stage}/{member}`.
    pub name: Arc<str>,
    /// The path from the stage to the field that defines the plugin, such as `.plugin` or `.group.plugins.signed`.
    pub path: String,
    /// The location of the stage that calls the plugin. If the plugin is a member of a group, this is the location of
    /// its entry in the group instead.
    pub location: &'a Location,
    /// The timeout of each call of the plugin.
    pub timeout: Duration,
    /// Whether the plugin is the candidate of its stage.
    pub is_candidate: bool,
    /// Whether the plugin is a member of a group of plugins.
    pub is_member: bool,
}

impl<'a> PluginRole<'a> {
    pub(crate) fn part(self, stage: &'a StageDefinition, plugin: &PluginDefinition) -> PluginPart<'a> {
        let stage_part = |path: &str| PluginPart {
            name: stage.spec.name.clone(),
            path: path.to_owned(),
            location: &stage.location,
            timeout: stage.spec.timeout,
            is_candidate: false,
            is_member: false,
        };
        match self {
            // The stock plugin `rego` runs Rego policies. A stage that uses it has the field `rego`, not `plugin`.
            Self::Plugin if plugin.source.stock_name().is_some_and(|name| name == "rego") => stage_part(".rego"),
            Self::Plugin => stage_part(".plugin"),
            Self::Candidate => PluginPart {
                is_candidate: true,
                ..stage_part(".candidate")
            },
            Self::Member(member) => PluginPart {
                name: format!("{}/{}", stage.spec.name, member.name).into(),
                location: &member.location,
                timeout: member.timeout.map_or(stage.spec.timeout, |member_timeout| {
                    member_timeout.min(stage.spec.timeout)
                }),
                is_member: true,
                ..stage_part(&format!(".group.plugins.{}", member.name))
            },
        }
    }
}

/// A plugin: the reference to its module, its settings and its grants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PluginDefinition {
    /// The reference to the plugin's module. A relative path starts in the directory of the document's file.
    pub source: ModuleReference,
    /// The sha256 digest that the plugin's module must have; `None` if every module is accepted.
    pub digest: Option<Digest>,
    /// The settings that the plugin gets, a JSON object. Default: empty.
    pub settings: Json,
    /// The capabilities that are granted to the plugin. Default: none.
    pub allow: Grants,
    /// The memory limit of the plugin in bytes, 1 MiB to 4 GiB; `None` for the sandbox's default.
    pub memory: Option<usize>,
    /// The interval at which `source` is resolved again, 10 s to 7 days; `None` for never. Only an `https:` or `oci:`
    /// source without a digest can resolve to a different module later.
    pub refresh: Option<Duration>,
    /// The files from which parts of the settings were read. If one of these files changes, the settings change.
    pub read_from: Vec<PathBuf>,
}

impl PluginDefinition {
    /// The failures that a plugin can have, but not a hook without plugins.
    pub const FAILURES: &'static [FailureKind] =
        &[FailureKind::Trap, FailureKind::Memory, FailureKind::CapabilityDenied];

    /// Creates a plugin with this module, without settings and grants.
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

/// A plugin that is compared with a stage's plugin. Both are called, and the stage's plugin decides the requests.
/// During a rollout, the candidate decides a share of the requests instead.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateDefinition {
    /// The candidate's plugin. A document may omit its settings, grants and memory limit: the candidate then has those
    /// of the stage's plugin. Other fields, such as `digest`, are never inherited.
    pub plugin: PluginDefinition,
    /// The share of the stage's calls in which the candidate is called in addition to the plugin. Default: all calls.
    pub share: Share,
    /// The rollout, in which the candidate decides a growing share of the requests. Default: no rollout.
    pub rollout: Option<RolloutDefinition>,
}

impl CandidateDefinition {
    /// Creates a candidate without a rollout. The candidate is called whenever the stage is called.
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
        Some(("plugin", Json::Object(self.to_object())))
    }

    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let mut plugins = context.plugins.into_iter();
        plugins.next().ok_or_else(|| "its plugin was not loaded".into())
    }
}

impl PluginDefinition {
    fn to_object(&self) -> Map<String, Json> {
        let mut object = Map::new();
        put(&mut object, "source", self.source.to_portable_text());
        if let Some(digest) = self.digest {
            put(&mut object, "digest", digest.to_string());
        }
        if self.settings != json!({}) {
            put(&mut object, "settings", self.settings.clone());
        }
        if self.allow != Grants::default() {
            put(&mut object, "allow", allow::grants_json(&self.allow));
        }
        if let Some(memory) = self.memory {
            put(&mut object, "memory", memory);
        }
        if let Some(refresh) = self.refresh {
            put(&mut object, "refresh", duration_text(refresh));
        }
        object
    }
}

impl CandidateDefinition {
    pub(crate) fn to_native(&self) -> Json {
        let mut object = self.plugin.to_object();
        if self.share != Share::default() {
            put(&mut object, "share", self.share.to_string());
        }
        if let Some(rollout) = &self.rollout {
            put(&mut object, "rollout", rollout.to_json());
        }
        Json::Object(object)
    }
}

/// Returns whether truncating the settings `before` could have resulted in `now`.
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
