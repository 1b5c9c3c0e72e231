//! Reads the fields `plugin` and `candidate` of a stage.

use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{Digest, Grants, InvalidReference, ModuleReference};
use serde_json::Value as Json;

use super::{CandidateDefinition, PluginDefinition, read_allow};
use crate::{
    HookDefinition, InvalidShare, Share, WebhookDefinition,
    document::{Fields, Node, quoted, readers},
    forms::native,
    rollout,
};

/// The range of a plugin's memory limit. The maximum is the whole 32-bit address space.
const MEMORY_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 32;

/// The range of the interval at which a module reference is resolved again. Shorter ones would overload registries.
const REFRESH_RANGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) fn read(node: &Node<'_>) -> Option<PluginDefinition> {
    let mut fields = node.object()?;
    let plugin_fields = PluginFields::read(&mut fields);
    plugin_fields.without_defaults()
}

pub(crate) fn read_member(node: &Node<'_>) -> Option<(PluginDefinition, Option<Duration>)> {
    let mut fields = node.object()?;
    let plugin_fields = PluginFields::read(&mut fields);
    let timeout = fields.get_optional("timeout", native::read_timeout);
    Some((plugin_fields.without_defaults()?, timeout))
}

/// Reads the field `clientConfig` or the field `plugin` of a hook, which must have exactly one of them. `noun` is the
/// word for the hook in messages, for example `webhook`.
pub(crate) fn read_client_or_plugin<'a>(
    fields: &mut Fields<'a>,
    noun: &str,
    read_client: impl Fn(&Node<'a>) -> Option<WebhookDefinition>,
) -> Option<HookDefinition> {
    match (fields.optional("clientConfig"), fields.optional("plugin")) {
        (Some(node), None) => read_client(&node).map(HookDefinition::from),
        (None, Some(node)) => read(&node).map(HookDefinition::from),
        (None, None) => {
            let fix = format!("write where the {noun} is, or `plugin` in its place");
            fields.required("clientConfig", &fix);
            None
        }
        (Some(client), Some(plugin)) => {
            // A `clientConfig` and a `plugin` exclude each other. Both are read anyway, to report the mistakes in each.
            read_client(&client);
            read(&plugin);
            let fix = format!("keep one of them, or make two {noun}s");
            fields
                .node()
                .reject(format!("the {noun} has a clientConfig and a plugin"), fix)
        }
    }
}

pub(crate) fn read_candidate(fields: &mut Fields<'_>, hook: Option<&HookDefinition>) -> Option<CandidateDefinition> {
    let node = fields.optional("candidate")?;
    if fields.has("plugin") {
        let stage = fields.node().clone();
        let mut fields = node.object()?;
        let plugin_fields = PluginFields::read(&mut fields);
        let share = fields.get("share", Share::default(), read_share);
        let rollout = fields
            .optional("rollout")
            .and_then(|rollout| rollout::read(&rollout, &stage));
        let plugin = PluginDefinition {
            source: plugin_fields.source.clone()?,
            ..plugin_fields.with_defaults(hook?.get()?)
        };
        return Some(CandidateDefinition { plugin, share, rollout });
    }
    let message = "a candidate is compared with a plugin, and the stage has none";
    node.reject(message, "remove it, or write `plugin` beside it")
}

struct PluginFields {
    source: Option<ModuleReference>,
    digest: Option<Digest>,
    settings: Option<Json>,
    allow: Option<Grants>,
    memory: Option<usize>,
    refresh: Option<Duration>,
}

impl PluginFields {
    fn read(fields: &mut Fields<'_>) -> Self {
        let fix = "write `file:` and the path of the module";
        let source = fields.get_required("source", fix, read_source);
        let digest = fields.get_optional("digest", Node::parse);
        let settings = fields.get_optional("settings", readers::json_object);
        let allow = fields.optional("allow").map(|allow| read_allow(&allow));
        let memory = fields.get_optional("memory", readers::size(MEMORY_RANGE));
        let is_pinned = fields.has("digest");
        let refresh = fields.optional("refresh").and_then(|refresh| {
            let useless = source.as_ref().and_then(|source| useless_refresh(source, is_pinned));
            if let Some((why, fix)) = useless {
                refresh.add_mistake(why, fix);
            }
            refresh.duration(REFRESH_RANGE)
        });
        Self {
            source,
            digest,
            settings,
            allow,
            memory,
            refresh,
        }
    }

    fn without_defaults(&self) -> Option<PluginDefinition> {
        Some(self.with_defaults(&PluginDefinition::new(self.source.clone()?)))
    }

    /// Returns a plugin with the fields of this document and the source of `defaults`. Settings, grants and memory
    /// limit are taken from `defaults` if the document omits them.
    fn with_defaults(&self, defaults: &PluginDefinition) -> PluginDefinition {
        PluginDefinition {
            source: defaults.source.clone(),
            digest: self.digest,
            settings: self.settings.as_ref().unwrap_or(&defaults.settings).clone(),
            allow: self.allow.as_ref().unwrap_or(&defaults.allow).clone(),
            memory: self.memory.or(defaults.memory),
            refresh: self.refresh,
            read_from: match self.settings {
                Some(_) => Vec::new(),
                None => defaults.read_from.clone(),
            },
        }
    }
}

/// Returns the reason why `refresh` has no effect for this source, and a fix; `None` if it has an effect.
fn useless_refresh(source: &ModuleReference, is_pinned: bool) -> Option<(&'static str, &'static str)> {
    match source {
        ModuleReference::File(_) => Some((
            "a file is read again when it changes; only `https:` and `oci:` are refreshed",
            "remove it",
        )),
        ModuleReference::Https(_) | ModuleReference::Oci(_) if is_pinned => Some((
            "`digest` pins the module, so there is nothing to refresh",
            "remove it, or `digest`",
        )),
        ModuleReference::Oci(reference) if reference.digest().is_some() => Some((
            "`@sha256:` in the source pins the module, so there is nothing to refresh",
            "remove it, or `@sha256:` and the digits after it",
        )),
        ModuleReference::Https(_) | ModuleReference::Oci(_) => None,
    }
}

fn read_share(node: &Node<'_>) -> Option<Share> {
    // YAML reads a share without `%`, such as `10`, as a number. The message then suggests `10%`.
    if let Json::Number(number) = node.json() {
        let fix = match number.to_string().parse::<Share>() {
            Ok(share) => format!("write {share}"),
            Err(InvalidShare { fix, .. }) => format!("write {fix}"),
        };
        return node.reject(format!("{number} is not a valid share"), fix);
    }
    node.parse()
}

pub(crate) fn read_source(node: &Node<'_>) -> Option<ModuleReference> {
    match node.text()?.parse() {
        Ok(ModuleReference::File(path)) if path.is_relative() && !node.is_in_directory() => {
            let path = quoted(&path.display().to_string());
            let message = format!("the path {path} is relative, and this definition is not in a directory");
            node.reject(message, "write an absolute path, or `https:` or `oci:`")
        }
        Ok(ModuleReference::File(path)) => Some(ModuleReference::File(node.resolve_path(path))),
        Ok(reference) => Some(reference),
        Err(InvalidReference { text, problem, fix }) => {
            node.reject(format!("{text} {problem}", text = quoted(&text)), fix)
        }
    }
}
