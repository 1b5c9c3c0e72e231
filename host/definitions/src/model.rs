use std::{path::Path, time::Duration};

use admittance_admission::{
    Digest, Grants, MatchPolicy, Matcher, ModuleReference, Operation, Phase, Protocol, ResourcePattern, Rule,
    Scope, StageSpec, WebhookTarget,
};
use rustls_pki_types::CertificateDer;
use serde_json::Value as Json;

use crate::{Location, Share};

/// A chain as a document defines it, whatever the form of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainDefinition {
    /// Unique among the chains of its phase that were loaded together. A native chain and a webhook
    /// configuration have their `metadata.name`, a BCS definition `{namespace}/{name}`.
    pub name: String,
    /// When its stages are called, and whether they may change the object. Default `Mutating`.
    pub phase: Phase,
    /// Where the document begins.
    pub source: Location,
    /// The requests that the chain is for. Those of a webhook configuration are the rules of all of its
    /// stages; there is none if it has no stage.
    pub rules: Vec<Rule>,
    /// In the order they are called. Empty only in a BCS definition or webhook configuration whose list
    /// is empty. A webhook without rules is never called, and is no stage.
    pub stages: Vec<StageDefinition>,
}

impl ChainDefinition {
    /// A chain of this one plugin file, for every request, with these settings: what `admittance run`
    /// needs. Chain and stage are named after the file.
    pub fn of_plugin(module: &Path, settings: Json) -> Self {
        let name = module
            .file_stem()
            .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let location = Location::of_file(module.display().to_string());
        let plugin = PluginDefinition {
            settings,
            ..PluginDefinition::new(ModuleReference::File(module.to_owned()))
        };
        Self {
            name: name.clone(),
            phase: Phase::Mutating,
            source: location.clone(),
            rules: vec![Rule::for_operations(Operation::ALL)],
            stages: vec![StageDefinition {
                spec: StageSpec::new(name),
                hook: HookDefinition::Plugin(plugin),
                candidate: None,
                location,
            }],
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
pub struct StageDefinition {
    /// Everything but what is called. Its timeout is 1 ms to 30 s.
    pub spec: StageSpec,
    /// The plugin or webhook.
    pub hook: HookDefinition,
    /// A plugin to compare with `hook`, which must be a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// Where the stage begins in its document.
    pub location: Location,
}

/// What a stage calls.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDefinition {
    /// A component that runs here.
    Plugin(PluginDefinition),
    /// A server elsewhere.
    Webhook(WebhookDefinition),
}

/// A plugin, its settings and its grants.
#[derive(Clone, Debug, PartialEq)]
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
        }
    }
}

/// A plugin that is compared with a stage's plugin: it is called, but its verdict has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateDefinition {
    /// The plugin. Settings, grants and memory limit are those of the stage's plugin where the document
    /// says nothing else; digest and `refresh` are its own.
    pub plugin: PluginDefinition,
    /// The share of the stage's calls that it is called for too. Default all.
    pub share: Share,
}

/// A remote webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A rule for anything but what its parts say; the readers fill it in.
pub(crate) fn any_rule() -> Rule {
    Rule {
        operations: Matcher::Any,
        api_groups: Matcher::Any,
        api_versions: Matcher::Any,
        resources: vec![ResourcePattern::everything()],
        scope: Scope::Any,
        kinds: Matcher::Any,
        match_policy: MatchPolicy::default(),
    }
}
