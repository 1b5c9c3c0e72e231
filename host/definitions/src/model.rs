use std::{path::Path, sync::Arc};

use admittance_admission::{Grants, Matcher, ModuleReference, Operation, Phase, Rule, StageSpec};
use serde_json::Value as Json;

use crate::{
    CandidateDefinition, HookDefinition, Location, Mistake, PluginDefinition, PluginPart, PluginRole,
};

/// A chain as a document defines it, whatever the form of the document.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChainDefinition {
    /// Unique among the chains of its phase that were loaded together. A native chain, a webhook configuration and a
    /// policy of Kubernetes have their `metadata.name`, a native chain of a namespace and a BCS definition
    /// `{namespace}/{name}`, and a policy of Kubewarden the name of its webhook there.
    pub name: String,
    /// The namespace of a `NamespacedAdmissionChain`, which is for nothing else.
    pub namespace: Option<String>,
    /// When its stages are called, and whether they may change the object. Default `Mutating`.
    pub phase: Phase,
    /// The beginning of the document.
    pub source: Location,
    /// The requests that the chain is for. Those of a webhook configuration are the rules of all of its
    /// stages; there is none if it has no stage.
    pub rules: Vec<Rule>,
    /// The stages in the order in which they are called. Empty in a BCS definition or webhook configuration whose
    /// list is empty, and in a policy of Kubernetes without a binding. A webhook or policy of Kubewarden without
    /// rules is never called, and is not a stage.
    pub stages: Vec<StageDefinition>,
    /// Warnings about parts of the document that have no meaning here. The method of this name adds the warnings
    /// about rules.
    pub warnings: Vec<Mistake>,
    /// Stages that no request calls, so that their plugins are loaded only to find mistakes in them: the stage of a
    /// template of Gatekeeper without constraints.
    pub idle: Vec<StageDefinition>,
}

impl ChainDefinition {
    /// A mutating chain that a program defines.
    pub fn new(name: impl Into<String>, rules: Vec<Rule>, stages: Vec<StageDefinition>) -> Self {
        let name = name.into();
        Self {
            namespace: None,
            phase: Phase::default(),
            source: Location::of_file(format!("chain {name}")),
            name,
            rules,
            stages,
            warnings: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// A chain of this one plugin file, for every request, with these settings and grants: what `admittance
    /// run` needs. Chain and stage are named after the file.
    pub fn of_plugin(module: &Path, settings: Json, allow: Grants) -> Self {
        let name = module
            .file_stem()
            .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let location = Location::of_file(module.display().to_string());
        let plugin = PluginDefinition {
            settings,
            allow,
            ..PluginDefinition::new(ModuleReference::File(module.to_owned()))
        };
        let stage = StageDefinition {
            location: location.clone(),
            ..StageDefinition::new(name.as_str(), plugin)
        };
        Self {
            source: location,
            ..Self::new(name, vec![Rule::for_operations(Operation::ALL)], vec![stage])
        }
    }
}

/// One stage of a chain. Where a document says nothing, a stage has the defaults of [`StageSpec::new`], but for:
///
/// - the failure policy, which is `Ignore` in a BCS definition, as in the BCS driver, and in a webhook configuration of
///   `v1beta1`;
/// - the timeout, which is 10 s in a BCS definition or webhook configuration, 30 s in one of `v1beta1`;
/// - the side effects of a webhook in a configuration of `v1beta1`, which are `Unknown`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageDefinition {
    /// Everything but what is called. Its timeout is 1 ms to 30 s.
    pub spec: StageSpec,
    /// The hook that it calls.
    pub hook: HookDefinition,
    /// A plugin to compare with `hook`, which must be a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// The beginning of the stage in its document.
    pub location: Location,
}

impl StageDefinition {
    /// A stage that a program defines, with the defaults of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: impl Into<HookDefinition>) -> Self {
        let spec = StageSpec::new(name);
        Self {
            location: Location::of_file(format!("stage {}", spec.name)),
            spec,
            hook: hook.into(),
            candidate: None,
        }
    }

    /// Returns every plugin of the stage with its place: first the plugins of its hook, then the candidate.
    pub fn plugins(&self) -> impl Iterator<Item = (PluginPart<'_>, &PluginDefinition)> {
        let candidate = self.candidate.iter();
        let candidate = candidate.map(|candidate| (PluginRole::Candidate, &candidate.plugin));
        let plugins = self.hook.plugins().into_iter().chain(candidate);
        plugins.map(|(role, plugin)| (role.part(self, plugin), plugin))
    }

    /// Every plugin of it, to change them.
    pub fn plugins_mut(&mut self) -> impl Iterator<Item = &mut PluginDefinition> {
        let candidate = self.candidate.iter_mut();
        let candidate = candidate.map(|candidate| &mut candidate.plugin);
        self.hook.plugins_mut().into_iter().chain(candidate)
    }
}

/// A rule for anything but what its parts say; the readers fill it in.
pub(crate) fn any_rule() -> Rule {
    Rule {
        operations: Matcher::Any,
        ..Rule::for_operations([])
    }
}
