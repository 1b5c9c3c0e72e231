//! The kinds of hooks that a stage can have. All implement one trait, and each kind has its own module.

pub(crate) mod cel;
pub(crate) mod client;
pub(crate) mod group;
pub(crate) mod mutators;
pub(crate) mod plugin;
pub(crate) mod rego;
pub(crate) mod webhook;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use admittance_admission::{
    Authorizer, ClusterKind, ClusterReader, FailureKind, Hook, NamespaceSource, Phase, PolicyHttp, WebhookTarget,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::{
    plugin::{PluginDefinition, PluginRole},
    webhook::WebhookDefinition,
};
use crate::document::Node;

/// A kind of hook, such as a plugin or a webhook: how it is defined and prepared. Each kind has its own module. All
/// other code uses only the methods of this trait, and does not depend on the kind.
pub trait HookKind: HookValue {
    /// Returns the hook's plugins, in the order in which [`prepare`](Self::prepare) gets them. Default: none.
    fn plugins(&self) -> Vec<(PluginRole<'_>, &PluginDefinition)> {
        Vec::new()
    }

    /// Returns mutable references to the plugins that the hook calls.
    fn plugins_mut(&mut self) -> Vec<&mut PluginDefinition> {
        Vec::new()
    }

    /// Returns the server to which the hook sends the requests; `None` if it calls no server. Default: `None`.
    fn server(&self) -> Option<&WebhookTarget> {
        None
    }

    /// Returns warnings about valid settings that will probably make calls fail, each with a fix. Default: none.
    fn warnings(&self) -> Vec<(String, &'static str)> {
        Vec::new()
    }

    /// Returns the kinds of objects that the hook itself reads in the cluster. Kinds that only its plugins read are not
    /// included, because they are in the plugins' grants. [`ClusterKind::any_access_review`] is included if the hook's
    /// expressions check permissions of users. Default: none.
    fn cluster_kinds(&self) -> BTreeSet<ClusterKind> {
        BTreeSet::new()
    }

    /// Returns the match conditions that the hook adds to its stage, as pairs of name and expression. Default: none.
    fn conditions(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Returns whether this hook may refuse requests that its replacement `now` allows. The store of files asks this to
    /// recognise a file that was truncated while it was written. Therefore changes that cannot result from truncating a
    /// file, such as a different module, do not count. Default: whether the hooks differ.
    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        !self.equals(&**now)
    }

    /// Returns the field of a native stage that defines this hook, and its value; `None` if there is none.
    fn to_native(&self) -> Option<(&'static str, Json)>;

    /// Lists the properties of this hook that a native stage cannot have, one sentence each. Default: none.
    fn native_form_obstacles(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Lists the differences in behaviour between this hook and the native hook to which an import converts it, one
    /// sentence each. Default: none.
    fn native_form_differences(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns whether no property of this hook was lost when an import converted the hook to a native one. `native` is
    /// the converted hook, as it was read from the written text. Default: whether both hooks are equal.
    fn is_complete_in(&self, native: &HookDefinition) -> bool {
        self.equals(&**native)
    }

    /// Prepares the hook, so that the stage can call it.
    ///
    /// # Errors
    ///
    /// Fails if the hook cannot be prepared with `context`, for example because one of its plugins was not loaded.
    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError>;
}

/// Methods that work for a hook of any kind, such as cloning and comparing it. They are implemented once for all types
/// below, so that the kinds of hooks need not implement them.
pub trait HookValue: Any + fmt::Debug + Send + Sync {
    /// Clones the hook.
    fn clone_boxed(&self) -> Box<dyn HookKind>;
    /// Returns whether `other` is a hook of the same type with an equal value.
    fn equals(&self, other: &dyn HookKind) -> bool;
}

impl<K: HookKind + Clone + PartialEq> HookValue for K {
    fn clone_boxed(&self) -> Box<dyn HookKind> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn HookKind) -> bool {
        (other as &dyn Any).downcast_ref::<K>() == Some(self)
    }
}

/// The definition of a hook, of any kind.
#[derive(Debug)]
pub struct HookDefinition(Box<dyn HookKind>);

impl HookDefinition {
    /// Returns the hook if it is of this kind.
    pub fn get<K: HookKind>(&self) -> Option<&K> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Returns the hook mutably if it is of this kind.
    pub fn get_mut<K: HookKind>(&mut self) -> Option<&mut K> {
        (&mut *self.0 as &mut dyn Any).downcast_mut()
    }
}

impl<K: HookKind> From<K> for HookDefinition {
    fn from(hook: K) -> Self {
        Self(Box::new(hook))
    }
}

impl Deref for HookDefinition {
    type Target = dyn HookKind;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for HookDefinition {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Clone for HookDefinition {
    fn clone(&self) -> Self {
        Self(self.0.clone_boxed())
    }
}

impl PartialEq for HookDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

/// Reads a hook from its field of a native stage. The second argument is the phase of the stage's chain.
pub(crate) type ReadHook = fn(&Node<'_>, Phase) -> Option<HookDefinition>;

/// The fields by which a native stage defines its hook, each with its reader. A stage has exactly one of these fields.
pub(crate) const NATIVE_FIELDS: [(&str, ReadHook); 5] = [
    ("plugin", |node, _| Some(plugin::read(node)?.into())),
    ("webhook", |node, _| Some(webhook::read(node)?.into())),
    ("cel", |node, phase| Some(cel::read(node, phase)?.into())),
    ("rego", |node, _| Some(rego::read(node)?.into())),
    ("group", |node, _| Some(group::read(node)?.into())),
];

/// The parts of the host that a hook may use after it was prepared.
#[derive(derive_more::Debug)]
#[debug("HookContext {{ phase: {phase:?}, plugins: {plugins:?}, .. }}")]
pub struct HookContext<'a> {
    /// The phase of the chain to which the hook belongs.
    pub phase: Phase,
    /// The loaded plugins of the hook, in the order of [`HookKind::plugins`].
    pub plugins: Vec<PreparedHook>,
    /// Answers the permission checks in expressions.
    pub authorizer: &'a Arc<dyn Authorizer>,
    /// Reads objects in the cluster; `None` if the host has no access to a cluster.
    pub cluster: Option<&'a Arc<dyn ClusterReader>>,
    /// Sends the HTTP requests of Kyverno's policies; `None` if the host sends no such requests.
    pub http: Option<&'a PolicyHttp>,
    /// Returns the labels of namespaces.
    pub namespaces: &'a Arc<dyn NamespaceSource>,
    /// A function that creates a client for a webhook in a chain of the given phase. It returns the client and the URL.
    pub connect: &'a ConnectWebhook<'a>,
}

/// The type of [`HookContext::connect`].
pub type ConnectWebhook<'a> = dyn Fn(&WebhookDefinition, Phase) -> Result<(Arc<dyn Hook>, String), HookError> + 'a;

/// The reason why a hook cannot be prepared for calls.
pub type HookError = Box<dyn Error + Send + Sync>;

/// A hook that is prepared for calls, and its status.
#[derive(Clone, derive_more::Debug)]
#[debug("PreparedHook {{ status: {status:?}, .. }}")]
#[non_exhaustive]
pub struct PreparedHook {
    /// The prepared hook, which the stage calls.
    pub hook: Arc<dyn Hook>,
    /// The description of the hook for the status and the console.
    pub status: HookStatus,
    /// A text that identifies the hook in statistics, such as the URL of a webhook. If a new definition gives the hook
    /// a different identity, the statistics restart from zero. Default: empty.
    pub identity: String,
    /// The kinds of failures that calls of this hook can have. Kinds that every stage can have need not be listed here.
    /// Default: all kinds.
    pub failures: &'static [FailureKind],
    /// Whether the hook sends the requests to a server. Default: false.
    pub calls_server: bool,
}

impl PreparedHook {
    /// Creates a prepared hook with this status, and with the defaults for all other fields.
    pub fn new(hook: Arc<dyn Hook>, status: HookStatus) -> Self {
        Self {
            hook,
            status,
            identity: String::new(),
            failures: &FailureKind::ALL,
            calls_server: false,
        }
    }
}

/// The status of a stage's hook. Some kinds of hooks have additional fields: `url` (webhook), `expressions` (CEL),
/// `expression` (group), `mutators` (mutators), `source` and `reason` (unavailable plugin). The status of a plugin also
/// has the fields of `PluginStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HookStatus {
    /// The kind of hook: `plugin`, `webhook`, `cel`, `group`, `mutators`, `native` (code of the embedding program), or
    /// `unavailable` (a plugin whose module could not be fetched: each call fails as `unreachable`).
    #[serde(rename = "type")]
    pub kind: String,
    /// The hook in one line: a plugin's name, a webhook's URL, or an expression.
    #[serde(default)]
    pub summary: String,
    /// The status of each plugin of a group, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, HookStatus>,
    /// The additional fields of this kind of hook.
    #[serde(flatten)]
    pub facts: Map<String, Json>,
}

impl HookStatus {
    /// Creates the status of a hook of this kind, without additional fields.
    pub fn new(kind: &str, summary: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// Adds a field to the status.
    pub fn with_fact(mut self, name: &str, fact: impl Into<Json>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }

    /// Returns the additional field `name` of the status if it is text.
    pub fn fact_text(&self, name: &str) -> Option<&str> {
        self.facts.get(name)?.as_str()
    }

    /// Iterates over this status itself and, for a group, the status of each of its plugins.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.plugins.values())
    }
}
