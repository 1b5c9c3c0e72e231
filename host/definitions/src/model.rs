use std::{path::Path, sync::Arc};

use admittance_admission::{Grants, Matcher, ModuleReference, Operation, Phase, Rule, StageSpec};
use serde_json::Value as Json;

use crate::{CandidateDefinition, HookDefinition, Location, Mistake, PluginDefinition, PluginPart, PluginRole};

/// A chain, whichever policy system its document belongs to (native, Kubernetes, Kyverno, ...).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChainDefinition {
    /// The name of the chain, which is unique in its phase. It depends on the document that defines the chain:
    ///
    /// - a native chain, a webhook configuration, or a policy of Kubernetes or Kyverno: `metadata.name`;
    /// - a native chain with a namespace, or a BCS definition: `{namespace}/{name}`;
    /// - a policy of Kubewarden: the name of the webhook that Kubewarden creates for it.
    pub name: String,
    /// The namespace of a `NamespacedAdmissionChain`, whose stages are called only for requests in this namespace.
    pub namespace: Option<String>,
    /// The phase of the chain: when its stages are called, and whether they may change the object. Default: `Mutating`.
    pub phase: Phase,
    /// The location of the document that defines the chain.
    pub location: Location,
    /// The rules of the chain, one of which a request must match. If a webhook configuration defines the chain, these
    /// are the rules of all its webhooks.
    pub rules: Vec<Rule>,
    /// The stages in the order of their calls. There is none, for example, for a Kubernetes policy without a binding.
    pub stages: Vec<StageDefinition>,
    /// Warnings that were found in reading the chain. [`Self::warnings`] adds more, for example about the rules.
    pub warnings: Vec<Mistake>,
    /// Stages of the chain that are never called. Their plugins are loaded only to find mistakes in them. A template of
    /// Gatekeeper without constraints has such a stage.
    pub idle_stages: Vec<StageDefinition>,
}

impl ChainDefinition {
    /// Creates a mutating chain that no document defines.
    pub fn new(name: impl Into<String>, rules: Vec<Rule>, stages: Vec<StageDefinition>) -> Self {
        let name = name.into();
        Self {
            namespace: None,
            phase: Phase::default(),
            location: Location::of_file(format!("chain {name}")),
            name,
            rules,
            stages,
            warnings: Vec::new(),
            idle_stages: Vec::new(),
        }
    }

    /// Creates a chain for `admittance run`, named after the plugin's file, that calls the plugin for every request.
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
            location,
            ..Self::new(name, vec![Rule::for_operations(Operation::ALL)], vec![stage])
        }
    }
}

/// A stage of a chain. Fields that a document omits have the defaults of [`StageSpec::new`], except for:
///
/// - the failure policy, which is `Ignore` in a BCS definition, as in the BCS driver, and in a webhook configuration of
///   `v1beta1`;
/// - the timeout, which is 10 s in a BCS definition or webhook configuration, 30 s in one of `v1beta1`;
/// - the side effects of a webhook in a configuration of `v1beta1`, which are `Unknown`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageDefinition {
    /// All properties of the stage except its hook: name, selectors, timeout (1 ms to 30 s) and policies.
    pub spec: StageSpec,
    /// The hook that the stage calls.
    pub hook: HookDefinition,
    /// The candidate that is compared with `hook`. If there is one, `hook` is a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// The location at which the stage begins in its document.
    pub location: Location,
}

impl StageDefinition {
    /// Creates a stage that no document defines, with the defaults of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: impl Into<HookDefinition>) -> Self {
        let spec = StageSpec::new(name);
        Self {
            location: Location::of_file(format!("stage {}", spec.name)),
            spec,
            hook: hook.into(),
            candidate: None,
        }
    }

    /// Returns every plugin of the stage with its [`PluginPart`]: first the plugins of the hook, then the candidate's.
    pub fn plugins(&self) -> impl Iterator<Item = (PluginPart<'_>, &PluginDefinition)> {
        let candidate = self
            .candidate
            .iter()
            .map(|candidate| (PluginRole::Candidate, &candidate.plugin));
        let plugins = self.hook.plugins().into_iter().chain(candidate);
        plugins.map(|(role, plugin)| (role.part(self, plugin), plugin))
    }

    /// Returns mutable references to every plugin of the stage.
    pub fn plugins_mut(&mut self) -> impl Iterator<Item = &mut PluginDefinition> {
        let candidate = self.candidate.iter_mut().map(|candidate| &mut candidate.plugin);
        self.hook.plugins_mut().into_iter().chain(candidate)
    }
}

/// Returns a rule that matches every request. Readers of rules start with it, and narrow it field by field.
pub(crate) fn any_rule() -> Rule {
    Rule {
        operations: Matcher::Any,
        ..Rule::for_operations([])
    }
}
