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
    /// The name of the chain, which no other loaded chain of its phase has: `metadata.name` of a native chain, a
    /// webhook configuration or a policy of Kubernetes or Kyverno; `{namespace}/{name}` of a native chain with a
    /// namespace or a BCS definition; for a policy of Kubewarden, the name of its webhook in a cluster.
    pub name: String,
    /// The namespace of a `NamespacedAdmissionChain`, which sees only the requests of this namespace.
    pub namespace: Option<String>,
    /// The phase decides when the stages are called, and whether they may change the object. Default `Mutating`.
    pub phase: Phase,
    /// The beginning of the document.
    pub source: Location,
    /// The rules that a request must match. A webhook configuration has the rules of all its stages here, so none if it
    /// has no stage.
    pub rules: Vec<Rule>,
    /// The stages in the order in which they are called. A BCS definition or webhook configuration with an empty list
    /// has none, nor has a policy of Kubernetes without a binding. A webhook or policy of Kubewarden without rules is
    /// never called, so it is not a stage.
    pub stages: Vec<StageDefinition>,
    /// Warnings about parts of the document that have no effect here. [`Self::warnings`] adds the warnings about rules.
    pub warnings: Vec<Mistake>,
    /// Stages that no request calls. Their plugins are loaded only to find mistakes in them: a template of Gatekeeper
    /// without constraints has such a stage.
    pub idle: Vec<StageDefinition>,
}

impl ChainDefinition {
    /// Creates a mutating chain that is not from a document.
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

    /// Creates a chain that calls this plugin file for every request, for `admittance run`. Chain and stage are named
    /// after the file.
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

/// One stage of a chain. A field that the document omits has its default from [`StageSpec::new`], except for:
///
/// - the failure policy, which is `Ignore` in a BCS definition, as in the BCS driver, and in a webhook configuration of
///   `v1beta1`;
/// - the timeout, which is 10 s in a BCS definition or webhook configuration, 30 s in one of `v1beta1`;
/// - the side effects of a webhook in a configuration of `v1beta1`, which are `Unknown`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageDefinition {
    /// Name, selectors, timeout (1 ms to 30 s) and policies: everything but the hook.
    pub spec: StageSpec,
    /// The hook that the stage calls.
    pub hook: HookDefinition,
    /// A plugin to compare with `hook`, which must be a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// The beginning of the stage in its document.
    pub location: Location,
}

impl StageDefinition {
    /// Creates a stage that is not from a document, with the defaults of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: impl Into<HookDefinition>) -> Self {
        let spec = StageSpec::new(name);
        Self {
            location: Location::of_file(format!("stage {}", spec.name)),
            spec,
            hook: hook.into(),
            candidate: None,
        }
    }

    /// Returns every plugin of the stage and its part in it: first the plugins of the hook, then the candidate.
    pub fn plugins(&self) -> impl Iterator<Item = (PluginPart<'_>, &PluginDefinition)> {
        let candidate = self
            .candidate
            .iter()
            .map(|candidate| (PluginRole::Candidate, &candidate.plugin));
        let plugins = self.hook.plugins().into_iter().chain(candidate);
        plugins.map(|(role, plugin)| (role.part(self, plugin), plugin))
    }

    /// Returns every plugin of the stage, to change it.
    pub fn plugins_mut(&mut self) -> impl Iterator<Item = &mut PluginDefinition> {
        let candidate = self.candidate.iter_mut().map(|candidate| &mut candidate.plugin);
        self.hook.plugins_mut().into_iter().chain(candidate)
    }
}

/// Returns a rule that matches every request. Readers narrow it.
pub(crate) fn any_rule() -> Rule {
    Rule {
        operations: Matcher::Any,
        ..Rule::for_operations([])
    }
}
