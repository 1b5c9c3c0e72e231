use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admittance_admission::{
    Authorizer, ClusterReader, Denial, Digest, Grants, Group, Hook, Matcher, ModuleReference, Mutator,
    Operation, Phase, Protocol, Rule, StageSpec, WebhookTarget,
};
use admittance_conditions::{Binding, GroupExpression, Policy, PolicyHook};
use rustls_pki_types::CertificateDer;
use serde_json::Value as Json;

use crate::{Location, Mistake, RolloutDefinition, Share};

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
    /// Where the document begins.
    pub source: Location,
    /// The requests that the chain is for. Those of a webhook configuration are the rules of all of its
    /// stages; there is none if it has no stage.
    pub rules: Vec<Rule>,
    /// In the order they are called. Empty in a BCS definition or webhook configuration whose list is empty, and in a
    /// policy of Kubernetes without a binding. A webhook or policy of Kubewarden without rules is never called, and is no
    /// stage.
    pub stages: Vec<StageDefinition>,
    /// What the document says that has no meaning here. The method of this name adds what it finds in the rules.
    pub warnings: Vec<Mistake>,
    /// Stages that nothing calls, so that their plugins are loaded only to find mistakes in them: that of a template of
    /// Gatekeeper without constraints.
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
            ..StageDefinition::new(name.as_str(), HookDefinition::Plugin(plugin))
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
    /// The plugin, webhook, expressions or group.
    pub hook: HookDefinition,
    /// A plugin to compare with `hook`, which must be a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// Where the stage begins in its document.
    pub location: Location,
}

impl StageDefinition {
    /// A stage that a program defines, with the defaults of [`StageSpec::new`].
    pub fn new(name: impl Into<Arc<str>>, hook: HookDefinition) -> Self {
        let spec = StageSpec::new(name);
        Self {
            location: Location::of_file(format!("stage {}", spec.name)),
            spec,
            hook,
            candidate: None,
        }
    }

    /// Every plugin of it.
    pub fn plugins(&self) -> impl Iterator<Item = (PluginRole<'_>, &PluginDefinition)> {
        let (plugin, members) = match &self.hook {
            HookDefinition::Plugin(plugin) => (Some((PluginRole::Plugin, plugin)), &[][..]),
            HookDefinition::Group(group) => (None, group.members.as_slice()),
            HookDefinition::Webhook(_) | HookDefinition::Cel(_) | HookDefinition::Mutators(_) => {
                (None, &[][..])
            }
        };
        let members = members
            .iter()
            .map(|member| (PluginRole::Member(member), &member.plugin));
        let candidate = self.candidate.iter();
        let candidate = candidate.map(|candidate| (PluginRole::Candidate, &candidate.plugin));
        plugin.into_iter().chain(members).chain(candidate)
    }

    pub(crate) fn plugins_mut(&mut self) -> impl Iterator<Item = &mut PluginDefinition> {
        let (plugin, members) = match &mut self.hook {
            HookDefinition::Plugin(plugin) => (Some(plugin), &mut [][..]),
            HookDefinition::Group(group) => (None, group.members.as_mut_slice()),
            HookDefinition::Webhook(_) | HookDefinition::Cel(_) | HookDefinition::Mutators(_) => {
                (None, &mut [][..])
            }
        };
        let members = members.iter_mut().map(|member| &mut member.plugin);
        let candidate = self.candidate.iter_mut();
        let candidate = candidate.map(|candidate| &mut candidate.plugin);
        plugin.into_iter().chain(members).chain(candidate)
    }
}

/// What a plugin is to its stage.
#[derive(Clone, Copy, Debug)]
pub enum PluginRole<'a> {
    /// The plugin that the stage calls.
    Plugin,
    /// The one that is compared with it.
    Candidate,
    /// One of a group.
    Member(&'a MemberDefinition),
}

/// What a stage calls.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDefinition {
    /// A component that runs here.
    Plugin(PluginDefinition),
    /// A server elsewhere.
    Webhook(WebhookDefinition),
    /// Expressions that are evaluated here.
    Cel(CelDefinition),
    /// An expression over plugins.
    Group(GroupDefinition),
    /// Mutators of Gatekeeper, in their order.
    Mutators(Arc<[Mutator]>),
}

/// Plugins that give one verdict together.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupDefinition {
    /// The plugins, each with a name of its own.
    pub members: Vec<MemberDefinition>,
    /// Whether a request is allowed. It uses every member, but in a document of Kubewarden.
    pub expression: GroupExpression,
    /// The denial of the group, without causes.
    pub denial: Denial,
    /// The field of the members in the document, for the causes of a denial.
    pub field: &'static str,
}

impl GroupDefinition {
    /// The hook that evaluates the expression over these hooks, one for each member.
    pub fn hook(&self, hooks: Vec<Arc<dyn Hook>>) -> Arc<dyn Hook> {
        let names = self.members.iter().map(|member| member.name.clone());
        let formula = self.expression.formula().clone();
        let members = names.zip(hooks).collect();
        Arc::new(Group::new(members, formula, self.denial.clone(), self.field))
    }
}

/// A plugin of a group.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberDefinition {
    /// Its name in the expression: an identifier of CEL.
    pub name: Arc<str>,
    /// The plugin.
    pub plugin: PluginDefinition,
    /// How long one call of it may take, within the timeout of the stage; `None`: that timeout.
    pub timeout: Option<Duration>,
    /// Where it begins in its document.
    pub location: Location,
}

/// Expressions in CEL.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CelDefinition {
    /// The compiled expressions.
    pub policy: Arc<Policy>,
    /// How they are applied.
    pub binding: Binding,
}

impl CelDefinition {
    /// The hook that evaluates them, with what they may ask.
    pub fn hook(
        &self,
        authorizer: Arc<dyn Authorizer>,
        cluster: Option<Arc<dyn ClusterReader>>,
    ) -> Arc<dyn Hook> {
        let policy = Arc::clone(&self.policy);
        Arc::new(PolicyHook::new(policy, self.binding.clone(), authorizer, cluster))
    }
}

/// A plugin, its settings and its grants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PluginDefinition {
    /// Where its module is. A relative path of a document was taken from the directory of the document's
    /// file.
    pub source: ModuleReference,
    /// The sha256 digest that the module must have.
    pub digest: Option<Digest>,
    /// A JSON object; default empty.
    pub settings: Json,
    /// Its grants; default: none.
    pub allow: Grants,
    /// Its memory limit in bytes, 1 MiB to 4 GiB; `None`: the sandbox's default.
    pub memory: Option<usize>,
    /// How often `source` is resolved again: 10 s to 7 days; none means never. Only where another module
    /// can come of it: `source` is https or oci, and no digest pins it.
    pub refresh: Option<Duration>,
    /// Files that the settings were read from, besides the definition: a change of one is a change of the settings.
    pub read_from: Vec<PathBuf>,
}

impl PluginDefinition {
    /// A plugin without settings and grants.
    pub fn new(source: ModuleReference) -> Self {
        Self {
            source,
            digest: None,
            settings: Json::Object(serde_json::Map::new()),
            allow: Grants::default(),
            memory: None,
            refresh: None,
            read_from: Vec::new(),
        }
    }
}

/// A plugin that is compared with a stage's plugin: it is called, but its verdict has no effect, except for the requests
/// of its roll-out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateDefinition {
    /// The plugin. Settings, grants and memory limit are those of the stage's plugin where the document
    /// says nothing else; digest and `refresh` are its own.
    pub plugin: PluginDefinition,
    /// The share of the stage's calls for which both are called. Default all.
    pub share: Share,
    /// The requests that it decides. Default none.
    pub rollout: Option<RolloutDefinition>,
}

impl CandidateDefinition {
    /// A candidate that is called whenever its stage is.
    pub fn new(plugin: PluginDefinition) -> Self {
        Self {
            plugin,
            share: Share::default(),
            rollout: None,
        }
    }
}

/// A remote webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookDefinition {
    /// The protocol of requests and replies.
    pub protocol: Protocol,
    /// Where it is.
    pub target: WebhookTarget,
    /// The CAs of which one must have signed the server's certificate: at least one, each readable.
    /// Always there for a service with [`ServiceNaming::Bcs`](admittance_admission::ServiceNaming::Bcs), and in a
    /// native chain for any service; elsewhere none means the CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
}

impl WebhookDefinition {
    /// A webhook whose certificate is verified with the CAs of the operating system.
    pub fn new(protocol: Protocol, target: WebhookTarget) -> Self {
        Self {
            protocol,
            target,
            ca_bundle: None,
        }
    }
}

/// A rule for anything but what its parts say; the readers fill it in.
pub(crate) fn any_rule() -> Rule {
    Rule {
        operations: Matcher::Any,
        ..Rule::for_operations([])
    }
}
