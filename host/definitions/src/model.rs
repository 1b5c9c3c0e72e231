use std::{collections::BTreeMap, path::Path, time::Duration};

use admittance_admission::{
    ClusterKind, FailurePolicy, LabelSelector, MatchConditions, MatchPolicy, Matcher, Mode,
    NamespaceSelector, Operation, Phase, Reinvocation, ResourcePattern, Rule, Scope, SideEffects, Stage,
};
use admittance_module::{Digest, ModuleReference};
use rustls_pki_types::CertificateDer;
use serde_json::Value as Json;
use url::Url;

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
                name,
                hook: HookDefinition::Plugin(plugin),
                candidate: None,
                rules: Vec::new(),
                namespace_selector: None,
                object_selector: LabelSelector::default(),
                match_conditions: MatchConditions::default(),
                failure_policy: FailurePolicy::default(),
                timeout: Stage::DEFAULT_TIMEOUT,
                mode: Mode::default(),
                side_effects: SideEffects::default(),
                reinvocation: Reinvocation::default(),
                location,
            }],
        }
    }
}

/// One stage of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct StageDefinition {
    /// Unique in its chain.
    pub name: String,
    /// What is called.
    pub hook: HookDefinition,
    /// A plugin that is tried beside the one that is called; only where `hook` is a plugin.
    pub candidate: Option<CandidateDefinition>,
    /// The requests of its chain that it is for: those that any of these matches; empty means all.
    pub rules: Vec<Rule>,
    /// The namespaces that it is for; none means all.
    pub namespace_selector: Option<NamespaceSelector>,
    /// The objects that it is for, by their labels; empty means all.
    pub object_selector: LabelSelector,
    /// What must be true of a request that it is for; empty means nothing.
    pub match_conditions: MatchConditions,
    /// What a failure does. Default `Fail`; `Ignore` in a BCS definition, as in the BCS driver, and in a
    /// webhook configuration of `v1beta1`.
    pub failure_policy: FailurePolicy,
    /// How long one call may take: 1 ms to 30 s. Default 1 s; 10 s in a BCS definition or webhook
    /// configuration, 30 s in one of `v1beta1`.
    pub timeout: Duration,
    /// Whether the answer counts. Default `Enforce`.
    pub mode: Mode,
    /// What a call does beside answering. Default `None`; that of a webhook in a configuration of
    /// `v1beta1` is `Unknown`.
    pub side_effects: SideEffects,
    /// Whether it is called again when the object changed after its call. Default `Never`.
    pub reinvocation: Reinvocation,
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

/// A plugin, its settings, and what it may do.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginDefinition {
    /// Where its module is. A relative path of a document was taken from the directory of the document's
    /// file.
    pub source: ModuleReference,
    /// The sha256 digest that the module must have.
    pub digest: Option<Digest>,
    /// A JSON object; default empty.
    pub settings: Json,
    /// What it is granted; default nothing.
    pub allow: AllowDefinition,
    /// Its memory limit in bytes, 1 MiB to 4 GiB; none means the sandbox's default.
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
            allow: AllowDefinition::default(),
            memory: None,
            refresh: None,
        }
    }
}

/// A plugin that is tried in the shadow of a stage's plugin: it is called, and what it says has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateDefinition {
    /// The plugin. Settings, grants and memory limit are those of the stage's plugin where the document
    /// says nothing else; digest and `refresh` are its own.
    pub plugin: PluginDefinition,
    /// The share of the stage's calls that it is called for too. Default all.
    pub share: Share,
}

/// What a plugin is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowDefinition {
    /// The kinds of the control plane that it may read.
    pub cluster: Vec<ClusterKind>,
    /// The origins that it may send requests to: https URLs of scheme, host and port alone.
    pub http: Vec<Url>,
    /// The environment values that it sees: name and value.
    pub environment: BTreeMap<String, String>,
}

/// A remote webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookDefinition {
    /// What the server is sent, and what it answers.
    pub protocol: WebhookProtocol,
    /// Where it is.
    pub target: WebhookTarget,
    /// The CAs of which one must have signed the server's certificate: at least one, each readable.
    /// Always there for a service with [`ServiceNaming::Bcs`], and in a native chain for any service;
    /// elsewhere none means the CAs of the operating system.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
}

/// What a webhook is sent, and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookProtocol {
    /// The object itself, and the whole object back.
    BcsResource,
    /// An AdmissionReview, and one back.
    AdmissionReview {
        /// The versions that it reads, the preferred one first; at least one, each once.
        versions: Vec<ReviewVersion>,
    },
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// At this URL: https, without user and fragment; without query for AdmissionReview. `http` is
    /// possible for [`WebhookProtocol::BcsResource`] alone, as in the BCS driver.
    Url(Url),
    /// At a service, over TLS.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service.
        name: String,
        /// Default 443.
        port: u16,
        /// Begins with `/`; default `/`.
        path: String,
        /// How its host name is written.
        naming: ServiceNaming,
    },
}

/// How the host name of a service is written, and so the name in its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceNaming {
    /// `{name}.{namespace}`, for [`WebhookProtocol::BcsResource`].
    Bcs,
    /// `{name}.{namespace}.svc`, for [`WebhookProtocol::AdmissionReview`].
    Kubernetes,
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
